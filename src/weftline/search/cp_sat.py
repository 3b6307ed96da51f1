"""How CP-SAT is called: with the search's seed and limits, in a thread that Ctrl-C and a stop rule can end.

In: a model and a Search, or (`run_model`) a model and limits alone. Solutions and bounds are handed over while it runs,
always in the caller's thread. By default there is one worker; under a work limit its time is deterministic, so that the
same call gives the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from threading import Event, Thread
from types import MappingProxyType
from typing import Any

from weftline.interrupts import uninterrupted
from weftline.search.search import Search

__all__ = ["PACKING_SECONDS", "Outcome", "run_cp_sat", "run_model", "solve_packing"]

PACKING_SECONDS = 10.0
"""For all attempts of a packing solver together."""

POLL_SECONDS = 0.05
"""Seconds between looks at a running solver."""


class Outcome:
    """What CP-SAT said in the end."""

    def __init__(self, solver: Any, status: Any) -> None:
        from ortools.sat.python import cp_model

        self.infeasible = status == cp_model.INFEASIBLE
        self.optimal = status == cp_model.OPTIMAL
        self.solved = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
        self.bound = float(solver.best_objective_bound) if status != cp_model.MODEL_INVALID else 0.0


def run_cp_sat(
    search: Search,
    model: Any,
    *,
    seconds: float | None = None,
    work: float = 5.0,
    on_solution: Callable[[Callable[[Any], bool]], None],
    on_bound: Callable[[float], None] | None = None,
    poll: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Solve within `seconds` (or, under a work limit, within `work` units of deterministic time).

    `poll` is called at every look at the running solver; if it says so, the solver is stopped.
    """

    def stopped() -> bool:
        return search.best is not None and bool(search.stopped_by)

    def solution(values: Sequence[int]) -> None:
        if not stopped():
            on_solution(_reader(values))

    def bound(value: float) -> None:
        if on_bound is not None and not stopped():
            on_bound(value)

    left = [value for value in (seconds, _left(search)) if value is not None]
    both = search.work_limit is not None and search.time_limit is not None
    return run_model(
        model,
        settings={"max_time_in_seconds": max(0.05, _left(search) or 0.0)} if both else {},
        seconds=min(left) if left else None,
        work=None if search.work_limit is None else work,
        seed=search.seed,
        on_solution=solution,
        on_bound=bound,
        poll=lambda: poll() or stopped(),
    )


def _solver(seconds: float | None, work: float | None, seed: int, workers: int, settings: Mapping[str, Any]) -> Any:
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed
    solver.parameters.catch_sigint_signal = False
    for name, value in settings.items():
        setattr(solver.parameters, name, value)
    if work is not None:
        solver.parameters.max_deterministic_time = work
        solver.parameters.interleave_search = workers > 1
    elif seconds is not None:
        solver.parameters.max_time_in_seconds = max(0.05, seconds)
    return solver


def run_model(
    model: Any,
    *,
    seconds: float | None = None,
    work: float | None = None,
    seed: int = 0,
    workers: int = 1,
    settings: Mapping[str, Any] = MappingProxyType({}),
    on_solution: Callable[[Sequence[int]], None] = lambda values: None,
    on_bound: Callable[[float], None] = lambda value: None,
    poll: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Solve within `seconds` and until `poll` says stop, or within `work` units of deterministic time alone.

    `on_solution` gets the values of all variables by their index. Both calls come in the caller's thread, while the
    solver runs (with `work`: after it). Several `workers` take turns in one thread if `work` asks for determinism.
    `settings` are further parameters of CP-SAT.
    """
    from ortools.sat.python import cp_model

    solver = _solver(seconds, work, seed, workers, settings)
    found: SimpleQueue[tuple[str, Any]] = SimpleQueue()
    if work is None:
        solver.best_bound_callback = lambda bound: found.put(("bound", bound))
    watch = cp_model.CpSolverSolutionCallback()
    watch.on_solution_callback = lambda: found.put(("solution", list(watch.response_proto.solution)))

    outcome: list[Any] = []
    ended = Event()  # and not Thread.is_alive, which Ctrl-C inside Thread.join makes wrong

    def solve() -> None:
        try:
            outcome.append(solver.solve(model, watch))
        finally:
            ended.set()

    def hand_over() -> None:
        while True:
            try:
                kind, what = found.get_nowait()
            except Empty:
                return
            if kind == "solution":
                on_solution(what)
            else:
                on_bound(what)

    try:
        Thread(target=solve, daemon=True).start()
        while not ended.wait(POLL_SECONDS):
            if work is None:
                hand_over()
                if poll():
                    solver.stop_search()
    finally:
        with uninterrupted():
            while not ended.wait(POLL_SECONDS):  # again and again: a call before the solver has begun would be lost
                solver.stop_search()
    hand_over()
    return Outcome(solver, outcome[0])


def _left(search: Search) -> float | None:
    return None if search.time_limit is None else search.time_limit - search.seconds


def _reader(values: Sequence[int]) -> Callable[[Any], bool]:
    """Reads a literal or a constant of the model in a solution."""

    def true(literal: Any) -> bool:
        index = literal.index
        return bool(values[index]) if index >= 0 else not values[-index - 1]

    return true


def solve_packing(search: Search, model: Any, begun: float) -> tuple[Any, Any]:
    """One CP-SAT worker with the search's seed, within what is left of the time for packing, which began at `begun`.

    Ctrl-C is left to Python: CP-SAT would stop this one call and swallow it.
    """
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = search.seed
    solver.parameters.catch_sigint_signal = False
    if search.work_limit is not None:
        solver.parameters.max_deterministic_time = 2.0
    else:
        left = begun + PACKING_SECONDS - search.seconds
        if search.time_limit is not None:
            left = min(left, search.time_limit - search.seconds)
        solver.parameters.max_time_in_seconds = max(0.1, left)
    return solver, solver.solve(model)
