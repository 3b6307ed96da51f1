"""The exact dynamic program that cuts one topological order into stages (Archer et al., Algorithm 1), as kernels.

For a fixed end the start of a segment runs downwards and its cost follows in O(degree): a tensor that the new first
piece reads enters unless a later reader is inside already; one that it makes stops entering and leaves if a reader is
outside. Segments whose work alone reaches the upper value are never looked at. Tensors may run backwards (training).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.pipeline.reduce import PieceArrays
from weftline.pipeline.slice.orders import OrderLayout
from weftline.simulate.kernels.jit import kernel, part
from weftline.simulate.sentinels import NEVER

__all__ = ["DeviceClasses", "cut_by_classes", "cut_equal", "good_cuts"]

SKIPPED_HOST = -2
"""In place of where a stage begins: the position stands on a host."""


@kernel
def good_cuts(lay: OrderLayout, work: Ints, wire: Ints, windows: int) -> NDArray[np.bool_]:
    """(P + 1,): in each window of equal work the place where the least is alive; both ends, and around hosts."""
    count = len(work)
    chosen = np.zeros(count + 1, np.bool_)
    chosen[0] = True
    chosen[count] = True
    change = np.zeros(count + 1, np.int64)
    for t in range(len(wire)):
        if lay.home[t] >= 0 and lay.last[t] >= 0:
            change[lay.home[t] + 1] += wire[t]
            if lay.last[t] < count:
                change[lay.last[t] + 1] -= wire[t]
    total = max(1, work.sum())
    live, done = 0, 0
    window, best, least = 0, -1, NEVER
    for i in range(count):
        here = done * windows // total
        if here > window:
            if best >= 0:
                chosen[best] = True
            window, best, least = here, -1, NEVER
        if lay.fixed[i]:
            chosen[i] = True
            chosen[i + 1] = True
        live += change[i]
        if live < least:
            best, least = i, live
        done += work[i]
    if best >= 0:
        chosen[best] = True
    return chosen


@kernel
def cut_equal(
    board: PieceArrays,
    lay: OrderLayout,
    work: Ints,
    stages: int,
    room: int,
    upper: int,
    may_cut: NDArray[np.bool_],
    stop: Ints,
) -> tuple[int, Indices]:
    """Equal devices -> largest cost of a stage (NEVER if none is below `upper`), stage of each position.

    best[j, s] is the least largest cost of any cut of the first j positions into s stages, and came[j, s] where the
    last of these begins. Inside, compute, enter, leave and held are those of the segment from i to j. Tests compare
    with the enumeration of all cuts of an order.
    """
    count = len(work)
    best = np.full((count + 1, stages + 1), NEVER, np.int64)
    came = np.full((count + 1, stages + 1), -1, np.int32)
    stage = np.full(count, -1, np.int32)
    best[0, 0] = 0
    limit = max(1, min(upper, NEVER) - 1)
    total = work.sum()
    need, done = _stages_needed(work, limit), 0
    for j in range(count):
        if lay.fixed[j]:
            _skip_host(best, came, j)
        done += work[j]
        if not may_cut[j + 1]:
            continue
        if stop[0] != 0:
            break
        most = stages - 1 - (total - done + limit - 1) // limit
        compute, enter, leave, held = 0, 0, 0, 0
        barrier = -1
        for i in range(j, -1, -1):
            if i <= barrier:
                break
            if lay.fixed[i]:
                if lay.ahead[i] <= j:
                    barrier = max(barrier, lay.behind[i])
            else:
                p = lay.piece[i]
                compute += work[i]
                held += board.weight[p]
                for e in range(lay.tied_ptr[i], lay.tied_ptr[i + 1]):
                    if lay.tied_next[e] > j:
                        held += board.tied_bytes[lay.tied_of[e]]
                if compute >= upper or held > room:
                    break
                for e in range(lay.read_ptr[i], lay.read_ptr[i + 1]):
                    t = lay.read_tensor[e]
                    if lay.home[t] < i or lay.home[t] > j:
                        if lay.read_next[e] > j:
                            enter += board.wire[t]
                    elif lay.first[t] == i and lay.last[t] <= j:
                        leave -= board.wire[t]
                for e in range(lay.make_ptr[i], lay.make_ptr[i + 1]):
                    t = lay.make_tensor[e]
                    if lay.first_after[t] <= j:
                        enter -= board.wire[t]
                    if lay.first[t] < i or lay.last[t] > j:
                        leave += board.wire[t]
            if not may_cut[i]:
                continue
            cost = max(compute, enter, leave) if board.overlapped else compute + enter + leave
            if cost < upper:
                for s in range(need[i], most + 1):
                    value = max(best[i, s], cost)
                    if value < best[j + 1, s + 1]:
                        best[j + 1, s + 1] = value
                        came[j + 1, s + 1] = i
    value, s = _least(best[count])
    if value >= NEVER:
        return value, stage
    end = count
    while end > 0:
        start = came[end, s]
        if start == SKIPPED_HOST:
            end -= 1
            continue
        s -= 1
        for i in range(start, end):
            if not lay.fixed[i]:
                stage[i] = s
        end = start
    return value, stage


@part
def _stages_needed(work: Ints, limit: int) -> Ints:
    """(P + 1,): stages that the work in front of a position takes at least."""
    need, done = np.empty(len(work) + 1, np.int64), 0
    for i in range(len(work)):
        need[i] = (done + limit - 1) // limit
        done += work[i]
    need[len(work)] = (done + limit - 1) // limit
    return need


@part
def _skip_host(best: Ints, came: Indices, j: int) -> None:
    """A position on a host costs no stage anything."""
    for s in range(best.shape[1]):
        if best[j, s] < best[j + 1, s]:
            best[j + 1, s] = best[j, s]
            came[j + 1, s] = SKIPPED_HOST


@part
def _least(row: Ints) -> tuple[int, int]:
    """The least value and its place; (NEVER, 0) if there is none."""
    value, place = NEVER, 0
    for x in range(len(row)):
        if row[x] < value:
            value, place = row[x], x
    return value, place


class DeviceClasses(NamedTuple):
    """C classes of stage devices that nothing tells apart, P positions, M tensors."""

    work: Ints
    """(P, C) by position."""
    into: Ints
    out_of: Ints
    """(M, C): ns of a tensor at a class."""
    room: Ints
    """(C,)"""
    step: Indices
    """(states, C): the state when one more device of a class is used, -1 if there is none left."""


@part
def _add(total: Ints, change: Ints, sign: int) -> None:
    for c in range(len(total)):
        total[c] += sign * change[c]


@kernel
def cut_by_classes(
    board: PieceArrays, lay: OrderLayout, devices: DeviceClasses, upper: int, may_cut: NDArray[np.bool_], stop: Ints
) -> tuple[int, Indices, Indices]:
    """Classes of devices -> largest cost of a stage, stage of each position, class of each stage.

    best[j, state] is the least largest cost of any cut of the first j positions that uses the devices of a state; came,
    which and prior say where its last stage begins, its class, and the state before. Inside, compute, enter, leave and
    held are those of the segment from i to j on each class. Tests compare with `cut_equal` where classes are equal.
    """
    work, into, out_of, room, step = devices
    count, classes = work.shape
    states = len(step)
    best = np.full((count + 1, states), NEVER, np.int64)
    came = np.full((count + 1, states), -1, np.int32)
    which = np.zeros((count + 1, states), np.int32)
    prior = np.zeros((count + 1, states), np.int32)
    stage = np.full(count, -1, np.int32)
    best[0, 0] = 0
    compute = np.zeros(classes, np.int64)
    enter = np.zeros(classes, np.int64)
    leave = np.zeros(classes, np.int64)
    able = np.zeros(classes, np.bool_)
    cost = np.zeros(classes, np.int64)
    for j in range(count):
        if lay.fixed[j]:
            _skip_host(best, came, j)
        if not may_cut[j + 1]:
            continue
        if stop[0] != 0:
            break
        compute[:] = 0
        enter[:] = 0
        leave[:] = 0
        able[:] = True
        held = 0
        barrier = -1
        for i in range(j, -1, -1):
            if i <= barrier:
                break
            if lay.fixed[i]:
                if lay.ahead[i] <= j:
                    barrier = max(barrier, lay.behind[i])
            else:
                held += board.weight[lay.piece[i]]
                for e in range(lay.tied_ptr[i], lay.tied_ptr[i + 1]):
                    if lay.tied_next[e] > j:
                        held += board.tied_bytes[lay.tied_of[e]]
                some = False
                for c in range(classes):
                    if able[c]:
                        compute[c] += work[i, c]
                        able[c] = work[i, c] >= 0 and compute[c] < upper and held <= room[c]
                        some = some or able[c]
                if not some:
                    break
                for e in range(lay.read_ptr[i], lay.read_ptr[i + 1]):
                    t = lay.read_tensor[e]
                    if lay.home[t] < i or lay.home[t] > j:
                        if lay.read_next[e] > j:
                            _add(enter, into[t], 1)
                    elif lay.first[t] == i and lay.last[t] <= j:
                        _add(leave, out_of[t], -1)
                for e in range(lay.make_ptr[i], lay.make_ptr[i + 1]):
                    t = lay.make_tensor[e]
                    if lay.first_after[t] <= j:
                        _add(enter, into[t], -1)
                    if lay.first[t] < i or lay.last[t] > j:
                        _add(leave, out_of[t], 1)
            if not may_cut[i]:
                continue
            for c in range(classes):
                if board.overlapped:
                    cost[c] = max(compute[c], enter[c], leave[c])
                else:
                    cost[c] = compute[c] + enter[c] + leave[c]
                if not able[c]:
                    cost[c] = NEVER
            for s in range(states):
                if best[i, s] < upper:
                    for c in range(classes):
                        following = step[s, c]
                        if following >= 0 and cost[c] < upper:
                            value = max(best[i, s], cost[c])
                            if value < best[j + 1, following]:
                                best[j + 1, following] = value
                                came[j + 1, following] = i
                                which[j + 1, following] = c
                                prior[j + 1, following] = s
    value, s = _least(best[count])
    chosen = np.zeros(count + 1, np.int32)
    if value >= NEVER:
        return value, stage, chosen[:0]
    end, used = count, 0
    while end > 0:
        start = came[end, s]
        if start == SKIPPED_HOST:
            end -= 1
            continue
        for i in range(start, end):
            if not lay.fixed[i]:
                stage[i] = used
        chosen[used] = which[end, s]
        used += 1
        s = prior[end, s]
        end = start
    for i in range(count):
        if stage[i] >= 0:
            stage[i] = used - 1 - stage[i]
    return value, stage, chosen[:used][::-1].copy()
