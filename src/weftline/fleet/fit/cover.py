"""The cheapest whole parts whose bytes make room: a knapsack with a few kinds of items.

In: items (cost, size, how many there are), bytes that are missing. Out: how many of each, and a cost below which no
choice lies. Simplified: after a limit of nodes a small slack ends the search, and is taken off what is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Cover", "CoverItem", "cheapest_cover"]


class CoverItem(NamedTuple):
    """One part of the rows of one kind."""

    cost: int
    """Not negative."""
    size: int
    kind: int
    part: int


class Cover(NamedTuple):
    """Which items, and how good that is."""

    cost: int
    counts: tuple[int, ...]
    least: int
    """No choice costs less."""


class _TooManyNodes(Exception):
    pass


def cheapest_cover(
    items: Sequence[tuple[CoverItem, int]], missing: int, most_nodes: int = 20_000, slack: int = 0
) -> Cover | None:
    """Items in order of cost per byte, with how many there are; None if all of them are not enough."""
    if sum(item.size * count for item, count in items) < missing:
        return None
    search = _Search(items, most_nodes)
    try:
        search.go(0, missing, 0, [])
    except _TooManyNodes:
        search.nodes, search.slack, search.most_nodes = 0, slack, 4 * most_nodes
        try:
            search.go(0, missing, 0, [])
        except _TooManyNodes:
            return Cover(search.best, tuple(search.counts), search.least_of(0, missing))
    least = max(search.least_of(0, missing), search.best - search.slack)
    return Cover(search.best, tuple(search.counts), least)


class _Search:
    def __init__(self, items: Sequence[tuple[CoverItem, int]], most_nodes: int) -> None:
        self.items, self.most_nodes, self.nodes, self.slack = items, most_nodes, 0, 0
        self.best, self.counts = 2**200, [0] * len(items)

    def least_of(self, place: int, missing: int) -> int:
        """With items from a place on, cut at will."""
        cost = 0
        for item, count in self.items[place:]:
            if missing <= 0:
                return cost
            if item.size * count >= missing:
                return cost - (-missing * item.cost // item.size)
            missing -= item.size * count
            cost += item.cost * count
        return cost if missing <= 0 else 2**201

    def go(self, place: int, missing: int, cost: int, taken: list[int]) -> None:
        self.nodes += 1
        if self.nodes > self.most_nodes and self.best < 2**200:
            raise _TooManyNodes
        if missing <= 0:
            if cost < self.best:
                self.best, self.counts = cost, taken + [0] * (len(self.items) - len(taken))
            return
        if place == len(self.items) or cost + self.least_of(place, missing) >= self.best - self.slack:
            return
        item, count = self.items[place]
        for number in range(min(count, -(-missing // item.size)), -1, -1):
            self.go(place + 1, missing - number * item.size, cost + number * item.cost, [*taken, number])
