"""`weftline export`: a plan or schedule in the form that other programs read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weftline.cli.options import read_runtimes
from weftline.cli.output import JsonFlag, print_json, show
from weftline.errors import InputError, UsageError

__all__ = ["export"]


def export(
    answer: Annotated[Path | None, typer.Argument(metavar="PLAN|SCHEDULE", help="A plan or schedule file.")] = None,
    to: Annotated[str, typer.Option("--to", help="The target; `--to help` lists them.")] = "help",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder for the files.")] = None,
    model: Annotated[
        Path | None, typer.Option(help="Plans: the model file, where a target needs its names or checks them.")
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
    from weftline.export import ExportOptions, plan_exporters, schedule_exporters
    from weftline.plan.files import load_plan
    from weftline.plan.schedule_file import load_schedule

    if to == "help":
        _list(json)
        return
    if answer is None:
        raise UsageError("export what? Try: weftline export plan.json --to openvino -o out")
    scheduled = is_schedule(answer)
    known, other = (schedule_exporters(), plan_exporters()) if scheduled else (plan_exporters(), schedule_exporters())
    if to not in known:
        kind = "a schedule" if scheduled else "a plan"
        why = f"{to!r} is not for {kind}" if to in other else f"unknown target {to!r}"
        raise UsageError(f"{why}; for {kind} there are: {', '.join(known)}")
    if output is None:
        raise UsageError("where to? Add -o FOLDER")
    loaded = load_schedule(answer).timetable() if scheduled else load_plan(answer)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror or error}", where=str(output)) from error
    if scheduled:
        files = schedule_exporters()[to].write(loaded, output)  # type: ignore[arg-type]
    else:
        runtimes = read_runtimes(runtime or [])
        unknown = sorted(set(runtimes) - {device.id for device in loaded.load_problem().devices})  # type: ignore[union-attr]
        if unknown:
            raise UsageError(f"--runtime names devices that the plan does not have: {', '.join(unknown)}")
        options = ExportOptions(model, runtimes)
        files = plan_exporters()[to].write(loaded, output, options)  # type: ignore[arg-type]
    written = [str(path) for path in files]
    if json:
        print_json({"files": written})
    else:
        show(*(f"written: {path}" for path in written))


def _list(json: bool) -> None:
    from weftline.export import plan_exporters, schedule_exporters

    entries = {name: target.description for name, target in plan_exporters().items()}
    entries |= {name: target.description for name, target in schedule_exporters().items()}
    if json:
        print_json({"targets": entries})
    else:
        show(*(f"{name:<16} {description}" for name, description in entries.items()))
