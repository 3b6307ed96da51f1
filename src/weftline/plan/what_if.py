"""What a plan would cost with some ops elsewhere, by the one simulator.

In: a plan's problem, what the simulator said of the plan, and another placement. Out: an `Outcome`: the new result and
the limits that it breaks, or why it cannot be carried out. Simplified: nothing is searched. A latency plan keeps the
order of its list, and transfers that become necessary stand just before the op that needs them; the default order is
tried beside it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.problem import Problem
from weftline.simulate import Loads, Timeline, replay, simulate_latency, simulate_throughput, violations

__all__ = ["Outcome", "simulate_moved", "with_followers"]


@dataclass(frozen=True, eq=False)
class Outcome:
    """What the simulator says of a placement."""

    placement: Indices
    result: Timeline | Loads | None
    """None where the placement cannot be carried out at all."""
    breaks: tuple[str, ...]
    """Limits that it breaks, or the reason that there is no result."""

    @property
    def value(self) -> int | None:
        """Its latency or period, limits or not."""
        return None if self.result is None else self.result.value

    @property
    def rank(self) -> tuple[bool, bool, int]:
        """The smaller the better: carried out, without broken limits, fast."""
        return self.result is None, bool(self.breaks), self.value or 0


def simulate_moved(problem: Problem, before: Timeline | Loads, placement: Indices) -> Outcome:
    """Cost another placement, with the order of the plan before it where there is one."""
    ways: list[Callable[[], Timeline | Loads]] = [lambda: simulate_throughput(problem, placement)]
    if isinstance(before, Timeline):
        ways = [
            lambda: replay(problem, placement, _moved_actions(problem, before, placement)),
            lambda: simulate_latency(problem, placement),
        ]
    return min((_outcome(problem, placement, way) for way in ways), key=lambda outcome: outcome.rank)


def _outcome(problem: Problem, placement: Indices, simulate: Callable[[], Timeline | Loads]) -> Outcome:
    try:
        result = simulate()
    except InfeasibleError as error:
        return Outcome(placement, None, (str(error),))
    return Outcome(placement, result, violations(problem, result))


def _moved_actions(problem: Problem, before: Timeline, placement: Indices) -> Ints:
    """The plan's list of actions: ops in their places, transfers that nobody needs gone, missing ones just before."""
    arrays, per_edge = problem.graph.arrays, problem.rules.transfers == "per-edge"
    home, rows, sent = placement.tolist(), [], set()
    length, row_of, producer = problem.cost.transfer, problem.cost.transfer_row.tolist(), arrays.producer.tolist()

    def needed(tensor: int, device: int) -> bool:
        maker = producer[tensor]
        return maker >= 0 and home[maker] != device and int(length[row_of[tensor], home[maker], device]) != 0

    for what, target, consumer in before.actions(arrays.producer).tolist():
        if target < 0:
            for tensor in arrays.input_of[arrays.input_ptr[what] : arrays.input_ptr[what + 1]].tolist():
                send = (tensor, home[what], what if per_edge else -1)
                if needed(tensor, home[what]) and send not in sent:
                    sent.add(send)
                    rows.append(send)
            rows.append((what, -1, -1))
            continue
        readers = [consumer] if per_edge else arrays.consumer_of[slice(*arrays.consumer_ptr[what : what + 2])].tolist()
        wanted = needed(what, target) and any(home[op] == target for op in readers)
        if wanted and (what, target, consumer) not in sent:
            sent.add((what, target, consumer))
            rows.append((what, target, consumer))
    return np.array(rows, np.int64).reshape(-1, 3)


def with_followers(
    problem: Problem, loads: Loads, ops: tuple[int, ...], device: int, *, later: bool
) -> tuple[int, ...]:
    """The ops that must go along so that the stages stay in a row: all that follow in between (or that come before)."""
    rank = {d: place for place, d in enumerate(loads.stages)}
    away = rank.get(device)
    source, target, _ = problem.graph.arrays.edges()
    backward = problem.graph.arrays.backward
    forward = ~(backward[source] | backward[target])
    neighbours = defaultdict(list)
    for a, b in zip(source[forward].tolist(), target[forward].tolist(), strict=True):
        neighbours[a if later else b].append(b if later else a)
    sets = {op: members for members in problem.together for op in members}
    found, queue = set(ops), list(ops)
    while queue:
        op = queue.pop()
        here = rank[int(loads.placement[op])]
        near = list(sets.get(op, ()))
        for other in neighbours[op]:
            place = rank[int(loads.placement[other])]
            between = place == here if away is None else (place < away if later else place > away)
            near += [other] if between else []
        for other in near:
            if other not in found:
                found.add(other)
                queue.append(other)
    return tuple(sorted(found))
