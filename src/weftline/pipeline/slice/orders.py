"""Topological orders of pieces, along which a pipeline is sliced; and the order of its stages.

In: a PieceArrays, keys or a seed. Out: a permutation of the pieces in which every forward edge goes up.

`arrange` goes from a column per piece to levels that never go down along a forward edge, if there are any: stages have
odd levels, pieces on hosts the even ones between them, in a topological order of the quotient graph, drawn at random.
`lay_out` says what each position of an order reads and makes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.pipeline.reduce import PieceArrays
from weftline.simulate.kernels.jit import kernel, part
from weftline.simulate.kernels.random import RandomGenerator, below, make_generator
from weftline.simulate.sentinels import NEVER

__all__ = ["OrderLayout", "arrange", "following_order", "keyed_order", "lay_out", "several_orders", "sort_by_keys"]

BY_KEY, FIRST_READY, LAST_READY = 0, 1, 2
FAR_AWAY = 2**30
"""A position behind every other one."""
READY_WINDOW = 256
"""Ready pieces that are looked at, the latest ones."""

Keys = NDArray[np.float64]


def several_orders(board: PieceArrays, seed: int, random: int) -> list[Indices]:
    """Different ones first: as given, depth first and breadth first from both ends, by paths, by live tensors."""
    count = len(board.time)
    none = np.zeros(count)
    time = np.where(board.time >= 0, board.time, 0).max(axis=1)
    forward = (board.next_ptr, board.next_of, board.before_ptr, board.before_of)
    backward = forward[2:] + forward[:2]
    tail = _longest(board.next_ptr, board.next_of, time, np.arange(count - 1, -1, -1))
    head = _longest(board.before_ptr, board.before_of, time, np.arange(count))
    generator = np.random.default_rng(seed)
    orders = [
        np.arange(count, dtype=np.int32),
        sort_by_keys(*forward, none, LAST_READY),
        sort_by_keys(*backward, none, LAST_READY)[::-1],
        sort_by_keys(*forward, none, FIRST_READY),
        sort_by_keys(*backward, none, FIRST_READY)[::-1],
        keyed_order(board, -tail.astype(np.float64)),
        keyed_order(board, head.astype(np.float64)),
        least_live(board),
        *(keyed_order(board, generator.random(count)) for _ in range(random)),
    ]
    seen: dict[bytes, Indices] = {}
    for order in map(np.ascontiguousarray, orders):
        seen.setdefault(order.tobytes(), order)
    return list(seen.values())


def keyed_order(board: PieceArrays, keys: Keys) -> Indices:
    """Of all ready pieces the one with the smallest key comes next."""
    return sort_by_keys(board.next_ptr, board.next_of, board.before_ptr, board.before_of, keys, BY_KEY)


@kernel
def sort_by_keys(
    next_ptr: Indices, next_of: Indices, before_ptr: Indices, before_of: Indices, keys: Keys, rule: int
) -> Indices:
    """Kahn's algorithm with a heap; the rule says whether keys, the first or the last ready piece decide."""
    count = len(next_ptr) - 1
    waiting = np.empty(count, np.int32)
    heap_key = np.empty(count + 1, np.float64)
    heap = np.empty(count + 1, np.int32)
    order = np.empty(count, np.int32)
    size = 0
    turn = 0
    for p in range(count):
        waiting[p] = before_ptr[p + 1] - before_ptr[p]
        if waiting[p] == 0:
            key = keys[p] if rule == BY_KEY else (turn if rule == FIRST_READY else -turn)
            size = _push(heap_key, heap, size, key, p)
            turn += 1
    for place in range(count):
        p = heap[0]
        order[place] = p
        size = _pop(heap_key, heap, size)
        for e in range(next_ptr[p], next_ptr[p + 1]):
            q = next_of[e]
            waiting[q] -= 1
            if waiting[q] == 0:
                key = keys[q] if rule == BY_KEY else (turn if rule == FIRST_READY else -turn)
                size = _push(heap_key, heap, size, key, q)
                turn += 1
    return order


@part
def _push(heap_key: Keys, heap: Indices, size: int, key: float, item: int) -> int:
    spot = size
    while spot > 0:
        parent = (spot - 1) >> 1
        if heap_key[parent] <= key:
            break
        heap_key[spot] = heap_key[parent]
        heap[spot] = heap[parent]
        spot = parent
    heap_key[spot] = key
    heap[spot] = item
    return size + 1


@part
def _pop(heap_key: Keys, heap: Indices, size: int) -> int:
    size -= 1
    key = heap_key[size]
    item = heap[size]
    spot = 0
    while True:
        child = 2 * spot + 1
        if child >= size:
            break
        if child + 1 < size and heap_key[child + 1] < heap_key[child]:
            child += 1
        if heap_key[child] >= key:
            break
        heap_key[spot] = heap_key[child]
        heap[spot] = heap[child]
        spot = child
    heap_key[spot] = key
    heap[spot] = item
    return size


@kernel
def _longest(pointer: Indices, row_of: Indices, time: Ints, order: Ints) -> Ints:
    """Longest path that begins at each piece, its own time included."""
    length = np.zeros(len(time), np.int64)
    for p in order:
        for e in range(pointer[p], pointer[p + 1]):
            length[p] = max(length[p], length[row_of[e]])
        length[p] += time[p]
    return length


@kernel
def least_live(board: PieceArrays) -> Indices:
    """Next is the ready piece that adds least to the tensors still to be read; of equals the one ready last."""
    count, m = len(board.weight), len(board.maker)
    time = np.empty(m, np.int64)
    left = np.empty(m, np.int32)
    for t in range(m):
        time[t] = board.wire[t] if board.flat else board.transfer[board.row[t]].max()
        left[t] = board.reader_ptr[t + 1] - board.reader_ptr[t]
    waiting = np.empty(count, np.int32)
    ready = np.empty(count, np.int32)
    order = np.empty(count, np.int32)
    size = 0
    for p in range(count - 1, -1, -1):
        waiting[p] = board.before_ptr[p + 1] - board.before_ptr[p]
        if waiting[p] == 0:
            ready[size] = p
            size += 1
    for place in range(count):
        best, least = size - 1, NEVER
        for spot in range(size - 1, max(-1, size - 1 - READY_WINDOW), -1):
            p = ready[spot]
            change = 0
            for e in range(board.makes_ptr[p], board.makes_ptr[p + 1]):
                change += time[board.makes_of[e]]
            for e in range(board.reads_ptr[p], board.reads_ptr[p + 1]):
                t = board.reads_of[e]
                if left[t] == 1:
                    change -= time[t]
            if change < least:
                best, least = spot, change
        p = ready[best]
        for spot in range(best, size - 1):
            ready[spot] = ready[spot + 1]
        size -= 1
        order[place] = p
        for e in range(board.reads_ptr[p], board.reads_ptr[p + 1]):
            left[board.reads_of[e]] -= 1
        for e in range(board.next_ptr[p], board.next_ptr[p + 1]):
            q = board.next_of[e]
            waiting[q] -= 1
            if waiting[q] == 0:
                ready[size] = q
                size += 1
    return order


@kernel
def arrange(
    board: PieceArrays, column: Indices, stages: int, generator: RandomGenerator, at: Indices, level: Indices
) -> bool:
    """Fill `at` (column at each place of the pipeline) and the level of each piece -> False if there is a cycle.

    Columns 0..stages-1 are stages (empty ones stand anywhere), all above are hosts, whose pieces stand alone.
    """
    count = len(column)
    first = np.full(stages + count, -1, np.int32)  # pieces of a node as linked lists
    following = np.full(count, -1, np.int32)
    node = np.empty(count, np.int32)
    waiting = np.zeros(stages + count, np.int32)
    for p in range(count - 1, -1, -1):
        node[p] = column[p] if column[p] < stages else stages + p
        following[p] = first[node[p]]
        first[node[p]] = p
    for p in range(count):
        for e in range(board.next_ptr[p], board.next_ptr[p + 1]):
            if node[board.next_of[e]] != node[p]:
                waiting[node[board.next_of[e]]] += 1
    ready = np.empty(stages + count, np.int32)
    size = 0
    for v in range(stages + count):
        if waiting[v] == 0 and (v < stages or first[v] >= 0):
            ready[size] = v
            size += 1
    place, done = 0, 0
    while size > 0:
        spot = below(generator, size)
        v = ready[spot]
        size -= 1
        ready[spot] = ready[size]
        here = 2 * place
        if v < stages:
            at[place] = v
            here += 1
            place += 1
        p = first[v]
        while p >= 0:
            level[p] = here
            done += 1
            for e in range(board.next_ptr[p], board.next_ptr[p + 1]):
                w = node[board.next_of[e]]
                if w != v:
                    waiting[w] -= 1
                    if waiting[w] == 0:
                        ready[size] = w
                        size += 1
            p = following[p]
    return bool(done == count)


def following_order(board: PieceArrays, device: Indices, seed: int) -> Indices | None:
    """A topological order in which every stage is contiguous, random inside the stages; None if there is a cycle."""
    hosts = board.host[device]
    column = np.where(hosts, len(board.host), device).astype(np.int32)
    at, level = np.zeros(len(board.host), np.int32), np.zeros(len(device), np.int32)
    if not arrange(board, column, len(board.host), make_generator(seed), at, level):
        return None
    inside = np.arange(len(device)) / len(device) if seed == 0 else np.random.default_rng(seed).random(len(device))
    return keyed_order(board, level + inside)


class OrderLayout(NamedTuple):
    """What each position of an order reads and makes, as positions. Pieces fixed on a host are always outside."""

    piece: Indices
    read_ptr: Indices
    read_tensor: Indices
    read_next: Indices
    """Next position that reads the tensor, FAR_AWAY if none."""
    make_ptr: Indices
    make_tensor: Indices
    home: Indices
    """(M,): position of the maker, -1 on a host."""
    first_after: Indices
    """(M,): first reader behind the maker."""
    first: Indices
    last: Indices
    """(M,): first and last reader; the last is FAR_AWAY if a host reads."""
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
    first_after = np.full(m, FAR_AWAY, np.int32)
    first = np.full(m, FAR_AWAY, np.int32)
    last = np.full(m, -1, np.int32)
    user = np.full(max(1, len(board.tied_bytes)), FAR_AWAY, np.int32)
    for i in range(count - 1, -1, -1):
        p = order[i]
        if fixed[i]:
            for e in range(board.reads_ptr[p], board.reads_ptr[p + 1]):
                last[board.reads_of[e]] = FAR_AWAY
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
    behind, ahead = _around_hosts(board, order, place, fixed)
    reads, made = (read_ptr, read_tensor, read_next), (make_ptr, make_tensor)
    readers, tied = (home, first_after, first, last), (tied_ptr, tied_of, tied_next)
    return OrderLayout(order, *reads, *made, *readers, fixed, behind, ahead, *tied)


@part
def _around_hosts(
    board: PieceArrays, order: Indices, place: Indices, fixed: NDArray[np.bool_]
) -> tuple[Indices, Indices]:
    """For positions on hosts: the last one before and the first one behind that depend on it through hosts alone."""
    count = len(order)
    behind = np.full(count, -1, np.int32)
    ahead = np.full(count, FAR_AWAY, np.int32)
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
    return behind, ahead
