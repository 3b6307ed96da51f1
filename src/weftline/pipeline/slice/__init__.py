"""Slicing: cut a linear order of pieces into stages by dynamic programming, over many orders.

In: pieces and orders. Out: candidates. Simplified: best for the order, not over all orders.

`slice`: several topological orders, each cut into stages by the exact program of Archer et al. (Algorithm 1).

`Slicer` cuts orders of the same pieces, whatever the devices. Equal devices are cut exactly. Unequal ones are grouped
into classes; the program then chooses among all sequences of them where these are few, else along a few fixed ones.
Simplified: pieces stand on a host only if no stage device can run them; where links are of unequal speed a transfer
counts with the mean over partners. The simulator has the last word.

The best cut is sliced again along orders that follow its own stages, until that brings nothing. Where activations
overflow a device (only the simulator knows them), the cut is repeated with that much less room. Graphs beyond a few
thousand pieces are first cut at the few best places, which gives the value that prunes the full program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.pipeline.pieces import Pieces, make_pieces
from weftline.pipeline.reduce import make_piece_arrays, merge_freely, reduce_exactly
from weftline.pipeline.simple import overflow_of
from weftline.pipeline.slice.kernel import DeviceClasses, cut_by_classes, cut_equal, good_cuts
from weftline.pipeline.slice.orders import OrderLayout, following_order, lay_out, several_orders
from weftline.search import Search, Solver, alarm
from weftline.simulate.sentinels import NEVER

__all__ = ["NO_STOP", "SOLVER", "SliceParameters", "Slicer", "slice_again", "slice_order", "slice_starts"]

NO_STOP = np.zeros(1, np.int64)
"""A stop flag that never rises."""


@dataclass(frozen=True)
class SliceParameters:
    """Numbers of `slice`."""

    random_orders: int = 8
    """Drawn beside those that follow a rule."""
    most_attempts: int = 6
    """Times that it begins with less room, because activations overflowed a device."""
    tries_again: int = 4
    """Orders along the stages of the best cut that may bring nothing, one after another."""
    small_pieces: int = 3000
    """Up to so many pieces no first value is needed."""
    coarse_windows: int = 512
    """Places at which a big graph is cut first."""
    most_place_pairs: int = 1_000_000_000
    """That the full program may look at for one order of a big graph."""
    most_states: int = 4096
    """Of devices in use by class; with more, only a few sequences of devices are tried."""
    most_updates: int = field(default=400_000_000, metadata={"least": 1})
    """That one cut by classes may take; with more, fewer places are looked at."""


class Slicer:
    """Everything about the pieces that does not depend on the order."""

    def __init__(
        self, pieces: Pieces, room: Ints | None = None, parameters: SliceParameters = SliceParameters()
    ) -> None:
        problem, self.parameters = pieces.problem, parameters
        self.pieces, self.board = pieces, make_piece_arrays(pieces)
        self.room = problem.capacity if room is None else room
        self.hosts = np.flatnonzero(problem.host).tolist()
        self.stages = list(pieces.stage_devices)
        able = (pieces.time[:, self.stages] >= 0).any(axis=1)
        self.on_host: NDArray[np.bool_] = np.logical_not(able)
        self.host_load = 0
        self.host_of = self._share_hosts()
        used = len(set(self.host_of[self.on_host].tolist())) if self.host_of is not None else 0
        self.limit = min(len(self.stages), problem.stage_limit - used)
        self.classes = self._classify()
        self.total = max(1, int(np.maximum(pieces.time[:, self.stages[:1]], 0).sum()))

    def cut(
        self,
        order: Indices,
        upper: int = NEVER,
        *,
        windows: int = 0,
        sequence: Sequence[int] | None = None,
        stop: Ints = NO_STOP,
    ) -> tuple[Indices, int] | None:
        """Best cut of an order with all stages below `upper` -> device per piece and the program's own value.

        `windows` > 0 looks at one place per window of equal work only; `sequence` fixes the devices' order.
        """
        if self.host_of is None or self.limit < (not self.on_host.all()):
            return None
        if self.on_host.all():
            return self.host_of, self.host_load
        lay = lay_out(self.board, np.ascontiguousarray(order), self.on_host)
        may_cut = np.ones(len(order) + 1, np.bool_)
        if windows:
            may_cut = good_cuts(lay, self._work(order, self.classes[0][0]), self._wire, windows)
        if len(self.classes) == 1 and self.board.flat and sequence is None:
            return self._cut_equal(lay, order, upper, may_cut, stop)
        return self._cut_classes(lay, order, upper, may_cut, sequence, stop)

    def _cut_equal(
        self, lay: OrderLayout, order: Indices, upper: int, may_cut: NDArray[np.bool_], stop: Ints
    ) -> tuple[Indices, int] | None:
        work, room = self._work(order, self.stages[0]), int(self.room[self.stages[0]])
        value, stage = cut_equal(self.board, lay, work, self.limit, room, upper, may_cut, stop)
        if value >= NEVER:
            return None
        return self._devices(order, stage, self.stages), max(int(value), self.host_load)

    def _cut_classes(
        self,
        lay: OrderLayout,
        order: Indices,
        upper: int,
        may_cut: NDArray[np.bool_],
        sequence: Sequence[int] | None,
        stop: Ints,
    ) -> tuple[Indices, int] | None:
        step = self._steps() if sequence is None else self._fixed_steps(sequence)
        if step is None:
            return self._cut_sequences(order, upper, stop)
        first = np.array([members[0] for members in self.classes])
        places = int(np.sqrt(self.parameters.most_updates / (step >= 0).sum()))
        if may_cut.sum() > max(places, 8):
            may_cut = good_cuts(lay, self._work(order, int(first[0])), self._wire, max(places, 8))
        into, out_of = self._wires
        work = np.ascontiguousarray(self.pieces.time[order][:, first])
        devices = DeviceClasses(work, into[:, first], out_of[:, first], self.room[first], step)
        value, stage, chosen = cut_by_classes(self.board, lay, devices, upper, may_cut, stop)
        if value >= NEVER:
            return None
        left = [list(members) for members in self.classes]
        used = [left[c].pop(0) for c in chosen.tolist()]
        return self._devices(order, stage, used), max(int(value), self.host_load)

    def _cut_sequences(self, order: Indices, upper: int, stop: Ints) -> tuple[Indices, int] | None:
        """Too many sequences of the devices: fast first, slow first, and as they are listed."""
        time = np.where(self.pieces.time >= 0, self.pieces.time, self.pieces.time.max()).sum(axis=0)
        fast = sorted(self.stages, key=lambda d: int(time[d]))
        used = sorted(fast[: self.limit])
        best: tuple[Indices, int] | None = None
        for sequence in (used, fast[: self.limit], fast[: self.limit][::-1], used[::-1]):
            found = self.cut(order, upper, sequence=sequence, stop=stop)
            if found is not None:
                best, upper = found, found[1]
        return best

    def _steps(self) -> Indices | None:
        """State = how many devices of each class are used. None if there are too many states."""
        sizes = [len(members) for members in self.classes]
        if np.prod([size + 1.0 for size in sizes]) > self.parameters.most_states:
            return None
        states = [s for s in product(*(range(size + 1) for size in sizes)) if sum(s) <= self.limit]
        number = {s: i for i, s in enumerate(states)}
        more = [[(*s[:c], s[c] + 1, *s[c + 1 :]) for c in range(len(sizes))] for s in states]
        return np.array([[number.get(s, -1) for s in row] for row in more], np.int32)

    def _fixed_steps(self, sequence: Sequence[int]) -> Indices:
        """State = how many devices of the sequence are used or passed over."""
        of = {device: c for c, members in enumerate(self.classes) for device in members}
        step = np.full((len(sequence) + 1, len(self.classes)), -1, np.int32)
        for place in range(len(sequence) - 1, -1, -1):
            step[place] = step[place + 1]
            step[place, of[sequence[place]]] = place + 1
        return step

    def _devices(self, order: Indices, stage: Indices, devices: Sequence[int]) -> Indices:
        device = np.array(0 if self.host_of is None else self.host_of, np.int32)
        inside = stage >= 0
        device[order[inside]] = np.array(devices, np.int32)[stage[inside]] if inside.any() else 0
        return device

    def _work(self, order: Indices, device: int) -> Ints:
        work: Ints = np.maximum(self.pieces.time[order, device], 0)
        return work

    @property
    def _wire(self) -> Ints:
        if self.board.flat:
            return self.board.wire
        wire: Ints = self._wires[0].max(axis=1)
        return wire

    @property
    def _wires(self) -> tuple[Ints, Ints]:
        """(M, K) each: ns that a tensor takes into and out of a device, the mean over partners."""
        transfer = np.where(self.board.transfer >= 0, self.board.transfer, self.board.transfer.max(initial=0))
        partners = max(1, transfer.shape[1] - 1)
        return (transfer.sum(axis=1) // partners)[self.board.row], (transfer.sum(axis=2) // partners)[self.board.row]

    def _classify(self) -> list[list[int]]:
        """Stage devices that nothing tells apart."""
        if self.pieces.equal and len({int(self.room[d]) for d in self.stages}) == 1:
            return [self.stages]
        into, out_of = self._wires
        names: dict[tuple[bytes, bytes, bytes, int], list[int]] = {}
        for d in self.stages:
            columns = (self.pieces.time[:, d].tobytes(), into[:, d].tobytes(), out_of[:, d].tobytes())
            names.setdefault((*columns, int(self.room[d])), []).append(d)
        return list(names.values())

    def _share_hosts(self) -> Indices | None:
        """Host of each piece that needs one, the least loaded first; None if one has none."""
        device = np.zeros(len(self.pieces.time), np.int32)
        load = dict.fromkeys(self.hosts, 0)
        left = {d: int(self.room[d]) for d in self.hosts}
        for p in np.flatnonzero(self.on_host).tolist():
            time, need = self.pieces.time[p], int(self.pieces.weight[p])
            fitting = [d for d in self.hosts if time[d] >= 0 and left[d] >= need]
            if not fitting:
                return None
            device[p] = d = min(fitting, key=lambda d: load[d] + int(time[d]))
            load[d] += int(time[d])
            left[d] -= need
        self.host_load = max(load.values(), default=0)
        return device


def slice_order(
    pieces: Pieces, order: Indices, *, upper: int | None = None, room: Ints | None = None, stop: Ints = NO_STOP
) -> Indices | None:
    """The best cut of one order with all stages below `upper`: device of each piece. None if there is none."""
    found = _cut(Slicer(pieces, room), order, NEVER if upper is None else upper, stop)
    return None if found is None else found[0]


def slice_again(slicer: Slicer, device: Indices, value: int, seed: int, stop: Ints = NO_STOP) -> tuple[Indices, int]:
    """Slice along orders that follow the stages of a partition while that makes it better."""
    tries = 0
    while tries < slicer.parameters.tries_again and not stop[0]:
        order = following_order(slicer.board, device, seed + tries)
        if order is None:
            break
        found = _cut(slicer, order, value, stop)
        tries += 1
        if found is not None and found[1] < value:  # a busy host may keep the value where it was
            (device, value), tries = found, 0
    return device, value


def slice_starts(slicer: Slicer, seed: int, random: int, stop: Ints = NO_STOP) -> list[tuple[int, Indices]]:
    """(value, device per piece) of several orders, the best first; values are the program's own."""
    found = []
    big, windows = len(slicer.pieces.time) > slicer.parameters.small_pieces, slicer.parameters.coarse_windows
    for order in several_orders(slicer.board, seed, 0 if big else random):
        if stop[0]:
            break
        cut = slicer.cut(order, windows=windows if big else 0, stop=stop)
        if cut is not None:
            found.append((cut[1], cut[0]))
    return sorted(found, key=lambda pair: pair[0])


def _cut(slicer: Slicer, order: Indices, upper: int, stop: Ints) -> tuple[Indices, int] | None:
    """The full program, or for big graphs first a coarse one whose value prunes it."""
    count, parameters = len(order), slicer.parameters
    if count <= parameters.small_pieces:
        return slicer.cut(order, upper, stop=stop)
    best = slicer.cut(order, upper, windows=parameters.coarse_windows, stop=stop)
    known = min(upper, NEVER if best is None else best[1])
    pairs = count * count * min(1.0, known / slicer.total)
    windows = 0 if pairs <= parameters.most_place_pairs else 8 * parameters.coarse_windows
    found = slicer.cut(order, known, windows=windows, stop=stop)
    return best if found is None else found


def _solve(search: Search) -> None:
    pieces = reduce_exactly(make_pieces(search.problem))
    coarse, parameters = merge_freely(pieces), search.parameters(SliceParameters)
    with alarm(search) as stop:
        for level in (pieces, coarse):
            room = search.problem.capacity.copy()
            for _ in range(parameters.most_attempts):
                overflow = None if level is None else _slice_all(search, Slicer(level, room, parameters), stop)
                if overflow is None or not overflow.any() or search.is_over:
                    break
                room = room - overflow
            if search.is_over:
                return


def _slice_all(search: Search, slicer: Slicer, stop: Ints) -> Ints | None:
    """Offer the cuts of all orders -> None if one was accepted, else the bytes that the last one lacked."""
    pieces, parameters = slicer.pieces, slicer.parameters
    overflow: Ints | None = np.zeros(len(slicer.room), np.int64)
    big = len(pieces.time) > parameters.small_pieces
    upper = NEVER
    best: tuple[Indices, int] | None = None
    for order in several_orders(slicer.board, search.seed, 1 if big else parameters.random_orders):
        found = slicer.cut(order, upper, windows=parameters.coarse_windows if big else 0, stop=stop)
        if search.is_over:
            return overflow
        if found is None:
            continue
        if search.offer(pieces.lift(found[0])) is None:
            overflow = overflow_of(search.problem, pieces.lift(found[0])) if overflow is not None else None
        else:
            overflow, best, upper = None, found, found[1]
        if best is found and not big and not search.is_over:
            upper = _improve(search, slicer, found, stop)
        if search.is_over:
            return overflow
    if big and best is not None:
        _improve(search, slicer, best, stop)
    return overflow


def _improve(search: Search, slicer: Slicer, found: tuple[Indices, int], stop: Ints) -> int:
    """Slice again and offer -> the program's value of the better one."""
    device, value = slice_again(slicer, *found, 0, stop)
    if value < found[1] and not search.is_over and search.offer(slicer.pieces.lift(device)) is not None:
        return value
    return found[1]


SOLVER = Solver(
    "slice",
    "exact cuts of several topological orders (Archer et al., Algorithm 1)",
    _solve,
    parameters=SliceParameters,
)
