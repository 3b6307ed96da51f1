"""The energetic bound: can a part of the graph end by a horizon? A linear program says no, or how early at best.

In: the tables of a part (a block of the graph; ends are fixed by absent times elsewhere). `refute` narrows windows,
builds the program of `energy_rows` and solves it; `least_end` bisects over horizons. Every number it returns was
refuted by itself, so the search for it may be rough. Claimed, not proved: the program is solved in floating point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from weftline.graph.arrays import Indices
from weftline.latency.blocks.energy_rows import Pairs, balance_rows, energy_rows, make_columns, make_items, make_pairs
from weftline.latency.blocks.windows import NEVER, Windows, windows
from weftline.search.lp import Program, nothing_fits
from weftline.simulate.tables import Tables

__all__ = ["FINE_LEVELS", "NEAR", "Part", "least_end", "make_part", "part_windows", "refute"]

ROOM = 1e-6
"""Rounding of the linear program that a claim leaves room for, in shares of the horizon."""
LEVELS = 7
FINE_LEVELS = 10
NEAR = 0.004
"""Bisection ends when the interval is this small a share of its upper end."""
MOST_ENTRIES = 4_000_000


@dataclass(frozen=True, eq=False)
class Part:
    """A part of the graph and what is computed once for it."""

    table: Tables
    pairs: Pairs
    leader: Indices
    """The first op of each op's `together` set."""

    def at(self, ends: dict[int, int]) -> Part:
        """The same part with some ops fixed to devices."""
        if not ends:
            return self
        time = self.table.time.copy()
        for op, device in ends.items():
            kept = time[op, device]
            time[op] = -1
            time[op, device] = kept
        return Part(self.table._replace(time=time), self.pairs, self.leader)


def make_part(table: Tables, group: Indices) -> Part:
    """`group`: number of the `together` set of each op of the part."""
    _, first, inverse = np.unique(group, return_index=True, return_inverse=True)
    return Part(table, make_pairs(table), first[inverse].astype(np.int32))


def part_windows(part: Part, horizon: int = NEVER) -> Windows | None:
    """Heads and tails, None if nothing ends by the horizon."""
    found = windows(part.table, horizon, part.leader)
    return None if found.stuck >= 0 else found


def refute(
    part: Part, horizon: int, *, levels: int = LEVELS, seconds: float = 10.0, stop: Callable[[], bool] | None = None
) -> bool:
    """True if nothing ends by the horizon; `stop` ends the search without an answer.

    (A row holds only up to the horizon, so there is no bound but this one.)
    """
    if horizon < 0:
        return True
    found = part_windows(part, horizon)
    if found is None:
        return True
    columns = make_columns(part.table, part.pairs, found, horizon, part.leader)
    items = make_items(part.table, part.pairs, found, columns)
    if len(items.work) * levels * levels > MOST_ENTRIES:
        return False
    rows, cols, values, low, high = balance_rows(part.pairs, columns, part.table, part.leader)
    more = energy_rows(items, len(low), max(1, horizon), horizon, levels)
    if more[4][-1] > 1 + 1e-12:
        return True
    if columns.total == 1 or not len(more[3]):
        return False
    most = np.full(columns.total, np.inf)
    most[0] = 1 + ROOM
    return nothing_fits(
        Program(
            np.zeros(columns.total),
            np.zeros(columns.total),
            most,
            np.concatenate([low, more[3]]),
            np.concatenate([high, more[4][:-1]]),
            np.concatenate([rows, more[0]]),
            np.concatenate([cols, more[1]]),
            np.concatenate([values, more[2]]),
        ),
        seconds=seconds,
        stop=stop,
    )


def least_end(
    part: Part,
    low: int,
    high: int,
    *,
    near: float = NEAR,
    levels: int = LEVELS,
    guess: int | None = None,
    met: bool = False,
    stop: Callable[[], bool] | None = None,
) -> int:
    """A lower bound on the end of everything between two numbers: `low` holds already, above `high` nothing matters.

    `guess`: where to look first, with steps that grow from there. `met`: it is known that a plan ends by `high`.
    """
    if not met and refute(part, high, levels=levels, stop=stop):
        return high + 1
    step, turn = max(1, int(near * high / 2)), 0
    at = None if guess is None else guess - step
    while high - low > near * high and not (stop is not None and stop()):
        middle = at if at is not None and low <= at < high else (low + high) // 2
        if refute(part, middle, levels=levels, stop=stop):
            low, way = middle + 1, 1
        else:
            high, way = middle, -1
        at = None if at is None or turn == -way else at + 2 * way * step
        turn, step = way, 2 * step
    return low
