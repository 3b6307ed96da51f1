"""The server: a socket on the loopback device, a token, a private folder, and the application behind its guard.

In: a port. Out: nothing; it serves until Ctrl-C or SIGTERM, and leaves no process, and no file but the clusters that a
user keeps. After kill -9 workers end by themselves, and the next start removes the folder. The guard asks of every
request: is it meant for this server (Host, so that no name of somebody else's leads here), does it come from this page
(Sec-Fetch-Site, Origin), does it know the token (cookie, or a bearer header of a program), and is it HTTP. Headers that
keep a page in its place are added to every answer. Simplified: cookies know no ports, so other servers of this user on
127.0.0.1 are trusted.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from secrets import compare_digest
from types import FrameType
from urllib.parse import parse_qs

import uvicorn
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from weftline.errors import InputError
from weftline.files import run_folder
from weftline.ui.app import State, make_app
from weftline.ui.models import PageLimits

__all__ = ["PAGE_POLICY", "Guard", "run_server"]

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "content-security-policy": PAGE_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
_SAFE = ("GET", "HEAD")
LONGEST_PATH = 200
REFUSED = "Refused. Open the address that `weftline ui` has printed, with its token.\n"


class Guard:
    """Wraps an application."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app, self._cookie = app, f"weftline-{port}"
        self._digest = sha256(token.encode()).digest()
        self._hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # no web sockets here
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        headers = Headers(scope=scope)
        given = _token_in_address(scope)
        refusal = self._refuse(scope["method"] in _SAFE, headers, given)
        if refusal is None and len(scope["path"]) > LONGEST_PATH:
            refusal = PlainTextResponse("Refused: no address here is so long.\n", 414)
        if refusal is not None:
            await refusal(scope, receive, send_guarded)
            return

        async def send_cookie(message: Message) -> None:
            if message["type"] == "http.response.start" and given:
                cookie = f"{self._cookie}={self._token}; Path=/; HttpOnly; SameSite=Strict"
                MutableHeaders(scope=message).append("set-cookie", cookie)
            await send_guarded(message)

        await self._app(scope, receive, send_cookie)

    def _refuse(self, safe: bool, headers: Headers, given: str) -> Response | None:
        """Why a request is refused, or None; `given` is the token of the first visit."""
        if len(headers.getlist("host")) != 1 or headers["host"] not in self._hosts:
            return PlainTextResponse("Refused: this address is not the one of this server.\n", 421)
        site, origin = headers.get("sec-fetch-site", ""), headers.get("origin", "")
        elsewhere = site not in ("", "same-origin", "none") or origin not in ("", f"http://{headers['host']}")
        followed = self._right(given) and headers.get("sec-fetch-mode") == "navigate"  # a link in somebody's notes
        if elsewhere and not followed:
            return PlainTextResponse("Refused: another page may not ask this server.\n", 403)
        if self._right(headers.get("authorization", "").removeprefix("Bearer ")):
            return None
        if not (self._right(given) if given else any(map(self._right, self._cookies_of(headers)))):
            return PlainTextResponse(REFUSED, 403)
        if not safe and not origin and site != "same-origin":  # every browser says where a change comes from
            return PlainTextResponse("Refused: a change must say which page it comes from.\n", 403)
        return None

    def _right(self, given: str) -> bool:
        """In constant time, whatever is given."""
        return compare_digest(sha256(given.encode("utf-8", "surrogatepass")).digest(), self._digest)

    def _cookies_of(self, headers: Headers) -> list[str]:
        """Ours, among those of other servers on this machine, which may have any form."""
        parts = [part.strip() for part in headers.get("cookie", "").split(";")]
        return [part.partition("=")[2] for part in parts if part.startswith(f"{self._cookie}=")][:8]


def _token_in_address(scope: Scope) -> str:
    """Of the page itself, and nowhere else."""
    if scope["path"] != "/" or scope["method"] not in _SAFE:
        return ""
    query: bytes = scope["query_string"]
    return parse_qs(query.decode("latin-1")).get("token", [""])[0]


HOST = "127.0.0.1"
MOST_CONNECTIONS = 256
HEAD_SECONDS = 10.0
"""A connection that has asked nothing for so long is closed: others need its place."""
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_server(port: int, limits: PageLimits, on_ready: Callable[[str], None], clusters: Path) -> None:
    """Serve; `on_ready` hears the address with the token; `clusters` is where users keep theirs."""
    listening = _listen(port)
    port = listening.getsockname()[1]
    token = secrets.token_urlsafe(32)
    with run_folder() as folder, listening:
        app, state = make_app(folder, limits, clusters)
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
            limit_concurrency=MOST_CONNECTIONS,
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
