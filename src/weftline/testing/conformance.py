"""One suite for every solver of a family: what an answer must hold, whoever found it.

In: a `Solver` and a tiny `Problem`. Out: nothing, or an `AssertionError` that says what does not hold. Third parties
run `check_solver` on problems of `weftline.testing` to test theirs.

Exact optima come from trying everything. Latency: every placement x every sequence of ops and transfers (pruned by the
best found), nothing waits on purpose. Throughput: every placement. Costs come from the simulator's slow reference, so
that a wrong kernel cannot hide.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from weakref import WeakKeyDictionary

import numpy as np

from weftline.ask.questions import lower_bounds
from weftline.bounds import Bound
from weftline.cost import NO_TIME
from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.problem import Problem, check_feasible
from weftline.search import Search, Solver
from weftline.simulate import Loads, Timeline, replay, simulate_throughput, violations
from weftline.simulate.reference import reference_loads, reference_prefix, reference_replay

__all__ = [
    "brute_force_latency",
    "brute_force_throughput",
    "check_bound",
    "check_infeasible",
    "check_limits",
    "check_reference",
    "check_same_seed",
    "check_simulated_again",
    "check_solver",
    "check_stops",
    "optimum",
    "placements",
    "solve",
]

Action = tuple[int, int, int]
"""(op, -1, -1), or (tensor, target device, consumer or -1) for a transfer."""
Needs = dict[Action, set[Action]]
"""Action -> actions that must come before it."""


def placements(problem: Problem) -> list[tuple[int, ...]]:
    """Every assignment of ops to devices that can run them and that keeps `together`."""
    allowed = [np.flatnonzero(row != NO_TIME).tolist() for row in problem.cost.time]
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


_optima: WeakKeyDictionary[Problem, int | None] = WeakKeyDictionary()
_bounds: WeakKeyDictionary[Problem, Bound] = WeakKeyDictionary()


def optimum(problem: Problem) -> int | None:
    """The brute-force optimum, None if nothing is feasible; computed once per problem."""
    if problem not in _optima:
        throughput = problem.rules.objective == "throughput"
        _optima[problem] = brute_force_throughput(problem) if throughput else brute_force_latency(problem)
    return _optima[problem]


@dataclass
class _Watched(Search):
    """A search that counts the candidates offered after it has an answer and a stop rule has fired."""

    late: int = 0

    def offer(self, placement: Indices, *, order: Indices | None = None, actions: Ints | None = None) -> int | None:
        self.late += self.best is not None and bool(self.stopped_by)
        return Search.offer(self, placement, order=order, actions=actions)


def solve(
    solver: Solver, problem: Problem, *, seed: int = 0, work_limit: int | None = 1000, gap: float = 0.0
) -> tuple[_Watched, InfeasibleError | None]:
    """Run a solver as `plan` does: bounds first, then the solver -> the search, and how it gave up if it did."""
    search = _Watched(problem, work_limit=work_limit, gap=gap, seed=seed, solver=solver.name)
    try:
        check_feasible(problem)
        if problem not in _bounds:  # the same for every solver, and costlier than most of them
            _bounds[problem] = lower_bounds(problem)[0]
        search.offer_bound(_bounds[problem])
        solver.solve(search)
    except InfeasibleError as error:
        return search, error
    return search, None


def check_solver(solver: Solver, problem: Problem) -> None:
    """Everything below."""
    check_limits(solver, problem)
    check_simulated_again(solver, problem)
    check_reference(solver, problem)
    check_bound(solver, problem)
    check_infeasible(solver, problem)
    check_same_seed(solver, problem)
    check_stops(solver, problem)


def check_limits(solver: Solver, problem: Problem) -> None:
    """The answer stands on devices that can run its ops, and keeps memory and `together`."""
    best = solve(solver, problem)[0].best
    if best is None:
        return
    times = problem.cost.time[np.arange(len(best.placement)), best.placement]
    _demand(bool(np.all(times >= 0)), solver, problem, f"uses a device that cannot run an op: {best.placement}")
    broken = violations(problem, best)
    _demand(not broken, solver, problem, f"breaks limits: {broken}")


def check_simulated_again(solver: Solver, problem: Problem) -> None:
    """Placement and order alone give the same times and peaks when they are simulated again."""
    best = solve(solver, problem)[0].best
    if isinstance(best, Timeline):
        again = replay(problem, best.placement, best.actions(problem.graph.arrays.producer))
        same = _times(again) == _times(best)
    elif isinstance(best, Loads):
        loads = simulate_throughput(problem, best.placement)
        same = _rows(loads) == _rows(best) and loads.stages == best.stages
    else:
        return
    _demand(same, solver, problem, f"has an answer that is different when simulated again: {best}")


def check_reference(solver: Solver, problem: Problem) -> None:
    """The slow reference gives the same times and peaks."""
    best = solve(solver, problem)[0].best
    if best is None:
        return
    placement = best.placement.tolist()
    if isinstance(best, Timeline):
        slow = reference_replay(problem, placement, best.actions(problem.graph.arrays.producer).tolist())
        ops = range(len(placement))
        expected = ([slow.start[i] for i in ops], [slow.end[i] for i in ops], sorted(slow.transfers), slow.peak)
        _demand(_times(best) == expected, solver, problem, f"differs from the reference: {_times(best)} != {expected}")
    else:
        parts, peak = reference_loads(problem, placement)
        _demand(_rows(best) == [*parts, peak], solver, problem, f"differs from the reference: {_rows(best)} != {parts}")


def check_bound(solver: Solver, problem: Problem) -> None:
    """Lower bound <= brute-force optimum <= value; an answer exists only where brute force finds one."""
    search, _ = solve(solver, problem)
    least = optimum(problem)
    if least is None:
        _demand(search.best is None, solver, problem, "has an answer where brute force finds none")
        return
    if search.best is not None:
        value = search.best.value
        _demand(value >= least, solver, problem, f"says {value}, but the optimum is {least}")
    if search.bound is not None:
        bound = search.bound
        _demand(bound.value <= least, solver, problem, f"has bound {bound.value} ({bound.by}), the optimum is {least}")


def check_infeasible(solver: Solver, problem: Problem) -> None:
    """A proof that nothing is feasible is given only where brute force finds nothing."""
    error = solve(solver, problem)[1]
    if error is not None and error.proved:
        least = optimum(problem)
        _demand(least is None, solver, problem, f"proves infeasible ({error}), but the optimum is {least}")


def check_same_seed(solver: Solver, problem: Problem) -> None:
    """The same seed and work limit give the same answer and the same bound."""
    for seed in (0, 1):
        first, second = (solve(solver, problem, seed=seed)[0] for _ in range(2))
        same = _decision(first) == _decision(second) and first.bound == second.bound and first.offered == second.offered
        _demand(same, solver, problem, f"gives two answers for seed {seed}: {first.best} and {second.best}")


def check_stops(solver: Solver, problem: Problem) -> None:
    """Once there is an answer, nothing is offered after a stop rule has fired: work, or a gap that any answer meets."""
    for work, gap in ((1, 0.0), (2, 0.0), (3, 0.0), (1000, 1.0)):
        search, _ = solve(solver, problem, work_limit=work, gap=gap)
        what = (
            f"offers {search.late} of {search.offered} candidates after the search was stopped by {search.stopped_by}"
        )
        _demand(search.late == 0, solver, problem, what)


def _demand(holds: bool, solver: Solver, problem: Problem, what: str) -> None:
    if not holds:
        raise AssertionError(f"solver {solver.name!r} {what}\non {problem}")


def _times(timeline: Timeline) -> tuple[list[int], list[int], list[tuple[int, ...]], list[int]]:
    sent = sorted(tuple(row) for row in timeline.transfers.tolist())
    return timeline.start.tolist(), timeline.end.tolist(), sent, timeline.peak.tolist()


def _rows(loads: Loads) -> list[list[int]]:
    return [row.tolist() for row in (loads.compute, loads.entering, loads.leaving, loads.load, loads.peak)]


def _decision(search: Search) -> object:
    best = search.best
    if best is None:
        return None
    return best.placement.tolist(), _times(best) if isinstance(best, Timeline) else _rows(best)
