"""Verbs that write an answer for others: `weftline export` for programs, `report` for people."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weftline.cli.options import read_runtimes, read_seconds
from weftline.cli.output import JsonFlag, print_json, show, telling
from weftline.errors import InputError, UsageError, near

if TYPE_CHECKING:
    from weftline.export import ExportOptions

__all__ = ["export", "report"]


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


def report(
    answer: Annotated[Path, typer.Argument(metavar="PLAN|SCHEDULE", help="A plan or schedule file.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The page to write.")] = Path(
        "report.html"
    ),
    run: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What `weftline run --json` printed: measured times.")
    ] = None,
    sensitivity: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Plans: solve again with faster links, more memory, one more device, for 10s in all."
        ),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Write a page that shows a plan or schedule.

    One file that needs no network: how good the plan is, its timeline or stages, memory, what crosses between devices,
    how the search went, and where it comes from. Exit code 6 if the plan does not hold.

    weftline report plan.json -o report.html --sensitivity 10s

    weftline run plan.json --model model.onnx --json > run.json; weftline report plan.json --run run.json
    """
    import weftline

    with telling("asking what would help") as tell:
        page = weftline.report(
            answer,
            output,
            run=run,
            sensitivity=_seconds(sensitivity),
            on_event=tell,
        )
    if json:
        print_json({"report": str(output), "bytes": len(page)})
        return
    show(f"written to {output} ({len(page) / 1000:,.0f} kB): open it in a browser")


def _seconds(word: str | None) -> float | None:
    try:
        return read_seconds(word)
    except UsageError as error:
        raise UsageError(str(error).replace("--time", "--sensitivity", 1)) from error
