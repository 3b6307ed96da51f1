"""What pages may ask, typed, and the task of a worker that follows from it.

In: JSON. Out: frozen forms; unknown fields, wrong kinds and too large numbers are refused before anything is done.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta
from starlette.requests import Request

from weftline.errors import InputError, UsageError
from weftline.ui.clusters import cluster_label
from weftline.ui.jobs import Job
from weftline.ui.models import Models, PageLimits
from weftline.ui.task import ModelFile, PlanTask, ScheduleTask

__all__ = [
    "AskedCluster",
    "CardsForm",
    "ClusterForm",
    "CompareRequest",
    "DevicesForm",
    "FileRequest",
    "KeptForm",
    "PlanForm",
    "ScheduleForm",
    "download_name",
    "plan_task",
    "read_json",
    "schedule_task",
]

T = TypeVar("T")
Word = Annotated[str, Meta(min_length=1, max_length=64)]
Text = Annotated[str, Meta(max_length=2**20)]
Seed = Annotated[int, Meta(ge=0, lt=2**31)]
Gap = Annotated[float, Meta(ge=0, lt=1)]


class PlanForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Start a search."""

    seconds: Annotated[float, Meta(ge=1)]
    model: int | None = None
    """Number of an upload."""
    zoo: Word | None = None
    """Or the name of an architecture."""
    size: Word = "full"
    cluster: Text | None = None
    """TOML text."""
    preset: Word | None = None
    """Or the name of a preset."""
    kept: Word | None = None
    """Or of a cluster that was kept."""
    objective: Literal["latency", "throughput"] = "latency"
    stages: Annotated[int, Meta(ge=1, le=4096)] | None = None
    solver: Word = "auto"
    gap: Gap | None = None
    seed: Seed = 0
    shapes: Annotated[list[Annotated[str, Meta(max_length=200)]], Meta(max_length=32)] = []
    dims: Annotated[list[Annotated[str, Meta(max_length=200)]], Meta(max_length=32)] = []


class ScheduleForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Search an order of micro-batches."""

    seconds: Annotated[float, Meta(ge=1)]
    shape: Word | None = None
    """A named shape, on so many"""
    devices: Annotated[int, Meta(ge=1, le=256)] = 4
    plan: int | None = None
    """or the number of a throughput plan that is done."""
    micro_batches: Annotated[int, Meta(ge=1, le=2_000_000)] | None = None
    memory: Annotated[str, Meta(max_length=1000)] = ""
    train: bool = True
    split_backward: bool = False
    recompute: bool = False
    objective: Literal["makespan", "device-span"] = "makespan"
    solver: Word = "auto"
    gap: Gap | None = None
    seed: Seed = 0


class KeptForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands in the forms, so that it survives a reload: field -> what a user has entered."""

    fields: Annotated[dict[Word, Text], Meta(max_length=64)] = {}


class FileRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Make a file of a plan or schedule."""

    what: Literal["report", "trace", "export"]
    target: Annotated[str, Meta(pattern=r"^[a-z0-9_.-]{0,40}$")] = ""


class CompareRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Two plans, or two schedules."""

    first: int
    second: int


class ClusterForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cluster to be checked, or kept."""

    text: Text


Names = Annotated[tuple[Annotated[str, Meta(max_length=120)], ...], Meta(max_length=32)]


class DevicesForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Devices by name, of which a cluster is made."""

    gpus: Names = ()
    cpus: Names = ()
    links: Names = ()
    ram: Annotated[str, Meta(max_length=40)] = ""


class CardsForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A language model, and the cards that it is put on."""

    model: Annotated[str, Meta(max_length=120)]
    gpus: Names = ()
    cpus: Names = ()
    links: Names = ()
    ram: Annotated[str, Meta(max_length=40)] = ""
    quantisation: Annotated[str, Meta(max_length=40)] = ""
    context: Annotated[str, Meta(max_length=40)] = "8k"
    concurrency: Annotated[int, Meta(ge=1, le=65536)] = 1
    engine: Annotated[str, Meta(max_length=40)] = "llamacpp"
    want: Annotated[str, Meta(max_length=40)] = ""


async def read_json(request: Request, kind: type[T], most: int) -> T:
    """The body of a request, up to a limit."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise InputError("a request is JSON", hint="content-type: application/json")
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > most:
            raise InputError(f"a request is at most {most >> 10} KiB")
    try:
        return msgspec.json.decode(bytes(data), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"the request makes no sense: {str(error)[:300]}") from error


WITH_WEIGHTS = "small"
"""The one size of zoo models that is built with weights, so that it can be cut; others only name theirs."""


class AskedCluster(msgspec.Struct, frozen=True):
    """The cluster of a question."""

    text: str | None = None
    """None for files that hold their own devices."""
    name: str = ""
    preset: bool = False

    @property
    def argument(self) -> str:
        """After `--cluster`: a preset, or a file that can be downloaded."""
        return self.name if self.preset else f"{self.name}.toml"

    @classmethod
    def of_text(cls, text: str, name: str, presets: list[tuple[str, str, str]]) -> AskedCluster:
        """A text is a preset only if it is the preset's own, letter by letter."""
        for preset, _, known in presets:
            if text == known:
                return cls(text, preset, preset=True)
        return cls(text, cluster_label(name, text))


def plan_task(
    asked: PlanForm, choices: dict[str, Any], models: Models, limits: PageLimits, cluster: AskedCluster
) -> Callable[[Path], PlanTask]:
    """A function from a folder to the task; `UsageError` if the question makes no sense."""
    if (asked.model is None) == (asked.zoo is None):
        raise UsageError("a plan needs one model: a file, or one of the zoo")
    _check_search(asked.seconds, limits, asked.solver, choices["solvers"][asked.objective], asked.objective)
    stages = asked.stages if asked.objective == "throughput" else None
    label = _zoo_label(asked, choices) if asked.zoo is not None else models.find(asked.model or 0).label

    def make(folder: Path) -> PlanTask:
        if asked.zoo is not None:
            weights = asked.size == WITH_WEIGHTS
            model = ModelFile(str(folder / "model.onnx"), label, asked.zoo, asked.size, weights)
        else:
            model = models.find(asked.model or 0)
        if cluster.text is not None:
            (folder / "cluster.toml").write_text(cluster.text, encoding="utf-8")
        return PlanTask(
            model=model,
            cluster=cluster.text,
            cluster_name=cluster.name,
            objective=asked.objective,
            stages=stages,
            solver=asked.solver,
            seconds=asked.seconds,
            gap=asked.gap,
            seed=asked.seed,
            shapes=tuple(asked.shapes),
            dims=tuple(asked.dims),
            argv=_plan_words(asked, label, cluster, stages),
            output=str(folder / "plan.json"),
        )

    return make


def schedule_task(
    asked: ScheduleForm, choices: dict[str, Any], limits: PageLimits, plan: Job | None
) -> Callable[[Path], ScheduleTask]:
    """The same for a schedule; `plan` is the one that the form names."""
    if (asked.shape is None) == (plan is None):
        raise UsageError("a schedule needs a named shape or a plan, one of them")
    if asked.shape is not None and asked.shape not in [name for name, _ in choices["shapes"]]:
        raise UsageError(f"unknown shape {asked.shape!r}")
    if asked.shape is not None and (asked.recompute or asked.split_backward):
        raise UsageError("recompute and split backward are for plans; a shape has blocks of its own")
    if plan is not None and (plan.state != "done" or plan.task.objective != "throughput"):
        raise UsageError("a schedule needs a throughput plan that is done")
    _check_search(asked.seconds, limits, asked.solver, choices["schedulers"], "schedules")
    label = f"{asked.shape} on {asked.devices} devices" if plan is None else f"{plan.task.about()['title']} ({plan.id})"

    def make(folder: Path) -> ScheduleTask:
        source = folder / "plan.json"
        if plan is not None:
            shutil.copyfile(plan.plan, source)  # the plan may be removed meanwhile
        return ScheduleTask(
            label=label,
            stem=asked.shape or (plan.task.stem if plan is not None else "schedule"),
            shape=asked.shape or "",
            devices=asked.devices if plan is None else 0,
            plan="" if plan is None else str(source),
            micro_batches=asked.micro_batches,
            memory=asked.memory.strip(),
            train=asked.train,
            split_backward=asked.split_backward,
            recompute=asked.recompute,
            objective=asked.objective,
            solver=asked.solver,
            seconds=asked.seconds,
            gap=asked.gap,
            seed=asked.seed,
            argv=_schedule_words(asked, plan),
            output=str(folder / "sched.json"),
        )

    return make


def download_name(job: Job, name: str) -> str:
    """What a file of a job is called where it is saved; a cluster is called as the command line has it."""
    if name == "cluster.toml":
        return f"{job.task.about().get('cluster') or 'cluster'}.toml"
    return f"{job.task.stem}-{job.id}-{name}"


def _check_search(seconds: float, limits: PageLimits, solver: str, known: list[tuple[str, str]], what: str) -> None:
    if not seconds <= limits.longest:
        raise UsageError(f"a search may take up to {limits.longest:.0f} s")
    if solver not in [name for name, _ in known]:
        raise UsageError(f"unknown solver {solver!r} for {what}")


def _zoo_label(asked: PlanForm, choices: dict[str, Any]) -> str:
    for name, _, sizes in choices["zoo"]:
        if name == asked.zoo and asked.size in sizes:
            return name if asked.size == "full" else f"{name}-{asked.size}"
    raise UsageError(f"the zoo has no {asked.zoo!r} of size {asked.size!r}")


def _plan_words(asked: PlanForm, label: str, cluster: AskedCluster, stages: int | None) -> tuple[str, ...]:
    """The same question on the command line."""
    zoo = f"zoo:{asked.zoo}" if asked.size == "full" else f"zoo:{asked.zoo}:{asked.size}"
    words = ["plan", label if asked.zoo is None else zoo]
    if cluster.text is not None:
        words += ["--cluster", cluster.argument]
    words += ["--objective", asked.objective]
    if stages is not None:
        words += ["--stages", str(stages)]
    words += _search_words(asked)
    for shape in asked.shapes:
        words += ["--shape", shape]
    for dim in asked.dims:
        words += ["--dim", dim]
    return tuple(words)


def _schedule_words(asked: ScheduleForm, plan: Job | None) -> tuple[str, ...]:
    words = ["schedule", "--plan", download_name(plan, "plan.json")] if plan is not None else ["schedule"]
    if asked.shape is not None:
        words += ["--shape", asked.shape, "--devices", str(asked.devices)]
    if asked.micro_batches is not None:
        words += ["--micro-batches", str(asked.micro_batches)]
    if asked.memory.strip():
        words += ["--memory", asked.memory.strip()]
    flags = {"--infer": not asked.train, "--split-backward": asked.split_backward, "--recompute": asked.recompute}
    words += [flag for flag, given in flags.items() if given]
    if asked.objective != "makespan":
        words += ["--objective", asked.objective]
    return (*words, *_search_words(asked))


def _search_words(asked: PlanForm | ScheduleForm) -> list[str]:
    words = ["--solver", asked.solver] if asked.solver != "auto" else []
    words += ["--time", f"{asked.seconds:g}s"]
    if asked.gap is not None:
        words += ["--gap", f"{asked.gap:g}"]
    if asked.seed:
        words += ["--seed", str(asked.seed)]
    return words
