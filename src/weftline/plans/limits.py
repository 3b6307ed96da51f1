"""Which limits bind: what the value consists of, what was waited for, which limits stand in the way of better plans.

In: a Plan. Out: `Binding` records, each with a sentence. Simplified: a limit is found by moving the costliest of the
ops that decide the value, one at a time, through the simulator; limits that bind only several ops at once are not seen.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import msgspec
import numpy as np

from weftline.graph.arrays import Indices
from weftline.plans.explain import Reason, explain_result
from weftline.plans.moves import MoveOutcome, set_of, simulate_moved, try_move
from weftline.plans.plan import Plan
from weftline.plans.result import plan_result
from weftline.problem import Problem, Rules
from weftline.simulate import Loads, Timeline
from weftline.units import format_bytes, format_name, format_time

__all__ = ["Binding", "binding_limits"]

MOST_WORK = 400_000
"""Ops times moves that are simulated, about: a second or two."""
FULL_WITHIN = 0.01
"""Stages whose load is within this share of the period count as full."""

MOST_SHOWN = 5
"""Devices and links that are named, and busy ones."""
LEAST_SHARE = 0.01
"""Parts of the value that are smaller are not named."""


@dataclass(frozen=True)
class Binding:
    """One thing that decides the value, or keeps it from being better."""

    kind: str
    """compute, transfer, wait, balance, memory, together, one-device, stages, or search (better moves)."""
    what: str
    """The device, link, bus, or op it is about; empty where it is about none."""
    share: float | None
    """Part of the value, or of the ops that were tried."""
    says: str


def binding_limits(plan: Plan) -> tuple[Binding, ...]:
    """Everything that binds: parts of the value first, then limits in the way."""
    problem, result = plan_result(plan)
    value = result.value
    if isinstance(result, Timeline):
        chain = explain_result(problem, result)
        parts = _parts_of_chain(chain, value)
        ops, where = sorted({problem.graph.index[reason.op] for reason in chain if reason.op}), "of the chain"
    else:
        parts = _parts_of_stage(problem, result)
        worst = int(result.load.argmax())
        ops, where = np.flatnonzero(result.placement == worst).tolist(), f"on {problem.devices[worst].id}"
    return (*parts, *_limits_in_the_way(problem, result, ops, where))


def _parts_of_chain(chain: list[Reason], value: int) -> list[Binding]:
    """How long the chain computes on each device and sends over each link, and what its steps wait for."""
    spent: Counter[str] = Counter()
    for reason in chain:
        spent[reason.where] += reason.end_ns - reason.start_ns
    found = []
    for where, time in spent.most_common(MOST_SHOWN):
        share, kind = time / value if value else 0.0, "transfer" if "->" in where else "compute"
        if share < LEAST_SHARE:
            continue
        doing = "is sending over it" if kind == "transfer" else "is work on it, one op after another"
        found.append(Binding(kind, where, share, f"{where}: {share:.0%} of the value {doing}"))
    waits = Counter(reason.waits_for for reason in chain if reason.waits_for)
    for lane, count in waits.most_common(MOST_SHOWN):
        share = count / len(chain)
        says = f"{lane} is busy: {count} of {len(chain)} steps of the chain wait for it, not for their inputs"
        found.append(Binding("wait", lane, share, says))
    return found


def _parts_of_stage(problem: Problem, loads: Loads) -> list[Binding]:
    """What the slowest stage does, and how many others are as full."""
    worst, value = int(loads.load.argmax()), loads.value
    device, found = problem.devices[worst].id, []
    for kind, words, amount in (
        ("compute", "computes", loads.compute),
        ("transfer", "receives", loads.entering),
        ("transfer", "sends", loads.leaving),
    ):
        share = int(amount[worst]) / value if value else 0.0
        if share:
            found.append(Binding(kind, device, share, f"{device}: {words} for {share:.0%} of the period"))
    used = len(loads.stages)
    full = sum(int(loads.load[d]) >= value * (1 - FULL_WITHIN) for d in loads.stages)
    says = f"{full} of {used} stages are full (load within {FULL_WITHIN:.0%} of the period)"
    idle = len(problem.devices) - used
    says += f"; {idle} of {len(problem.devices)} devices have no stage" if idle else ""
    return [*found, Binding("balance", "", full / used, says)]


def _limits_in_the_way(problem: Problem, result: Timeline | Loads, ops: list[int], where: str) -> list[Binding]:
    """Move the costliest of these ops one at a time: which moves would be better, and what forbids them?"""
    n = len(problem.graph.ops)
    spent = {i: int(problem.cost.time[i, result.placement[i]]) for i in ops}
    costliest = sorted(ops, key=lambda i: (-spent[i], i))[: max(4, MOST_WORK // n // max(len(problem.devices), 1))]
    costliest = list({set_of(problem, i): i for i in reversed(costliest)}.values())[::-1]
    gains: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
    alone = 0
    for i in costliest:
        members = set_of(problem, i)
        alone += int((problem.cost.time[list(members)] >= 0).all(axis=0).sum() == 1)
        for d in range(len(problem.devices)):
            if d != result.placement[i]:
                for key, value in _in_the_way(problem, result, i, members, d):
                    gains.setdefault(key, []).append((value, i, d))
    tried = f"of the {len(costliest)} dearest ops {where}"
    found = []
    for key, entries in sorted(gains.items()):
        held = len({i for _, i, _ in entries})
        found.append(Binding(*key, held / len(costliest), _told(problem, result, key, min(entries), f"{held} {tried}")))
    if alone:
        says = f"{alone} {tried} may run on one device only (pin, forbid, or no time)"
        found.append(Binding("one-device", "", alone / len(costliest), says))
    if not gains:
        says = f"none {tried} has a better place on another device, whatever memory and sets say"
        found.append(Binding("search", "", 0.0, says))
    return found


def _in_the_way(
    problem: Problem, result: Timeline | Loads, op: int, members: tuple[int, ...], device: int
) -> list[tuple[tuple[str, str], int]]:
    """(kind, what) of the limits without which the op would be better there, with the value it would have."""
    outcome, name = try_move(problem, result, members, device), problem.devices[device].id
    if _better(outcome, result):
        if not outcome.breaks:
            return [(("search", ""), outcome.value or 0)]
        return [(("memory", problem.devices[d].id), outcome.value or 0) for d in _overfull(problem, outcome)]
    found = []
    if isinstance(result, Loads) and name not in {problem.devices[d].id for d in result.stages}:
        freed = problem.with_rules(_without_stages(problem))
        more = try_move(freed, result, members, device) if problem.rules.stages else outcome
        if _better(more, result) and not more.breaks:
            found.append((("stages", ""), more.value or 0))
    if len(members) > 1 and problem.cost.time[op, device] >= 0:
        single = simulate_moved(problem, result, _alone(result.placement, op, device))
        if _better(single, result) and not _overfull(problem, single):
            found.append((("together", ""), single.value or 0))
    return found


def _without_stages(problem: Problem) -> Rules:
    return msgspec.structs.replace(problem.rules, stages=0)


def _alone(placement: Indices, op: int, device: int) -> Indices:
    placement = placement.copy()
    placement[op] = device
    return placement


def _better(outcome: MoveOutcome, result: Timeline | Loads) -> bool:
    return outcome.value is not None and outcome.value < result.value


def _overfull(problem: Problem, outcome: MoveOutcome) -> list[int]:
    """Devices whose memory the outcome would exceed."""
    full: list[int] = [] if outcome.result is None else np.flatnonzero(outcome.result.peak > problem.capacity).tolist()
    return full


def _told(
    problem: Problem, result: Timeline | Loads, key: tuple[str, str], best: tuple[int, int, int], held: str
) -> str:
    """One sentence about a limit: which of the ops it holds back, and what the best of them would bring."""
    kind, what = key
    value, op, device = best
    name = format_name(problem.graph.ops[op].name)
    gain = f"{name} on {problem.devices[device].id} would give {format_time(value)}"
    if kind == "memory":
        d = problem.device_index[what]
        room = f"{format_bytes(int(result.peak[d]))} of {format_bytes(int(problem.capacity[d]))} in use"
        return f"memory of {what} ({room}) keeps {held} from a better place: {gain}"
    if kind == "together":
        return f"sets that stay together (or kernels) keep {held} from a better place: {gain}"
    if kind == "stages":
        return f"the number of stages ({problem.rules.stages}) keeps {held} from a better place: {gain}"
    return f"{held} have a better place that no limit forbids: {gain}"
