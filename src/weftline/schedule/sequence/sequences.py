"""Sequences: the annealing kernel with its state, loaded from orders and run in portions.

In: `Blocks`, the number of micro-batches, a seed, orders within memory. Out: the best orders so far; what they cost is
for the simulator to say. Micro-batches are renumbered so that those of one block start in order: they are alike, so the
times stay the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weftline.graph.arrays import Ints
from weftline.problem.blocks import Blocks
from weftline.problem.model import NO_LIMIT
from weftline.schedule.sequence.kernel import NEVER, anneal_sequences
from weftline.schedule.sequence.state import (
    BEST_MAKESPAN,
    DEVICE_SPAN,
    MAKESPAN,
    PATH_LENGTH,
    TRIALS_MADE,
    make_board,
    make_state,
)
from weftline.simulate import Orders, simulate_schedule

__all__ = ["Sequences", "in_order_of_numbers"]


class Sequences:
    """One annealing; everything follows from the seed, the orders and the numbers of trials."""

    def __init__(self, blocks: Blocks, micro_batches: int, seed: int, *, by_span: bool = False) -> None:
        self.blocks, self.micro_batches, self.by_span = blocks, micro_batches, by_span
        self._board = make_board(blocks, micro_batches)
        self._state = make_state(blocks, micro_batches, seed)

    def load(self, orders: Sequence[Ints], *, is_new: bool = True) -> None:
        """Begin here (`is_new`: and forget the best)."""
        orders = in_order_of_numbers(self.blocks, self.micro_batches, orders)
        timetable = simulate_schedule(self.blocks, self.micro_batches, orders)
        state = self._state
        state.of[:] = np.concatenate(orders)
        state.start[:] = timetable.start
        self._fill()
        state.dirty[:] = 1
        state.mark[:] = 0
        state.tail[:] = 0
        state.counts[PATH_LENGTH:] = (-1, 0, 1)
        if is_new:
            state.value[BEST_MAKESPAN:] = NEVER
        self.run(0, 1.0, 1.0, -1, np.zeros(1, np.int64))

    def _fill(self) -> None:
        """Places, levels of memory and rests of work of the orders at hand."""
        board, state, table = self._board, self._state, self.blocks.table
        entry = np.arange(len(state.where)) % len(table.device_of)
        micro = np.arange(len(state.where)) // len(table.device_of)
        block = np.repeat(np.arange(self.blocks.n), np.diff(table.device_ptr))
        device, op = table.device_of[entry], micro * self.blocks.n + block[entry]
        for d in range(len(board.place_ptr) - 1):
            here = slice(board.place_ptr[d], board.place_ptr[d + 1])
            mine = np.flatnonzero(device == d)
            place = np.empty(len(state.start), np.int64)
            place[state.of[here]] = np.arange(here.start, here.stop)
            state.where[mine] = place[op[mine]]
            change = np.empty(len(state.of), np.int64)
            change[state.where[mine]] = board.entry_change[mine]
            state.level[here] = np.cumsum(change[here])
            state.rest[here] = np.cumsum(table.span[board.block[state.of[here]]][::-1])[::-1]

    def run(self, trials: int, hot: float, cold: float, goal: int, stop: Ints, *, within: int = NO_LIMIT) -> None:
        """Temperatures in units of time; makespans above `within` are refused."""
        order = np.argsort(self._state.start, kind="stable")  # then moves look at short parts of the line
        self._state.line[:] = order
        self._state.spot[order] = np.arange(len(order))
        if len(order) > 1 or not trials:
            table = self.blocks.table
            anneal_sequences(table, self._board, self._state, trials, hot, cold, self.by_span, goal, within, stop)

    @property
    def value(self) -> int:
        """Of the state at hand."""
        return int(self._state.value[DEVICE_SPAN if self.by_span else MAKESPAN])

    @property
    def best_rank(self) -> tuple[int, int]:
        """What is minimised, then the other of makespan and device span, of the best state."""
        makespan, span = self._state.value[BEST_MAKESPAN:].tolist()
        return (span, makespan) if self.by_span else (makespan, span)

    @property
    def trials(self) -> int:
        """Made so far."""
        return int(self._state.counts[TRIALS_MADE])

    def orders(self) -> Orders:
        """Of the best state."""
        ptr, best = self._board.place_ptr, self._state.best.astype(np.int64)
        return tuple(best[ptr[d] : ptr[d + 1]] for d in range(len(ptr) - 1))

    def current(self) -> tuple[Orders, Ints]:
        """Orders and starts of the state at hand."""
        ptr, of = self._board.place_ptr, self._state.of.astype(np.int64)
        return tuple(of[ptr[d] : ptr[d + 1]] for d in range(len(ptr) - 1)), self._state.start.copy()


def in_order_of_numbers(blocks: Blocks, micro_batches: int, orders: Sequence[Ints]) -> Orders:
    """Renumber so that the k-th time a block stands in an order, it is of micro-batch k."""
    found = []
    for order in orders:
        block = np.asarray(order, np.int64) % blocks.n
        by_block = np.argsort(block, kind="stable")
        renumbered = np.empty(len(order), np.int64)
        renumbered[by_block] = np.tile(np.arange(micro_batches), len(order) // micro_batches)
        found.append(renumbered * blocks.n + block)
    return tuple(found)
