"""`weftline plan`: where does each op run?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import typer

from weftline.cli import plan_options as given
from weftline.cli.options import process_begun, read_gap, read_seconds, read_settings
from weftline.cli.output import JsonFlag, print_json, progress
from weftline.cli.plan_answer import list_solvers, show_plan, show_sweep
from weftline.cli.question import Question, read_stages
from weftline.errors import InputError, UsageError

if TYPE_CHECKING:
    from weftline.plan import Plan, Sweep

__all__ = ["call_arguments", "plan"]


def plan(
    model: given.Model = None,
    cluster: given.Cluster = None,
    objective: given.Objective = None,
    stages: given.Stages = None,
    sweep_stages: given.SweepStages = None,
    solver: given.SolverName = "auto",
    gap: given.Gap = None,
    time: given.Time = None,
    work: given.Work = None,
    seed: given.Seed = 0,
    shape: given.Shape = None,
    runtime: given.Runtime = None,
    transfers: given.Transfers = None,
    communication: given.Communication = None,
    memory: given.Memory = None,
    without: given.Without = "",
    coarsen: given.Coarsen = "none",
    preset: given.Preset = None,
    polish: given.Polish = None,
    setting: given.Setting = None,
    output: given.Output = None,
    json: JsonFlag = False,
) -> None:
    """Decide where everything runs, with a bound on it.

    Prints the value, the lower bound, the gap, and the baselines beside it.

    weftline plan bert.onnx --cluster laptop -o plan.json
    """
    from weftline.plan import Sweep
    from weftline.plan.files import plan_to_json, save_plan

    if solver == "help":
        list_solvers(objective or "latency", json)
        return
    if model is None:
        raise UsageError("which model? Try: weftline plan MODEL --cluster laptop")
    if output is not None and not output.parent.is_dir():
        raise InputError("cannot be written: no such folder", where=str(output))
    asked_gap, (number, several) = read_gap(gap), read_stages(stages, sweep_stages)
    options = {
        "solver": solver,
        "gap": asked_gap,
        "time_limit": read_seconds(time),
        "work_limit": work,
        "seed": seed,
        "begun": process_begun(),
    }
    settings = read_settings(setting or [], preset=preset, polish=polish)
    rules = {"objective": objective, "runtime": runtime, "transfers": transfers, "communication": communication}
    question = Question(model, cluster, {**rules, "memory": memory}, without, shape or [], coarsen)
    if several and settings:
        raise UsageError("settings of a solver are for one plan, not for a sweep over stages")
    if several:
        answer: Plan | Sweep = _sweep(question, several, options)
    else:
        answer = _plan(question, number, {**options, "settings": settings})
    best = answer.plan if isinstance(answer, Sweep) else answer
    if output is not None:
        save_plan(best, output)
    if json:
        print_json((answer.to_json() if isinstance(answer, Sweep) else plan_to_json(answer)).rstrip())
    elif isinstance(answer, Sweep):
        show_sweep(answer, output)
    else:
        show_plan(answer, output)
    if asked_gap is not None and best.gap > asked_gap:
        why = "the solver had nothing more to try" if best.stopped_by == "done" else f"stopped by {best.stopped_by}"
        typer.echo(f"the gap is {best.gap:.2%}, not the asked {asked_gap:.2%}: {why}", err=True)
        raise typer.Exit(5)


def _plan(question: Question, stages: int | None, options: dict[str, Any]) -> Plan:
    from weftline.plan import make_plan

    problem = question.problem(stages)
    if question.group is not None:
        options = {**options, "coarsen": question.group}
    with progress(f"planning {problem.graph.name}") as tell:
        return make_plan(problem, inputs=question.inputs, argv=call_arguments(), on_event=tell, **options)


def _sweep(question: Question, counts: str, options: dict[str, Any]) -> Sweep:
    from weftline.plan import stage_problems, sweep_stages

    problems = stage_problems(question.problem, counts)
    with progress(f"planning {problems.top.graph.name}") as tell:
        return sweep_stages(problems, inputs=question.inputs, argv=call_arguments(), on_event=tell, **options)


def call_arguments() -> list[str]:
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
