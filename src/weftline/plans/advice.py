"""What to do, in one line, where the answer is not to split: the first thing that people should read.

In: a Plan or a fleet plan. Out: a sentence, or nothing where the plan is what to take. Simplified: how far estimates
are off is one number for all devices; of measured costs it is the spread of the measured runs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from weftline.plans.plan import Plan
from weftline.units import format_name, format_time

if TYPE_CHECKING:
    from weftline.plans.fleet import FleetPlan

__all__ = ["advise", "advise_fleet", "advised", "advised_fleet", "copies_words", "cost_error"]

ESTIMATE_ERROR = 0.05
"""Share by which times from data sheets are off at least."""
FLEET_ERRORS = {"analytic": 0.10, "profiled": 0.03, "measured": 0.03}
"""How the source of costs begins -> the share of a rate below which a difference says nothing."""
MOST_NAMES_LISTED = 6
_SPREAD = re.compile(r"spread ([0-9]{1,4}(?:\.[0-9]{1,4})?)%")


def cost_error(plan: Plan) -> float:
    """Share of the value below which a difference says nothing: by estimates, or by the spread of measured costs."""
    source = plan.problem.cost_source
    if source.startswith("analytic"):
        return ESTIMATE_ERROR
    spread = _SPREAD.search(source) if source.startswith("profiled") else None
    return float(spread[1]) / 100 if spread else 0.0


def advise(plan: Plan) -> str:
    """The one line."""
    if plan.value_ns == 0:
        return ""
    if plan.measured:
        return _measured(plan)
    return _copies(plan) or _alone(plan)


def advised(plan: Plan) -> Plan:
    """The plan with the advice in it, for `--json`; the same plan where there is none."""
    words = advise(plan)
    return msgspec.structs.replace(plan, advice=words) if words else plan


def advise_fleet(plan: FleetPlan) -> str:
    """The one line for a fleet: where one device, or whole copies alone, are as good as anybody can tell."""
    if any(rate and rate > plan.rate for rate in plan.baselines.values()):  # a solver was named that is not the best
        return ""
    ids = [device.id for device in plan.problem.devices]
    used = sorted({device for lane in plan.lanes for device, _, _ in lane.hops})
    names = [format_name(ids[device]) for device in used]
    copies, error = all(lane.depth == 1 for lane in plan.lanes), _fleet_error(plan)
    off = f"less than these estimates can tell (about {error:.0%})"
    if len(names) == 1:
        return f"Use {names[0]} alone: nothing that was found gives more." if len(ids) > 1 else ""
    single, replicas = plan.baselines.get("single-device"), plan.baselines.get("replicas")
    if single and plan.rate / single - 1 < error:
        return f"Use {_fastest(plan, single)} alone: all devices together give {_gain(plan, single)} more, {off}."
    if copies:
        where = f"each of {', '.join(names[:MOST_NAMES_LISTED])}"
        where += f" and {len(names) - MOST_NAMES_LISTED} more" if len(names) > MOST_NAMES_LISTED else ""
        return f"Run a whole copy on {where}: do not split the model, no split that was found gives more."
    if replicas and plan.rate / replicas - 1 < error:
        many = "every device that can hold one (--solver replicas)"
        return f"Run a whole copy on {many}: to split gives {_gain(plan, replicas)} more, {off}."
    return ""


def advised_fleet(plan: FleetPlan) -> FleetPlan:
    """The fleet plan with the advice in it, for `--json`; the same where there is none."""
    words = advise_fleet(plan)
    return msgspec.structs.replace(plan, advice=words) if words else plan


def _fleet_error(plan: FleetPlan) -> float:
    source = plan.problem.cost_source
    known = next((error for name, error in FLEET_ERRORS.items() if source.startswith(name)), 0.0)
    spread = _SPREAD.search(source) if source.startswith("profiled") else None
    return max(known, float(spread[1]) / 100 if spread else 0.0)


def _gain(plan: FleetPlan, rate: float) -> str:
    return f"{max(0.0, plan.rate / rate - 1):.1%}"


def _fastest(plan: FleetPlan, rate: float) -> str:
    """The device that alone gives this rate."""
    time = plan.load_problem().cost.time
    total = [(abs(int(time[:, d].sum()) - 1e9 / rate), d) for d in range(time.shape[1]) if (time[:, d] >= 0).all()]
    return format_name(plan.problem.devices[min(total)[1]].id) if total else "one device"


def _copies(plan: Plan) -> str:
    """Whole models side by side, where they are faster than the pipeline."""
    copies = plan.baselines.get("replicas")
    if copies is None or not 0 < copies < plan.value_ns:
        return ""
    where = copies_words(plan)
    return where and (
        f"Run {where} instead: {format_time(copies)} per input, "
        f"{plan.value_ns / copies:.2f}x as fast as this pipeline ({format_time(plan.value_ns)})."
    )


def copies_words(plan: Plan) -> str:
    """What `replicas` of a throughput plan are; nothing where a single device alone is meant."""
    from weftline.simulate.throughput import replica_periods

    count, devices = len(replica_periods(plan.load_problem())), len(plan.problem.devices)
    if count < 2:
        return ""
    where = "each device" if count == devices else f"each of the {count} fastest devices that can hold it"
    return f"a whole copy of the model on {where}"


def _alone(plan: Plan) -> str:
    """One device, where splitting gains nothing that could be relied on."""
    single = plan.baselines.get("single-device")
    used = set(plan.placement.values())
    if len(used) == 1 and len(plan.devices) > 1 and plan.problem.rules.stages != 1:
        return f"Use {format_name(used.pop())} alone: no split that was found is faster."
    if not single or len(used) < 2:
        return ""
    gain, error = (single - plan.value_ns) / single, cost_error(plan)
    if gain <= 0:
        return f"Use {_best_device(plan, single)} alone: this split is not faster."
    if gain >= error:
        return ""
    off = "the estimates are off" if plan.problem.cost_source.startswith("analytic") else "the measured times vary"
    return f"Use {_best_device(plan, single)} alone: splitting gains {gain:.1%}, less than {off} (about {error:.0%})."


def _best_device(plan: Plan, value: int) -> str:
    """The device on which the whole model takes so long."""
    time = plan.load_problem().cost.time
    found = [d for d in range(len(plan.problem.devices)) if (time[:, d] >= 0).all() and int(time[:, d].sum()) == value]
    return format_name(plan.problem.devices[found[0]].id) if found else "one device"


def _measured(plan: Plan) -> str:
    """The same by what was measured."""
    found = plan.measured
    assert found
    gain = 1 - found.ratio
    if gain >= found.spread or len(set(plan.placement.values())) < 2:
        return ""
    device = format_name(found.reference)
    if gain <= 0:
        return f"Use {device} alone: measured, this split is not faster."
    return f"Use {device} alone: measured, splitting gains {gain:.1%}, less than the runs vary ({found.spread:.1%})."
