"""Exact by dynamic programming over ideals (sets of pieces that hold all their predecessors), where they are few.

A pipeline of equal devices is a chain of ideals; the stage between two of them costs its work and what crosses its
border. `chains` says whether there is one below a target: first the best known value, then what is better than the
chain that was found. Only for equal devices without hosts, and where memory cannot bind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from weftline.bounds import Bound
from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.pipeline.chains import Bits, BorderedIdeals, reach, stage_costs
from weftline.pipeline.joins import Joins
from weftline.pipeline.pieces import Pieces, compressed_rows, make_pieces
from weftline.pipeline.reduce import free_pieces, memory_may_bind, reduce_exactly, shrink
from weftline.pipeline.simple import FIRST_SOLVERS
from weftline.search import Search, Solver, best_of
from weftline.simulate import Loads, Timeline
from weftline.simulate.kernels.jit import kernel, part

__all__ = ["SOLVER", "IdealChain", "IdealsParameters", "list_ideals", "order_of", "over_ideals", "take"]


@dataclass(frozen=True)
class IdealsParameters:
    """Numbers of `ideals`."""

    most_ideals: int = field(default=200_000, metadata={"most": 10_000_000})
    most_pieces: int = 2500
    """The sets of all ideals then take 130 MB."""
    most_steps: int = 1_000_000_000
    """Pairs of ideals that are looked at before giving up."""


def _solve(search: Search) -> None:
    from weftline.pipeline import solvers

    best_of(search, solvers(), FIRST_SOLVERS)
    if search.stopped_by and search.best is not None:
        return
    pieces, parameters = reduce_exactly(make_pieces(search.problem)), search.parameters(IdealsParameters)
    found = over_ideals(pieces, search.best, np.zeros(1, np.int64), parameters)
    if isinstance(found, str):
        raise InfeasibleError(found)
    take(search, found)


@dataclass(frozen=True, eq=False)
class IdealChain:
    """What the program found: a pipeline, if one is better, and a lower bound."""

    placement: Indices | None
    bound: int
    ended: bool = True
    """False if better pipelines above the bound were not looked for any more."""


def over_ideals(
    pieces: Pieces,
    best: Timeline | Loads | None,
    stop: Ints,
    parameters: IdealsParameters = IdealsParameters(),
    known: int = 0,
) -> IdealChain | str:
    """The best pipeline below the best known one and a bound (`known` is one); or why this does not apply."""
    problem = pieces.problem
    if not pieces.equal or problem.host.any() or not pieces.exact:
        return "ideals are for equal devices without hosts"
    if memory_may_bind(problem) or problem.rules.communication == "overlapped":
        return "ideals know neither memory nor overlapped communication"
    if best is None or len(pieces.time) > parameters.most_pieces:
        return f"ideals need a first pipeline, and at most {parameters.most_pieces} pieces"
    contracted = shrink(pieces, best.value)
    order = order_of(contracted)
    ideals = list_ideals(order, parameters.most_ideals)
    if ideals is None:
        return f"the pieces have more than {parameters.most_ideals} ideals"
    stages = min(problem.stage_limit, len(pieces.stage_devices))
    low, value, ends = _best_chain(ideals, stages, (known, best.value), stop, parameters.most_steps)
    placement = None
    if value < best.value:
        level = _levels(contracted, order, [ideals.members[i] for i in ends])
        placement = contracted.lift(np.array(contracted.stage_devices, np.int32)[level])
    return IdealChain(placement, contracted.lift_bound(low), low == value)


def take(search: Search, chain: IdealChain) -> None:
    """Offer what was found."""
    if chain.placement is not None:
        search.offer(chain.placement)
    search.offer_bound(Bound(chain.bound, "ideals", seconds=search.seconds))


class _Order(NamedTuple):
    """What ideals are made of: P pieces that cannot stand just anywhere, and M tensors that cost anything."""

    pieces: Ints
    """Their numbers among all."""
    needs: Bits
    """(P, words): those right before each."""
    next_ptr: Indices
    next_of: Indices
    work: Ints
    touch_ptr: Indices
    touch_of: Indices
    """Piece -> tensors that it makes or reads."""
    ends: Bits
    """(M, words): who makes or reads a tensor."""
    cost: Ints


def order_of(pieces: Pieces) -> _Order:
    """What its ideals are made of."""
    joins: Joins | None = free_pieces(pieces)
    kept = np.arange(len(pieces.time)) if joins is None else np.array(sorted(joins.alive), np.int64)
    place = np.full(len(pieces.time), -1, np.int64)
    place[kept] = np.arange(len(kept))
    if joins is None:
        source, target = (place[ends] for ends in pieces.edges)
    else:
        links = [(place[a], place[b]) for a in kept.tolist() for b in sorted(joins.after[a])]
        source, target = np.array(links, np.int64).reshape(-1, 2).T
    words = max(1, (len(kept) + 63) // 64)
    next_ptr, next_of = compressed_rows(source, target, len(kept))
    paid = np.flatnonzero(pieces.transfer_time > 0)
    number = np.full(len(pieces.maker), -1, np.int64)
    number[paid] = np.arange(len(paid))
    read = number[np.repeat(np.arange(len(pieces.maker)), np.diff(pieces.reader_ptr))]
    tensor = np.concatenate([np.arange(len(paid)), read[read >= 0]])
    piece = place[np.concatenate([pieces.maker[paid], pieces.reader_of[read >= 0]])]
    touch_ptr, touch_of = compressed_rows(piece, tensor, len(kept))
    needs, ends = _bits(target, source, (len(kept), words)), _bits(tensor, piece, (len(paid), words))
    work = np.ascontiguousarray(pieces.time[kept, pieces.stage_devices[0]])
    cost = np.ascontiguousarray(pieces.transfer_time[paid])
    return _Order(kept, needs, next_ptr, next_of, work, touch_ptr, touch_of, ends, cost)


def _bits(row: Ints, member: Ints, shape: tuple[int, int]) -> Bits:
    bits = np.zeros(shape, np.uint64)
    np.bitwise_or.at(bits, (row, member // 64), np.left_shift(np.uint64(1), (member % 64).astype(np.uint64)))
    return bits


def list_ideals(order: _Order, most: int) -> BorderedIdeals | None:
    """None if there are too many."""
    members, parent, added = _enumerate(order.needs, order.next_ptr, order.next_of, most)
    if len(members) == 0:
        return None
    words = max(1, (len(order.cost) + 63) // 64)
    crossing = np.zeros((len(members), words), np.uint64)
    work, cut = np.zeros(len(members), np.int64), np.zeros(len(members), np.int64)
    ideals = BorderedIdeals(members, crossing, work, cut, order.cost, order.ends)
    _measure(ideals, parent, added, order.work, order.touch_ptr, order.touch_of)
    return ideals


@kernel
def _enumerate(needs: Bits, next_ptr: Indices, next_of: Indices, most: int) -> tuple[Bits, Indices, Indices]:
    """Breadth first; bit rows, found again by an open hash table -> them, a smaller one, the piece that it lacks."""
    count, words = needs.shape
    sets = np.zeros((most + 1, words), np.uint64)
    ready = np.zeros((most + 1, words), np.uint64)
    parent, added = np.zeros(most + 1, np.int32), np.zeros(most + 1, np.int32)
    size = 4
    while size < 3 * most:
        size *= 2
    slots = np.full(size, -1, np.int32)
    for v in range(count):
        if not needs[v].any():
            ready[0, v >> 6] |= np.uint64(1) << np.uint64(v & 63)
    slots[0] = 0
    total, index = 1, 0
    here = np.zeros(words, np.uint64)
    while index < total:
        for v in range(count):
            bit = np.uint64(1) << np.uint64(v & 63)
            if ready[index, v >> 6] & bit == 0:
                continue
            for word in range(words):
                here[word] = sets[index, word]
            here[v >> 6] |= bit
            slot = np.int64(_hash(here) & np.uint64(size - 1))
            while slots[slot] >= 0 and not _same(sets[slots[slot]], here):
                slot = (slot + 1) & (size - 1)
            if slots[slot] >= 0:
                continue
            if total > most:
                return sets[:0], parent[:0], added[:0]
            slots[slot] = total
            parent[total], added[total] = index, v
            for word in range(words):
                sets[total, word] = here[word]
                ready[total, word] = ready[index, word]
            ready[total, v >> 6] ^= bit
            for e in range(next_ptr[v], next_ptr[v + 1]):
                x = next_of[e]
                free = True
                for word in range(words):
                    free = free and needs[x, word] & ~here[word] == 0
                if free:
                    ready[total, x >> 6] |= np.uint64(1) << np.uint64(x & 63)
            total += 1
        index += 1
    return sets[:total].copy(), parent[:total].copy(), added[:total].copy()


@part
def _hash(bits: Bits) -> np.uint64:
    mixed = np.uint64(0)
    for word in bits:
        mixed = (mixed ^ word) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed


@part
def _same(first: Bits, second: Bits) -> bool:
    different = np.uint64(0)
    for word in range(len(first)):
        different |= first[word] ^ second[word]
    return bool(different == 0)


@kernel
def _measure(
    ideals: BorderedIdeals, parent: Indices, added: Indices, work: Ints, touch_ptr: Indices, touch_of: Indices
) -> None:
    """Work, crossing tensors and their sum of every ideal, from those of a smaller one."""
    for i in range(1, len(parent)):
        p, v = parent[i], added[i]
        ideals.work[i] = ideals.work[p] + work[v]
        cut = ideals.cut[p]
        ideals.crossing[i] = ideals.crossing[p]
        for e in range(touch_ptr[v], touch_ptr[v + 1]):
            t = touch_of[e]
            bit = np.uint64(1) << np.uint64(t & 63)
            inside, crossed = True, ideals.crossing[i, t >> 6] & bit != 0
            for word in range(ideals.ends.shape[1]):
                inside = inside and ideals.ends[t, word] & ~ideals.members[i, word] == 0
            if inside and crossed:
                ideals.crossing[i, t >> 6] ^= bit
                cut -= ideals.cost[t]
            elif not inside and not crossed:
                ideals.crossing[i, t >> 6] |= bit
                cut += ideals.cost[t]
        ideals.cut[i] = cut


def _best_chain(
    ideals: BorderedIdeals, stages: int, between: tuple[int, int], stop: Ints, limit: int
) -> tuple[int, int, list[int]]:
    """A bound, the best value if it is below the known one, and the ideals of its chain.

    What is known is asked to be beaten; if it is, half of what is left between bound and value is asked for next. Bound
    and value meet, unless it takes too long.
    """
    last = len(ideals.work) - 1
    low, value = max(between[0], -(-int(ideals.work[last]) // stages)), between[1]
    origin, ends = np.full(last + 1, -1, np.int32), [0]
    target = value
    while low < value:
        found = reach(ideals, stages, target - 1, origin, stop, limit)
        if found < 0:
            break
        if found == 0:
            low = target
        else:
            ends = [last]
            while ends[-1] > 0:
                ends.append(int(origin[ends[-1]]))
            ends.reverse()
            value = int(stage_costs(ideals, np.array(ends)).max())
        target = (low + value + 1) // 2
    return min(low, value), value, ends[1:]


def _levels(pieces: Pieces, order: _Order, ends: Sequence[Bits]) -> Ints:
    """Stage of each piece: the first ideal that holds it; one that may stand anywhere is where what it needs is."""
    level = np.zeros(len(pieces.time), np.int64)
    for held in ends[:-1]:
        member = np.right_shift(
            held[np.arange(len(order.pieces)) // 64], np.arange(len(order.pieces)).astype(np.uint64) % np.uint64(64)
        )
        level[order.pieces[(member & np.uint64(1)) == 0]] += 1
    pointer, before = pieces.before
    for piece in sorted(set(range(len(level))) - set(order.pieces.tolist())):
        level[piece] = level[before[pointer[piece] : pointer[piece + 1]]].max(initial=0)
    return level


SOLVER = Solver(
    "ideals",
    "exact by dynamic programming over ideals, for equal devices and narrow graphs",
    _solve,
    parameters=IdealsParameters,
)
