"""Who may ask: every combination of Host, origin, token and method that matters."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.responses import PlainTextResponse

from weftline.ui.server import Guard

TOKEN = "the-right-token"
HERE = "127.0.0.1:8123"
COOKIE = f"weftline-8123={TOKEN}"


def ask(
    method: str = "GET", path: str = "/", query: str = "", kind: str = "http", **headers: str
) -> tuple[int, dict[str, str], str]:
    """One request through a guard -> status, headers, body."""
    fields = {"host": HERE, **{name.replace("_", "-"): value for name, value in headers.items()}}
    scope = {
        "type": kind,
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in fields.items() if value],
    }
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(Guard(PlainTextResponse("inside"), TOKEN, 8123)(scope, receive, send))
    if kind != "http":
        return sent[0]["code"], {}, ""
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], found, sent[1]["body"].decode()


def test_token_of_the_address_becomes_a_cookie() -> None:
    """Tests that the first visit with the token gets a cookie that scripts and other sites cannot use."""
    status, headers, body = ask(query=f"token={TOKEN}")
    assert (status, body) == (200, "inside")
    assert headers["set-cookie"] == f"{COOKIE}; Path=/; HttpOnly; SameSite=Strict"


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"query": "token=wrong"},
        {"query": "token="},
        {"cookie": "weftline-8123=wrong"},
        {"cookie": "weftline-9999=" + TOKEN},
        {"cookie": "\x00;;=" + TOKEN},
        {"authorization": "Bearer wrong"},
        {"path": "/api/choices", "query": f"token={TOKEN}"},
        {"method": "POST", "query": f"token={TOKEN}"},
    ],
)
def test_refused_without_the_token(request_: dict[str, str]) -> None:
    """Tests that nothing but the right token in its right place opens the door."""
    status, headers, body = ask(**request_)
    assert status == 403
    assert body != "inside"
    assert "set-cookie" not in headers


@pytest.mark.parametrize(
    "other",
    ['prefs={"a":1}', "a=b c", "a[0]=1", "user@x=1", "flag", 'open="', "long=" + 4200 * "x", "weftline-8123=old"],
)
def test_cookies_of_other_servers(other: str) -> None:
    """Tests that whatever other servers of this machine have left in the browser locks nobody out."""
    status, _, body = ask(cookie=f"{other}; weftline-8123={TOKEN}")
    assert (status, body) == (200, "inside")


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:80", "[::1]:8123", "0.0.0.0:8123", ""])
def test_other_hosts_are_refused(host: str) -> None:
    """Tests that a name that somebody else points at this machine does not lead here, token or not."""
    assert ask(host=host, cookie=COOKIE)[0] == 421
    assert ask(host=host, authorization=f"Bearer {TOKEN}")[0] == 421


@pytest.mark.parametrize(
    "from_", [{"sec_fetch_site": "cross-site"}, {"sec_fetch_site": "same-site"}, {"origin": "https://evil.example"},
              {"origin": "null"}, {"origin": "http://127.0.0.1:9999"}, {"origin": "http://localhost:8123"}]
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
def test_other_pages_are_refused(from_: dict[str, str], method: str) -> None:
    """Tests that a page of another origin, another port of this machine too, can neither change nor read."""
    assert ask(method, "/api/plans", cookie=COOKIE, **from_)[0] == 403
    assert ask(method, "/api/plans", authorization=f"Bearer {TOKEN}", **from_)[0] == 403


def test_a_link_in_notes_may_be_followed() -> None:
    """Tests that the printed address works as a link on another page, but not as a picture or script there."""
    link = {"query": f"token={TOKEN}", "sec_fetch_site": "cross-site"}
    assert ask(**link, sec_fetch_mode="navigate")[0] == 200
    assert ask(**link, sec_fetch_mode="no-cors")[0] == 403
    assert ask(cookie=COOKIE, sec_fetch_site="cross-site", sec_fetch_mode="navigate")[0] == 403


def test_own_page_may_change() -> None:
    """Tests that changes pass from this page, and with a cookie only if they say so."""
    assert ask("POST", "/api/plans", cookie=COOKIE, origin=f"http://{HERE}")[0] == 200
    assert ask("POST", "/api/plans", cookie=COOKIE, sec_fetch_site="same-origin")[0] == 200
    assert ask("POST", "/api/plans", cookie=COOKIE)[0] == 403
    assert ask("POST", "/api/plans", authorization=f"Bearer {TOKEN}")[0] == 200
    assert ask("GET", "/api/plans", cookie=COOKIE)[0] == 200


@pytest.mark.parametrize("query", ["", f"token={TOKEN}"])
def test_every_answer_keeps_the_page_in_its_place(query: str) -> None:
    """Tests the headers of refusals and of answers."""
    headers = ask(query=query)[1]
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"


def test_web_sockets_are_closed() -> None:
    """Tests that nothing but HTTP is spoken, whoever asks."""
    assert ask(kind="websocket", cookie=COOKIE)[0] == 1008
