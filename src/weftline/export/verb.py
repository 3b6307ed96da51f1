"""The verb `export`: a plan or schedule for another program.

In: an answer or its file, and the name of a target. Out: the files that were written. Simplified: the targets for plans
and those for schedules are two lists.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from weftline.errors import InputError, UsageError, near

if TYPE_CHECKING:
    from weftline.plans import Plan
    from weftline.plans.schedule import Schedule

__all__ = ["export", "export_targets"]


def export(
    answer: Plan | Schedule | Path | str,
    to: str,
    output: Path | str,
    *,
    model: Path | str | None = None,
    runtimes: Mapping[str, str] = MappingProxyType({}),
) -> list[Path]:
    """Write a plan or schedule for another program, into a folder -> the files.

    `to` is a target: "openvino", "onnx-stages", "torch-csv", ... Plans: `model` is their file, where a target needs its
    names or checks them; `runtimes` says what a device is there: {"gpu0": "openvino:GPU.1"}.
    """
    from weftline.certify.run import is_schedule
    from weftline.export import ExportOptions, plan_exporters, schedule_exporters
    from weftline.plans.plan import load_plan
    from weftline.plans.schedule import Schedule, load_schedule

    if isinstance(answer, Path | str):
        answer = load_schedule(answer) if is_schedule(Path(answer)) else load_plan(answer)
    if isinstance(answer, Schedule):
        _check_target(to, schedule_exporters(), plan_exporters(), "a schedule")
        return schedule_exporters()[to].write(answer.timetable(), _folder(Path(output)))
    _check_target(to, plan_exporters(), schedule_exporters(), "a plan")
    options = ExportOptions(None if model is None else Path(model), dict(runtimes))
    return plan_exporters()[to].write(answer, _folder(Path(output)), options)


def export_targets() -> dict[str, str]:
    """Every target with its description, those for plans first."""
    from weftline.export import plan_exporters, schedule_exporters

    entries = {name: target.description for name, target in plan_exporters().items()}
    return entries | {name: target.description for name, target in schedule_exporters().items()}


def _check_target(to: str, known: Collection[str], other: Collection[str], kind: str) -> None:
    if to not in known:
        why = f"{to!r} is not for {kind}" if to in other else f"unknown target {to!r:.100}{near(to, known)}"
        raise UsageError(f"{why} (for {kind} there are: {', '.join(known)})")


def _folder(output: Path) -> Path:
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror or error}", where=str(output)) from error
    return output
