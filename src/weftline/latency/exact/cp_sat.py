"""`cp-sat`: one CP-SAT model for placement and order of a whole problem: a better plan, or a claim that none exists.

The best known value limits the model, so a good start matters most; the bound is claimed.

`look_below` is what the exact solvers share: look below the best known value until nothing is left there. In: a Search,
and a function that solves one model of the whole problem. Out: plans and claimed bounds, offered. The memory of
activations is (nearly) not in the models: a placement that the simulator refuses in every order tried is excluded, and
the bound then stays at the least that a model said about such placements, since yet another order might do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from weftline.bounds import Bound
from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.latency.exact.order_model import OrderAnswer, OrderModel
from weftline.search import Search, Solver, best_of
from weftline.simulate.tables import Tables, tables
from weftline.simulate.timeline import Timeline

__all__ = ["SOLVER", "Attempt", "CpSatParameters", "look_below", "start_plan", "worst_latency"]

STARTS = ("heft", "single-device", "greedy")
MOST_MODELS = 500
"""Each without the placements that were refused before."""


@dataclass
class Attempt:
    """One model to be solved."""

    search: Search
    horizon: int
    """Only plans that end by then (ns) are asked for."""
    lower: int
    """No plan ends before."""
    excluded: list[Indices]
    """Placements that are not asked for."""
    least: int | None
    """No plan with an excluded placement is shorter."""
    by: str
    """Who claims."""
    refused: Indices | None = None
    """The last placement found, if the simulator has refused it."""

    def offer(self, placement: Indices, actions: Ints) -> None:
        """A plan of the model."""
        if not self.search.is_over:
            value = self.search.offer(placement, actions=actions)
            self.refused = placement if value is None else None

    def claim(self, bound: int) -> None:
        """No plan that was asked for is shorter."""
        limits = [bound] if self.least is None else [bound, self.least]
        if self.search.best is not None:
            limits.append(self.search.best.value)
        self.search.offer_bound(Bound(min(limits), self.by, seconds=self.search.seconds))


@dataclass
class _Known:
    excluded: list[Indices] = field(default_factory=list)
    least: int | None = None


def look_below(
    search: Search,
    by: str,
    solve: Callable[[Attempt], OrderAnswer | None],
    *,
    exact: bool = True,
    most_models: int = MOST_MODELS,
) -> None:
    """Solve models until one has no better plan, or a stop rule fires; `solve` returns None if it cannot go on.

    `exact`: the models hold whole numbers, so that "infeasible" is worth more than a claim in floating point.
    """
    known = _Known()
    table = tables(search.problem)
    for _ in range(most_models):
        if search.is_over:
            return
        attempt = Attempt(
            search,
            horizon=worst_latency(table) if search.best is None else search.best.value - 1,
            lower=0 if search.bound is None or known.excluded else search.bound.value,
            excluded=known.excluded,
            least=known.least,
            by=by,
        )
        answer = solve(attempt)
        if answer is None:
            return
        attempt.claim(answer.bound)
        if answer.status == "infeasible" and search.best is None and not known.excluded:
            raise InfeasibleError(
                "no plan satisfies the limits",
                conflicts=("which devices can run which ops", "memory of the weights", "links", "together"),
                proved=exact,
            )
        if answer.status != "optimal" or attempt.refused is None:
            return
        _try_other_orders(search, attempt.refused)
        known.excluded.append(attempt.refused)
        known.least = answer.bound if known.least is None else min(known.least, answer.bound)


def _try_other_orders(search: Search, placement: Indices) -> None:
    for order in (None, np.arange(len(placement), dtype=np.int32)):
        if not search.is_over:
            search.offer(placement, order=order)


def start_plan(search: Search) -> tuple[str, ...]:
    """A first plan by quick heuristics, unless there is one -> why those that found nothing did not."""
    from weftline.latency import solvers

    return () if search.best is not None else best_of(search, solvers(), STARTS)


def worst_latency(table: Tables) -> int:
    """No plan takes longer, since something runs at every time."""
    longest = np.maximum(table.transfer, 0).max(axis=(1, 2), initial=0)[table.transfer_row]
    readers = np.diff(table.consumer_ptr) * (table.producer >= 0)
    return int(np.maximum(table.time, 0).max(axis=1).sum() + (longest * readers).sum())


@dataclass(frozen=True)
class CpSatParameters:
    """Numbers of `cp-sat`."""

    most_models: int = MOST_MODELS
    """Each without the placements that were refused before."""
    most_intervals: int = 60_000
    """Ops and transfers on devices that one model may have."""
    work_per_model: float = 5.0
    """Units of CP-SAT's deterministic time, under a work limit."""


def _solve(search: Search) -> None:
    from ortools import __version__

    reasons = start_plan(search)
    numbers = search.parameters(CpSatParameters)
    look_below(
        search, f"CP-SAT {__version__}", lambda each: _solve_model(each, numbers), most_models=numbers.most_models
    )
    if search.best is None:
        raise InfeasibleError("CP-SAT found no plan within the limits", conflicts=(*reasons, *search.refused))


def _solve_model(attempt: Attempt, numbers: CpSatParameters) -> OrderAnswer | None:
    search, problem = attempt.search, attempt.search.problem
    model = OrderModel(
        tables(problem),
        horizon=attempt.horizon,
        lower=attempt.lower,
        capacity=problem.capacity,
        group=problem.group,
    )
    if model.intervals > numbers.most_intervals:
        message = f"too large for one CP-SAT model: {model.intervals} intervals, the limit is {numbers.most_intervals}"
        if search.best is None:
            raise InfeasibleError(message)
        search.tell(message)
        return None
    if not model.build(lambda: search.is_over):
        return None
    for placement in attempt.excluded:
        model.exclude(placement)
    if isinstance(search.best, Timeline):
        model.hint(search.best)
    producer = problem.graph.arrays.producer
    return model.solve(
        search.seconds_left,
        lambda: search.is_over,
        work=None if search.work_limit is None else numbers.work_per_model,
        seed=search.seed,
        on_plan=lambda plan: attempt.offer(plan.placement, plan.actions(producer)),
        on_bound=attempt.claim,
    )


SOLVER = Solver(
    "cp-sat",
    "one CP-SAT model of placement and order: the best plan, and a claim that none is better",
    _solve,
    parameters=CpSatParameters,
)
