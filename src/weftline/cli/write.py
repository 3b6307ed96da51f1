"""Verbs that write for others: `weftline export` for programs, `report` for people, `sweep` a folder of many plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from weftline.cli.options import read_gap, read_runtimes, read_seconds
from weftline.cli.output import JsonFlag, console, print_json, show, telling
from weftline.errors import UsageError

if TYPE_CHECKING:
    from weftline.grid.job import Row

__all__ = ["export", "report", "sweep"]


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


EXIT_FINISHED, EXIT_INTERRUPTED = 0, 130


_File = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="TOML or JSON file with the lists; options replace them.")
]
_Model = Annotated[
    list[str] | None,
    typer.Option(metavar="FILE|zoo:NAME", help="Model file, zoo:NAME or zoo:NAME:SIZE. May be repeated."),
]
_Cluster = Annotated[
    list[str] | None,
    typer.Option("--cluster", "-c", metavar="FILE|PRESET", help="Cluster file or preset. May be repeated."),
]
_Objective = Annotated[
    list[str] | None,
    typer.Option(metavar="latency|throughput", help="May be repeated.  [default: latency]"),
]
_Stages = Annotated[
    list[int] | None, typer.Option(metavar="N", min=1, help="Throughput: at most so many devices. May be repeated.")
]
_Solver = Annotated[list[str] | None, typer.Option(metavar="NAME", help="May be repeated.  [default: auto]")]
_Seed = Annotated[list[int] | None, typer.Option(metavar="N", min=0, help="May be repeated.  [default: 0]")]
_Gap = Annotated[
    str | None, typer.Option(metavar="SHARE", help="Each search stops when this close to its bound, e.g. 1%.")
]
_Time = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Time limit of each search.  [default: 60s, unless --work is given]"),
]
_Work = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Limit of candidates of each search: the same plans on every machine."),
]
_Jobs = Annotated[int | None, typer.Option(metavar="N", min=1, help="Searches at the same time.  [default: cores]")]
_Engine = Annotated[Literal["local", "ray"], typer.Option(help="Processes of this machine, or tasks of Ray.")]
_Address = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Ray: a cluster that runs already.  [default: one of this machine alone]"),
]
_Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="Folder for results and plans.")]


def sweep(
    file: _File = None,
    *,
    model: _Model = None,
    cluster: _Cluster = None,
    objective: _Objective = None,
    stages: _Stages = None,
    solver: _Solver = None,
    seed: _Seed = None,
    gap: _Gap = None,
    time: _Time = None,
    work: _Work = None,
    jobs: _Jobs = None,
    engine: _Engine = "local",
    address: _Address = None,
    output: _Output = None,
    json: JsonFlag = False,
) -> None:
    """Plan every combination of models, clusters, objectives, stages, solvers and seeds.

    A question without a plan is a row like the others. A sweep that was killed goes on when it is started again.

    weftline sweep --model zoo:bert --model unet.onnx -c laptop --objective latency --objective throughput -o results
    """
    import msgspec

    from weftline.ask.request import GridRequest
    from weftline.grid.grid import sweep_plans
    from weftline.grid.questions import read_sweep_file
    from weftline.report.sweep import plan_sweep_table, plan_sweep_words, ratio_table

    if output is None:
        raise UsageError("where to? Add -o FOLDER")
    wanted = GridRequest() if file is None else read_sweep_file(file)
    given = {
        "models": model,
        "clusters": cluster,
        "objectives": objective,
        "stages": stages,
        "solvers": solver,
        "seeds": seed,
    }
    changes: dict[str, object] = {name: tuple(words) for name, words in given.items() if words}
    limits = {"gap": read_gap(gap), "time_limit": read_seconds(time), "work_limit": work}
    changes |= {name: limit for name, limit in limits.items() if limit is not None}
    with _progress() as tell:
        answer = sweep_plans(
            msgspec.structs.replace(wanted, **changes), output, jobs=jobs, engine=engine, address=address, on_row=tell
        )
    if json:
        print_json(answer.to_json().rstrip())
    else:
        if answer.rows:
            show(plan_sweep_table(answer), "")
        if (ratios := ratio_table(answer)) is not None:
            show(ratios, "")
        show(*plan_sweep_words(answer))
    raise typer.Exit(EXIT_INTERRUPTED if answer.interrupted else EXIT_FINISHED)


@contextmanager
def _progress() -> Iterator[Callable[[Row, int, int], None] | None]:
    """A live line on stderr, if that is a terminal."""
    out = console(stderr=True)
    if not out.is_terminal:
        yield None
        return
    with out.status("planning") as line:
        yield lambda row, finished, asked: line.update(f"planning: {finished} of {asked} finished")
