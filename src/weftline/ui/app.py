"""The application: addresses -> what they do.

In: requests that the guard let pass. Out: the page and its assets, JSON, files, and server-sent events (`jobs.py`).
Errors are JSON with one sentence. The assets are our own and the components that the page shares with the report; they
are read as files, since importing the room of the report would load the solvers. What stands in the forms is kept in
memory, behind the token: a browser's own storage would be open to the next server on this port. Simplified: there is
one state per server, made here; of two pages the last one decides what stands in the forms.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from weftline.errors import InputError, LimitReached, UsageError, WeftlineError
from weftline.ui.clusters import KeptClusters
from weftline.ui.files import Desk, file_names
from weftline.ui.jobs import EventStream, Job, Jobs
from weftline.ui.models import Models, NotThere, PageLimits, stored_bytes
from weftline.ui.requests import (
    AskedCluster,
    CardsForm,
    ClusterForm,
    CompareRequest,
    DevicesForm,
    FileRequest,
    KeptForm,
    PlanForm,
    ScheduleForm,
    download_name,
    plan_task,
    read_json,
    schedule_task,
)
from weftline.ui.task import CardsTask, CheckTask, ChoicesTask, CompareTask, NamedTask

__all__ = ["ASSETS", "asset", "make_app"]

FORMS = ("multipart/form-data", "application/x-www-form-urlencoded")
MOST_CHECKED = 64
"""Texts of clusters whose check is remembered."""

_KINDS = {"html": "text/html; charset=utf-8", "js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
SHARED = ("style.css", "figures.css", "weft.js", "curve.js", "timeline.js")
ASSETS = (
    "index.html",
    "page.css",
    "ask.js",
    "model.js",
    "cluster.js",
    "form.js",
    "schedule.js",
    "plans.js",
    "parts.js",
    "detail.js",
    "compare.js",
    "start.js",
    "fit.html",
    "fit.js",
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

    def __init__(self, folder: Path, limits: PageLimits, clusters: Path) -> None:
        import psutil

        most_bytes = int(psutil.virtual_memory().total * limits.memory_share)
        self.folder, self.limits = folder, limits
        self.models = Models(folder, limits)
        self.jobs = Jobs(folder, limits, most_bytes)
        self.desk = Desk(limits, most_bytes)
        self.kept = KeptClusters(clusters)
        self.form = KeptForm()
        self._choices: asyncio.Task[dict[str, Any]] | None = None
        self._checked: dict[str, dict[str, Any]] = {}

    async def choices(self) -> dict[str, Any]:
        """What this installation offers; asked once of a worker."""
        if self._choices is None or (self._choices.done() and self._choices.exception() is not None):
            self._choices = asyncio.create_task(self.desk.do(ChoicesTask()))
        limits = {"longest": self.limits.longest, "upload_bytes": self.limits.upload_bytes, "away": self.limits.away}
        return {**await asyncio.shield(self._choices), "limits": limits}

    async def check(self, text: str, name: str = "") -> dict[str, Any]:
        """What a worker says about the text of a cluster, with what it is called; its error, if it is none."""
        key = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        if key not in self._checked:
            found = await self.desk.do(CheckTask(text))
            self._checked = {**dict(list(self._checked.items())[1 - MOST_CHECKED :]), key: found}
        found = self._checked[key]
        if "error" in found:
            return found
        presets = (await self.choices())["presets"]
        return {**found, "label": AskedCluster.of_text(text, name or found["name"], presets).name}

    async def cluster(self, asked: PlanForm) -> AskedCluster:
        """The cluster of a question; `InputError` if its text is none."""
        if sum(given is not None for given in (asked.cluster, asked.preset, asked.kept)) > 1:
            raise UsageError("a cluster is a preset, one that was kept, or a text: one of them")
        presets = (await self.choices())["presets"]
        if asked.preset is not None:
            for name, _, text in presets:
                if name == asked.preset:
                    return AskedCluster(text, name, preset=True)
            raise UsageError(f"unknown preset {asked.preset!r}")
        text = asked.cluster if asked.kept is None else self.kept.find(asked.kept)
        if text is None:
            return AskedCluster()
        found = await self.check(text)
        if "error" in found:
            raise InputError(found["error"])
        return AskedCluster.of_text(text, asked.kept or found["name"], presets)

    def known(self) -> dict[str, Any]:
        """What every page is told when it changes."""
        plans = [job.id for job in self.jobs.all()]
        return {"models": self.models.all(), "plans": plans, "clusters": self.kept.names}

    async def check_room(self) -> None:
        """`LimitReached` if too much is stored already."""
        if await asyncio.to_thread(stored_bytes, self.folder) > self.limits.stored_bytes:
            raise LimitReached("no room is left; remove models or plans")

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


def make_app(folder: Path, limits: PageLimits, clusters: Path) -> tuple[Starlette, State]:
    """The application and its state; it writes into `folder`, and into `clusters` what a user keeps."""
    state = State(folder, limits, clusters)
    views = Views(state)
    app = Starlette(
        routes=[
            Route("/", views.page),
            Route("/fit", views.fit_page),
            Route("/assets/{name}", views.asset),
            Route("/api/choices", views.choices),
            Route("/api/events", EventStreamRoute(state), methods=["GET"]),
            Route("/api/models", views.upload, methods=["POST"]),
            Route("/api/models/{number:int}", views.remove_model, methods=["DELETE"]),
            Route("/api/form", views.form),
            Route("/api/form", views.keep_form, methods=["PUT"]),
            Route("/api/cluster", views.check_cluster, methods=["POST"]),
            Route("/api/devices", views.name_devices, methods=["POST"]),
            Route("/api/fit", views.fit, methods=["POST"]),
            Route("/api/clusters/{name}", views.cluster),
            Route("/api/clusters/{name}", views.keep_cluster, methods=["PUT"]),
            Route("/api/clusters/{name}", views.remove_cluster, methods=["DELETE"]),
            Route("/api/plans", views.start, methods=["POST"]),
            Route("/api/schedules", views.start_schedule, methods=["POST"]),
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
        await EventStream(self._state.jobs, self._state.known)(scope, receive, send)


class Views:
    """One method for each address."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def page(self, request: Request) -> Response:
        """The page itself."""
        text, kind = asset("index.html")
        return Response(text, media_type=kind)

    async def fit_page(self, request: Request) -> Response:
        """The page for language models on cards."""
        text, kind = asset("fit.html")
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
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() in FORMS:
            raise InputError("a model is the bytes of its file, not a form", hint="curl --data-binary @model.onnx")
        name = unquote(request.headers.get("x-file-name", ""), errors="replace")[:1000]
        number, size = await self._state.models.add(name, request.stream())
        return JSONResponse({"id": number, "label": self._state.models.find(number).label, "bytes": size}, 201)

    async def remove_model(self, request: Request) -> Response:
        """Forget an upload."""
        await self._state.models.remove(request.path_params["number"])
        return Response(status_code=204)

    async def form(self, request: Request) -> Response:
        """What stood in the forms, and what they can name."""
        return JSONResponse({"fields": self._state.form.fields, **self._state.known()})

    async def keep_form(self, request: Request) -> Response:
        """Remember what stands in the forms."""
        self._state.form = await read_json(request, KeptForm, self._state.limits.body_bytes)
        return Response(status_code=204)

    async def check_cluster(self, request: Request) -> Response:
        """Is this text a cluster?"""
        asked = await read_json(request, ClusterForm, self._state.limits.body_bytes)
        return JSONResponse(await self._state.check(asked.text))

    async def name_devices(self, request: Request) -> Response:
        """The text of a cluster of devices by name."""
        asked = await read_json(request, DevicesForm, self._state.limits.body_bytes)
        return JSONResponse(await self._state.desk.do(NamedTask(asked.gpus, asked.cpus, asked.links, asked.ram)))

    async def fit(self, request: Request) -> Response:
        """A language model on cards by name: cards, rates, the command."""
        asked = await read_json(request, CardsForm, self._state.limits.body_bytes)
        return JSONResponse(await self._state.desk.do(CardsTask(**msgspec.structs.asdict(asked))))

    async def cluster(self, request: Request) -> Response:
        """The text of a cluster that was kept."""
        return JSONResponse({"text": self._state.kept.find(request.path_params["name"])})

    async def keep_cluster(self, request: Request) -> Response:
        """Keep a cluster for the next time."""
        name = request.path_params["name"]
        asked = await read_json(request, ClusterForm, self._state.limits.body_bytes)
        found = await self._state.check(asked.text, name)
        if "error" in found:
            raise InputError(found["error"])
        self._state.kept.keep(name, asked.text)
        self._state.jobs.tell()
        return JSONResponse({"name": name, "label": found["label"]}, 201)

    async def remove_cluster(self, request: Request) -> Response:
        """Forget a cluster that was kept."""
        self._state.kept.remove(request.path_params["name"])
        self._state.jobs.tell()
        return Response(status_code=204)

    async def start(self, request: Request) -> Response:
        """Queue a search for a plan."""
        state = self._state
        asked = await read_json(request, PlanForm, state.limits.body_bytes)
        state.jobs.check_room()
        await state.check_room()
        make = plan_task(asked, await state.choices(), state.models, state.limits, await state.cluster(asked))
        return JSONResponse({"id": state.jobs.add(make).id}, 201)

    async def start_schedule(self, request: Request) -> Response:
        """Queue a search for a schedule."""
        state = self._state
        asked = await read_json(request, ScheduleForm, state.limits.body_bytes)
        state.jobs.check_room()
        await state.check_room()
        plan = None if asked.plan is None else state.jobs.find(asked.plan)
        make = schedule_task(asked, await state.choices(), state.limits, plan)
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
        job = self._job(request)
        await self._state.check_room()
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
        return FileResponse(path, media_type=kind, filename=download_name(job, name))

    async def compare(self, request: Request) -> Response:
        """What differs between two plans, or two schedules."""
        asked = await read_json(request, CompareRequest, self._state.limits.body_bytes)
        jobs = [self._state.jobs.find(asked.first), self._state.jobs.find(asked.second)]
        if any(job.state != "done" for job in jobs):
            raise InputError("only what is finished can be compared")
        if jobs[0].task.about()["kind"] != jobs[1].task.about()["kind"]:
            raise InputError("a plan and a schedule are not compared: they answer different questions")
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
