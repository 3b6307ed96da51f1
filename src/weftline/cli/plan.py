"""`weftline plan`: where does each op run?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from weftline.cli.options import find_cluster, read_gap, read_seconds, read_shapes
from weftline.cli.output import JsonFlag, print_json, progress, show
from weftline.errors import InputError, UsageError

if TYPE_CHECKING:
    from weftline.plan import Plan

__all__ = ["plan"]

Objective = Literal["latency", "throughput"]
Runtime = Literal["parallel", "sequential"]
Transfers = Literal["per-tensor", "per-edge"]
Communication = Literal["added", "overlapped"]
Memory = Literal["dynamic", "static"]


def plan(
    model: Annotated[
        Path | None,
        typer.Argument(help="ONNX model, weftline JSON, msr-fiddle or Moirai JSON, Moirai .xls, or REGAL cost graph."),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", "-c", help="Cluster file (TOML) or preset; see: weftline cluster presets."),
    ] = None,
    objective: Annotated[
        Objective | None, typer.Option(help="Make one input fast, or let many inputs flow fast.  [default: latency]")
    ] = None,
    stages: Annotated[
        int | None, typer.Option(min=1, help="Throughput: use at most K devices (problem files: K accelerators).")
    ] = None,
    solver: Annotated[str, typer.Option(help="Name of a solver; `--solver help` lists them.")] = "auto",
    gap: Annotated[
        str | None, typer.Option(help="Stop when this close to the bound, e.g. 1%. Exit code 5 if not reached.")
    ] = None,
    time: Annotated[str | None, typer.Option(help="Time limit, e.g. 60s.")] = None,
    work: Annotated[
        int | None, typer.Option(min=1, help="Limit of candidates costed: with it the same call gives the same bytes.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Seed of everything random.")] = 0,
    shape: Annotated[
        list[str] | None, typer.Option(help="Set an input's symbolic dimensions: input=1x3x224x224. May be repeated.")
    ] = None,
    runtime: Annotated[
        Runtime | None,
        typer.Option(help="Latency: devices at the same time, or one after another.  [default: parallel]"),
    ] = None,
    transfers: Annotated[
        Transfers | None,
        typer.Option(help="Send a tensor once per device, or once per consumer.  [default: the file's rule]"),
    ] = None,
    communication: Annotated[
        Communication | None,
        typer.Option(help="Throughput: transfers add to compute, or hide behind it.  [default: added]"),
    ] = None,
    memory: Annotated[
        Memory | None, typer.Option(help="Live activations over time, or the plain sum.  [default: the file's rule]")
    ] = None,
    without: Annotated[str, typer.Option(help="Limits to drop, comma-separated: cpus, memory, together.")] = "",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the plan here.")] = None,
    json: JsonFlag = False,
) -> None:
    """Decide where everything runs, with a bound on it.

    Prints the value, the lower bound, the gap, and the baselines beside it.

    weftline plan bert.onnx --cluster laptop -o plan.json
    """
    from weftline.cluster.rules import unlinked
    from weftline.importers import ImportOptions
    from weftline.plan import make_plan
    from weftline.plan.files import plan_to_json, save_plan
    from weftline.problem import load_problem

    if solver == "help":
        _list_solvers(objective or "latency", json)
        return
    if model is None:
        raise UsageError("which model? Try: weftline plan MODEL --cluster laptop")
    if output is not None and not output.parent.is_dir():
        raise InputError("cannot be written: no such folder", where=str(output))
    asked_gap, seconds = read_gap(gap), read_seconds(time)
    rules: dict[str, object] = {
        "objective": objective,
        "runtime": runtime,
        "transfers": transfers,
        "communication": communication,
        "memory": memory,
        "stages": stages,
    }
    found, cluster_hash = find_cluster(cluster) if cluster else (None, "")
    if found is not None and (missing := unlinked(found)):
        typer.echo(f"warning: no link between {', '.join(missing[:8])}, so no tensor can pass there", err=True)
    problem, model_hash = load_problem(
        model,
        cluster=found,
        rules=rules,
        without=tuple(word for word in without.split(",") if word),
        options=ImportOptions(shapes=read_shapes(shape or [])),
    )
    inputs = {"model": model_hash} | ({"cluster": cluster_hash} if cluster else {})
    with progress(f"planning {problem.graph.name}") as tell:
        answer = make_plan(
            problem,
            solver=solver,
            gap=asked_gap or 0.0,
            time_limit=seconds,
            work_limit=work,
            seed=seed,
            inputs=inputs,
            argv=_arguments(),
            on_event=tell,
        )
    if output is not None:
        save_plan(answer, output)
    if json:
        print_json(plan_to_json(answer).rstrip())
    else:
        _show(answer, output)
    if asked_gap is not None and answer.gap > asked_gap:
        why = "the solver had nothing more to try" if answer.stopped_by == "done" else f"stopped by {answer.stopped_by}"
        typer.echo(f"the gap is {answer.gap:.2%}, not the asked {asked_gap:.2%}: {why}", err=True)
        raise typer.Exit(5)


def _show(answer: Plan, output: Path | None) -> None:
    from weftline.plan.summary import better_baseline, guarantee
    from weftline.report import comparison_table, device_table, stage_table

    graph = answer.problem.graph
    show(
        f"{graph.name}: {len(graph.ops)} ops, {answer.objective}",
        "",
        comparison_table(answer),
        "",
        device_table(answer),
        "",
    )
    if answer.stages:
        show(stage_table(answer), "")
    show(guarantee(answer))
    if sentence := better_baseline(answer):
        show(sentence)
    show(f"written to {output}" if output else "not written; -o plan.json keeps it")


def _list_solvers(objective: str, as_json: bool) -> None:
    from weftline.plan.make import solvers_for

    entries = {name: entry.description for name, entry in solvers_for(objective).items()}
    if as_json:
        print_json({"objective": objective, "solvers": entries})
        return
    for name, description in entries.items():
        show(f"{name:<16} {description}")


def _arguments() -> list[str]:
    """The call, without where the answer goes: the same question gives the same bytes."""
    words, skip = [], False
    for word in sys.argv[1:]:
        if skip or word == "--json" or word.startswith("--output="):
            skip = False
        elif word in ("-o", "--output"):
            skip = True
        else:
            words.append(word)
    return words
