"""`weftline export`: a plan or schedule in the form that other programs read."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weftline.cli.options import read_runtimes
from weftline.cli.output import JsonFlag, print_json, show
from weftline.errors import InputError, UsageError, near

if TYPE_CHECKING:
    from weftline.export import ExportOptions

__all__ = ["export"]


def export(
    answer: Annotated[Path | None, typer.Argument(metavar="PLAN|SCHEDULE", help="A plan or schedule file.")] = None,
    to: Annotated[str, typer.Option("--to", metavar="TARGET", help="The target; `--to help` lists them.")] = "help",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="Folder for the files.")
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Plans: the model file, where a target needs its names or checks them."),
    ] = None,
    runtime: Annotated[
        list[str] | None,
        typer.Option(metavar="DEVICE=RUNTIME", help="Plans: what a device is there, e.g. gpu0=openvino:GPU.1."),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Write a plan or schedule for another program.

    weftline export plan.json --to openvino --model model.xml -o out

    weftline export sched.json --to torch-csv -o out
    """
    from weftline.certify.run import is_schedule
    from weftline.export import ExportOptions

    if to == "help":
        _list(json)
        return
    if answer is None:
        raise UsageError("export what? Try: weftline export plan.json --to openvino -o out")
    if output is None:
        raise UsageError("where to? Add -o FOLDER")
    if is_schedule(answer):
        files = _export_schedule(answer, to, output)
    else:
        files = _export_plan(answer, to, output, ExportOptions(model, read_runtimes(runtime or [])))
    written = [str(path) for path in files]
    if json:
        print_json({"files": written})
    else:
        show(*(f"written: {path}" for path in written))


def _export_schedule(path: Path, to: str, output: Path) -> list[Path]:
    from weftline.export import plan_exporters, schedule_exporters
    from weftline.plans.schedule import load_schedule

    known = schedule_exporters()
    _check_target(to, known, plan_exporters(), "a schedule")
    timetable = load_schedule(path).timetable()
    return known[to].write(timetable, _folder(output))


def _export_plan(path: Path, to: str, output: Path, options: ExportOptions) -> list[Path]:
    from weftline.export import plan_exporters, schedule_exporters
    from weftline.plans.plan import load_plan

    known = plan_exporters()
    _check_target(to, known, schedule_exporters(), "a plan")
    plan = load_plan(path)
    return known[to].write(plan, _folder(output), options)


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


def _list(json: bool) -> None:
    from weftline.export import plan_exporters, schedule_exporters

    entries = {name: target.description for name, target in plan_exporters().items()}
    entries |= {name: target.description for name, target in schedule_exporters().items()}
    if json:
        print_json({"targets": entries})
    else:
        show(*(f"{name:<16} {description}" for name, description in entries.items()))
