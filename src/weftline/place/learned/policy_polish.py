"""`policy+polish`: what the policy finds, then annealing from there for the time that is left.

In: a Search. Out: what annealing finds from the policy's plan and its usual starts, never anything worse. With the
setting `steps` it makes so many steps from the plans of the policy alone, the first of them with whole clusters of ops,
and a few looks back follow (`place.look_back`).
"""

from __future__ import annotations

from collections.abc import Sequence

from weftline.place.anneal import SOLVER as ANNEAL
from weftline.place.anneal import anneal_from
from weftline.place.annealer import Start
from weftline.place.decoder import Decoder
from weftline.place.learned.policy import DECODES, MOST_DECODES, asked_weights, offer_policy, prepare
from weftline.place.learned.policy_clusters import anneal_clusters
from weftline.place.learned.settings import read_whole
from weftline.place.look_back import booked_again, look_back
from weftline.search import Search, Solver
from weftline.simulate import Timeline

__all__ = ["SOLVER", "polish"]


LOOKS = 8
"""Back at what annealing found."""
OF_CLUSTERS, MOST_OF_CLUSTERS = 5, 4_000
"""One of so many steps moves clusters of ops, up to MOST_OF_CLUSTERS."""


def polish(search: Search, steps: int, others: Sequence[Timeline] = ()) -> None:
    """So many steps of annealing from the best plan so far, or a better start among others; then some looks back.

    What is better is offered. (A plan with its gaps filled may be a worse start than another one is.)
    """
    best, problem = search.best, search.problem
    if not isinstance(best, Timeline) or search.is_over:
        return
    inner = Search(problem, seed=search.seed, time_limit=search.seconds_left)
    starts: list[Start] = [(each.placement, order) for each in (best, *others) for order in (each.order, None)]
    of_clusters = min(steps // OF_CLUSTERS, MOST_OF_CLUSTERS)
    if of_clusters:
        first = anneal_clusters(inner, [each.placement for each in (best, *others)], of_clusters)
        starts += [] if first is None else [first]
    anneal_from(inner, starts, steps=steps - of_clusters)
    decoder, now = Decoder(problem), inner.best
    if isinstance(now, Timeline):
        _offer(search, now)
        _offer(search, now := booked_again(problem, now))
    for _ in range(0 if problem.rules.runtime == "sequential" else LOOKS):
        if not isinstance(now, Timeline) or search.is_over:
            return
        now = look_back(problem, decoder, now)
        if now is not None:
            _offer(search, now)


def _offer(search: Search, timeline: Timeline) -> None:
    if not search.is_over and (search.best is None or timeline.value < search.best.value):
        search.offer(timeline.placement, actions=timeline.actions(search.problem.graph.arrays.producer))


def _solve(search: Search) -> None:
    options = search.options
    others = offer_policy(search, asked_weights(options), read_whole(options, "decodes", DECODES, 1, MOST_DECODES))
    if search.is_over:
        return
    if "steps" in options:
        polish(search, read_whole(options, "steps", 1, 1, 10**8), others)
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
