"""One CP-SAT model for placement and order of the whole problem: a better plan, or the claim that there is none.

The best known value limits the model, so a good start matters most; the bound is claimed. See `exact_search` for what
is left where the memory of activations binds.
"""

from __future__ import annotations

from weftline.errors import InfeasibleError
from weftline.place.exact_search import Attempt, look_below, start_plan
from weftline.place.order_model import Answer, OrderModel
from weftline.search import Search, Solver
from weftline.simulate.tables import tables
from weftline.simulate.timeline import Timeline

__all__ = ["SOLVER"]

MOST_INTERVALS = 60_000
"""Ops and transfers on devices that one model may have."""
WORK = 5.0
"""Units of deterministic time under a work limit, per model."""


def _solve(search: Search) -> None:
    from ortools import __version__

    reasons = start_plan(search)
    look_below(search, f"CP-SAT {__version__}", _solve_model)
    if search.best is None:
        raise InfeasibleError("CP-SAT found no plan within the limits", conflicts=(*reasons, *search.refused))


def _solve_model(attempt: Attempt) -> Answer | None:
    search, problem = attempt.search, attempt.search.problem
    model = OrderModel(
        tables(problem),
        horizon=attempt.horizon,
        lower=attempt.lower,
        capacity=problem.capacity,
        group=problem.group,
    )
    if model.intervals > MOST_INTERVALS:
        message = f"too large for one CP-SAT model: {model.intervals} intervals, the limit is {MOST_INTERVALS}"
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
        work=None if search.work_limit is None else WORK,
        seed=search.seed,
        on_plan=lambda plan: attempt.offer(plan.placement, plan.actions(producer)),
        on_bound=attempt.claim,
    )


SOLVER = Solver(
    "cp-sat", "one CP-SAT model of placement and order: the best plan, and a claim that none is better", _solve
)
