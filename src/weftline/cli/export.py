"""`weftline export`: a schedule in the form that other programs read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weftline.cli.output import JsonFlag, print_json, show
from weftline.errors import InputError, UsageError

__all__ = ["export"]


def export(
    schedule: Annotated[Path, typer.Argument(help="A schedule file.")],
    to: Annotated[str, typer.Option("--to", help="The target; `--to help` lists them.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder for the files.")] = None,
    json: JsonFlag = False,
) -> None:
    """Write a schedule for another program.

    weftline export sched.json --to torch-csv -o out
    """
    from weftline.export import schedule_exporters
    from weftline.plan.schedule_file import load_schedule

    known = schedule_exporters()
    if to == "help":
        entries = {name: target.description for name, target in known.items()}
        if json:
            print_json({"targets": entries})
        else:
            show(*(f"{name:<16} {description}" for name, description in entries.items()))
        return
    if to not in known:
        raise UsageError(f"unknown target {to!r}; there are: {', '.join(known)}")
    if output is None:
        raise UsageError("where to? Add -o FOLDER")
    timetable = load_schedule(schedule).timetable()
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror or error}", where=str(output)) from error
    written = [str(path) for path in known[to].write(timetable, output)]
    if json:
        print_json({"files": written})
    else:
        show(*(f"written: {path}" for path in written))
