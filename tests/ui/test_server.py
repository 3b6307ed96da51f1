"""The server as users start it, over real HTTP: plan, compare, download; refusals; many at once; every kind of end."""

from __future__ import annotations

import io
import json
import signal
import socket
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.ui.serving import Served, plan_when, served, until

from weftline import Plan, verify
from weftline.certify import Verdict
from weftline.zoo import build

LONG = {"zoo": "bert", "size": "small", "preset": "four-unequal", "objective": "throughput", "seconds": 300}
SHORT = {"preset": "laptop", "objective": "latency", "solver": "greedy", "seconds": 5}


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served("--jobs", "1") as found:
        yield found


def is_over(plan: dict[str, Any]) -> bool:
    return plan["state"] not in ("queued", "running")


def has_plan(plan: dict[str, Any]) -> bool:
    """Some row has a value, not only a bound."""
    return any(value is not None for _, value, _ in plan["rows"])


def test_a_plan_from_upload_to_export(server: Served, tmp_path: Path) -> None:
    """Tests the whole way: upload, plan, queue, verify, compare, report, trace, export, remove."""
    number = server.upload(build("bert", size="small").SerializeToString(), "my%20model.onnx")
    with server.watching() as events:
        _, first = server.ask("POST", "/api/plans", {"model": number, **SHORT})
        _, second = server.ask("POST", "/api/plans", {"model": number, **SHORT, "solver": "heft"})
        assert plan_when(events, second["id"], lambda plan: True)["state"] == "queued"
        done = [plan_when(events, answer["id"], is_over) for answer in (first, second)]
    assert [plan["state"] for plan in done] == ["done", "done"]
    assert done[0]["model"] == "my model.onnx"
    assert done[0]["command"][:3] == ["weftline", "plan", "my model.onnx"]
    home = f"/api/plans/{first['id']}"
    _, plan = server.ask("GET", f"{home}/files/plan")
    (tmp_path / "plan.json").write_bytes(json.dumps(plan).encode())
    assert Plan.load(tmp_path / "plan.json").value_ns == done[0]["answer"]["value_ns"]
    verdict = verify(tmp_path / "plan.json")
    assert isinstance(verdict, Verdict)
    assert verdict.value_ns == done[0]["answer"]["value_ns"]

    wanted: list[tuple[str, object]] = [
        ("/api/compare", {"first": first["id"], "second": second["id"]}),
        (f"{home}/files", {"what": "report"}),
        (f"{home}/files", {"what": "trace"}),
        (f"{home}/files", {"what": "export", "target": "onnx-stages"}),
        (f"{home}/files", {"what": "export", "target": "openvino"}),
    ]
    with ThreadPoolExecutor(5) as pool:
        found, report, trace, stages, refused = pool.map(lambda asked: server.ask("POST", *asked)[1], wanted)
    assert found["same_problem"]
    assert found["value_ns"] == [plan["answer"]["value_ns"] for plan in done]
    allowed = {"Authorization": f"Bearer {server.token}"}
    _, page, headers = server.raw("GET", report["href"] + "?view", allowed)
    assert page[:15].lower() == b"<!doctype html>"
    assert "sandbox allow-scripts" in headers["content-security-policy"]
    assert "content-disposition" not in headers
    _, _, headers = server.raw("GET", report["href"], allowed)
    assert headers["content-disposition"].startswith("attachment")
    assert "traceEvents" in server.ask("GET", trace["href"])[1]
    archive = zipfile.ZipFile(io.BytesIO(server.ask("GET", stages["href"])[1]))
    assert {"manifest.json", "segment_0.onnx"} <= set(archive.namelist())
    assert "cannot be run by OpenVINO" in refused["error"]
    assert server.ask("DELETE", home)[0] == 204
    assert server.ask("GET", f"{home}/files/plan")[0] == 404


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/api/plans", {"zoo": "bert", "seconds": 1e9}, "up to 3600"),
        ("/api/plans", {"zoo": "bert", "seconds": 0.1}, "seconds"),
        ("/api/plans", {"zoo": "nothing", "seconds": 1}, "the zoo has no"),
        ("/api/plans", {"zoo": "bert", "model": 1, "seconds": 1}, "one model"),
        ("/api/plans", {"seconds": 1}, "one model"),
        ("/api/plans", {"zoo": "bert", "seconds": 1, "preset": "../laptop"}, "unknown preset"),
        ("/api/plans", {"zoo": "bert", "seconds": 1, "solver": "etc/passwd"}, "unknown solver"),
        ("/api/plans", {"zoo": "bert", "seconds": 1, "output": "/tmp/x"}, "unknown field"),
        ("/api/plans", {"zoo": "bert", "seconds": 1, "cluster": "x" * (3 << 20)}, "at most 2048 KiB"),
        ("/api/compare", [1, 2], "makes no sense"),
    ],
)
def test_questions_that_make_no_sense(server: Served, path: str, body: object, words: str) -> None:
    """Tests that they are refused with a sentence before a process is started."""
    status, answer = server.ask("POST", path, body)
    assert status == 422
    assert words in answer["error"]


def test_what_is_not_there(server: Served) -> None:
    """Tests that unknown numbers, files and assets are 404, and other bodies than JSON are refused."""
    for method, path in (
        ("GET", "/api/plans/999/files/plan"),
        ("POST", "/api/plans/999/stop"),
        ("DELETE", "/api/models/999"),
        ("GET", "/assets/..%2fapp.py"),
        ("GET", "/docs"),
        ("GET", f"/api/plans/{'9' * 100}/files/plan"),
    ):
        status, said = server.ask(method, path)
        assert status == 404, path
        assert set(said) == {"error"}, path
    assert server.ask("DELETE", "/")[0] == 405
    assert server.ask("GET", f"/api/plans/{'9' * 5000}/files/plan")[0] == 414
    assert server.ask("POST", "/api/plans", {"model": 999, "seconds": 1})[0] == 404
    assert server.ask("POST", "/api/plans", b"{}")[0] == 422


def test_refused_over_real_http(server: Served) -> None:
    """Tests that without a token, with another host, or from another origin nothing is answered."""
    allowed = {"Cookie": f"weftline-{server.port}={server.token}"}
    assert server.raw("GET", "/", {})[0] == 403
    assert server.raw("GET", "/api/choices", {"Cookie": f"weftline-{server.port}=guess"})[0] == 403
    assert server.raw("GET", "/", {**allowed, "Host": "evil.example"})[0] == 421
    assert server.raw("POST", "/api/plans", {**allowed, "Origin": "https://evil.example"}, b"{}")[0] == 403
    assert server.raw("GET", "/", allowed)[0] == 200
    addresses = {c.laddr.ip for c in psutil.Process(server.process.pid).net_connections() if c.status == "LISTEN"}
    assert addresses == {"127.0.0.1"}


def test_many_at_once_and_slow_ones(server: Served) -> None:
    """Tests that 50 parallel requests are answered while others send and read as slowly as they can."""
    with ThreadPoolExecutor(50) as pool:
        slow = [_slow_client(server) for _ in range(10)]
        found = list(pool.map(lambda i: server.ask("GET", "/api/choices" if i % 2 else "/"), range(50)))
        for client in slow:
            client.close()
    assert [status for status, _ in found] == [200] * 50


def _slow_client(server: Served) -> socket.socket:
    """Half an upload, and then nothing."""
    client = socket.create_connection(("127.0.0.1", server.port))
    head = f"POST /api/models HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.token}\r\n"
    client.sendall(f"{head}Content-Length: 1000000\r\n\r\nhalf".encode())
    return client


def test_stop_and_remove(server: Served) -> None:
    """Tests that stop keeps the best plan, and that removing a running search ends its processes."""
    with server.watching() as events:
        _, first = server.ask("POST", "/api/plans", LONG)
        plan_when(events, first["id"], has_plan)
        assert server.ask("POST", f"/api/plans/{first['id']}/stop")[0] == 204
        stopped = plan_when(events, first["id"], is_over)
        assert stopped["answer"]["stopped_by"] == "interrupted"
        _, second = server.ask("POST", "/api/plans", LONG)
        plan_when(events, second["id"], lambda plan: plan["state"] == "running")
        until(lambda: len(server.workers()) >= 2)
        assert server.ask("DELETE", f"/api/plans/{second['id']}")[0] == 204
        assert next(data for kind, data in events if kind == "gone") == second["id"]
    until(lambda: not server.workers())


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_end_of_the_server_is_the_end_of_everything(how: signal.Signals, tmp_path: Path) -> None:
    """Tests that no process outlives the server, and no file; after kill -9 the next start removes them."""
    with served(folder=str(tmp_path)) as server:
        with server.watching():
            server.ask("POST", "/api/plans", LONG)
            until(lambda: len(server.workers()) >= 2)
            workers = server.workers()
            code = server.end(how)
        assert code == (-how if how == signal.SIGKILL else 0)
        until(lambda: not any(worker.is_running() for worker in workers))
    if how == signal.SIGKILL:
        assert list(tmp_path.glob("weftline-*"))
        with served(folder=str(tmp_path)) as other:
            assert len(list(tmp_path.glob("weftline-*"))) == 1
            other.end()
    assert not list(tmp_path.glob("weftline-*"))
