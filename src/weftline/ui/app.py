"""The application: addresses -> what they do.

In: requests that the guard let pass. Out: the page and its assets, JSON, files, and server-sent events: `plan` (one job
with the rows that the page does not have yet), `gone` (a number), `models`. A page that reads slowly gets fewer and
larger events: nothing is queued for it, and nobody waits for it. Errors are JSON with one sentence. The assets are our
own and the components that the page shares with the report; they are read as files, since importing the room of the
report would load the solvers. Simplified: there is one state per server, made here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from weftline.errors import InputError, LimitReached, UsageError, WeftlineError
from weftline.ui.files import Desk, file_names
from weftline.ui.jobs import Job, Jobs
from weftline.ui.models import Models, NotThere, PageLimits, stored_bytes
from weftline.ui.requests import ClusterForm, CompareRequest, FileRequest, PlanForm, plan_task, read_json
from weftline.ui.task import CheckTask, ChoicesTask, CompareTask

__all__ = ["ASSETS", "EventStream", "asset", "make_app"]

BEAT_SECONDS = 10.0
"""Seconds between two signs of life; without them a dead connection is noticed late."""
GATHER_SECONDS = 0.08
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
                await asyncio.sleep(GATHER_SECONDS)
                try:
                    await asyncio.wait_for(changed.wait(), BEAT_SECONDS)
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


_KINDS = {"html": "text/html; charset=utf-8", "js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
SHARED = ("style.css", "weft.js", "curve.js")
ASSETS = (
    "index.html",
    "page.css",
    "ask.js",
    "model.js",
    "cluster.js",
    "form.js",
    "plans.js",
    "detail.js",
    "compare.js",
    "start.js",
)


@cache
def asset(name: str) -> tuple[str, str]:
    """Text and kind; `NotThere` for anything that is not in the lists."""
    if name not in SHARED and name not in ASSETS:
        raise NotThere(name)
    room = "report" if name in SHARED else "ui"
    text = files("weftline").joinpath(room, "assets", name).read_text(encoding="utf-8")
    return text, _KINDS[name.rpartition(".")[2]]


REPORT_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "frame-ancestors 'self'; sandbox allow-scripts"
)
"""A report has a stricter policy of its own in it; here it is kept from this server: its origin is nobody's."""


class State:
    """Everything that a server knows."""

    def __init__(self, folder: Path, limits: PageLimits) -> None:
        import psutil

        most_bytes = int(psutil.virtual_memory().total * limits.memory_share)
        self.folder, self.limits = folder, limits
        self.models = Models(folder, limits)
        self.jobs = Jobs(folder, limits, most_bytes)
        self.desk = Desk(limits, most_bytes)
        self._choices: asyncio.Task[dict[str, Any]] | None = None

    async def choices(self) -> dict[str, Any]:
        """What this installation offers; asked once of a worker."""
        if self._choices is None or (self._choices.done() and self._choices.exception() is not None):
            self._choices = asyncio.create_task(self.desk.do(ChoicesTask()))
        limits = {"longest": self.limits.longest, "upload_bytes": self.limits.upload_bytes, "away": self.limits.away}
        return {**await asyncio.shield(self._choices), "limits": limits}

    @asynccontextmanager
    async def living(self, app: Starlette) -> AsyncIterator[None]:
        """From the first request to the last."""
        looking = asyncio.create_task(self.jobs.look_after())
        warming = asyncio.create_task(self.choices())
        try:
            yield
        finally:
            looking.cancel()
            warming.cancel()
            self.desk.close()
            await self.jobs.close()


def make_app(folder: Path, limits: PageLimits) -> tuple[Starlette, State]:
    """The application and its state; it writes into `folder` alone."""
    state = State(folder, limits)
    views = Views(state)
    app = Starlette(
        routes=[
            Route("/", views.page),
            Route("/assets/{name}", views.asset),
            Route("/api/choices", views.choices),
            Route("/api/events", EventStreamRoute(state), methods=["GET"]),
            Route("/api/models", views.upload, methods=["POST"]),
            Route("/api/models/{number:int}", views.remove_model, methods=["DELETE"]),
            Route("/api/cluster", views.check_cluster, methods=["POST"]),
            Route("/api/plans", views.start, methods=["POST"]),
            Route("/api/plans/{number:int}", views.remove, methods=["DELETE"]),
            Route("/api/plans/{number:int}/stop", views.stop, methods=["POST"]),
            Route("/api/plans/{number:int}/files", views.make_file, methods=["POST"]),
            Route("/api/plans/{number:int}/files/{key}", views.file),
            Route("/api/compare", views.compare, methods=["POST"]),
        ],
        exception_handlers={
            WeftlineError: _tell_error,
            NotThere: _tell_missing,
            HTTPException: _tell_status,
            OSError: _tell_trouble,
            ClientDisconnect: _tell_error,
        },
        lifespan=state.living,
    )
    return app, state


class EventStreamRoute:
    """An endpoint for which Starlette leaves the whole answer to us."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One page watches."""
        models, jobs = self._state.models, self._state.jobs
        known = lambda: {"models": models.all(), "plans": [job.id for job in jobs.all()]}  # noqa: E731
        await EventStream(jobs, known)(scope, receive, send)


class Views:
    """One method for each address."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def page(self, request: Request) -> Response:
        """The page itself."""
        text, kind = asset("index.html")
        return Response(text, media_type=kind)

    async def asset(self, request: Request) -> Response:
        """A script or a style sheet."""
        text, kind = asset(request.path_params["name"])
        return Response(text, media_type=kind)

    async def choices(self, request: Request) -> Response:
        """What can be chosen."""
        return JSONResponse(await self._state.choices())

    async def upload(self, request: Request) -> Response:
        """The bytes of a model; its name is a label."""
        name = unquote(request.headers.get("x-file-name", ""), errors="replace")[:1000]
        number, size = await self._state.models.add(name, request.stream())
        return JSONResponse({"id": number, "label": self._state.models.find(number).label, "bytes": size}, 201)

    async def remove_model(self, request: Request) -> Response:
        """Forget an upload."""
        await self._state.models.remove(request.path_params["number"])
        return Response(status_code=204)

    async def check_cluster(self, request: Request) -> Response:
        """Is this text a cluster?"""
        asked = await read_json(request, ClusterForm, self._state.limits.body_bytes)
        return JSONResponse(await self._state.desk.do(CheckTask(asked.text)))

    async def start(self, request: Request) -> Response:
        """Queue a search."""
        state = self._state
        asked = await read_json(request, PlanForm, state.limits.body_bytes)
        state.jobs.check_room()
        if await asyncio.to_thread(stored_bytes, state.folder) > state.limits.stored_bytes:
            raise LimitReached("no room is left; remove models or plans")
        make = plan_task(asked, await state.choices(), state.models, state.limits)
        return JSONResponse({"id": state.jobs.add(make).id}, 201)

    async def stop(self, request: Request) -> Response:
        """Stop a search; its best plan is kept."""
        self._state.jobs.stop(self._job(request))
        return Response(status_code=204)

    async def remove(self, request: Request) -> Response:
        """End a search and forget its plan."""
        await self._state.jobs.remove(self._job(request))
        return Response(status_code=204)

    async def make_file(self, request: Request) -> Response:
        """A report, a trace or an export -> where it can be had."""
        asked = await read_json(request, FileRequest, self._state.limits.body_bytes)
        job, limits = self._job(request), self._state.limits
        if await asyncio.to_thread(stored_bytes, self._state.folder) > limits.stored_bytes:
            raise LimitReached("no room is left; remove models or plans")
        key, path = await self._state.desk.make(job, asked)
        return JSONResponse({"href": f"/api/plans/{job.id}/files/{key}", "bytes": path.stat().st_size})

    async def file(self, request: Request) -> Response:
        """A file that was made; `?view` shows a report instead of saving it."""
        job, key = self._job(request), request.path_params["key"]
        name, kind = file_names(key)
        path = job.folder / name
        if not path.is_file():
            raise NotThere(key)
        if key == "report" and "view" in request.query_params:
            shown = {"content-security-policy": REPORT_POLICY, "x-frame-options": "SAMEORIGIN"}
            return FileResponse(path, media_type=kind, headers=shown)
        stem = Path(job.task.model.label).stem or "model"
        return FileResponse(path, media_type=kind, filename=f"{stem}-{job.id}-{name}")

    async def compare(self, request: Request) -> Response:
        """What differs between two plans."""
        asked = await read_json(request, CompareRequest, self._state.limits.body_bytes)
        jobs = [self._state.jobs.find(asked.first), self._state.jobs.find(asked.second)]
        if any(job.state != "done" for job in jobs):
            raise InputError("only finished plans can be compared")
        return JSONResponse(await self._state.desk.do(CompareTask(str(jobs[0].plan), str(jobs[1].plan))))

    def _job(self, request: Request) -> Job:
        return self._state.jobs.find(request.path_params["number"])


def _status(error: Exception) -> int:
    if isinstance(error, LimitReached):
        return 503
    return 400 if isinstance(error, ClientDisconnect) else 422


async def _tell_error(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, _status(error))


async def _tell_trouble(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": f"this machine refuses: {getattr(error, 'strerror', None) or 'no room'}"}, 503)


async def _tell_status(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail.lower()}, error.status_code, headers=error.headers)


async def _tell_missing(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": "there is no such thing any more"}, 404)
