"""Exact reductions, whatever the number of stages: merge two pieces that some best pipeline keeps together.

R1: all outputs of u are read by v alone, and u with all its inputs costs no more than its output: u goes to v.
R2: v reads from u alone, u's outputs are read by v alone, and v with its output costs no more than u's: v goes to u.
In both, moving the piece makes no stage dearer. (Archer et al. have one kind of device; here the piece's time is that
of its slowest device, so that it holds for unequal devices too.) Host devices, links of unequal speed, overlapped
communication and memory that may bind exclude it, because there a move has another price.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weftline.coarsen.pieces import Pieces, merge
from weftline.graph.arrays import Indices, Ints
from weftline.problem import Problem

__all__ = ["memory_may_bind", "reduce_exactly"]

ROUNDS = 1000


def reduce_exactly(pieces: Pieces) -> Pieces:
    """Apply R1 and R2 until nothing changes."""
    problem = pieces.problem
    if problem.host.any() or problem.rules.communication == "overlapped" or not pieces.flat:
        return pieces
    if (pieces.transfer < 0).any():
        return pieces
    if memory_may_bind(problem) and problem.rules.memory == "dynamic":
        return pieces
    for _ in range(ROUNDS):
        before = len(pieces.time)
        for rule in (_first_rule, _second_rule):
            into = rule(pieces, _movable(pieces))
            if (into != np.arange(len(into))).any():
                pieces = merge(pieces, _roots(into))
        if len(pieces.time) == before:
            break
    return pieces


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
