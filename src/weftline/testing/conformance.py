"""One suite for every solver of a family: what an answer must hold, whoever found it.

In: a `Solver` and a tiny `Problem` (the optimum is found by brute force). Out: nothing, or an `AssertionError` that
says what does not hold. Third parties run `check_solver` on problems of `weftline.testing` to test theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from weftline.ask.questions import lower_bounds
from weftline.bounds import Bound
from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.problem import Problem, check_feasible
from weftline.search import Search, Solver
from weftline.simulate import Loads, Timeline, replay, simulate_throughput, violations
from weftline.simulate.reference import reference_loads, reference_replay
from weftline.testing.brute_force import brute_force_latency, brute_force_throughput

__all__ = [
    "check_bound",
    "check_infeasible",
    "check_limits",
    "check_reference",
    "check_same_seed",
    "check_simulated_again",
    "check_solver",
    "check_stops",
    "optimum",
    "solve",
]

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
        if problem not in _bounds:  # the same for every solver, and dearer than most of them
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
