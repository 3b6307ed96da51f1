"""Tests of connections below HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from weftline.ui import server


async def _app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


async def _ask(said: bytes) -> bytes:
    """What a connection hears until it is closed, if it says so much and no more."""
    loop = asyncio.get_running_loop()
    config = uvicorn.Config(_app, http=server.Protocol, lifespan="off", timeout_keep_alive=1, log_config=None)
    config.load()
    made = await loop.create_server(lambda: server.Protocol(config, ServerState(), {}, loop), "127.0.0.1", 0)
    async with made:
        reader, writer = await asyncio.open_connection(*made.sockets[0].getsockname())
        writer.write(said)
        heard = await asyncio.wait_for(reader.read(), 30)
        writer.close()
        return heard


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nhost: x\r\n"])
def test_silent_connections_are_closed(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that a connection which never asks a whole question loses its place."""
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.2)
    assert b"200 OK" not in asyncio.run(_ask(said))


def test_questions_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that one which asks is answered."""
    monkeypatch.setattr(server, "HEAD_SECONDS", 5.0)
    assert b"200 OK" in asyncio.run(_ask(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"))
