"""One decode that also notes when each op would have ended on every device: what the policy's features look at.

In: a Problem and the weight of the optimistic cost (0 = HEFT, 1 = cPEFT). Out: its timeline and those ends. The choices
are those of `place.decoder` without a bias; only the notes are new.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.place.board import Board, Wires, clear_board, commit, earliest_starts, make_board, wires_of
from weftline.place.group_room import Room, clear_room, close_unlinked, make_room, open_devices, settle
from weftline.place.optimistic import optimistic_costs
from weftline.problem import Problem
from weftline.simulate.jit import kernel
from weftline.simulate.order import default_order
from weftline.simulate.tables import Tables, tables

__all__ = ["CLOSED", "Noted", "NotingDecoder"]

CLOSED = -1
"""End on a device that was not open to the op."""


@dataclass(frozen=True, eq=False)
class Noted:
    """A schedule and the ends that were compared."""

    placement: Indices
    start: Ints
    end: Ints
    ends: Ints
    """(n, K): earliest end on each device when it was the op's turn, CLOSED = not open."""

    @property
    def value(self) -> int:
        """Planned latency."""
        return int(self.end.max())


class NotingDecoder:
    """The space of one problem, for several decodes."""

    def __init__(self, problem: Problem) -> None:
        self._problem, self._table = problem, tables(problem)
        self._space = wires_of(self._table), make_room(problem), make_board(problem)

    def decode(self, lam: int, capacity: Ints | None = None) -> Noted | None:
        """None where some op finds no device."""
        problem, board = self._problem, self._space[2]
        self._space[1].capacity[:] = problem.capacity if capacity is None else capacity
        future = optimistic_costs(problem) if lam else np.zeros(self._table.time.shape, np.int64)
        ends = np.full(self._table.time.shape, CLOSED, np.int64)
        if not _note(self._table, *self._space, default_order(problem), future, ends):
            return None
        return Noted(board.placement.copy(), board.start.copy(), board.end.copy(), ends)


@kernel
def _note(table: Tables, wires: Wires, room: Room, board: Board, order: Indices, future: Ints, ends: Ints) -> bool:
    """Fill the board and the ends -> whether every op found a device. The first of equals wins."""
    clear_room(room)
    clear_board(board)
    is_open, begin = np.zeros(len(board.number), np.bool_), np.zeros(len(board.number), np.int64)
    total = 0
    for position in range(len(order)):
        op = int(order[position])
        open_devices(room, op, is_open)
        if room.gaps:
            close_unlinked(table, room, op, is_open)
        earliest_starts(wires, board, op, True, is_open, begin)
        least, best = 2**62, -1
        for device in range(len(begin)):
            if begin[device] >= 0:
                ends[op, device] = begin[device] + int(wires.time[op, device])
                score = ends[op, device] + future[op, device]
                if score < least:
                    least, best = score, device
        if best < 0:
            return False
        settle(room, op, best)
        total = commit(wires, board, op, best, True, total)
    return True
