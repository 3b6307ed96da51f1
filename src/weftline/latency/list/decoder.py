"""The insertion decoder: ops in a given order, each on the device of least score, transfers booked on ports and buses.

score(op, d) = earliest end on d + lam * optimistic cost(op, d) + kappa * time(op, d) + bias[op, d]

In: a Problem, an order of ops (topological; default: upward rank), a bias in ns. Out: a Timeline, or for many biases
their placements and planned latencies. Without bias, lam = kappa = 0 is HEFT and lam = 1 is cPEFT; whoever learns or
draws a bias changes these choices and nothing else. Scores are whole ns, and the first of equals wins.

The optimistic cost is the table of PEFT (Arabnejad, Barbosa 2014), with the real transfer times between each two
devices: how long it takes at least from the end of the op on d to the end of everything that needs it, if every later
op takes the best device for itself. It is the largest over consumers of the least over their devices of transfer +
time + cost. Contention is ignored; an op of the same `together` set stays on d.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.latency.list.list_schedule import (
    BookingTables,
    booking_tables,
    clear_board,
    commit,
    earliest_starts,
    make_board,
    timeline_of,
)
from weftline.latency.list.list_schedule import ListSchedule as Board
from weftline.latency.list.memory_left import (
    Bools,
    WeightRoom,
    clear_room,
    close_unlinked,
    make_room,
    open_devices,
    possible_devices,
    settle,
)
from weftline.problem import Problem
from weftline.simulate import Timeline
from weftline.simulate.kernels.jit import kernel, uncounted_part
from weftline.simulate.sentinels import NEVER, NOBODY
from weftline.simulate.tables import Tables, default_order, once_per_problem, tables

__all__ = ["DEAD_END", "Decoder", "Floats", "optimistic_costs"]

DEAD_END = 2**60
"""Cost where some consumer cannot be reached; no sum of times is larger."""


@once_per_problem
def optimistic_costs(problem: Problem) -> Ints:
    """(n, K), ns; O(edges x devices^2). Do not change it."""
    return _costs(tables(problem), problem.group, possible_devices(problem))


@kernel
def _costs(table: Tables, group: Indices, possible: Bools) -> Ints:
    n, devices = table.time.shape
    cost = np.zeros((n, devices), np.int64)
    for op in range(n - 1, -1, -1):
        for k in range(table.output_ptr[op], table.output_ptr[op + 1]):
            tensor = table.output_of[k]
            row = table.transfer_row[tensor]
            for c in range(table.consumer_ptr[tensor], table.consumer_ptr[tensor + 1]):
                reader = table.consumer_of[c]
                for d in range(devices):
                    least = DEAD_END
                    for e in range(devices):
                        length = table.transfer[row, d, e]
                        apart = d != e and group[reader] == group[op]
                        if length >= 0 and not apart and possible[group[reader], e]:
                            least = min(least, length + table.time[reader, e] + cost[reader, e])
                    cost[op, d] = max(cost[op, d], least)
    return cost


Floats = NDArray[np.float64]

LARGEST_PENALTY = 2.0**60
"""No penalty is larger, so that scores stay within 64 bits."""


class Scores(NamedTuple):
    """What is added to the earliest end on a device."""

    future: Ints
    """(n, K): what follows an op, ns; or empty."""
    bias: Floats
    """(n, K): ns; or empty."""
    lam: float
    """Weight of the future."""
    kappa: float
    """Weight of the op's own time."""


class DrawnScores(NamedTuple):
    """The same for many decodes."""

    future: Ints
    biases: Floats
    """(B, n, K)"""
    lams: Floats
    kappas: Floats
    """(B,)"""


class Decoder:
    """Decodes one problem many times; the space is made once. `name` is for messages."""

    def __init__(self, problem: Problem, name: str = "the decoder") -> None:
        self._problem, self._table, self._name = problem, tables(problem), name
        self._room, self._board = make_room(problem), make_board(problem)
        self._space = self._table, booking_tables(self._table), self._room, self._board

    def decode(
        self,
        order: Indices | None = None,
        bias: Floats | Ints | None = None,
        lam: float = 1.0,
        kappa: float = 0.0,
        *,
        capacity: Ints | None = None,
        future: Ints | None = None,
    ) -> Timeline:
        """One schedule. `bias` is (n, K); `capacity` (K,) is the memory for weights, if not all of it; `future` (n, K)
        stands in the place of the optimistic costs.

        Raises `InfeasibleError` where memory or missing links leave no device for an op.
        """
        order = self._order(order)
        biases = np.zeros((1, 0, 0)) if bias is None else np.asarray(bias, np.float64)[None]
        self._set_capacity(capacity)
        ahead = self._future(lam) if future is None else future
        count = _decode(*self._space, order, Scores(ahead, biases[0], float(lam), float(kappa)))
        if count < 0:
            raise InfeasibleError(f"{self._name} finds no device for op {self._problem.graph.ops[-count - 1].name!r}")
        return timeline_of(self._board, count)

    def decode_many(
        self,
        biases: Floats,
        lams: Floats,
        kappas: Floats,
        order: Indices | None = None,
        *,
        capacity: Ints | None = None,
    ) -> tuple[Indices, Ints]:
        """(B, n, K) biases and (B,) weights -> (B, n) placements and (B,) planned latencies.

        NEVER where some op found no device.
        """
        placements = np.zeros((len(biases), len(self._table.time)), np.int32)
        values = np.zeros(len(biases), np.int64)
        self._set_capacity(capacity)
        future = self._future(float(np.abs(lams).max(initial=0.0)))
        drawn = DrawnScores(future, biases, lams, kappas)
        _decode_many(*self._space, self._order(order), drawn, placements, values)
        return placements, values

    def _order(self, order: Indices | None) -> Indices:
        return default_order(self._problem) if order is None else np.ascontiguousarray(order, np.int32)

    def _set_capacity(self, capacity: Ints | None) -> None:
        self._room.capacity[:] = self._problem.capacity if capacity is None else capacity

    def _future(self, lam: float) -> Ints:
        return optimistic_costs(self._problem) if lam else np.zeros((0, 0), np.int64)


@uncounted_part
def _best_device(time: Ints, op: int, begin: Ints, future: Ints, bias: Floats, lam: float, kappa: float) -> int:
    """The device of least score, -1 = there is none."""
    least, best = NEVER, NOBODY
    for device in range(len(begin)):
        if begin[device] < 0:
            continue
        duration = int(time[op, device])
        score = begin[device] + duration
        if len(future) > 0 or len(bias) > 0 or kappa != 0.0:
            penalty = kappa * duration
            if len(future) > 0:
                penalty += lam * future[op, device]
            if len(bias) > 0:
                penalty += bias[op, device]
            score += np.int64(min(max(np.rint(penalty), -LARGEST_PENALTY), LARGEST_PENALTY))
        if score < least:
            least, best = score, device
    return best


@kernel
def _decode(
    table: Tables,
    wires: BookingTables,
    room: WeightRoom,
    board: Board,
    order: Indices,
    scores: Scores,
) -> int:
    """Fill the board -> number of transfers, or -1 - op where no device is left for an op."""
    clear_room(room)
    clear_board(board)
    future, bias, lam, kappa = scores
    is_open, begin = np.zeros(len(board.number), np.bool_), np.zeros(len(board.number), np.int64)
    total = 0
    for position in range(len(order)):
        op = int(order[position])
        open_devices(room, op, is_open)
        if room.gaps:
            close_unlinked(table, room, op, is_open)
        earliest_starts(wires, board, op, True, is_open, begin)
        device = _best_device(wires.time, op, begin, future, bias, lam, kappa)
        if device < 0:
            return int(-1 - op)
        settle(room, op, device)
        total = commit(wires, board, op, device, True, total)
    return total


@kernel
def _decode_many(
    table: Tables,
    wires: BookingTables,
    room: WeightRoom,
    board: Board,
    order: Indices,
    drawn: DrawnScores,
    placements: Indices,
    values: Ints,
) -> None:
    for row in range(len(drawn.biases)):
        scores = Scores(drawn.future, drawn.biases[row], drawn.lams[row], drawn.kappas[row])
        count = _decode(table, wires, room, board, order, scores)
        placements[row] = board.placement
        values[row] = NEVER if count < 0 else board.end.max()
