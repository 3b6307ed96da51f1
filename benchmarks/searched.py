"""One solver on one problem, as `plan` would run it, but without the plan around it.

In: a solver and a search, or all that a search needs. Out: what went wrong in words, if anything did; the search with
its best timeline, and when it found what.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from weftline.ask.baselines import search_coarse
from weftline.bounds import Bound
from weftline.errors import WeftlineError
from weftline.graph.arrays import Indices
from weftline.problem import Problem
from weftline.search import Event, Search, Solver

__all__ = ["CLOSE", "Searched", "run_solver", "searched"]

CLOSE = 0.0001
"""The gap at which a search may stop, as in `plan`."""


@dataclass
class Searched:
    """A finished search."""

    search: Search
    seconds: float
    """Until it stopped."""
    note: str = ""
    """What went wrong."""
    found: list[tuple[float, int]] = field(default_factory=list)
    """Seconds and value, whenever the value became better."""

    def seconds_within(self, share: float) -> float | None:
        """When the value was first within `share` of the last one."""
        last = self.found[-1][1] if self.found else 0
        return next((seconds for seconds, value in self.found if value <= last * (1 + share)), None)


def run_solver(solver: Solver, search: Search, group: Indices | None = None) -> str:
    """Run it -> what went wrong, if anything did. One broken solver must not cost the whole table.

    With `group` it searches the coarser graph first.
    """
    try:
        if group is not None:
            search_coarse(search, solver, group)
        if search.best is None or not search.stopped_by:
            solver.solve(search)
    except WeftlineError as error:
        return str(error).splitlines()[0][:120]
    except Exception as error:
        print(f"  {solver.name} crashed: {error!r}", file=sys.stderr)
        return f"crashed: {type(error).__name__}"
    return "" if search.best is not None else "no plan"


def searched(
    problem: Problem, solver: Solver, *, time_limit: float, bound: Bound, group: Indices | None = None, seed: int = 0
) -> Searched:
    """Search with a first bound; what the search notes and when it found its values."""
    found: list[tuple[float, int]] = []

    def note_value(event: Event) -> None:
        if event.value is not None and (not found or event.value < found[-1][1]):
            found.append((event.seconds, event.value))

    search = Search(problem, time_limit=time_limit, gap=CLOSE, seed=seed, on_event=note_value, solver=solver.name)
    search.offer_bound(bound)
    note = run_solver(solver, search, group)
    return Searched(search, round(search.seconds, 4), note, found)
