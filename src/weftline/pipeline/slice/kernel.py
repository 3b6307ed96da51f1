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
from weftline.simulate.kernels.jit import kernel, part

__all__ = ["NEVER", "OrderLayout", "cut_by_classes", "cut_equal", "good_cuts", "lay_out"]

NEVER = 2**62
FAR = 2**30
SKIP = -2


class OrderLayout(NamedTuple):
    """What each position of an order reads and makes, as positions. Pieces fixed on a host are always outside."""

    piece: Indices
    read_ptr: Indices
    read_tensor: Indices
    read_next: Indices
    """Next position that reads the tensor, FAR if none."""
    make_ptr: Indices
    make_tensor: Indices
    home: Indices
    """(M,): position of the maker, -1 on a host."""
    first_after: Indices
    """(M,): first reader behind the maker."""
    first: Indices
    last: Indices
    """(M,): first and last reader; the last is FAR if a host reads."""
    fixed: NDArray[np.bool_]
    """(P,) by position: stands on a host."""
    behind: Indices
    ahead: Indices
    """(P,) by position, on hosts: last position before and first one behind that depend on it through hosts alone."""
    tied_ptr: Indices
    tied_of: Indices
    tied_next: Indices
    """Tied weights by position, and the next position that uses the same."""


@kernel
def lay_out(board: PieceArrays, order: Indices, on_host: NDArray[np.bool_]) -> OrderLayout:
    """Positions of an order."""
    count, m = len(order), len(board.maker)
    place = np.empty(count, np.int32)
    for i in range(count):
        place[order[i]] = i
    read_ptr = np.zeros(count + 1, np.int32)
    make_ptr = np.zeros(count + 1, np.int32)
    tied_ptr = np.zeros(count + 1, np.int32)
    fixed = np.zeros(count, np.bool_)
    for i in range(count):
        p = order[i]
        fixed[i] = on_host[p]
        stays = 0 if on_host[p] else 1
        read_ptr[i + 1] = read_ptr[i] + stays * (board.reads_ptr[p + 1] - board.reads_ptr[p])
        make_ptr[i + 1] = make_ptr[i] + stays * (board.makes_ptr[p + 1] - board.makes_ptr[p])
        tied_ptr[i + 1] = tied_ptr[i] + stays * (board.tied_ptr[p + 1] - board.tied_ptr[p])
    read_tensor = np.empty(read_ptr[count], np.int32)
    read_next = np.empty(read_ptr[count], np.int32)
    make_tensor = np.empty(make_ptr[count], np.int32)
    tied_of = np.empty(tied_ptr[count], np.int32)
    tied_next = np.empty(tied_ptr[count], np.int32)
    home = np.full(m, -1, np.int32)
    first_after = np.full(m, FAR, np.int32)
    first = np.full(m, FAR, np.int32)
    last = np.full(m, -1, np.int32)
    user = np.full(max(1, len(board.tied_bytes)), FAR, np.int32)
    for i in range(count - 1, -1, -1):
        p = order[i]
        if fixed[i]:
            for e in range(board.reads_ptr[p], board.reads_ptr[p + 1]):
                last[board.reads_of[e]] = FAR
            continue
        for x in range(board.makes_ptr[p + 1] - board.makes_ptr[p]):
            t = board.makes_of[board.makes_ptr[p] + x]
            make_tensor[make_ptr[i] + x] = t
            home[t] = i
            first_after[t] = first[t]
        for x in range(board.reads_ptr[p + 1] - board.reads_ptr[p]):
            t = board.reads_of[board.reads_ptr[p] + x]
            read_tensor[read_ptr[i] + x] = t
            read_next[read_ptr[i] + x] = first[t]
            first[t] = i
            last[t] = max(last[t], i)
        for x in range(board.tied_ptr[p + 1] - board.tied_ptr[p]):
            w = board.tied_of[board.tied_ptr[p] + x]
            tied_of[tied_ptr[i] + x] = w
            tied_next[tied_ptr[i] + x] = user[w]
            user[w] = i
    behind = np.full(count, -1, np.int32)
    ahead = np.full(count, FAR, np.int32)
    for i in range(count):
        if fixed[i]:
            for e in range(board.before_ptr[order[i]], board.before_ptr[order[i] + 1]):
                j = place[board.before_of[e]]
                behind[i] = max(behind[i], behind[j] if fixed[j] else j)
    for i in range(count - 1, -1, -1):
        if fixed[i]:
            for e in range(board.next_ptr[order[i]], board.next_ptr[order[i] + 1]):
                j = place[board.next_of[e]]
                ahead[i] = min(ahead[i], ahead[j] if fixed[j] else j)
    return OrderLayout(
        order,
        read_ptr,
        read_tensor,
        read_next,
        make_ptr,
        make_tensor,
        home,
        first_after,
        first,
        last,
        fixed,
        behind,
        ahead,
        tied_ptr,
        tied_of,
        tied_next,
    )


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
    """Equal devices -> largest cost of a stage (NEVER if none is below `upper`), stage of each position."""
    count = len(work)
    best = np.full((count + 1, stages + 1), NEVER, np.int64)
    came = np.full((count + 1, stages + 1), -1, np.int32)
    stage = np.full(count, -1, np.int32)
    best[0, 0] = 0
    limit = max(1, min(upper, NEVER) - 1)
    total = work.sum()
    need = np.empty(count + 1, np.int64)  # stages that the work in front of a position takes at least
    done = 0
    for i in range(count):
        need[i] = (done + limit - 1) // limit
        done += work[i]
    need[count] = (done + limit - 1) // limit
    done = 0
    for j in range(count):
        if lay.fixed[j]:
            for s in range(stages + 1):
                if best[j, s] < best[j + 1, s]:
                    best[j + 1, s] = best[j, s]
                    came[j + 1, s] = SKIP
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
    value, s = NEVER, 0
    for x in range(stages + 1):
        if best[count, x] < value:
            value, s = best[count, x], x
    if value >= NEVER:
        return value, stage
    end = count
    while end > 0:
        start = came[end, s]
        if start == SKIP:
            end -= 1
            continue
        s -= 1
        for i in range(start, end):
            if not lay.fixed[i]:
                stage[i] = s
        end = start
    return value, stage


@part
def _add(total: Ints, change: Ints, sign: int) -> None:
    for c in range(len(total)):
        total[c] += sign * change[c]


@kernel
def cut_by_classes(
    board: PieceArrays,
    lay: OrderLayout,
    work: Ints,
    into: Ints,
    out_of: Ints,
    room: Ints,
    step: Indices,
    upper: int,
    may_cut: NDArray[np.bool_],
    stop: Ints,
) -> tuple[int, Indices, Indices]:
    """Classes of devices -> largest cost of a stage, stage of each position, class of each stage.

    `work` (P, C) by position, `into` and `out_of` (M, C): ns of a tensor at a class; `step[state, class]` is the state
    when one more device of a class is used, -1 if there is none left.
    """
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
            for s in range(states):
                if best[j, s] < best[j + 1, s]:
                    best[j + 1, s] = best[j, s]
                    came[j + 1, s] = SKIP
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
    value, s = NEVER, 0
    for x in range(states):
        if best[count, x] < value:
            value, s = best[count, x], x
    chosen = np.zeros(count + 1, np.int32)
    if value >= NEVER:
        return value, stage, chosen[:0]
    end, used = count, 0
    while end > 0:
        start = came[end, s]
        if start == SKIP:
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
