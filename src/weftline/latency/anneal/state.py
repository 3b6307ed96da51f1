"""What the latency annealer knows about a problem and never changes, and where it stands.

AnnealProblem: flat arrays made once. In: Tables (op numbers are topological), the `together` set of every op. A
transfer that has no link takes `penalty` ns, more than any real schedule: so a start that uses one can be mended by
moves, and what still uses one at the end is recognised by its value. Moves take whole subtrees of the dominator tree:
what reaches the sources (or the sinks) only through one op. Depth first, every subtree is one contiguous range; all
sources hang on a root that is no op.

PlacementState: a device per op, a topological order, and the schedule that follows from both. It is kept so that any of
its prefixes can be taken up again: what every device, port and bus is free at is stored before every position of the
order (or every `stride`-th), and a transfer remembers the op it was booked for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints, row_pointer
from weftline.simulate.kernels.jit import kernel, part
from weftline.simulate.kernels.random import RandomGenerator, make_generator
from weftline.simulate.sentinels import NEVER
from weftline.simulate.tables import Tables, Unsigned

__all__ = [
    "ASKED_BELOW",
    "BEST_DEVICE",
    "BEST_ORDER",
    "BOOKED_FOR",
    "DOMINATOR_TREE",
    "EDGE_MAKER",
    "EDGE_ROW",
    "EDGE_TENSOR",
    "MARK_GROUP",
    "MARK_OP",
    "NOW_EXCESS",
    "NOW_STAMP",
    "NOW_VALUE",
    "POST_DOMINATOR_TREE",
    "READY_AT",
    "RUN_TIME",
    "STEPS_DONE",
    "TIME_AFTER",
    "TREE_MEMBER",
    "TREE_PLACE",
    "TREE_SIZE",
    "AnnealProblem",
    "PlacementState",
    "dominator_ranges",
    "dominators",
    "make_anneal_problem",
    "make_state",
    "post_dominator_ranges",
]

RUN_TIME, TIME_AFTER = 0, 1
"""`cost[op, device]`: its time (-1: cannot run there), and a lower bound of what follows its end; ns."""
EDGE_MAKER, EDGE_ROW, EDGE_TENSOR = 0, 1, 2
"""`edge[e]`: the op that makes what is read, the row of its transfer times, its tensor."""
DOMINATOR_TREE, POST_DOMINATOR_TREE = 0, 1
"""`tree`: which tree."""
TREE_MEMBER, TREE_PLACE, TREE_SIZE = 0, 1, 2
"""`tree[which]`: the op at a place of the depth-first order, the place of an op, the size of its subtree."""
READY_AT, BOOKED_FOR = 0, 1
"""`arrival[slot]`: when a tensor is on a device (ns), and the op it was booked for: -1 none, -2 - op in a trial."""
MARK_OP, MARK_GROUP = 0, 1
"""`mark`: stamps of ops and of `together` sets."""
NOW_VALUE, NOW_EXCESS, NOW_STAMP, STEPS_DONE, ASKED_BELOW = 0, 1, 2, 3, 4
"""`now`: value (ns), bytes above the limits, stamp of the trial, trials so far, and the value (ns) below which a state
is worth asking about its activations."""
BEST_DEVICE, BEST_ORDER = 0, 1
"""`best`: a device per op, and the order."""
MOVE_KINDS = 7
"""See `moves`."""
PREFIX_BYTES = 2**28
"""For stored prefixes (there are two sets); longer graphs with many devices store fewer of them."""

Ranges = tuple[Indices, Indices, Indices]
"""(n,) ops in depth-first order, (n,) place of each op in it, (n,) size of its subtree."""


@part
def _meet(parent: Indices, jump: Indices, depth: Indices, a: int, b: int) -> int:
    """The lowest common ancestor of two nodes in the tree so far, in logarithmic time (-1 is the root)."""
    while a != b:
        if a < 0 or b < 0:
            return -1
        if depth[a] < depth[b]:
            a, b = b, a
        if depth[a] > depth[b]:
            over = jump[a]
            a = over if over >= 0 and depth[over] >= depth[b] else parent[a]
        elif jump[a] != jump[b]:
            a, b = jump[a], jump[b]
        else:
            a, b = parent[a], parent[b]
    return a


@kernel
def dominators(before_ptr: Indices, before_of: Indices) -> Indices:
    """(n,): the immediate dominator of every op, -1 where it is the root."""
    n = len(before_ptr) - 1
    parent, jump, depth = np.full(n, -1, np.int32), np.full(n, -1, np.int32), np.zeros(n, np.int32)
    for op in range(n):
        begin, stop = before_ptr[op], before_ptr[op + 1]
        if begin == stop:
            continue
        above = int(before_of[begin])
        for e in range(begin + 1, stop):
            if above < 0:
                break
            above = _meet(parent, jump, depth, above, int(before_of[e]))
        parent[op] = above
        if above < 0:
            continue
        depth[op] = depth[above] + 1
        far = jump[above]  # a jump of twice the length where the two below it are equally long (Myers)
        if far >= 0 and depth[above] - depth[far] == depth[far] - (depth[jump[far]] if jump[far] >= 0 else -1):
            jump[op] = jump[far]
        else:
            jump[op] = above
    return parent


@kernel
def dominator_ranges(before_ptr: Indices, before_of: Indices) -> Ranges:
    """Subtrees of the dominator tree as ranges."""
    parent = dominators(before_ptr, before_of)
    n = len(parent)
    size = np.ones(n, np.int32)
    for op in range(n - 1, -1, -1):  # a dominator has a smaller number
        if parent[op] >= 0:
            size[parent[op]] += size[op]
    place, ops = np.zeros(n, np.int32), np.zeros(n, np.int32)
    free = np.zeros(n + 1, np.int32)  # where the next child of a node begins; the last entry is the root's
    for op in range(n):
        above = parent[op]  # -1 is the last entry
        place[op] = free[above]
        free[above] += size[op]
        free[op] = place[op] + 1
        ops[place[op]] = op
    return ops, place, size


def post_dominator_ranges(after_ptr: Indices, after_of: Indices) -> Ranges:
    """The same from the end, given for every op the ops after it."""
    n = len(after_ptr) - 1
    pointer = np.zeros(n + 1, np.int32)
    np.cumsum(np.diff(after_ptr)[::-1], out=pointer[1:])
    ops, place, size = dominator_ranges(pointer, np.ascontiguousarray((n - 1 - after_of)[::-1].astype(np.int32)))
    return (n - 1 - ops).astype(np.int32), np.ascontiguousarray(place[::-1]), np.ascontiguousarray(size[::-1])


class AnnealProblem(NamedTuple):
    """n ops, E edges, m tensors, K devices, G groups, W tied weights."""

    cost: Ints
    """(n, K, 2): RUN_TIME, TIME_AFTER."""
    edge_ptr: Unsigned
    edge: Unsigned
    """(E, 3): EDGE_MAKER, EDGE_ROW, EDGE_TENSOR."""
    transfer: Ints
    """(rows, K, K): a missing link takes `penalty`."""
    bus: Indices
    before_ptr: Indices
    before_of: Indices
    after_ptr: Indices
    after_of: Indices
    """Op -> ops it reads from; ops that read from it, and the row of each such transfer."""
    after_row: Indices
    group: Indices
    group_ptr: Indices
    group_of: Indices
    allowed: NDArray[np.bool_]
    """(G, K): every member can run there."""
    tree: Indices
    """(2, 3, n): DOMINATOR_TREE, POST_DOMINATOR_TREE as ranges: TREE_MEMBER, TREE_PLACE, TREE_SIZE."""
    static_bytes: Ints
    tied_ptr: Indices
    tied_of: Indices
    """Op -> tied weights it uses."""
    tied_bytes: Ints
    tensors: int
    buses: int
    penalty: int
    per_edge: bool
    sequential: bool


def make_anneal_problem(table: Tables, group: Indices) -> AnnealProblem:
    """The arrays of some tables."""
    n, k = table.time.shape
    time = table.time.astype(np.int64)
    transfer = table.transfer.astype(np.int64)
    maker = table.edge_maker.astype(np.int32)
    before_ptr = table.edge_ptr.astype(np.int32)
    reader = np.repeat(np.arange(n, dtype=np.int32), before_ptr[1:] - before_ptr[:-1])
    row = table.transfer_row[table.edge_tensor]
    longest = transfer.max(axis=(1, 2), initial=0)
    penalty = min(2**60, 1 + int(time.max(axis=1, initial=0).sum()) + int(longest[row].sum()))
    transfer = np.where(transfer < 0, penalty, transfer)
    by_maker = np.argsort(maker, kind="stable")
    after_ptr = row_pointer(maker, n)
    after_of = reader[by_maker]
    users = np.repeat(np.arange(len(table.tied_bytes), dtype=np.int32), np.diff(table.tied_ptr))
    by_user = np.argsort(table.tied_of, kind="stable")
    groups = int(group.max(initial=-1)) + 1
    allowed = np.ones((groups, k), np.bool_)
    np.logical_and.at(allowed, group, time >= 0)
    tree = np.empty((2, 3, n), np.int32)
    tree[DOMINATOR_TREE] = dominator_ranges(before_ptr, maker)
    tree[POST_DOMINATOR_TREE] = post_dominator_ranges(after_ptr, after_of)
    cost = np.zeros((n, k, 2), np.int64)
    cost[:, :, RUN_TIME] = time
    problem = AnnealProblem(
        cost=cost,
        edge_ptr=table.edge_ptr,
        edge=np.ascontiguousarray(np.stack([maker, row, table.edge_tensor], axis=1).astype(np.uint32)),
        transfer=np.ascontiguousarray(transfer),
        bus=np.ascontiguousarray(table.bus),
        before_ptr=before_ptr,
        before_of=maker,
        after_ptr=after_ptr,
        after_of=after_of,
        after_row=row[by_maker],
        group=np.ascontiguousarray(group, np.int32),
        group_ptr=row_pointer(group, groups),
        group_of=np.argsort(group, kind="stable").astype(np.int32),
        allowed=allowed,
        tree=tree,
        static_bytes=np.ascontiguousarray(table.static_bytes),
        tied_ptr=row_pointer(table.tied_of, n),
        tied_of=users[by_user],
        tied_bytes=table.tied_bytes,
        tensors=len(table.producer),
        buses=int(table.bus.max(initial=-1)) + 1,
        penalty=penalty,
        per_edge=bool(table.per_edge),
        sequential=bool(table.sequential),
    )
    _bound_what_follows(problem)
    return problem


@kernel
def _bound_what_follows(problem: AnnealProblem) -> None:
    """Fill `cost[:, :, TIME_AFTER]`: the longest path after an op on a device, later ops each on their best device."""
    cost, transfer, edge_ptr, edge = problem.cost, problem.transfer, problem.edge_ptr, problem.edge
    n, devices = cost.shape[0], cost.shape[1]
    for op in range(n - 1, -1, -1):
        for e in range(np.int64(edge_ptr[op]), np.int64(edge_ptr[op + 1])):
            maker, row = np.int64(edge[e, EDGE_MAKER]), np.int64(edge[e, EDGE_ROW])
            for k in range(devices):
                least = np.int64(2**61)
                for to in range(devices):
                    if cost[op, to, RUN_TIME] >= 0:
                        least = min(least, transfer[row, k, to] + cost[op, to, RUN_TIME] + cost[op, to, TIME_AFTER])
                cost[maker, k, TIME_AFTER] = max(cost[maker, k, TIME_AFTER], min(least, problem.penalty))


class PlacementState(NamedTuple):
    """n ops, K devices, `width` = 3 K + buses + 2."""

    order: Indices
    position: Indices
    """(n,): the op at a position, the position of an op."""
    device: Indices
    end: Ints
    """(n,): of each op."""
    arrival: Ints
    """(m K, 2): READY_AT, BOOKED_FOR of tensor * K + device; empty where sent per edge."""
    stored: Ints
    fresh: Ints
    """(rows, width): free times of devices, send ports, receive ports, buses, clock, latest end; now and in a trial."""
    kept: Ints
    """(n,): ends before a trial, by position."""
    log: Ints
    """(E, 3): arrivals before a trial: slot, time, op."""
    free: Ints
    pending: Ints
    chosen: Indices
    changed: Indices
    was: Indices
    """Ops a trial is about, those that change their device, and the device they had."""
    mark: Indices
    """(2, n): stamps of MARK_OP and MARK_GROUP seen in this trial."""
    backup: Indices
    spare: Indices
    """Orders: before a trial, and in the making."""
    level: Ints
    held: Ints
    """(K,): bytes on each device."""
    room: Ints
    """(K,): bytes each device has for weights."""
    users: Indices
    """(W, K): ops on a device that use a tied weight."""
    now: Ints
    """(5,): NOW_VALUE, NOW_EXCESS, NOW_STAMP, STEPS_DONE, ASKED_BELOW."""
    best: Indices
    """(2, n): BEST_DEVICE, BEST_ORDER."""
    best_value: Ints
    weight: NDArray[np.float64]
    credit: NDArray[np.float64]
    effort: NDArray[np.float64]
    """(MOVE_KINDS,): of moves."""
    random: RandomGenerator
    stride: int
    binds: bool
    """True if memory for weights can run out."""
    asks: bool
    """True if activations can run out of memory too: then the kernel stops at a state that may be a new best."""


def make_state(problem: AnnealProblem, capacity: Ints, seed: int, *, asks: bool) -> PlacementState:
    """An empty state; `load` fills it."""
    n, k = problem.cost.shape[:2]
    edges = len(problem.edge)
    width = 3 * k + problem.buses + 2
    stride = max(1, -(-n * width * 8 // PREFIX_BYTES))
    rows = n // stride + 1
    slots = 1 if problem.per_edge else problem.tensors * k
    widest = int(np.diff(problem.edge_ptr.astype(np.int64)).max(initial=0))
    total = int(problem.static_bytes.sum()) + int(problem.tied_bytes.sum())
    return PlacementState(
        order=np.zeros(n, np.int32),
        position=np.zeros(n, np.int32),
        device=np.zeros(n, np.int32),
        end=np.zeros(n, np.int64),
        arrival=np.full((slots, 2), -1, np.int64),
        stored=np.zeros((rows, width), np.int64),
        fresh=np.zeros((rows, width), np.int64),
        kept=np.zeros(n, np.int64),
        log=np.zeros((1 if problem.per_edge else edges + 1, 3), np.int64),
        free=np.zeros(width, np.int64),
        pending=np.zeros((widest + 1, 3), np.int64),
        chosen=np.zeros(n + 1, np.int32),
        changed=np.zeros(n + 1, np.int32),
        was=np.zeros(n + 1, np.int32),
        mark=np.zeros((2, n), np.int32),
        backup=np.zeros(n, np.int32),
        spare=np.zeros(n, np.int32),
        level=np.zeros(n, np.int64),
        held=np.zeros(k, np.int64),
        room=capacity.astype(np.int64),
        users=np.zeros((len(problem.tied_bytes), k), np.int32),
        now=np.zeros(5, np.int64),
        best=np.zeros((2, n), np.int32),
        best_value=np.full(1, NEVER, np.int64),
        weight=np.zeros(MOVE_KINDS),
        credit=np.zeros(MOVE_KINDS),
        effort=np.ones(MOVE_KINDS),
        random=make_generator(seed),
        stride=stride,
        binds=asks or bool((total > capacity).any()),
        asks=asks,
    )
