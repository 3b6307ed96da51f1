"""The files that the page consists of: our own, and the components it shares with the report.

They are read as files: importing the room of the report would load the solvers into the server.

The application: addresses -> what they do.

In: requests that the guard let pass. Out: the page and its assets, JSON, events and files. Errors are JSON with one
sentence. Simplified: there is one state per server, made here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from weftline.errors import InputError, LimitReached, WeftlineError
from weftline.ui.files import Desk, file_names
from weftline.ui.jobs import Job, Jobs
from weftline.ui.limits import Limits, NotThere
from weftline.ui.models import Models, stored_bytes
from weftline.ui.question import plan_task
from weftline.ui.requests import ClusterForm, CompareRequest, FileRequest, PlanForm, read_json
from weftline.ui.stream import EventStream
from weftline.ui.task import CheckTask, ChoicesTask, CompareTask

__all__ = ["ASSETS", "asset", "make_app"]

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

    def __init__(self, folder: Path, limits: Limits) -> None:
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


def make_app(folder: Path, limits: Limits) -> tuple[Starlette, State]:
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
