"""`policy+polish`: what the policy finds, then annealing from there for the time that is left.

In: a Search; with the setting `steps` annealing makes so many steps and stops. Annealing begins at the policy's plan
beside its usual starts, and never offers anything worse.
"""

from __future__ import annotations

from weftline.place.anneal import SOLVER as ANNEAL
from weftline.place.anneal import anneal_from
from weftline.place.learned.policy import DECODES, MOST_DECODES, asked_weights, offer_policy, prepare
from weftline.place.learned.settings import read_whole
from weftline.search import Search, Solver
from weftline.simulate import Timeline

__all__ = ["SOLVER", "polish"]


def polish(search: Search, steps: int) -> None:
    """So many steps of annealing from the best plan so far; what is better is offered."""
    best = search.best
    if isinstance(best, Timeline) and not search.is_over:
        anneal_from(search, [(best.placement, best.order), (best.placement, None)], steps=steps)


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
