"""What would help: the same problem with one thing better, solved again for a few seconds.

In: a plan and a number of seconds for all questions together. Out: `Help` for each: what the simulator says of the
best plan found. Asked are the busiest links at twice the speed (all their transfer times halved), a quarter more memory
where a device is nearly full, and one more device like the one that does most. Every search starts from the plan, and
a search of the unchanged problem tells what more time alone would bring. Simplified: a link between the new device and
its twin is as fast as the twin's best link; the new device shares the buses of its twin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic

import msgspec
import numpy as np

from weftline.ask.planning import make_plan
from weftline.cost import CostTable
from weftline.errors import WeftlineError
from weftline.graph.arrays import Ints
from weftline.plans import Plan, plan_result
from weftline.problem import Problem
from weftline.simulate import Loads, Timeline, replay, simulate_throughput, violations

__all__ = ["FULL_SHARE", "Help", "WhatIf", "ask", "questions"]

FULL_SHARE = 0.9
"""Share of a device's memory above which it is said to bind."""
MOST_LINKS = 2
"""So many links are asked for."""
MOST_OPS = 60_000
LEAST_SECONDS = 0.5


@dataclass(frozen=True)
class WhatIf:
    """One thing better."""

    name: str
    problem: Problem
    note: str = ""


@dataclass(frozen=True)
class Help:
    """What was found."""

    name: str
    note: str
    value_ns: int
    bound_ns: int
    seconds: float


def ask(plan: Plan, seconds: float, tell: Callable[[str], None] | None = None) -> list[Help]:
    """Solve every question, each with the same share of the time."""
    problem, result = plan_result(plan)
    if len(problem.graph.ops) > MOST_OPS or plan.value_ns == 0:
        return []
    asked = questions(problem, result)
    share = max(LEAST_SECONDS, seconds / len(asked))
    found = []
    for question in asked:
        if tell is not None:
            tell(question.name)
        found.append(_solve(question, plan, result, share))
    return [answer for answer in found if answer is not None]


def questions(problem: Problem, result: Timeline | Loads) -> list[WhatIf]:
    """The unchanged problem first, then what may help."""
    asked = [WhatIf("nothing changes", problem, "the same problem, searched again")]
    ids = [device.id for device in problem.devices]
    for a, b in _busiest_links(problem, result):
        name = f"link {ids[a]} \N{EN DASH} {ids[b]} twice as fast"
        asked.append(WhatIf(name, _faster_link(problem, a, b)))
    peak = result.peak
    for d, device in enumerate(problem.devices):
        if device.capacity is not None and peak[d] >= FULL_SHARE * device.capacity:
            asked.append(WhatIf(f"{device.id} with 25 % more memory", _more_memory(problem, d)))
    if problem.rules.runtime == "parallel" or problem.rules.objective == "throughput":
        best = _hardest_worker(problem, result)
        asked.append(WhatIf(f"one more device like {ids[best]}", _one_more(problem, best)))
    return asked


def _busiest_links(problem: Problem, result: Timeline | Loads) -> list[tuple[int, int]]:
    """Pairs of devices by the time that the plan's tensors spend between them."""
    busy: dict[tuple[int, int], int] = {}
    if isinstance(result, Timeline):
        for _, source, target, _, start, end in result.transfers.tolist():
            pair = min(source, target), max(source, target)
            busy[pair] = busy.get(pair, 0) + end - start
    else:
        for t, tensor in enumerate(problem.graph.tensors):
            if tensor.producer < 0:
                continue
            home = int(result.placement[tensor.producer])
            for device in {int(result.placement[op]) for op in tensor.consumers} - {home}:
                pair = min(home, device), max(home, device)
                length = int(problem.cost.transfer[problem.cost.transfer_row[t], home, device])
                busy[pair] = busy.get(pair, 0) + length
    return sorted((pair for pair, time in busy.items() if time > 0), key=lambda pair: (-busy[pair], pair))[:MOST_LINKS]


def _faster_link(problem: Problem, a: int, b: int) -> Problem:
    transfer = problem.cost.transfer.copy()
    for source, target in ((a, b), (b, a)):
        column = transfer[:, source, target]
        column[column > 0] = (column[column > 0] + 1) // 2
    return replace(problem, cost=replace(problem.cost, transfer=transfer))


def _more_memory(problem: Problem, device: int) -> Problem:
    devices = list(problem.devices)
    capacity = devices[device].capacity or 0
    devices[device] = msgspec.structs.replace(devices[device], memory=capacity * 5 // 4, reserve=0)
    return replace(problem, devices=tuple(devices))


def _hardest_worker(problem: Problem, result: Timeline | Loads) -> int:
    """The device (no host) that is worth most: it has the largest share of all work by the least times."""
    least = np.where(problem.cost.time < 0, 2**62, problem.cost.time).min(axis=1)
    worth = np.array([int(least[result.placement == d].sum()) for d in range(len(problem.devices))])
    worth[problem.host] = -1
    return int(worth.argmax())


def _one_more(problem: Problem, twin: int) -> Problem:
    """The same with a copy of a device at the end."""
    count = len(problem.devices)
    taken = {device.id for device in problem.devices}
    names = (f"{problem.devices[twin].id[:56]}-{number}" for number in range(2, len(taken) + 3))
    name = next(name for name in names if name not in taken)
    devices = (*problem.devices, msgspec.structs.replace(problem.devices[twin], id=name))
    time = np.concatenate([problem.cost.time, problem.cost.time[:, twin : twin + 1]], axis=1)
    transfer = np.zeros((len(problem.cost.transfer), count + 1, count + 1), np.int64)
    transfer[:, :count, :count] = problem.cost.transfer
    transfer[:, :count, count] = problem.cost.transfer[:, :, twin]
    transfer[:, count, :count] = problem.cost.transfer[:, twin, :]
    others = [d for d in range(count) if d != twin]
    transfer[:, twin, count] = _quickest(problem.cost.transfer[:, twin, others])
    transfer[:, count, twin] = _quickest(problem.cost.transfer[:, others, twin])
    stages = problem.rules.stages + 1 if problem.rules.stages else 0
    buses = [*problem.buses]
    buses += [(count if a == twin else a, count if b == twin else b, bus) for a, b, bus in buses if twin in (a, b)]
    return replace(
        problem,
        devices=devices,
        cost=CostTable(time, transfer, problem.cost.transfer_row, problem.cost.source),
        rules=msgspec.structs.replace(problem.rules, stages=stages),
        buses=tuple(buses),
    )


def _quickest(times: Ints) -> Ints:
    """The least time of each row that is there; absent where none is."""
    if times.shape[1] == 0:
        return np.full(len(times), -1, np.int64)
    least = np.where(times < 0, 2**62, times).min(axis=1)
    return np.where(least == 2**62, -1, least)


def _solve(question: WhatIf, plan: Plan, result: Timeline | Loads, seconds: float) -> Help | None:
    begun = monotonic()
    kept = _kept(question.problem, plan, result)
    value, bound, note = kept, 0, question.note
    try:
        found = make_plan(
            question.problem, time_limit=seconds, start=result.placement, seed=plan.provenance.seed, proof=0
        )
        value = found.value_ns if kept is None else min(kept, found.value_ns)
        bound = found.bound_ns
    except WeftlineError as error:
        note = f"no better plan: {error}"
    return None if value is None else Help(question.name, note, value, bound, monotonic() - begun)


def _kept(problem: Problem, plan: Plan, result: Timeline | Loads) -> int | None:
    """What the plan's own decisions cost then, by the simulator; None if they break a limit."""
    try:
        if isinstance(result, Timeline):
            again: Timeline | Loads = replay(problem, result.placement, result.actions(problem.graph.arrays.producer))
        else:
            again = simulate_throughput(problem, result.placement)
    except WeftlineError:
        return None
    return None if violations(problem, again) else again.value
