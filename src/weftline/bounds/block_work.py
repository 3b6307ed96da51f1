"""What a block between two devices must do on devices and ports if it is no longer than some length.

In: a segment, the devices of its ends, the longest length of interest, prices of resources. Out: the least sum of work
times price, by a linear program in which devices, ports and paths have so long, and how it falls when the block may be
longer. The least is convex in the length, so its tangent holds for every length up to the longest of interest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weftline.bounds.energetic import Part, part_windows
from weftline.bounds.energy_rows import FIXED, Columns, Items, balance_rows, make_columns, make_items
from weftline.bounds.linear_program import Program, minimise
from weftline.bounds.path_rows import least_starts, path_rows
from weftline.bounds.segments import Segment
from weftline.bounds.windows import Windows

__all__ = ["BlockWork", "block_work"]

ROOM = 1e-6
SECONDS = 5.0


@dataclass(frozen=True, eq=False)
class BlockWork:
    """A block with fixed ends. Resources: K devices, K send ports, K receive ports, buses."""

    part: Part
    slack: int
    """Longest length of interest, ns."""
    windows: Windows
    columns: Columns
    items: Items
    certain: NDArray[np.float64]
    """By resource: work that is there whatever is chosen, ns."""

    def least(
        self, prices: Mapping[int, float], length: int, stop: Callable[[], bool] | None = None
    ) -> tuple[float, float]:
        """Least work times price if the block is so long, and its change per unit of length (0 or less)."""
        items, unit = self.items, float(max(1, self.slack))
        price = np.zeros(max(len(self.certain), 1 + max(prices)))
        price[list(prices)] = list(prices.values())
        sure = float(self.certain @ price[: len(self.certain)])
        mine = (items.column != FIXED) & (price[items.resource] > 0.0)
        if not mine.any():
            return sure, 0.0
        weight = items.work[mine] * price[items.resource[mine]] / unit
        cost = np.bincount(items.column[mine], weight, self.columns.total).astype(np.float64)
        program, row = self._program(cost, length)
        answer = minimise(program, seconds=SECONDS, stop=stop)
        if not np.isfinite(answer.value):
            return sure, 0.0
        return max(sure, sure + (answer.value - ROOM) * unit), min(0.0, float(answer.prices[row]))

    def _program(self, cost: NDArray[np.float64], length: int) -> tuple[Program, int]:
        """The program, and the row that sets the length."""
        part, items, columns, unit = self.part, self.items, self.columns, float(max(1, self.slack))
        rows, cols, values, low, high = balance_rows(part.pairs, columns, part.table, part.leader)
        open_items = items.column != FIXED
        used, inverse = np.unique(items.resource[open_items], return_inverse=True)
        count, first, n = len(used), len(low), len(part.table.time)
        path = path_rows(part.table, part.pairs, columns, first + count + 1, max(1, self.slack))
        program = Program(
            np.concatenate([cost, np.zeros(n)]),
            np.concatenate([np.zeros(columns.total), least_starts(self.windows) / unit]),
            np.full(columns.total + n, np.inf),
            np.concatenate([low, np.full(count, -np.inf), [length / unit], path[3]]),
            np.concatenate([high, -self.certain[used] / unit, [length / unit], path[4]]),
            np.concatenate([rows, first + inverse, first + np.arange(count), [first + count], path[0]]),
            np.concatenate([cols, items.column[open_items], np.zeros(count, np.int64), [0], path[1]]),
            np.concatenate([values, items.work[open_items] / unit, -np.ones(count), [1.0], path[2]]),
        )
        return program, first + count


def block_work(segment: Segment, k: int, j: int, slack: int) -> BlockWork | None:
    """The block of a segment between two devices; None if it cannot be done within the slack."""
    part = segment.part.at(segment.ends(k, j))
    found = part_windows(part, slack)
    if found is None:
        return None
    columns = make_columns(part.table, part.pairs, found, slack, part.leader)
    items = make_items(part.table, part.pairs, found, columns)
    sure, devices = items.column == FIXED, part.table.time.shape[1]
    resources = 3 * devices + int(part.table.bus.max(initial=-1)) + 1
    certain = np.bincount(items.resource[sure], items.work[sure], resources).astype(np.float64)
    return BlockWork(part, slack, found, columns, items, certain)
