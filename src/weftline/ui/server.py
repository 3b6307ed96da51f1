"""The server: a socket on the loopback device, a token, a private folder, and the application behind its guard.

In: a port. Out: nothing; it serves until Ctrl-C or SIGTERM, and leaves no process and no file. After kill -9 workers
end by themselves, and the next start removes the folder.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from weftline.errors import InputError
from weftline.run.local.start import run_folder
from weftline.ui.app import State, make_app
from weftline.ui.guard import Guard
from weftline.ui.limits import Limits

__all__ = ["run_server"]

HOST = "127.0.0.1"
CONNECTIONS = 256
HEAD_SECONDS = 10.0
"""A connection that has asked nothing for so long is closed: others need its place."""
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_server(port: int, limits: Limits, on_ready: Callable[[str], None]) -> None:
    """Serve; `on_ready` hears the address with the token."""
    listening = _listen(port)
    port = listening.getsockname()[1]
    token = secrets.token_urlsafe(32)
    with run_folder() as folder, listening:
        app, state = make_app(folder, limits)
        config = uvicorn.Config(
            Guard(app, token, port),
            http=Protocol,
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=3,
        )
        Server(config, state, lambda: on_ready(f"http://{HOST}:{port}/?token={token}")).run(sockets=[listening])


class Protocol(H11Protocol):
    """Connections that stay silent are closed."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin."""
        super().connection_made(transport)
        self.loop.call_later(HEAD_SECONDS, self._close_if_silent)

    def _close_if_silent(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()


class Server(uvicorn.Server):
    """Says when it is ready, and lets pages that watch go when it ends."""

    def __init__(self, config: uvicorn.Config, state: State, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._state, self._on_ready = state, on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin."""
        await super().startup(sockets=sockets)
        if self.started:
            self._on_ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals end the server in order. Uvicorn would raise them once more afterwards, before files are removed."""
        before = {number: signal.signal(number, self.handle_exit) for number in ENDS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal: streams of events would keep the server alive."""
        super().handle_exit(sig, frame)
        self._state.jobs.end_streams()


def _listen(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise InputError(f"port {port} cannot be used: {error.strerror or error}", hint="try --port 0") from error
    return listening
