"""Sequences: the annealing kernel with its state, loaded from orders and run in portions.

In: `Blocks`, the number of micro-batches, a seed, orders within memory. Out: the best orders so far; what they cost is
for the simulator to say. Micro-batches are renumbered so that those of one block start in order: they are alike, so the
times stay the same. `shorten_device_span`: a schedule that cannot end earlier may still keep its devices for a shorter
time. A search is over with the first order that meets its bound, so this second objective is looked at before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.problem.blocks import Blocks
from weftline.problem.model import NO_LIMIT
from weftline.schedule.bounds.makespan import device_span_bound
from weftline.schedule.search import ScheduleSearch
from weftline.schedule.sequence.kernel import SequenceRun, anneal_sequences
from weftline.schedule.sequence.line import (
    BEST_MAKESPAN,
    DEVICE_SPAN_NOW,
    MAKESPAN_NOW,
    PATH_LENGTH,
    TRIALS_MADE,
    SequenceBoard,
    SequenceState,
)
from weftline.simulate import Orders, schedule_violations, simulate_schedule
from weftline.simulate.kernels.random import make_generator
from weftline.simulate.sentinels import NEVER

__all__ = ["SequencePolishParameters", "Sequences", "in_order_of_numbers", "shorten_device_span"]


@dataclass(frozen=True)
class SequencePolishParameters:
    """Annealing for a shorter device span at the same makespan."""

    polish_trials_times_operations: int = 8_000_000
    """At most, without a time limit."""
    polish_trials_per_operation: int = 300
    """At most, without a time limit."""
    polish_rounds: int = field(default=16, metadata={"least": 1})
    """Temperatures, without a time limit."""
    polish_share_of_time: float = 0.1
    """Of the time that is left."""
    polish_most_seconds: float = 6.0
    polish_first_temperature_of_span: float = field(default=2e-3, metadata={"least": 1e-9})
    """As a part of the longest device span."""
    polish_last_temperature_of_span: float = field(default=2e-5, metadata={"least": 1e-9})


class Sequences:
    """One annealing; everything follows from the seed, the orders and the numbers of trials."""

    def __init__(self, blocks: Blocks, micro_batches: int, seed: int, *, by_span: bool = False) -> None:
        self.blocks, self.micro_batches, self.by_span = blocks, micro_batches, by_span
        self._board = _make_board(blocks, micro_batches)
        self._state = _make_state(blocks, micro_batches, seed)

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
            run = SequenceRun(trials, hot, cold, self.by_span, goal, within, stop)
            anneal_sequences(self.blocks.table, self._board, self._state, run)

    @property
    def value(self) -> int:
        """Of the state at hand."""
        return int(self._state.value[DEVICE_SPAN_NOW if self.by_span else MAKESPAN_NOW])

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


def _make_board(blocks: Blocks, micro_batches: int) -> SequenceBoard:
    """The board of some blocks."""
    table, n = blocks.table, blocks.n
    micro = np.repeat(np.arange(micro_batches), n)
    per = np.bincount(table.device_of, minlength=len(blocks.devices)) * micro_batches
    ptr = np.zeros(len(blocks.devices) + 1, np.int32)
    np.cumsum(per, out=ptr[1:])
    return SequenceBoard(
        np.tile(np.arange(n, dtype=np.int32), micro_batches),
        (micro * n).astype(np.int32),
        (micro * len(table.device_of) + np.tile(table.device_ptr[:-1], micro_batches)).astype(np.int32),
        ptr,
        np.repeat(np.arange(len(blocks.devices), dtype=np.int32), per),
        np.tile(table.device_memory, micro_batches),
    )


def _make_state(blocks: Blocks, micro_batches: int, seed: int) -> SequenceState:
    """An empty state."""
    ops, places = blocks.n * micro_batches, len(blocks.table.device_of) * micro_batches

    def indices(size: int) -> Indices:
        return np.zeros(size, np.int32)

    return SequenceState(
        indices(places),
        indices(places),
        np.zeros(ops, np.int64),
        np.zeros(ops, np.int64),
        np.zeros(places, np.int64),
        np.zeros(places, np.int64),
        indices(ops),
        indices(ops),
        np.zeros(ops, np.uint8),
        indices(ops),
        indices(ops),
        indices(ops),
        indices(ops),
        np.zeros(ops, np.int64),
        indices(ops),
        np.zeros((len(blocks.devices), 3), np.int32),
        indices(places),
        np.zeros(5, np.int64),
        np.zeros(5, np.int64),
        make_generator(seed),
    )


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


def shorten_device_span(search: ScheduleSearch, orders: Orders, parameters: SequencePolishParameters) -> Orders:
    """Orders with the same makespan and a device span that is no longer; the same ones unless they meet the bound."""
    if search.device_span or search.from_arrival or search.bound is None:
        return orders
    found = simulate_schedule(search.blocks, search.micro_batches, orders)
    if found.makespan > search.bound or schedule_violations(found):
        return orders
    goal = device_span_bound(search.blocks, search.micro_batches)[0]
    sequences = Sequences(search.blocks, search.micro_batches, search.seed, by_span=True)
    sequences.load(orders)
    operations, left = search.blocks.n * search.micro_batches, search.seconds_left
    seconds = None if left is None else min(parameters.polish_most_seconds, parameters.polish_share_of_time * left)
    rounds = parameters.polish_rounds
    trials = parameters.polish_trials_times_operations // operations
    portion = 64 + min(trials, parameters.polish_trials_per_operation * operations) // rounds
    hot, cold = parameters.polish_first_temperature_of_span, parameters.polish_last_temperature_of_span
    begun, done, stop = monotonic(), 0, np.zeros(1, np.int64)
    while sequences.best_rank[0] > goal:
        part = done / rounds if seconds is None else (monotonic() - begun) / max(1e-9, seconds)
        if part >= 1:
            break
        temperature = max(0.01, found.device_span * hot * (cold / hot) ** part)
        sequences.run(portion, temperature, temperature, goal, stop, within=found.makespan)
        done += 1
    return sequences.orders()
