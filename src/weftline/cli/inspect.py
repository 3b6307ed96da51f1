"""Verbs that look at a plan or schedule: `weftline verify`, `simulate`, `explain`, `diff`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from weftline.ask.request import read_dims, read_shapes
from weftline.cli import options as given
from weftline.cli.fit import explain_fit_file
from weftline.cli.fleets import (
    diff_fleet_plans,
    explain_fleet_file,
    serve_file,
    simulate_fleet_file,
    simulated_fleet,
)
from weftline.cli.output import JsonFlag, print_json, show
from weftline.errors import InputError, UsageError, VerificationError

if TYPE_CHECKING:
    from weftline.plans import Plan
    from weftline.plans.schedule import Schedule

__all__ = ["diff", "explain", "simulate", "verify"]


def verify(
    plan: Annotated[Path, typer.Argument(metavar="PLAN|SCHEDULE", help="A plan, fleet plan or schedule file.")],
    json: JsonFlag = False,
) -> None:
    """Check that a plan holds what it says.

    Re-computes value, limits and proved bounds in a process that imports no solver.

    Exit code 0 only if everything holds, 6 if something does not, 3 if the file cannot be read.
    """
    from fractions import Fraction

    from weftline.certify import FitVerdict, FleetVerdict, LayersVerdict, ScheduleVerdict, verify_file
    from weftline.plans.schedule import load_schedule
    from weftline.plans.schedule_story import schedule_units
    from weftline.units import format_time

    verdict = verify_file(plan)
    if json:
        print_json({"ok": True, **verdict._asdict()})
        return
    if isinstance(verdict, ScheduleVerdict):
        told = schedule_units(load_schedule(plan))[0]
        least = Fraction(verdict.proved_period_bound)
        period = str(least) if told is str else told(round(least))
        proved = f"proved bound {told(verdict.proved_bound)}; proved bound of the period {period}"
        show(f"{plan}: holds. {verdict.objective} {told(verdict.value)}, {proved}.")
        if verdict.least_period:
            show("No pattern of as many micro-batches as the one that repeats is faster: proved.")
        show(f"re-computed: {', '.join(verdict.checks)}")
        return
    if isinstance(verdict, LayersVerdict):
        limit = "none" if verdict.proved_rate is None else f"{verdict.proved_rate:.6g}"
        show(f"{plan}: holds. {verdict.rate:.6g} units per second, proved limit {limit}.")
        show(f"re-computed: {', '.join(verdict.checks)}")
        return
    value, bound = format_time(verdict.value_ns), format_time(verdict.proved_bound_ns)
    if isinstance(verdict, FitVerdict):
        show(f"{plan}: holds. A step takes {value}, proved bound {bound}.")
        show(f"re-computed: {', '.join(verdict.checks)}")
        return
    objective = "throughput" if isinstance(verdict, FleetVerdict) else verdict.objective
    what = "period" if objective == "throughput" else objective
    guess = f" for these guessed costs (of {verdict.guessed_ops} ops)" if verdict.guessed_ops else ""
    show(f"{plan}: holds. {what} {value}, proved bound {bound}{guess}.")
    if verdict.bound_ns > verdict.proved_bound_ns:
        show(f"The plan's own bound {format_time(verdict.bound_ns)} is a claim, which was not checked.")
    show(f"re-computed: {', '.join(verdict.checks)}")


_Simulated = Annotated[
    Path,
    typer.Argument(
        metavar="PLAN|SCHEDULE|MODEL", help="A plan, fleet plan or schedule file; with --placement a model."
    ),
]
_Placed = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help='Score this placement of the model: JSON like {"op": "device"}, or a plan, with its order where that '
        'can be followed; "order" beside "placement" is the order of ops.',
    ),
]
_Served = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Plans of layers: serve requests, with times from this file of profiles."),
]


def simulate(
    plan: _Simulated,
    cluster: given.Cluster = None,
    *,
    placement: _Placed = None,
    costs: given.Costs = None,
    objective: given.Objective = None,
    stages: Annotated[int | None, typer.Option(metavar="K", min=1, help="Throughput: at most K devices.")] = None,
    shape: given.Shape = None,
    dim: given.Dim = None,
    runtime: Annotated[
        Literal["parallel", "sequential"] | None,
        typer.Option(help="Latency: devices at the same time, or one after another.  [default: parallel]"),
    ] = None,
    transfers: given.Transfers = None,
    communication: given.Communication = None,
    memory: given.Memory = None,
    without: given.Without = "",
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a trace for ui.perfetto.dev or chrome://tracing.")
    ] = None,
    profile: _Served = None,
    json: JsonFlag = False,
) -> None:
    """Simulate a plan again, score a placement, or serve requests over a plan of layers.

    Exit code 4 where the placement breaks a limit, with every limit that it breaks.

    weftline simulate plan.json --trace trace.json

    weftline simulate model.onnx --cluster laptop --placement placement.json

    weftline simulate layers.json --profile profiles.json
    """
    from weftline.certify.run import is_fleet, is_schedule

    asked: dict[str, Any] = {"cluster": cluster, "costs": costs, "objective": objective, "stages": stages}
    asked |= {"runtime": runtime, "transfers": transfers, "communication": communication, "memory": memory}
    question = {name: value for name, value in asked.items() if value is not None}
    if profile is not None:
        if question or shape or dim or without or placement is not None or trace is not None:
            raise UsageError("--profile serves a plan of layers as it is; leave all else but --json out")
        serve_file(plan, profile, json)
    elif placement is not None:
        question |= {
            "shapes": read_shapes(shape or [], "--shape "),
            "dims": read_dims(dim or [], "--dim "),
            "without": tuple(word for word in without.split(",") if word),
        }
        _score(plan, placement, question, trace, json)
    elif question or shape or dim or without:
        raise UsageError("a plan has its own devices and rules; to score a model on a cluster add --placement FILE")
    else:
        again = _schedule if is_schedule(plan) else simulate_fleet_file if is_fleet(plan) else _again
        again(plan, trace, json)


def _again(path: Path, trace: Path | None, json: bool) -> None:
    from weftline.files import write_atomically
    from weftline.plans import load_plan, plan_result
    from weftline.report import device_table, stage_table, trace_json
    from weftline.units import format_time

    answer = load_plan(path)
    problem, result = plan_result(answer)
    if trace is not None:
        write_atomically(trace, trace_json(answer))
    if json:
        peaks = {device.id: int(peak) for device, peak in zip(problem.devices, result.peak, strict=True)}
        print_json(
            {
                "objective": answer.objective,
                "value_ns": result.value,
                "plan_value_ns": answer.value_ns,
                "memory_bytes": peaks,
            }
        )
        return
    says = f"the plan says {format_time(answer.value_ns)}"
    what = "latency" if answer.objective == "latency" else "period"
    show(f"{problem.graph.name}: simulated {what} {format_time(result.value)}, {says}", "")
    show(stage_table(answer) if answer.stages else device_table(answer))
    if result.value != answer.value_ns:
        raise VerificationError("the simulated value is not the plan's; weftline verify says what does not hold")
    _tell_trace(trace)


def _score(model: Path, placement: Path, question: dict[str, Any], trace: Path | None, json: bool) -> None:
    import weftline
    from weftline.files import write_atomically
    from weftline.plans.score import Score
    from weftline.report import device_table, stage_table, trace_json
    from weftline.units import format_time

    found = weftline.simulate(model, placement, **question)
    assert isinstance(found, Score)
    if found.note:
        typer.echo(found.note, err=True)
    if trace is not None:
        write_atomically(trace, trace_json(found))
    if json:
        print_json(found.to_json())
        return
    what = "latency" if found.objective == "latency" else "period"
    order = {"plan": " and the plan's order", "given": " and order"}.get(found.order, "")
    show(f"{found.problem.graph.name}: {what} {format_time(found.value_ns)} with this placement{order}", "")
    if found.stages:
        show(stage_table(found), "")
    show(device_table(found))
    _tell_trace(trace)


def _tell_trace(trace: Path | None) -> None:
    if trace is not None:
        show("", f"trace written to {trace}: open it in ui.perfetto.dev or chrome://tracing")


def _schedule(path: Path, trace: Path | None, json: bool) -> None:
    from weftline.files import write_atomically
    from weftline.plans.schedule import load_schedule
    from weftline.plans.schedule_story import schedule_units
    from weftline.report.trace import schedule_trace

    answer = load_schedule(path)
    found = answer.timetable()
    if trace is not None:
        write_atomically(trace, schedule_trace(answer))
    if json:
        says = {"schedule_makespan": answer.makespan, "peak_memory": found.peak_memory}
        print_json({"objective": answer.objective, "makespan": found.makespan, **says})
        return
    time, _ = schedule_units(answer)
    show(f"{answer.name}: simulated makespan {time(found.makespan)}, the schedule says {time(answer.makespan)}")
    if found.makespan != answer.makespan:
        raise VerificationError("the simulated makespan is not the schedule's; weftline verify says what does not hold")
    _tell_trace(trace)


def explain(
    plan: Annotated[Path, typer.Argument(metavar="PLAN|SCHEDULE", help="A plan, fleet plan or schedule file.")],
    op: Annotated[str | None, typer.Option(metavar="NAME", help="Tell the story of one op instead.")] = None,
    placement: Annotated[bool, typer.Option("--placement", help="List every op with its device and time.")] = False,
    most: Annotated[int, typer.Option(metavar="N", min=1, help="Show at most so many steps of the chain.")] = 40,
    json: JsonFlag = False,
) -> None:
    """Show why a plan or schedule takes as long as it does.

    Of a plan: the limits that bind, and the chain of ops and transfers that ends last, or the slowest stage with its
    costliest ops and tensors. With --op why one op stands where it does, and what the plan would cost with it on each
    other device (simulated again). With --placement the whole placement. Of a schedule: how far it can be from the
    best, what binds, and what each device does and holds. Of a fleet plan: which devices are busy all the time, what
    more of each would bring, lanes with their shares, and simple plans beside it.
    """
    from dataclasses import asdict

    from weftline.plans import binding_limits, explain_plan, explain_stage, load_plan, placed_ops
    from weftline.plans.explain import explain_blocks
    from weftline.plans.summary import guarantee, measured_words
    from weftline.report import placement_table

    if op is not None and placement:
        raise UsageError("--op tells the story of one op, --placement lists them all; leave one out")
    if (other := _other_kind(plan)) is not None:
        kind, tell = other
        if op is not None or placement:
            raise UsageError(f"--op and --placement are for plans; this is {kind}")
        tell(plan, json)
        return
    answer = load_plan(plan)
    if placement:
        if json:
            print_json({"placement": [asdict(row) for row in placed_ops(answer)]})
        else:
            show(placement_table(answer))
        return
    if op is not None:
        _explain_op(answer, op, json)
        return
    reasons, slowest, limits = explain_plan(answer), explain_stage(answer), binding_limits(answer)
    binds = ["What binds:", *(f"  {limit.says}" for limit in limits)]
    if json:
        told = {"value_ns": answer.value_ns, "binding": [asdict(limit) for limit in limits]}
        told["chain"] = [asdict(reason) for reason in reasons]
        print_json(told if slowest is None else {**told, "slowest_stage": asdict(slowest)})
        return
    if slowest is not None:
        show(guarantee(answer), *slowest.lines(), *binds)
        return
    known = [text for text in (guarantee(answer), measured_words(answer), *explain_blocks(answer)) if text]
    show(*known, *binds, "What decides the value, in order of time:")
    shown = reasons if len(reasons) <= most else reasons[: most // 2] + reasons[-(most - most // 2) :]
    for number, reason in enumerate(shown):
        if number == most // 2 and len(reasons) > most:
            show(f"             ... {len(reasons) - most} more ...")
        show(str(reason))


def diff(
    first: Annotated[Path, typer.Argument(metavar="FIRST", help="A plan, fleet plan or schedule file.")],
    second: Annotated[Path, typer.Argument(metavar="SECOND", help="Another one of the same kind.")],
    json: JsonFlag = False,
) -> None:
    """Compare two plans (value, bound, loads, moves), two schedules, two fleet plans, a fleet plan and a pipeline.

    Both values are simulated again first: a file that claims another one is refused. (weftline verify checks the rest.)
    """
    from dataclasses import asdict

    from weftline.certify.run import is_fleet, is_schedule
    from weftline.plans import Difference, diff_plans
    from weftline.plans.schedule_story import ScheduleDifference, diff_schedules

    kinds = [is_schedule(path) for path in (first, second)]
    if all(path.is_file() for path in (first, second)) and kinds[0] != kinds[1]:
        raise UsageError("a plan and a schedule cannot be compared: give two plans or two schedules")
    if any(is_fleet(path) for path in (first, second)):
        a, b = (simulated_fleet(path) if is_fleet(path) else _simulated(path) for path in (first, second))
        diff_fleet_plans(a, b, json)
        return
    difference: Difference | ScheduleDifference
    if all(kinds):
        difference = diff_schedules(_simulated_schedule(first), _simulated_schedule(second))
    else:
        difference = diff_plans(_simulated(first), _simulated(second))
    if json:
        print_json({**asdict(difference), "identical": difference.identical})
        return
    word = "schedules" if all(kinds) else "plans"
    show(f"the {word} are the same" if difference.identical else str(difference))


def _explain_op(answer: Plan, op: str, json: bool) -> None:
    from dataclasses import asdict

    from weftline.plans import explain_op
    from weftline.report.tables import moves_table

    story = explain_op(answer, op)
    if json:
        print_json(asdict(story))
    else:
        show(*story.lines(), "", moves_table(story, answer.objective))


def _other_kind(path: Path) -> tuple[str, Callable[[Path, bool], None]] | None:
    """What a file is that is no plan of ops, and how it is explained."""
    from weftline.certify.run import is_fit, is_fleet, is_schedule

    if is_fit(path):
        return "a plan of a language model", explain_fit_file
    if is_fleet(path):
        return "a fleet plan, whose lanes each have a placement", explain_fleet_file
    return ("a schedule", _explain_schedule) if is_schedule(path) else None


def _explain_schedule(path: Path, json: bool) -> None:
    from dataclasses import asdict

    from weftline.plans.schedule_story import explain_schedule
    from weftline.report.tables import left_out, schedule_table

    answer = _simulated_schedule(path)
    story = explain_schedule(answer)
    if json:
        print_json(asdict(story))
        return
    show(*story.words, "What binds:", *(f"  {sentence}" for sentence in story.binding), "")
    show(schedule_table(answer, links=False), *filter(None, (left_out(answer),)))


def _simulated_schedule(path: Path) -> Schedule:
    """A schedule whose makespan is what the simulator says."""
    from weftline.plans.schedule import load_schedule

    schedule = load_schedule(path)
    try:
        makespan = schedule.timetable().makespan
    except InputError as error:
        raise error.at(str(path)) from None
    if makespan != schedule.makespan:
        raise VerificationError(f"{path}: the simulated makespan is not the schedule's; weftline verify says more")
    return schedule


def _simulated(path: Path) -> Plan:
    """A plan whose value is what the simulator says."""
    from weftline.plans import load_plan, plan_result

    plan = load_plan(path)
    try:
        value = plan_result(plan)[1].value
    except InputError as error:
        raise error.at(str(path)) from None
    if value != plan.value_ns:
        raise VerificationError(f"{path}: the simulated value is not the plan's; weftline verify says what is wrong")
    return plan
