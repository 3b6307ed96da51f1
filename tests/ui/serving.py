"""A real server for tests: started as users start it, asked over HTTP, ended in every way."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psutil

PATIENCE = 120.0
"""Seconds; nothing here takes so long unless something is broken."""


class Served:
    """One `weftline ui`."""

    def __init__(self, *options: str, folder: str | None = None) -> None:
        env = {**os.environ, **({"TMPDIR": folder} if folder else {})}
        call = [sys.executable, "-m", "weftline", "ui", "--json", *options]
        self.process = subprocess.Popen(call, stdout=subprocess.PIPE, env=env)
        assert self.process.stdout is not None
        self.url: str = json.loads(self.process.stdout.readline())["url"]
        parts = urlsplit(self.url)
        assert parts.hostname == "127.0.0.1"
        self.port = parts.port or 0
        self.token = parse_qs(parts.query)["token"][0]
        self.origin = f"http://127.0.0.1:{self.port}"

    def raw(self, method: str, path: str, headers: dict[str, str], body: bytes | None = None) -> tuple[int, bytes, Any]:
        """One request with exactly these headers -> status, body, headers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers
        finally:
            connection.close()

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """One request of a program that knows the token -> status, JSON."""
        headers = {"Authorization": f"Bearer {self.token}"}
        data = None
        if isinstance(body, bytes):
            data = body
        elif body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        status, answer, _ = self.raw(method, path, headers, data)
        return status, json.loads(answer) if answer.startswith((b"{", b"[")) else answer

    def upload(self, data: bytes, name: str) -> int:
        """A model -> its number."""
        headers = {"Authorization": f"Bearer {self.token}", "X-File-Name": name}
        status, answer, _ = self.raw("POST", "/api/models", headers, data)
        assert status == 201, answer
        return int(json.loads(answer)["id"])

    @contextmanager
    def watching(self) -> Iterator[Iterator[tuple[str, Any]]]:
        """An open page: the events it hears, as (kind, data)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request("GET", "/api/events", headers={"Authorization": f"Bearer {self.token}"})
        answer = connection.getresponse()
        assert answer.status == 200

        def events() -> Iterator[tuple[str, Any]]:
            kind = ""
            while line := answer.readline():
                if line.startswith(b"event: "):
                    kind = line[7:].strip().decode()
                elif line.startswith(b"data: "):
                    yield kind, json.loads(line[6:])

        try:
            yield events()
        finally:
            answer.close()
            connection.close()

    def workers(self) -> list[psutil.Process]:
        """All processes that the server has started."""
        return list(psutil.Process(self.process.pid).children(recursive=True))

    def end(self, how: signal.Signals = signal.SIGINT) -> int:
        """End it -> its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@contextmanager
def served(*options: str, folder: str | None = None) -> Iterator[Served]:
    """A server that is ended at the end."""
    server = Served(*options, folder=folder)
    try:
        yield server
    except BaseException:
        server.end()
        raise
    was_alive = server.process.poll() is None
    assert server.end() == 0 or not was_alive


def until(happens: Callable[[], bool]) -> None:
    """Wait for something."""
    end = time.monotonic() + PATIENCE
    while not happens():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def plan_when(
    events: Iterator[tuple[str, Any]], number: int, is_so: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """The first news of a plan for which something holds."""
    for kind, data in events:
        if kind == "plan" and data["id"] == number and is_so(data):
            return dict(data)
    raise AssertionError("the stream has ended")
