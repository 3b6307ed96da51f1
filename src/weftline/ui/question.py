"""What was asked on the page -> the task of a worker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from weftline.errors import UsageError
from weftline.ui.limits import Limits
from weftline.ui.models import Models
from weftline.ui.requests import PlanForm
from weftline.ui.task import ModelFile, PlanTask

__all__ = ["plan_task"]

WITH_WEIGHTS = "small"
"""The one size of zoo models that is built with weights, so that it can be cut; others only name theirs."""


def plan_task(asked: PlanForm, choices: dict[str, Any], models: Models, limits: Limits) -> Callable[[Path], PlanTask]:
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
    return tuple(words)
