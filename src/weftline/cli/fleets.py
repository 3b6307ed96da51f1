"""What verbs print of fleet plans: `plan --objective throughput`, `simulate`, `explain` and `diff`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from weftline.cli.output import print_json, show
from weftline.errors import InputError, UsageError, VerificationError
from weftline.units import format_time

if TYPE_CHECKING:
    from weftline.ask import DeviceSweep
    from weftline.plans import Plan
    from weftline.plans.fleet import AnyFleet
    from weftline.plans.fleet_result import FleetResult

__all__ = [
    "diff_fleet_plans",
    "explain_fleet_file",
    "serve_file",
    "show_device_sweep",
    "show_fleet",
    "simulate_fleet_file",
    "simulated_fleet",
]


def show_fleet(found: AnyFleet, output: Path | None) -> None:
    """What `plan` prints: summary, baselines, and where it was written."""
    from weftline.report.fleet import fleet_comparison_table

    show(found.summary(), "", fleet_comparison_table(found), "")
    if found.stopped_by == "interrupted":
        show("Interrupted: this is the best plan so far.")
    show(f"written to {output}; check it: weftline verify {output}" if output else "not written; -o plan.json keeps it")


def show_device_sweep(found: DeviceSweep, output: Path | None) -> None:
    """Every number of devices, what follows, and the plan of the best number."""
    from weftline.report.sweep import device_sweep_table, device_sweep_words

    show(device_sweep_table(found), "", *device_sweep_words(found), "")
    show_fleet(found.plan, output)


def simulate_fleet_file(path: Path, trace: Path | None, json: bool) -> None:
    """Rate, period, devices and lanes again; an error if they are not what the plan says."""
    from weftline.plans.fleet import load_fleet
    from weftline.plans.fleet_result import rate_words, same_fleet
    from weftline.report.fleet import fleet_device_table, lane_table

    if trace is not None:
        raise UsageError("a fleet plan has no clock of its own, so it has no trace; leave --trace out")
    answer = load_fleet(path)
    found = _named(path, answer)
    if json:
        told = {"plan_value_ns": answer.value_ns, "plan_rate": answer.rate, "violations": list(found.violations)}
        print_json({"objective": answer.objective, **told, **found.to_json()})
        return
    rate, says = rate_words(found.rate, found.unit), rate_words(answer.rate, found.unit)
    show(f"{found.model}: simulated rate {rate} ({format_time(found.value)} per input), the plan says {says}")
    if found.latency_ns is not None:
        alone = " .. ".join(dict.fromkeys(map(format_time, found.latency_ns)))
        show(f"one input alone takes {alone}, over at most {found.depth} devices in a row")
    show("", fleet_device_table(found), "", lane_table(found))
    if not same_fleet(answer, found):
        wrong = f": {found.violations[0]}" if found.violations else "; weftline verify says what does not hold"
        raise VerificationError(f"what was simulated is not what the plan says{wrong}")


def serve_file(path: Path, profile: Path, json: bool) -> None:
    """Requests served over a plan of layers and its front: rate, time to the first token, time per token."""
    import msgspec

    from weftline.ask.layers import serve_plan
    from weftline.cli.output import progress
    from weftline.plans.fleet import load_fleet
    from weftline.plans.layers import LayerPlan
    from weftline.report.fleet import serving_table

    answer = load_fleet(path)
    if not isinstance(answer, LayerPlan):
        raise UsageError("--profile is for plans of layers on devices with tables")
    with progress(f"serving {answer.problem.name}"):
        rows = serve_plan(answer, profile)
    if json:
        print_json({"model": answer.problem.name, "rows": msgspec.to_builtins(rows)})
    else:
        show(serving_table(rows), "Served: tokens made after prompts, per second. best: no other row beats both times.")


def _named(path: Path, answer: AnyFleet) -> FleetResult:
    from weftline.plans.fleet_result import simulate_fleet

    try:
        return simulate_fleet(answer)
    except InputError as error:
        raise error.at(str(path)) from None


def explain_fleet_file(path: Path, json: bool) -> None:
    """Why the rate is what it is: what binds, devices, lanes, baselines."""
    from weftline.plans.fleet_story import explain_fleet
    from weftline.report.fleet import fleet_comparison_table, fleet_device_table, front_table, lane_table

    answer = simulated_fleet(path)
    story = explain_fleet(answer)
    if json:
        print_json(story.to_json())
        return
    show(story.guarantee, "What binds:", *(f"  {sentence}" for sentence in story.lines()), "")
    show(fleet_device_table(story.result), "", lane_table(story.result), "", fleet_comparison_table(answer))
    if (front := front_table(answer, story.result.unit)) is not None:
        show("", front)


def simulated_fleet(path: Path) -> AnyFleet:
    """A fleet plan that says what the simulator says."""
    from weftline.plans.fleet import load_fleet
    from weftline.plans.fleet_result import same_fleet

    answer = load_fleet(path)
    if not same_fleet(answer, _named(path, answer)):
        raise VerificationError(f"{path}: what was simulated is not what the plan says; weftline verify says more")
    return answer


def diff_fleet_plans(first: AnyFleet | Plan, second: AnyFleet | Plan, json: bool) -> None:
    """Two fleet plans, or one beside a plan for throughput; each says what the simulator says."""
    from dataclasses import asdict

    from weftline.plans.fleet_diff import diff_fleets

    difference = diff_fleets(first, second)
    if json:
        print_json({**asdict(difference), "identical": difference.identical})
        return
    show("the plans are the same" if difference.identical else str(difference))
