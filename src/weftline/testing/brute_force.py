"""Exact optima of tiny problems by trying everything.

Latency: every placement x every sequence of ops and transfers (pruned by the best found), nothing waits on purpose.
Throughput: every placement. Costs come from the simulator's slow reference, so that a wrong kernel cannot hide.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from weftline.cost import ABSENT
from weftline.problem import Problem
from weftline.simulate.reference import reference_loads, reference_prefix, reference_replay

__all__ = ["brute_force_latency", "brute_force_throughput", "placements"]

Action = tuple[int, int, int]
"""(op, -1, -1), or (tensor, target device, consumer or -1) for a transfer."""
Needs = dict[Action, set[Action]]
"""Action -> actions that must come before it."""


def placements(problem: Problem) -> list[tuple[int, ...]]:
    """Every assignment of ops to devices that can run them and that keeps `together`."""
    allowed = [np.flatnonzero(row != ABSENT).tolist() for row in problem.cost.time]
    return [
        choice
        for choice in product(*allowed)
        if all(len({choice[op] for op in members}) == 1 for members in problem.together)
    ]


def brute_force_throughput(problem: Problem) -> int | None:
    """The least period, or None if nothing is feasible."""
    best: int | None = None
    for choice in placements(problem):
        try:
            (_, _, _, load), peak = reference_loads(problem, choice)
        except ValueError:
            continue
        if _fits(problem, peak):
            best = max(load) if best is None else min(best, max(load))
    return best


def brute_force_latency(problem: Problem) -> int | None:
    """The least latency over all placements and all orders of ops and transfers, or None if nothing is feasible."""
    best: int | None = None
    for choice in placements(problem):
        best = _best_order(problem, choice, best)
    return best


def _best_order(problem: Problem, placement: tuple[int, ...], best: int | None) -> int | None:
    """Depth first over sequences of actions; a prefix is dropped when it cannot end before the best."""
    needs = _requirements(problem, placement)
    if needs is None or not _fits(problem, _least_held(problem, placement)):
        return best
    busiest = _busiest(problem, placement, needs)
    tail = _tails(problem, placement, needs)
    seen: set[tuple[object, ...]] = set()
    stack: list[tuple[Action, ...]] = [()]
    while stack:
        done = stack.pop()
        finished = set(done)
        ends, state = _partial(problem, placement, done)
        if best is not None and max(busiest, _floor(needs, tail, ends)) >= best:
            continue
        if (frozenset(finished), state) in seen:
            continue  # another sequence led to the very same times
        seen.add((frozenset(finished), state))
        if len(done) == len(needs):
            result = reference_replay(problem, placement, done)
            if _fits(problem, result.peak):
                best = result.value if best is None else min(best, result.value)
            continue
        stack += [(*done, action) for action in sorted(needs) if action not in finished and needs[action] <= finished]
    return best


def _partial(
    problem: Problem, placement: tuple[int, ...], done: tuple[Action, ...]
) -> tuple[dict[Action, int], tuple[object, ...]]:
    """Ends of the actions of a prefix, and the times that decide everything after it."""
    result = reference_prefix(problem, placement, done)
    ends: dict[Action, int] = {(op, -1, -1): end for op, end in result.end.items()}
    ends |= {(row[0], row[2], row[3]): row[5] for row in result.transfers}
    return ends, (tuple(sorted(result.start.items())), tuple(sorted(result.transfers)))


def _tails(problem: Problem, placement: tuple[int, ...], needs: Needs) -> dict[Action, int]:
    """Longest chain from the start of each action to the end, contention ignored."""
    after: dict[Action, list[Action]] = {action: [] for action in needs}
    for action, before in needs.items():
        for earlier in before:
            after[earlier].append(action)
    tail: dict[Action, int] = {}

    def walk(action: Action) -> int:
        if action not in tail:
            tail[action] = _length(problem, placement, action) + max((walk(a) for a in after[action]), default=0)
        return tail[action]

    for action in needs:
        walk(action)
    return tail


def _busiest(problem: Problem, placement: tuple[int, ...], needs: Needs) -> int:
    """What the busiest device or port has to do, whatever the sequence; everything where nothing overlaps."""
    work: dict[tuple[str, int], int] = {}
    for action in needs:
        what, target, _ = action
        if problem.rules.runtime == "sequential":
            taken = [("all", 0)]
        elif target < 0:
            taken = [("device", placement[what])]
        else:
            taken = [("send", placement[problem.graph.tensors[what].producer]), ("receive", target)]
        for resource in taken:
            work[resource] = work.get(resource, 0) + _length(problem, placement, action)
    return max(work.values())


def _least_held(problem: Problem, placement: tuple[int, ...]) -> list[int]:
    """Bytes that each device holds at some time whatever the sequence: weights, and what one op needs to run."""
    graph, static = problem.graph, problem.rules.memory == "static"
    held, most = [0] * len(problem.devices), [0] * len(problem.devices)
    for i, (op, device) in enumerate(zip(graph.ops, placement, strict=True)):
        held[device] += op.weight_bytes + (op.workspace_bytes if static else 0)
        if problem.cost.time[i, device] > 0 and not static:
            around = sum(tensor.bytes for tensor in graph.tensors if tensor.producer == i or i in tensor.consumers)
            most[device] = max(most[device], op.workspace_bytes + around)
    for tied in graph.tied:
        for device in {placement[op] for op in tied.ops}:
            held[device] += tied.bytes
    return [always + once for always, once in zip(held, most, strict=True)]


def _floor(needs: Needs, tail: dict[Action, int], ends: dict[Action, int]) -> int:
    """No completion of the prefix ends before this."""
    ahead = [
        max((ends[a] for a in before if a in ends), default=0) + tail[x] for x, before in needs.items() if x not in ends
    ]
    return max([*ends.values(), *ahead], default=0)


def _length(problem: Problem, placement: tuple[int, ...], action: Action) -> int:
    what, target, _ = action
    if target < 0:
        return int(problem.cost.time[what, placement[what]])
    source = placement[problem.graph.tensors[what].producer]
    return int(problem.cost.transfer[problem.cost.transfer_row[what], source, target])


def _requirements(problem: Problem, placement: tuple[int, ...]) -> Needs | None:
    """Every action of this placement -> actions that must come before it; None if a link is missing."""
    needs: Needs = {(op, -1, -1): set() for op in range(len(placement))}
    per_edge = problem.rules.transfers == "per-edge"
    for t, tensor in enumerate(problem.graph.tensors):
        if tensor.producer < 0:
            continue
        home = placement[tensor.producer]
        for op in tensor.consumers:
            length = problem.cost.transfer[problem.cost.transfer_row[t], home, placement[op]]
            if length < 0:
                return None
            source = (tensor.producer, -1, -1)
            if placement[op] != home and length > 0:
                action = (t, placement[op], op if per_edge else -1)
                needs.setdefault(action, {source})
                source = action
            needs[op, -1, -1].add(source)
    return needs


def _fits(problem: Problem, peak: list[int]) -> bool:
    return all(used <= limit for used, limit in zip(peak, problem.capacity.tolist(), strict=True))
