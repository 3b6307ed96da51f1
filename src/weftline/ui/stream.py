"""Server-sent events: what has changed since a page last heard.

In: the jobs. Out: events `plan` (one job, with the rows that the page does not have yet), `gone` (a number) and
`models`. A page that reads slowly gets fewer and larger events: nothing is queued for it, and nobody waits for it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from weftline.errors import UsageError
from weftline.ui.jobs import Job, Jobs

__all__ = ["EventStream"]

BEAT = 10.0
"""Seconds between two signs of life; without them a dead connection is noticed late."""
PAUSE = 0.08
"""Seconds in which changes are gathered."""


class EventStream:
    """One page's view, as an ASGI response. It is counted as watching from its beginning to its end."""

    def __init__(self, jobs: Jobs, extra: Callable[[], dict[str, Any]]) -> None:
        self._jobs, self._extra = jobs, extra
        self._told: dict[int, tuple[int, int, int]] = {}
        """Job -> (version, times thinned, rows) that the page has."""
        self._extra_told = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Until the page or the server leaves."""
        changed = asyncio.Event()
        try:
            self._jobs.watch(changed.set)
        except UsageError as error:
            await PlainTextResponse(f"{error}\n", 503)(scope, receive, send)
            return
        leaving = asyncio.create_task(self._wait_for_end(receive, changed))
        try:
            headers = [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._send(send, "retry: 1000\n\n")
            while not leaving.done() and not self._jobs.closed:
                changed.clear()
                text = self.news()
                await self._send(send, text or ": here\n\n")
                await asyncio.sleep(PAUSE)
                try:
                    await asyncio.wait_for(changed.wait(), BEAT)
                except TimeoutError:
                    continue
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except OSError:
            pass  # the page has left
        finally:
            self._jobs.leave(changed.set)
            leaving.cancel()

    def news(self) -> str:
        """The events that bring the page up to date."""
        lines = []
        jobs = {job.id: job for job in self._jobs.all()}
        for number in [number for number in self._told if number not in jobs]:
            del self._told[number]
            lines.append(_event("gone", number))
        lines += [_event("plan", self._change(job)) for job in jobs.values() if self._is_new(job)]
        extra = json.dumps(self._extra())
        if extra != self._extra_told:
            self._extra_told = extra
            lines.append(f"event: state\ndata: {extra}\n\n")
        return "".join(lines)

    def _is_new(self, job: Job) -> bool:
        return self._told.get(job.id, (-1, 0, 0))[0] != job.version

    def _change(self, job: Job) -> dict[str, Any]:
        _, thinned, count = self._told.get(job.id, (0, -1, 0))
        since = count if thinned == job.thinned else 0
        self._told[job.id] = (job.version, job.thinned, len(job.rows))
        return {**job.about(), "since": since, "rows": job.rows[since:]}

    @staticmethod
    async def _wait_for_end(receive: Receive, changed: asyncio.Event) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        changed.set()

    @staticmethod
    async def _send(send: Send, text: str) -> None:
        await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


def _event(kind: str, data: object) -> str:
    return f"event: {kind}\ndata: {json.dumps(data, allow_nan=False)}\n\n"
