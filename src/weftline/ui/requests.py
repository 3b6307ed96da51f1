"""What pages may ask, typed, and the task of a worker that follows from it.

In: JSON. Out: frozen forms; unknown fields, wrong kinds and too large numbers are refused before anything is done.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta
from starlette.requests import Request

from weftline.errors import InputError, UsageError
from weftline.ui.models import Models, PageLimits
from weftline.ui.task import ModelFile, PlanTask

__all__ = ["ClusterForm", "CompareRequest", "FileRequest", "PlanForm", "plan_task", "read_json"]

T = TypeVar("T")
Word = Annotated[str, Meta(min_length=1, max_length=64)]
Text = Annotated[str, Meta(max_length=2**20)]


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
    objective: Literal["latency", "throughput"] = "latency"
    stages: Annotated[int, Meta(ge=1, le=4096)] | None = None
    solver: Word = "auto"
    gap: Annotated[float, Meta(ge=0, lt=1)] | None = None
    seed: Annotated[int, Meta(ge=0, lt=2**31)] = 0
    shapes: Annotated[list[Annotated[str, Meta(max_length=200)]], Meta(max_length=32)] = []
    dims: Annotated[list[Annotated[str, Meta(max_length=200)]], Meta(max_length=32)] = []


class FileRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Make a file of a plan."""

    what: Literal["report", "trace", "export"]
    target: Annotated[str, Meta(pattern=r"^[a-z0-9_.-]{0,40}$")] = ""


class CompareRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Two plans."""

    first: int
    second: int


class ClusterForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cluster to be checked."""

    text: Text


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


def plan_task(
    asked: PlanForm, choices: dict[str, Any], models: Models, limits: PageLimits
) -> Callable[[Path], PlanTask]:
    """A function from a folder to the task; `UsageError` if the question makes no sense."""
    if (asked.model is None) == (asked.zoo is None):
        raise UsageError("a plan needs one model: a file, or one of the zoo")
    if asked.cluster is not None and asked.preset is not None:
        raise UsageError("a cluster is a preset or a text, not both")
    if not asked.seconds <= limits.longest:
        raise UsageError(f"a search may take up to {limits.longest:.0f} s")
    if asked.solver not in [name for name, _ in choices["solvers"][asked.objective]]:
        raise UsageError(f"unknown solver {asked.solver!r} for {asked.objective}")
    stages = asked.stages if asked.objective == "throughput" else None
    cluster, name = _cluster(asked, choices)
    label = _zoo_label(asked, choices) if asked.zoo is not None else models.find(asked.model or 0).label

    def make(folder: Path) -> PlanTask:
        if asked.zoo is not None:
            weights = asked.size == WITH_WEIGHTS
            model = ModelFile(str(folder / "model.onnx"), label, asked.zoo, asked.size, weights)
        else:
            model = models.find(asked.model or 0)
        return PlanTask(
            model=model,
            cluster=cluster,
            cluster_name=name,
            objective=asked.objective,
            stages=stages,
            solver=asked.solver,
            seconds=asked.seconds,
            gap=asked.gap,
            seed=asked.seed,
            shapes=tuple(asked.shapes),
            dims=tuple(asked.dims),
            argv=_argv(asked, label, name if cluster is not None else "", stages),
            output=str(folder / "plan.json"),
        )

    return make


def _cluster(asked: PlanForm, choices: dict[str, Any]) -> tuple[str | None, str]:
    """Text and name."""
    if asked.preset is None:
        return asked.cluster, "cluster" if asked.cluster is not None else ""
    for name, _, text in choices["presets"]:
        if name == asked.preset:
            return text, name
    raise UsageError(f"unknown preset {asked.preset!r}")


def _zoo_label(asked: PlanForm, choices: dict[str, Any]) -> str:
    for name, _, sizes in choices["zoo"]:
        if name == asked.zoo and asked.size in sizes:
            return name if asked.size == "full" else f"{name}-{asked.size}"
    raise UsageError(f"the zoo has no {asked.zoo!r} of size {asked.size!r}")


def _argv(asked: PlanForm, label: str, cluster: str, stages: int | None) -> tuple[str, ...]:
    """The same question on the command line."""
    words = ["plan", f"{label}.onnx" if asked.zoo else label]
    if cluster:
        words += ["--cluster", cluster if asked.preset is not None else f"{cluster}.toml"]
    words += ["--objective", asked.objective]
    if stages is not None:
        words += ["--stages", str(stages)]
    if asked.solver != "auto":
        words += ["--solver", asked.solver]
    words += ["--time", f"{asked.seconds:g}s"]
    if asked.gap is not None:
        words += ["--gap", f"{asked.gap:g}"]
    if asked.seed:
        words += ["--seed", str(asked.seed)]
    for shape in asked.shapes:
        words += ["--shape", shape]
    for dim in asked.dims:
        words += ["--dim", dim]
    return tuple(words)
