"""What a target offers, the targets by name, and the verb `export`: a plan or schedule for another program.

In: an answer or its file, and the name of a target. Out: the files that were written. Simplified: a target takes plans
or schedules, not both; some take fleet plans, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from weftline.arguments import a_mapping, a_path, a_text
from weftline.errors import InputError, UsageError, WeftlineError, near
from weftline.files import protected

if TYPE_CHECKING:
    from weftline.plans import Plan
    from weftline.plans.fleet import AnyFleet
    from weftline.plans.schedule import Schedule

__all__ = [
    "ExportOptions",
    "Exporter",
    "check_target",
    "export",
    "export_targets",
    "fleet_exporters",
    "made_folder",
    "plan_exporters",
    "schedule_exporters",
    "why_not",
]


@dataclass(frozen=True)
class Exporter:
    """One entry of the registry."""

    name: str
    description: str
    write: Callable[..., list[Path]]
    """What is accepted and a folder that exists -> the files that were written. For a schedule that is its `Timetable`;
    for a plan the `Plan`, and `ExportOptions` come third."""
    accepts: Literal["plan", "schedule", "both", "fleet"] = "schedule"
    check: Callable[..., object] | None = None
    """As `write` without the folder: raises what `write` would, as far as that is known quickly, and writes nothing."""
    file: bool = False
    """True: it writes one file, and takes its path (or a folder, for a file of the usual name) and, of a schedule, the
    `Schedule` itself."""
    fleet: Callable[..., list[Path]] | None = None
    """As `write`, for a fleet plan; None: it takes none."""


@dataclass(frozen=True)
class ExportOptions:
    """What a plan does not say itself."""

    model: Path | None = None
    """The file of the model, where the target needs or checks it."""
    runtimes: Mapping[str, str] = field(default_factory=dict)
    """Device id -> runtime, before what the cluster said."""


_BUILT_IN = {
    "onnx-stages": "onnx",
    "openvino": "openvino",
    "ort": "onnx",
    "accelerate": "weights",
    "vllm": "layers",
    "megatron": "layers",
    "llamacpp": "weights",
    "router": "router",
    "torch-csv": "torch_csv",
    "svg": "picture",
    "png": "picture",
}
"""Target -> module, in the order in which they are shown."""


@cache
def _exporters() -> tuple[Exporter, ...]:
    """All targets: ours, then those other packages offer as entry points `weftline.export`."""
    from weftline.plugins import registered

    modules = {module: import_module(f"weftline.export.{module}").EXPORTERS for module in set(_BUILT_IN.values())}
    ours = (one for name, module in _BUILT_IN.items() for one in modules[module] if one.name == name)
    return tuple(registered("weftline.export", ours).values())


def plan_exporters() -> dict[str, Exporter]:
    """Targets that take plans, by name."""
    return {exporter.name: exporter for exporter in _exporters() if exporter.accepts in ("plan", "both")}


def schedule_exporters() -> dict[str, Exporter]:
    """Targets that take schedules, by name."""
    return {exporter.name: exporter for exporter in _exporters() if exporter.accepts in ("schedule", "both")}


def fleet_exporters() -> dict[str, Exporter]:
    """Targets that take fleet plans, by name."""
    return {exporter.name: exporter for exporter in _exporters() if exporter.fleet is not None}


def export(
    answer: Plan | Schedule | AnyFleet | Path | str,
    to: str,
    output: Path | str,
    *,
    model: Path | str | None = None,
    runtimes: Mapping[str, str] = MappingProxyType({}),
) -> list[Path]:
    """Write a plan, fleet plan or schedule for another program, into a folder (svg and png: to a file) -> the files.

    `to` is a target: "openvino", "onnx-stages", "torch-csv", "svg", ... Plans: `model` is their file, where a target
    needs its names or checks them; `runtimes` says what a device is there: {"gpu0": "openvino:GPU.1"}.
    """
    from weftline.ask.look import read_answer
    from weftline.certify.run import is_fleet, is_schedule
    from weftline.plans import Plan
    from weftline.plans.fleet import AnyFleet
    from weftline.plans.schedule import Schedule

    check_target(a_text(to, "to"))
    folder, asked = a_path(output, "output"), a_mapping(runtimes, "runtimes", a_text, '{"gpu0": "openvino:GPU.1"}')
    file = None if model is None else a_path(model, "model")
    read = [] if isinstance(answer, Plan | Schedule | AnyFleet) else [a_path(answer, "answer")]
    trains = is_schedule(read[0]) if read else isinstance(answer, Schedule)
    whole = is_fleet(read[0]) if read else isinstance(answer, AnyFleet)
    target = _target(to, "schedule" if trains else "fleet plan" if whole else "plan")
    answer = read_answer(answer)
    if file is not None:
        read += [file, file.with_suffix(".bin")] if file.suffix == ".xml" else [file]
    with protected(read):
        write = target.fleet if isinstance(answer, AnyFleet) and target.fleet else target.write
        if target.file:
            return write(answer, folder)
        options = ExportOptions(file, asked)
        given = (answer.timetable(), folder) if isinstance(answer, Schedule) else (answer, folder, options)
        with made_folder(folder):
            return write(*given)


@contextmanager
def made_folder(folder: Path) -> Iterator[None]:
    """A folder that exists. If what follows fails, what was made of it goes again, unless there are files in it."""
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        _make(folder)
        yield
    except BaseException:
        for path in new:
            with suppress(OSError):  # it is not there, or not empty
                path.rmdir()
        raise


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror or error}", where=str(folder)) from error


def why_not(target: Exporter, answer: Plan | Schedule, options: ExportOptions | None = None) -> str:
    """Why a target cannot take an answer, as far as that is known quickly; empty if it may."""
    from weftline.plans.schedule import Schedule

    if target.check is None:
        return ""
    try:
        if isinstance(answer, Schedule):
            target.check(answer.timetable())
        else:
            target.check(answer, options or ExportOptions())
    except WeftlineError as error:
        return str(error)
    return ""


def export_targets() -> dict[str, str]:
    """Every target with its description, those for plans first."""
    known = {**plan_exporters(), **fleet_exporters(), **schedule_exporters()}
    return {name: target.description for name, target in known.items()}


def check_target(to: str) -> None:
    """Refuse a name that is no target of anything."""
    known = export_targets()
    if to not in known:
        raise UsageError(f"unknown target {to!r:.100}{near(to, known)} (there are: {', '.join(known)})")


def _target(to: str, kind: Literal["plan", "schedule", "fleet plan"]) -> Exporter:
    find = {"plan": plan_exporters, "schedule": schedule_exporters, "fleet plan": fleet_exporters}
    known = find[kind]()
    if to not in known:
        other = kind == "fleet plan" and to in plan_exporters()
        hint = "; for one pipeline plan with --copies 1, for one input with --objective latency" if other else ""
        raise UsageError(f"{to!r} is not for a {kind} (for a {kind} there are: {', '.join(known)}{hint})")
    return known[to]
