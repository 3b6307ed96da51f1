"""The sequential runtime, where latency is a sum: a minimum cut with two devices, an exact labelling with more.

In: a Search. Out: the placement with the least total of work and communication, and its proof as a bound. Where that
does not fit memory, see `min_cut_memory`. For the parallel runtime the same placement is a heuristic, and there is no
bound.
"""

from __future__ import annotations

from weftline.bounds.eliminate import eliminate
from weftline.bounds.label_costs import FAR, label_costs
from weftline.bounds.labelling import best_labelling
from weftline.errors import InfeasibleError
from weftline.place.expansion import expand
from weftline.place.min_cut_memory import offer_bound, offer_labels, offer_within_memory
from weftline.search import Search, Solver

__all__ = ["SOLVER"]


def _solve(search: Search) -> None:
    costs = label_costs(search.problem)
    if costs is None:
        raise InfeasibleError("min-cut cannot add up times as large as these, or tables of so many devices")
    found = best_labelling(costs, seconds=_part_of_time(search))
    if found is None:
        least = eliminate(costs)
        never = least is not None and least.value >= FAR
        raise InfeasibleError("missing links leave no placement" if never else "min-cut found nothing", proved=never)
    labels = found.labels if found.exact else expand(costs, found.labels, stop=lambda: bool(search.stopped_by))
    offer_bound(search, found)
    if not offer_labels(search, labels) and not search.stopped_by:
        offer_within_memory(search, costs, labels, _part_of_time(search))
    if search.best is None:
        raise InfeasibleError("min-cut found no placement within the limits", conflicts=search.refused)


def _part_of_time(search: Search) -> float | None:
    """For the search of a bound: half of what is left; without a limit of time only rounds count."""
    if search.work_limit is not None or search.time_limit is None:
        return None
    return max(0.0, search.time_limit - search.seconds) / 2


SOLVER = Solver("min-cut", "sequential runtime: exact, by minimum cuts (a heuristic for the parallel one)", _solve)
