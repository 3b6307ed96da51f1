"""Verbs that write an answer for others: `weftline export` for programs, `report` for people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weftline.cli.options import read_runtimes, read_seconds
from weftline.cli.output import JsonFlag, print_json, show, telling
from weftline.errors import UsageError

__all__ = ["export", "report"]


def export(
    answer: Annotated[
        Path | None, typer.Argument(metavar="PLAN|SCHEDULE", help="A plan, fleet plan or schedule file.")
    ] = None,
    to: Annotated[str, typer.Option("--to", metavar="TARGET", help="The target; `--to help` lists them.")] = "help",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FOLDER|FILE", help="Folder for the files; svg and png: the file."),
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
    """Write a plan, fleet plan or schedule for another program.

    weftline export plan.json --to openvino --model model.xml -o out

    weftline export sched.json --to torch-csv -o out

    weftline export fleet.json --to router -o out

    weftline export plan.json --to svg -o timeline.svg
    """
    from weftline.export import check_target, export_targets
    from weftline.export import export as write

    if to == "help":
        entries = export_targets()
        if json:
            print_json({"targets": entries})
        else:
            show(*(f"{name:<16} {description}" for name, description in entries.items()))
        return
    check_target(to)
    if answer is None:
        raise UsageError("export what? Try: weftline export plan.json --to openvino -o out")
    if output is None:
        raise UsageError("where to? Add -o FOLDER (for svg and png -o FILE)")
    written = [str(path) for path in write(answer, to, output, model=model, runtimes=read_runtimes(runtime or []))]
    if json:
        print_json({"files": written})
    else:
        show(*(f"written: {path}" for path in written))


def report(
    answer: Annotated[Path, typer.Argument(metavar="PLAN|SCHEDULE", help="A plan, fleet plan or schedule file.")],
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
    """Write a page that shows a plan, fleet plan or schedule.

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
