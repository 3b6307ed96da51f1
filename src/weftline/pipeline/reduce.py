"""Fewer pieces for the same answer, and the flat arrays of pieces that kernels read.

Exact reductions (`reduce_exactly`), whatever the number of stages: merge two pieces that some best pipeline keeps
together. R1: all outputs of u are read by v alone, and u with all its inputs costs no more than its output: u goes to
v. R2: v reads from u alone, u's outputs are read by v alone, and v with its output costs no more than u's: v goes to u.
In both, moving the piece makes no stage costlier. (Archer et al. have one kind of device; here the piece's time is that
of its slowest device, so that it holds for unequal devices too.) Host devices, links of unequal speed, overlapped
communication and memory that may bind exclude it, because there a move has another price.

Threshold contraction (`contract_uncuttable`), to find a pipeline below a target, or to prove that there is none: if two
pieces that share a tensor stand on different devices, one pays for its own time and the tensor, and the other too.
Where that reaches the target on every pair of devices, no pipeline below the target separates them: they are merged,
and so is what then lies on a cycle, until nothing changes. On equal devices so are pairs whose tensors, paid twice, are
more than all stages may take beside the work. `shrink` reduces and contracts in turn.

Coarser pieces for the search alone (`merge_freely`): the exact reductions as if there were no hosts and no memory
limits, which forbid most of them although nearly every good pipeline keeps the same pieces together. No bound holds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from weftline.cost import CostTable
from weftline.graph.arrays import Indices, Ints, row_pointer
from weftline.pipeline.joins import Joins
from weftline.pipeline.pieces import Pieces, make_pieces, merge
from weftline.problem import Problem
from weftline.simulate.tables import once_per_problem

__all__ = [
    "PieceArrays",
    "contract_uncuttable",
    "free_pieces",
    "make_piece_arrays",
    "memory_may_bind",
    "merge_freely",
    "reduce_exactly",
    "shrink",
]

MOST_ROUNDS = 1000
MOST_STEPWISE = 12_000
"""Pieces, and readers of tensors, that are gone through one by one."""


def reduce_exactly(pieces: Pieces) -> Pieces:
    """Apply R1 and R2 until nothing changes, tables first."""
    if not _reducible(pieces):
        return pieces
    for _ in range(MOST_ROUNDS):
        before = len(pieces.time)
        for rule in (_first_rule, _second_rule):
            into = rule(pieces, _movable(pieces))
            if (into != np.arange(len(into))).any():
                pieces = merge(pieces, _roots(into))
        if len(pieces.time) == before:
            break
    while _few_enough(pieces):
        joins = Joins(pieces, _movable(pieces))
        joins.reduce()
        if len(joins.alive) + len(joins.left_out) == len(pieces.time):
            break
        pieces = merge(pieces, joins.group)
    return pieces


def shrink(pieces: Pieces, target: int) -> Pieces:
    """Reduce and contract in turn until nothing changes; bounds hold up to `target`."""
    while True:
        before, pieces = len(pieces.time), contract_uncuttable(reduce_exactly(pieces), target)
        if len(pieces.time) == before:
            return pieces


def free_pieces(pieces: Pieces) -> Joins | None:
    """The order without pieces that may stand anywhere; None where none may."""
    if not _reducible(pieces) or not _few_enough(pieces):
        return None
    joins = Joins(pieces, _movable(pieces))
    joins.leave_out()
    return joins if joins.left_out else None


def _reducible(pieces: Pieces) -> bool:
    """Has a move the same price everywhere?"""
    problem = pieces.problem
    if problem.host.any() or problem.rules.communication == "overlapped" or not pieces.flat:
        return False
    if not pieces.stage_devices or (pieces.transfer < 0).any():
        return False
    return not (memory_may_bind(problem) and problem.rules.memory == "dynamic")


def _few_enough(pieces: Pieces) -> bool:
    return len(pieces.time) + len(pieces.reader_of) <= MOST_STEPWISE


def memory_may_bind(problem: Problem) -> bool:
    """False if every device could hold everything at once."""
    arrays = problem.graph.arrays
    everything = int(arrays.weight_bytes.sum() + arrays.workspace_bytes.sum() + arrays.tied_bytes.sum())
    everything += 2 * int(arrays.tensor_bytes.sum())
    return bool((problem.capacity < everything).any())


def _movable(pieces: Pieces) -> NDArray[np.bool_]:
    """Pieces that take no memory where it may bind, and have no tied weights."""
    problem = pieces.problem
    movable = np.ones(len(pieces.time), np.bool_)
    if memory_may_bind(problem):
        movable[pieces.weight > 0] = False
        movable[pieces.of[problem.graph.arrays.tied_of]] = False
    return movable


def _only_reader(pieces: Pieces) -> Ints:
    """(P,): the one piece that reads everything a piece makes, -1 if there is none such."""
    maker = np.repeat(pieces.maker, np.diff(pieces.reader_ptr))
    return _only(maker, pieces.reader_of, len(pieces.time))


def _only_maker(pieces: Pieces) -> Ints:
    """(P,): the one piece that makes everything a piece reads, -1 if there is none such."""
    maker = np.repeat(pieces.maker, np.diff(pieces.reader_ptr))
    return _only(pieces.reader_of, maker, len(pieces.time))


def _only(key: Indices, value: Indices, count: int) -> Ints:
    low, high = np.full(count, count, np.int64), np.full(count, -1, np.int64)
    np.minimum.at(low, key, value)
    np.maximum.at(high, key, value)
    return np.where(low == high, high, -1)


def _totals(pieces: Pieces) -> tuple[Ints, Ints]:
    """(P,) ns of all tensors that a piece reads, and of all it makes."""
    read, made = np.zeros(len(pieces.time), np.int64), np.zeros(len(pieces.time), np.int64)
    np.add.at(read, pieces.reader_of, np.repeat(pieces.transfer_time, np.diff(pieces.reader_ptr)))
    np.add.at(made, pieces.maker, pieces.transfer_time)
    return read, made


def _moves_anywhere(pieces: Pieces, what: Ints, where: Ints) -> NDArray[np.bool_]:
    """True where a piece can run wherever the piece it moves to can."""
    able = pieces.time >= 0
    return np.asarray((able[what] | ~able[where]).all(axis=1), np.bool_)


def _first_rule(pieces: Pieces, movable: NDArray[np.bool_]) -> Ints:
    enters, leaves = _totals(pieces)
    target = _only_reader(pieces)
    u = np.flatnonzero((target >= 0) & movable)
    v = target[u]
    forward = _forward_edges(pieces, u, v)
    u, v = u[forward], v[forward]
    good = (pieces.time[u].max(axis=1) + enters[u] <= leaves[u]) & _moves_anywhere(pieces, u, v)
    into = np.arange(len(pieces.time), dtype=np.int64)
    into[u[good]] = v[good]
    return into


def _second_rule(pieces: Pieces, movable: NDArray[np.bool_]) -> Ints:
    _, leaves = _totals(pieces)
    reader, maker = _only_reader(pieces), _only_maker(pieces)
    v = np.flatnonzero((maker >= 0) & movable)
    u = maker[v]
    chain = _forward_edges(pieces, u, v) & (reader[u] == v)
    u, v = u[chain], v[chain]
    good = (pieces.time[v].max(axis=1) + leaves[v] <= leaves[u]) & _moves_anywhere(pieces, v, u)
    into = np.arange(len(pieces.time), dtype=np.int64)
    into[v[good]] = u[good]
    return into


def _forward_edges(pieces: Pieces, u: Ints, v: Ints) -> NDArray[np.bool_]:
    """True where v needs a forward tensor of u: only then u may go to v's stage, or v to u's, and keep the order."""
    source, target = pieces.edges
    count = len(pieces.time)
    return np.isin(u * count + v, source.astype(np.int64) * count + target)


def _roots(into: Ints) -> Ints:
    while True:
        further = into[into]
        if (further == into).all():
            return into
        into = further


MOST_CONTRACTIONS = 100


def contract_uncuttable(pieces: Pieces, target: int) -> Pieces:
    """Merge what no pipeline with a value below `target` can separate; bounds hold up to `target`."""
    import rustworkx

    contracted = merge(pieces, np.arange(len(pieces.time)), ceiling=target)
    for _ in range(MOST_CONTRACTIONS):
        maker = np.repeat(contracted.maker, np.diff(contracted.reader_ptr))
        together = _uncuttable(contracted, target)
        if not together.any():
            break
        graph = rustworkx.PyGraph(multigraph=False)
        graph.add_nodes_from(range(len(contracted.time)))
        pairs = zip(maker[together].tolist(), contracted.reader_of[together].tolist(), strict=True)
        graph.add_edges_from_no_data(list(pairs))
        group = np.zeros(len(contracted.time), np.int64)
        for number, members in enumerate(rustworkx.connected_components(graph)):
            group[list(members)] = number
        contracted = merge(contracted, group, ceiling=target)
    return _within_budget(contracted, target)


def _within_budget(pieces: Pieces, target: int) -> Pieces:
    """The same for what all stages of equal devices together may take."""
    problem = pieces.problem
    if not pieces.equal or problem.host.any() or problem.rules.communication != "added" or not _few_enough(pieces):
        return pieces
    stages = min(problem.stage_limit, len(pieces.stage_devices))
    while True:
        joins = Joins(pieces, _movable(pieces))
        pairs = joins.uncuttable(stages, target)
        if not pairs:
            return pieces
        for pair in pairs:
            joins.join(*pair)
        pieces = merge(pieces, joins.group, ceiling=target)


def _uncuttable(pieces: Pieces, target: int) -> NDArray[np.bool_]:
    """For every (tensor, reader): True if maker and reader cannot stand apart below the target."""
    problem = pieces.problem
    counts = np.diff(pieces.reader_ptr)
    maker, row = np.repeat(pieces.maker, counts), np.repeat(pieces.row, counts)
    apart = np.zeros(len(maker), np.bool_)
    added = problem.rules.communication == "added"
    for a, b in _pairs(pieces):
        send = pieces.transfer[row, a, b]
        out, into = send * (not problem.host[a]), send * (not problem.host[b])
        first, second = pieces.time[maker, a], pieces.time[pieces.reader_of, b]
        able = (send >= 0) & (first >= 0) & (second >= 0)
        left = first + out if added else np.maximum(first, out)
        right = second + into if added else np.maximum(second, into)
        apart |= able & (left < target) & (right < target)
    for host in np.flatnonzero(problem.host).tolist():  # together on a host they would still be two nodes of the order
        first, second = pieces.time[maker, host], pieces.time[pieces.reader_of, host]
        apart |= (first >= 0) & (second >= 0) & (first + second < target)
    together: NDArray[np.bool_] = ~apart
    return together


def _pairs(pieces: Pieces) -> list[tuple[int, int]]:
    """Pairs of devices, only one of those that look the same."""
    devices = range(pieces.time.shape[1])
    if not pieces.flat:
        return [(a, b) for a in devices for b in devices if a != b]
    kinds = {d: (bool(pieces.problem.host[d]), pieces.time[:, d].tobytes()) for d in devices}
    seen: dict[object, tuple[int, int]] = {}
    for a in devices:
        for b in devices:
            if a != b:
                seen.setdefault((kinds[a], kinds[b]), (a, b))
    return list(seen.values())


class PieceArrays(NamedTuple):
    """P pieces, M tensors, K devices. numba passes a NamedTuple of arrays to a kernel as it is."""

    time: Ints
    """(P, K), negative where a piece cannot run."""
    weight: Ints
    next_ptr: Indices
    next_of: Indices
    before_ptr: Indices
    before_of: Indices
    maker: Indices
    reader_ptr: Indices
    reader_of: Indices
    makes_ptr: Indices
    makes_of: Indices
    reads_ptr: Indices
    reads_of: Indices
    wire: Ints
    """(M,): ns of each tensor, where transfers are flat."""
    row: Indices
    transfer: Ints
    tied_ptr: Indices
    tied_of: Indices
    """Piece -> tied weights that its ops use, each once."""
    tied_bytes: Ints
    host: NDArray[np.bool_]
    flat: bool
    overlapped: bool
    stage_limit: int


@once_per_problem
def make_piece_arrays(pieces: Pieces) -> PieceArrays:
    """The arrays of some pieces."""
    problem, arrays = pieces.problem, pieces.problem.graph.arrays
    count, flat = len(pieces.time), pieces.flat and not (pieces.transfer < 0).any()
    weights = np.repeat(np.arange(len(arrays.tied_bytes)), np.diff(arrays.tied_ptr))
    key = np.unique(pieces.of[arrays.tied_of].astype(np.int64) * max(1, len(arrays.tied_bytes)) + weights)
    user = key // max(1, len(arrays.tied_bytes))
    return PieceArrays(
        time=np.ascontiguousarray(pieces.time),
        weight=pieces.weight,
        next_ptr=pieces.next_ptr,
        next_of=pieces.next_of,
        before_ptr=pieces.before[0],
        before_of=pieces.before[1],
        maker=pieces.maker,
        reader_ptr=pieces.reader_ptr,
        reader_of=pieces.reader_of,
        makes_ptr=pieces.makes[0],
        makes_of=pieces.makes[1],
        reads_ptr=pieces.reads[0],
        reads_of=pieces.reads[1],
        wire=np.ascontiguousarray(pieces.transfer_time if flat else np.zeros(len(pieces.maker), np.int64)),
        row=pieces.row,
        transfer=np.ascontiguousarray(pieces.transfer),
        tied_ptr=row_pointer(user, count),
        tied_of=(key % max(1, len(arrays.tied_bytes))).astype(np.int32),
        tied_bytes=arrays.tied_bytes,
        host=problem.host,
        flat=bool(flat),
        overlapped=problem.rules.communication == "overlapped",
        stage_limit=problem.stage_limit,
    )


def merge_freely(pieces: Pieces) -> Pieces | None:
    """Join what the reductions would join on the stage devices; what only hosts can run stays apart."""
    problem, stages = pieces.problem, list(pieces.stage_devices)
    if not stages or not pieces.flat or (pieces.transfer < 0).any():
        return None
    if not problem.host.any() and problem.rules.communication == "added" and not memory_may_bind(problem):
        return None  # the exact reductions did it all
    cost = problem.cost
    free = replace(
        problem,
        devices=tuple(msgspec.structs.replace(problem.devices[d], memory=None, reserve=0) for d in stages),
        cost=CostTable(cost.time[:, stages], cost.transfer[:, stages][:, :, stages], cost.transfer_row, cost.source),
        rules=msgspec.structs.replace(problem.rules, communication="added", stages=0),
        buses=(),
    )
    reduced = reduce_exactly(make_pieces(free))
    first = np.zeros(len(pieces.time), np.int64)
    first[pieces.of[::-1]] = np.arange(len(pieces.of))[::-1]
    group = _same_devices(pieces, reduced.of[first].astype(np.int64))
    coarse = merge(pieces, group, exact=False)
    fits = len(coarse.time) < len(pieces.time) and (coarse.time >= 0).any(axis=1).all()
    return coarse if fits else None


def _same_devices(pieces: Pieces, group: Ints) -> Ints:
    """Split groups in which not all can run on the same stage devices."""
    able = pieces.time[:, list(pieces.stage_devices)] >= 0
    kind = np.unique(able, axis=0, return_inverse=True)[1].reshape(-1)
    return np.unique(np.stack([group, kind], axis=1), axis=0, return_inverse=True)[1].reshape(-1)
