"""`policy+polish`: what the policy finds, then annealing from there for the time that is left.

In: a Search; with the setting `steps` annealing makes so many steps and stops. Annealing begins at the policy's plan
beside its usual starts, and never offers anything worse.
"""

from __future__ import annotations

from weftline.place.anneal import SOLVER as ANNEAL
from weftline.place.annealer import Annealer
from weftline.place.backfill import backfill
from weftline.place.learned.policy import DECODES, MOST_DECODES, asked_weights, offer_policy, prepare
from weftline.place.learned.settings import read_whole
from weftline.search import Search, Solver, alarm
from weftline.simulate import Timeline
from weftline.simulate.tables import tables

__all__ = ["SOLVER", "polish"]


def polish(search: Search, steps: int) -> None:
    """So many steps of annealing from the best plan so far; what is better is offered."""
    problem, table = search.problem, tables(search.problem)
    if not isinstance(search.best, Timeline) or len(problem.devices) == 1 or search.is_over:
        return
    before = search.best
    start = [(before.placement, before.order), (before.placement, None)]
    annealer = Annealer(table, capacity=problem.capacity, group=problem.group, seed=search.seed, start=start)
    with alarm(search) as stop:
        annealer.run(steps, stop)
    best = annealer.best
    if best is None:
        return
    placement, order, value = best
    filled = backfill(table, placement, order)
    if filled is not None and filled.value < min(value, before.value) and not search.is_over:
        search.offer(placement, actions=filled.actions(problem.graph.arrays.producer))
    if value < search.best.value and not search.is_over:
        search.offer(placement, order=order)


def _solve(search: Search) -> None:
    options = search.options
    offer_policy(search, asked_weights(options), read_whole(options, "decodes", DECODES, 1, MOST_DECODES))
    if search.is_over:
        return
    if "steps" in options:
        polish(search, read_whole(options, "steps", 1, 1, 10**8))
    else:
        ANNEAL.solve(search)


SOLVER = Solver(
    "policy+polish",
    "the policy, then annealing from its plan for the time left",
    _solve,
    takes=("decodes", "weights", "steps"),
    learned=True,
    prepare=prepare,
)
