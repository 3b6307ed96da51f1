"""Requests that are made to harm, sent to a real server by somebody who has the token, or has not."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ui.serving import PATIENCE, Served, served

MOST_BODY = 2 * 2**20
UPLOAD = b"POST /api/models HTTP/1.1\nHOST\nTOKEN\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One for all."""
    folder = tmp_path_factory.mktemp("server")
    with served("--clusters", str(folder / "clusters"), folder=str(folder)) as found:
        yield found


def _status(server: Served, head: bytes, body: bytes = b"") -> int:
    """Send these bytes, `HOST` and `TOKEN` filled in -> the status of the answer."""
    own = {
        b"HOST": f"Host: 127.0.0.1:{server.port}".encode(),
        b"TOKEN": f"Authorization: Bearer {server.token}".encode(),
    }
    for word, line in own.items():
        head = head.replace(word, line)
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
        connection.sendall(head.replace(b"\n", b"\r\n") + b"\r\n\r\n" + body)
        return int(connection.recv(2**12).split(b" ", 2)[1])


@pytest.mark.parametrize(
    ("head", "body", "status"),
    [
        (b"GET / HTTP/1.1\nTOKEN", b"", 400),
        (b"GET / HTTP/1.0\nTOKEN", b"", 421),
        (b"GET / HTTP/1.1\nHOST\nHOST\nTOKEN", b"", 400),
        (b"GET / HTTP/1.1\nHost: evil.example\nTOKEN", b"", 421),
        (b"GET http://evil.example/ HTTP/1.1\nHOST\nTOKEN", b"", 404),
        (b"GET /assets/..%2f..%2fui/app.py HTTP/1.1\nHOST\nTOKEN", b"", 404),
        (b"GET /assets/../app.py HTTP/1.1\nHOST\nTOKEN", b"", 404),
        (b"GET / HTTP/1.1\nHOST\nTOKEN\nX: " + b"a" * 200_000, b"", 400),
        (UPLOAD + b"Content-Length: -5", b"", 400),
        (UPLOAD + b"Content-Length: 5\nContent-Length: 6", b"abcdef", 400),
        (UPLOAD + b"Content-Length: 5\nTransfer-Encoding: chunked", b"0\r\n\r\n", 422),
        (UPLOAD + b"Content-Type: multipart/form-data; boundary=x\nContent-Length: 1", b"a", 422),
        (UPLOAD + b"Content-Type: application/x-www-form-urlencoded\nContent-Length: 1", b"a", 422),
        (b"POST /api/models HTTP/1.1\nHOST\nOrigin: http://evil.example\nTOKEN\nContent-Length: 1", b"a", 403),
        (b"POST /api/models HTTP/1.1\nHOST\nContent-Length: 1000000000", b"", 403),
        (b"POST /api/plans HTTP/1.1\nHOST\nTOKEN\nContent-Type: text/plain\nContent-Length: 2", b"{}", 422),
        (b"POST /api/plans HTTP/1.1\nHOST\nTOKEN\nContent-Length: 2", b"{}", 422),
        (b"PUT /api/clusters/..%2f..%2fx HTTP/1.1\nHOST\nTOKEN\nContent-Length: 2", b"{}", 404),
    ],
    ids=[
        "no host", "no host in HTTP 1.0", "two hosts", "rebinding", "absolute target", "path", "path that goes up",
        "header", "negative length", "two lengths", "length and chunks", "multipart", "form", "origin", "no token",
        "plain text", "no type", "name of a cluster",
    ],
)  # fmt: skip
def test_requests_that_lie(head: bytes, body: bytes, status: int, server: Served) -> None:
    """Tests that each is refused, and that the server goes on."""
    assert _status(server, head, body) == status
    assert server.ask("GET", "/api/form")[0] == 200
    assert server.ask("GET", "/api/form")[1]["models"] == []


def test_a_body_without_an_end(server: Served) -> None:
    """Tests that a request is not collected beyond its limit, whatever it says of its length."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    connection.putrequest("POST", "/api/plans")
    for name, value in (("Authorization", f"Bearer {server.token}"), ("Content-Type", "application/json")):
        connection.putheader(name, value)
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()
    for _ in range(MOST_BODY // 2**16 + 1):
        connection.send(b"10000\r\n" + bytes(2**16) + b"\r\n")
    answer = connection.getresponse()
    assert answer.status == 422
    assert "at most 2048 KiB" in json.loads(answer.read())["error"]
    connection.close()


def test_many_uploads_at_once(server: Served) -> None:
    """Tests that uploads which come together are counted together, and that names from outside are labels alone."""
    found: list[int] = []
    headers = {"Authorization": f"Bearer {server.token}", "X-File-Name": "..%2F..%2F..%2Ftmp%2Fweftline-attack.onnx"}

    def upload() -> None:
        found.append(server.raw("POST", "/api/models", headers, bytes(100_000))[0])

    threads = [threading.Thread(target=upload) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(found) == {201: 20, 422: 20}
    models = server.ask("GET", "/api/form")[1]["models"]
    assert {model["label"] for model in models} == {"weftline-attack.onnx"}
    assert not Path("/tmp/weftline-attack.onnx").exists()
    for model in models:
        server.ask("DELETE", f"/api/models/{model['id']}")
