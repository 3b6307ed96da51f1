"""The bounds of pipelines: by cuts, by the cheapest stage around each piece, and by three superblocks.

The cut bound: whatever stage holds an op, it pays for the op, for what it holds beside it, and for what crosses. The
cheapest stage around an op is a minimum cut: every op inside pays its least time, every tensor across the border its
least transfer. The bound is the largest over ops. Stages need not be contiguous here, so that one flow is the proof:
`certify/check.py` repeats it. For throughput with added communication. Ops of a `together` set are one node unless host
devices exist, where they are left apart (which is weaker, and valid). `convex_cut_bound` is the same over sets that are
closed as the op sees them: what lies between it and another one of the set is in the set, too.

The node-cover bound is the same for pieces of equal devices, over contiguous (convex) sets: each of its bounds is the
convex-set bound whose weights are 1 at one piece.

Superblocks, in CP-SAT (Archer et al.): what comes before a stage S, S itself, what comes behind it.
`bottleneck`: some stage has work >= W / k, so no pipeline is better than the cheapest contiguous S with that much work.
`guess(b)`: for every b, the stage with b stages before it costs at most t, what comes before it (work and what leaves)
at most b * t, and what comes behind at most (k - 1 - b) * t; the least such t bounds every pipeline. Exact for k <= 3.
Both are for equal devices with added communication; claimed, like every bound of a solver.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftline.bounds import Bound, group_bound, load_bound
from weftline.graph.arrays import Indices, Ints
from weftline.pipeline.convex.graph import MOST_PIECES
from weftline.pipeline.convex.prove import Members, OnBound, ProofBudget, ProofOutcome, Prover
from weftline.pipeline.exact.equal import keep_order, place_on_levels
from weftline.pipeline.pieces import Pieces
from weftline.problem import Problem
from weftline.search import Search
from weftline.search.cp_sat import run_cp_sat
from weftline.simulate.kernels.jit import kernel

__all__ = ["bottleneck", "convex_cut_bound", "cut_bound", "guess", "lower_bounds", "node_cover_bound"]

MOST_OPS = 20_000
MOST_CUTS = 400
"""Ops that are looked at, the costliest by themselves first."""
ENDLESS_TIME = 2**60


def cut_bound(problem: Problem) -> Bound | None:
    """The op whose cheapest stage is costliest; None where this says nothing."""
    begun = perf_counter()
    stages = np.flatnonzero(~problem.host)
    if problem.rules.objective != "throughput" or problem.rules.communication != "added" or not len(stages):
        return None
    if len(problem.devices) < 2 or len(problem.graph.ops) > MOST_OPS:
        return None
    node = problem.group if not problem.host.any() else np.arange(len(problem.graph.ops), dtype=np.int32)
    count = int(node.max()) + 1
    least, on_host = _least_times(problem, node, count)
    arcs = _arcs(problem, node, count, least)
    upper = np.minimum(arcs.alone, on_host)
    upper[least >= ENDLESS_TIME] = 0
    best, where = 0, -1
    for v in np.argsort(-upper, kind="stable")[:MOST_CUTS].tolist():
        if upper[v] <= best:
            break
        value = min(_flow(arcs.pointer, arcs.order, arcs.tail, arcs.head, arcs.room.copy(), v), int(on_host[v]))
        if value > best:
            best, where = value, v
    if where < 0:
        return None
    op = int(np.flatnonzero(node == where)[0])
    return Bound(best, "cut", {"kind": "cut", "op": op}, perf_counter() - begun)


def convex_cut_bound(pieces: Pieces, known: int) -> Bound | None:
    """The piece of equal devices whose cheapest closed stage is costliest; None where it is not above `known`."""
    begun = perf_counter()
    problem, count = pieces.problem, len(pieces.time)
    least, _ = _least_times(problem, pieces.of, count)
    arcs = _arcs(problem, pieces.of, count, least, pieces.edges)
    behind, before = _reachable(pieces.edges), _reachable(pieces.edges[::-1])
    best, where = known, -1
    for v in np.argsort(-arcs.alone, kind="stable")[:MOST_CUTS].tolist():
        if arcs.alone[v] <= best:
            break
        room, (source, target) = arcs.room.copy(), pieces.edges
        first = len(room) - 2 * len(source)
        room[first::2][np.isin(target, behind(v)) & np.isin(source, behind(v))] = ENDLESS_TIME
        room[first + 1 :: 2][np.isin(target, before(v)) & np.isin(source, before(v))] = ENDLESS_TIME
        value = _flow(arcs.pointer, arcs.order, arcs.tail, arcs.head, room, v)
        if value > best:
            best, where = value, v
    if where < 0:
        return None
    op = int(np.flatnonzero(pieces.of == where)[0])
    return Bound(best, "cut", {"kind": "cut", "op": op, "convex": True}, perf_counter() - begun)


def _reachable(edges: tuple[Indices, Indices]) -> Callable[[int], Ints]:
    """Node -> all that its edges lead to."""
    following: dict[int, list[int]] = {}
    for a, b in zip(edges[0].tolist(), edges[1].tolist(), strict=True):
        following.setdefault(a, []).append(b)

    def found(start: int) -> Ints:
        seen, waiting = {start}, [start]
        while waiting:
            for other in following.get(waiting.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)
        return np.array(sorted(seen - {start}), np.int64)

    return found


def _least_times(problem: Problem, node: Indices, count: int) -> tuple[Ints, Ints]:
    """Least time of each node on a stage device, and on a host device (ENDLESS_TIME where there is none)."""
    total = np.zeros((count, len(problem.devices)), np.int64)
    np.add.at(total, node, np.maximum(problem.cost.time, 0))
    able = np.ones(total.shape, np.bool_)
    np.logical_and.at(able, node, problem.cost.time >= 0)
    total = np.where(able, total, ENDLESS_TIME)
    on_host = total[:, problem.host].min(axis=1, initial=ENDLESS_TIME)
    return total[:, ~problem.host].min(axis=1, initial=ENDLESS_TIME), on_host


class _Network:
    """Arcs in pairs (arc ^ 1 is the reverse of arc); `alone` is what a stage of one node alone costs."""

    def __init__(self, tail: Ints, head: Ints, room: Ints, alone: Ints) -> None:
        nodes = int(max(tail.max(initial=0), head.max(initial=0))) + 1
        self.tail, self.head, self.room, self.alone = tail, head, room, alone
        self.order = np.argsort(tail, kind="stable")
        self.pointer = np.zeros(nodes + 1, np.int64)
        np.cumsum(np.bincount(tail, minlength=nodes), out=self.pointer[1:])


def _arcs(
    problem: Problem, node: Indices, count: int, least: Ints, edges: tuple[Indices, Indices] | None = None
) -> _Network:
    """Node -> sink: its time. Maker -> gate -> readers: leaves the stage. Readers -> gate -> maker: enters it.

    Behind them are arcs without room against the edges, and their reverses.
    """
    arrays = problem.graph.arrays
    off = ~np.eye(len(problem.devices), dtype=np.bool_)
    lengths = problem.cost.transfer[:, off]
    cheapest = np.where(lengths >= 0, lengths, ENDLESS_TIME).min(axis=1)
    alone = least.copy()
    rows = [(v, count, min(int(t), ENDLESS_TIME), 0) for v, t in enumerate(least.tolist())]
    free = count + 1
    for t in np.flatnonzero(arrays.producer >= 0).tolist():
        maker = int(node[arrays.producer[t]])
        readers = sorted(
            {int(node[op]) for op in arrays.consumer_of[arrays.consumer_ptr[t] : arrays.consumer_ptr[t + 1]]}
        )
        readers = [q for q in readers if q != maker]
        cost = int(cheapest[problem.cost.transfer_row[t]])
        if not readers or cost == 0:
            continue
        alone[[maker, *readers]] += cost
        if len(readers) == 1:
            rows.append((maker, readers[0], cost, cost))
            continue
        rows.append((maker, free, cost, 0))
        rows += [(free, q, ENDLESS_TIME, 0) for q in readers]
        rows += [(q, free + 1, ENDLESS_TIME, 0) for q in readers]
        rows.append((free + 1, maker, cost, 0))
        free += 2
    if edges is not None:
        rows += [(b, a, 0, 0) for a, b in zip(edges[0].tolist(), edges[1].tolist(), strict=True)]
    table = np.array(rows, np.int64).reshape(-1, 4)
    tail, head = np.empty(2 * len(table), np.int64), np.empty(2 * len(table), np.int64)
    room = np.empty(2 * len(table), np.int64)
    tail[0::2], head[0::2], room[0::2] = table[:, 0], table[:, 1], table[:, 2]
    tail[1::2], head[1::2], room[1::2] = table[:, 1], table[:, 0], table[:, 3]
    return _Network(tail, head, room, alone)


@kernel
def _flow(pointer: Ints, order: Ints, tail: Ints, head: Ints, room: Ints, source: int) -> int:
    """The largest flow from a node to the sink, by shortest augmenting paths. The sink is the head of arc 0."""
    nodes, sink = len(pointer) - 1, head[0]
    came = np.full(nodes, -1, np.int64)
    seen = np.full(nodes, -1, np.int64)
    queue = np.empty(nodes, np.int64)
    total, turn = 0, 0
    while True:
        turn += 1
        first, last = 0, 1
        queue[0] = source
        seen[source] = turn
        while first < last and seen[sink] != turn:
            v = queue[first]
            first += 1
            for i in range(pointer[v], pointer[v + 1]):
                arc = order[i]
                if room[arc] > 0 and seen[head[arc]] != turn:
                    seen[head[arc]] = turn
                    came[head[arc]] = arc
                    queue[last] = head[arc]
                    last += 1
        if seen[sink] != turn:
            return total
        most, v = ENDLESS_TIME, sink
        while v != source:
            most = min(most, room[came[v]])
            v = tail[came[v]]
        v = sink
        while v != source:
            room[came[v]] -= most
            room[came[v] ^ 1] += most
            v = tail[came[v]]
        total += most
        if total >= ENDLESS_TIME:
            return total


def lower_bounds(problem: Problem) -> tuple[Bound, ...]:
    """Every bound that applies, the largest first."""
    found = [group_bound(problem), load_bound(problem)]
    if (cut := cut_bound(problem)) is not None:
        found.append(cut)
    return tuple(sorted(found, key=lambda bound: -bound.value))


def node_cover_bound(
    pieces: Pieces,
    stages: int,
    upper: Callable[[], int],
    *,
    stop: NDArray[np.int64],
    work: int | None = None,
    seconds: float | None = None,
    on_bound: OnBound,
) -> list[Members]:
    """Go through the pieces, those with expensive tensors first -> the cheapest sets that were met."""
    n = len(pieces.time)
    if n > MOST_PIECES or stages < 1 or upper() <= 0:
        return []
    prover = Prover(pieces, stages, upper, stop, ProofBudget(work, seconds, stop), on_bound)
    covered = np.zeros(n, np.bool_)
    met = []
    for piece in np.argsort(-_alone(prover), kind="stable").tolist():
        if prover.budget.spent >= 1.0:
            break
        if covered[piece]:
            continue  # a set with it costs no more than what is proved
        limit = prover.budget.nodes_of(0.1)
        outcome, _, found = prover.cheapest_with(piece, prover.proved + 1, limit, exact=False)
        if not found and outcome == ProofOutcome.PROVED:
            outcome, cost, found = prover.cheapest_with(piece, prover.upper() + 1, limit, exact=True)
            if outcome == ProofOutcome.PROVED:
                prover.tell((np.arange(n) == piece).astype(np.int64), cost)
        for members in found:
            met.append(members)
            if prover.cost(members) <= prover.proved:
                covered |= members
    return met


def _alone(prover: Prover) -> NDArray[np.int64]:
    """Cost of each piece as a set of its own."""
    return np.array([prover.cost(np.arange(prover.n) == piece) for piece in range(prover.n)], np.int64)


SUPERBLOCK_PRECISION = 2**24


def bottleneck(
    search: Search,
    pieces: Pieces,
    *,
    seconds: float | None,
    work: float = 2.0,
    poll: Callable[[], bool] = lambda: False,
) -> int:
    """Offer the bound of the cheapest contiguous stage with an equal share of the work -> its value in ns."""
    return _superblock_bound(search, pieces, None, seconds, work, poll)


def guess(
    search: Search,
    pieces: Pieces,
    before: int,
    *,
    seconds: float | None,
    work: float = 2.0,
    poll: Callable[[], bool] = lambda: False,
) -> int:
    """Offer the bound of the stage with `before` stages before it -> its value in ns."""
    return _superblock_bound(search, pieces, before, seconds, work, poll)


def _superblock_bound(
    search: Search, pieces: Pieces, before: int | None, seconds: float | None, work: float, poll: Callable[[], bool]
) -> int:
    from ortools import __version__
    from ortools.sat.python import cp_model

    assert search.best is not None
    target = search.best.value
    scale = max(1, target // SUPERBLOCK_PRECISION)
    stages = min(pieces.problem.stage_limit, len(pieces.stage_devices))
    times = np.maximum(pieces.time[:, pieces.stage_devices[0]], 0)
    model = cp_model.CpModel()
    t = model.new_int_var(0, target // scale, "")
    levels = np.zeros(len(times), np.int64)
    at, up_to = place_on_levels(model, levels, levels + 2)
    keep_order(model, pieces, up_to, levels, levels + 2)
    inside = _superblock(model, pieces, at, 1, times // scale, scale)
    if before is None:
        share = -(-int(times.sum()) // stages)
        model.add(sum(int(x) * at[v, 1] for v, x in enumerate(times.tolist()) if x) >= share)
        model.add(inside <= t)
    else:
        model.add(inside <= t)
        model.add(_superblock(model, pieces, at, 0, times // scale, scale) <= before * t)
        model.add(_superblock(model, pieces, at, 2, times // scale, scale) <= (stages - 1 - before) * t)
    model.minimize(t)
    name = f"{'bottleneck' if before is None else f'guess({before})'} (CP-SAT {__version__})"
    outcome = run_cp_sat(search, model, seconds=seconds, work=work, poll=poll, on_solution=lambda true: None)
    units = target if outcome.infeasible else int(np.ceil(outcome.bound - 1e-6)) * scale
    value = pieces.lift_bound(min(units, target))
    search.offer_bound(Bound(value, name, seconds=search.seconds))
    return value


def _superblock(model: Any, pieces: Pieces, at: dict[tuple[int, int], Any], level: int, work: Ints, scale: int) -> Any:
    """Work of a superblock and every tensor across its border, once."""
    terms = [int(x) * at[v, level] for v, x in enumerate(work.tolist()) if x]
    for t, cost in enumerate((pieces.transfer_time // scale).tolist()):
        if cost == 0:
            continue
        made, crosses = at[int(pieces.maker[t]), level], model.new_bool_var("")
        for q in pieces.reader_of[pieces.reader_ptr[t] : pieces.reader_ptr[t + 1]].tolist():
            model.add_bool_or(~made, at[q, level], crosses)
            model.add_bool_or(made, ~at[q, level], crosses)
        terms.append(cost * crosses)
    return sum(terms)
