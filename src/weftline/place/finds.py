"""What an annealer has found since it was last asked: its new best, also with gaps filled where that is shorter."""

from __future__ import annotations

from typing import NamedTuple

from weftline.graph.arrays import Indices
from weftline.place.annealer import Annealer
from weftline.place.backfill import backfill
from weftline.search import Search
from weftline.simulate import Timeline
from weftline.simulate.tables import Tables

__all__ = ["Find", "new_find"]


class Find(NamedTuple):
    """A plan of an annealer."""

    placement: Indices
    order: Indices
    planned: int
    """Its value by the annealer's own account."""
    filled: Timeline | None
    """The same with gaps filled, if that is shorter."""

    @property
    def value(self) -> int:
        """The smaller of both."""
        return self.planned if self.filled is None else self.filled.value

    def offer(self, search: Search) -> None:
        """Both forms, as far as they are better than what is known."""
        if self.filled is not None:
            search.offer(self.placement, actions=self.filled.actions(search.problem.graph.arrays.producer))
        if not search.is_over and (search.best is None or self.planned < search.best.value):
            search.offer(self.placement, order=self.order)


def new_find(annealer: Annealer, table: Tables, shown: int) -> Find | None:
    """Its best if that is below `shown`; the annealer goes on with gaps filled."""
    best = annealer.best
    if best is None or best[2] >= shown:
        return None
    filled = backfill(table, *best[:2])
    if filled is None or filled.value >= best[2]:
        return Find(*best, None)
    annealer.give(best[0], filled.order)
    return Find(*best, filled)
