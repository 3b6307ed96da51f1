"""`weftline plan`: where does each op run?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import typer

from weftline.cli import plan_options as given
from weftline.cli.options import process_begun, read_gap, read_rule_and_runtimes, read_seconds, read_settings
from weftline.cli.output import JsonFlag, print_json, progress
from weftline.cli.plan_answer import list_solvers, show_plan, show_sweep
from weftline.cli.question import Question, read_stages
from weftline.errors import InputError, UsageError
from weftline.interrupts import uninterrupted

if TYPE_CHECKING:
    from weftline.ask import Sweep
    from weftline.cost import Profile
    from weftline.graph.arrays import Indices
    from weftline.plans import Plan

__all__ = ["call_arguments", "plan"]


def plan(
    model: given.Model = None,
    cluster: given.Cluster = None,
    costs: given.Costs = None,
    calibrate: given.Calibrate = False,
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
    reward: given.Reward = "simulated",
    measurements: given.Measurements = None,
    output: given.Output = None,
    json: JsonFlag = False,
) -> None:
    """Decide where everything runs, with a bound on it.

    Prints the value, the lower bound, the gap, and the baselines beside it.

    weftline plan bert.onnx --cluster laptop -o plan.json

    weftline plan bert.xml --cluster two.toml --solver policy --reward measured --runtime a=openvino:CPU --runtime
    b=openvino:CPU2
    """
    from weftline.ask import Sweep
    from weftline.plans.plan import plan_to_json, save_plan

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
    rule, runtimes = read_rule_and_runtimes(runtime or [])
    measured = _measured(reward, measurements, runtimes, seed)
    if measured is not None and rule is None and objective != "throughput":
        rule = "sequential"  # what the backend does
    rules = {"objective": objective, "runtime": rule, "transfers": transfers, "communication": communication}
    question = Question(model, cluster, {**rules, "memory": memory}, without, shape or [], coarsen, costs)
    if calibrate and (several or measured is not None or costs is None):
        raise UsageError("--calibrate is for one plan with --costs")
    if several and (settings or measured is not None):
        raise UsageError("settings of a solver and measured rewards are for one plan, not for a sweep over stages")
    if several:
        answer: Plan | Sweep = _sweep(question, several, options)
    elif calibrate:
        answer = _calibrated(question, number, {**options, "settings": settings})
    else:
        answer = _plan(question, number, {**options, "settings": settings}, measured)
    best = answer.plan if isinstance(answer, Sweep) else answer
    if output is not None:
        with uninterrupted():
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


def _measured(reward: str, measurements: int | None, runtimes: dict[str, str], seed: int) -> dict[str, Any] | None:
    """Options of the backend, or None where the simulator decides."""
    if reward == "measured":
        known = {} if measurements is None else {"measurements": measurements}
        return {"runtimes": runtimes, "seed": seed, **known}
    if measurements is not None or runtimes:
        raise UsageError("--measurements and --runtime DEVICE=RUNTIME are for --reward measured")
    return None


def _plan(question: Question, stages: int | None, options: dict[str, Any], measured: dict[str, Any] | None) -> Plan:
    from weftline.ask import make_plan

    problem = question.problem(stages)
    if question.group is not None:
        options = {**options, "coarsen": question.group}
    options |= {"inputs": question.inputs, "argv": call_arguments()}
    with progress(f"planning {problem.graph.name}") as tell:
        if measured is None:
            return make_plan(problem, on_event=tell, **options)
        from weftline.run.openvino.meter import openvino_backend

        with openvino_backend(problem, question.model, **measured) as backend:
            return make_plan(problem, on_event=tell, backend=backend, **options)


def _calibrated(question: Question, stages: int | None, options: dict[str, Any]) -> Plan:
    from time import monotonic

    from weftline.ask import make_plan
    from weftline.measure.calibrate import calibrated_plan
    from weftline.search import Event

    assert question.costs is not None
    with progress(f"calibrating {question.model.name}") as tell:

        def planner(profile: Profile, start: Indices | None, keep: bool) -> Plan:
            problem = question.with_costs(profile).problem(stages)
            asked = {**options, "begun": monotonic(), "inputs": question.inputs, "argv": call_arguments()}
            if keep:
                asked |= {"time_limit": 0.0, "work_limit": None}
            return make_plan(problem, start=start, on_event=tell, **asked)

        return calibrated_plan(
            question.model, question.costs, planner, tell=lambda message: tell(Event(0.0, "", None, None, message))
        )


def _sweep(question: Question, counts: str, options: dict[str, Any]) -> Sweep:
    from weftline.ask import stage_problems, sweep_stages

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
