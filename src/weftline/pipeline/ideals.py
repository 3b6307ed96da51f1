"""Exact by dynamic programming over ideals (sets of pieces that hold all their predecessors), where they are few.

A pipeline of equal devices is a chain of ideals; the stage between two of them costs its work and what crosses its
border. For every ideal and number of stages the best value so far is kept; stages that reach the best known value are
never looked at. Only for equal devices without hosts, and where memory cannot bind.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.bounds import Bound
from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.pipeline.pieces import Pieces, make_pieces
from weftline.pipeline.reduce import contract_uncuttable, memory_may_bind, reduce_exactly
from weftline.pipeline.simple import FIRST_SOLVERS
from weftline.search import Search, Solver, best_of
from weftline.simulate import Loads, Timeline
from weftline.simulate.kernels.jit import kernel, part
from weftline.simulate.sentinels import NEVER

__all__ = ["SOLVER", "TOO_LONG", "IdealChain", "IdealsParameters", "over_ideals", "take"]

TOO_LONG = "too many pairs of ideals"


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


class Lattice(NamedTuple):
    """All ideals by size, as compressed rows: ideal -> (piece to add, ideal with it)."""

    pointer: Indices
    added: Indices
    grown: Indices


class _StageTensors(NamedTuple):
    """Tensors that pieces read and make, and how far each is inside the stage that is looked at."""

    read_ptr: Indices
    read_of: Indices
    made_ptr: Indices
    made_of: Indices
    readers: Indices
    """(M,): number of readers."""
    cost: Ints
    inside: Indices
    """(M,): readers in the stage."""
    maker_in: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class IdealChain:
    """What the program found: a pipeline, if one is better, and a lower bound."""

    placement: Indices | None
    bound: int


def over_ideals(
    pieces: Pieces,
    best: Timeline | Loads | None,
    stop: Ints,
    parameters: IdealsParameters = IdealsParameters(),
) -> IdealChain | str:
    """The best pipeline below the best known one and a bound; or why this method does not apply."""
    problem = pieces.problem
    if not pieces.equal or problem.host.any() or not pieces.exact:
        return "ideals are for equal devices without hosts"
    if memory_may_bind(problem) or problem.rules.communication == "overlapped":
        return "ideals know neither memory nor overlapped communication"
    if best is None or len(pieces.time) > parameters.most_pieces:
        return f"ideals need a first pipeline, and at most {parameters.most_pieces} pieces"
    contracted = contract_uncuttable(pieces, best.value)
    lattice = list_ideals(contracted, parameters.most_ideals)
    if lattice is None:
        return f"the pieces have more than {parameters.most_ideals} ideals"
    value, device = _best_chain(contracted, lattice, best.value, stop, parameters.most_steps)
    if value < 0:
        return TOO_LONG
    placement = contracted.lift(device) if value < NEVER else None
    return IdealChain(placement, contracted.lift_bound(min(value, best.value)))


def take(search: Search, chain: IdealChain) -> None:
    """Offer what was found."""
    if chain.placement is not None:
        search.offer(chain.placement)
    search.offer_bound(Bound(chain.bound, "ideals", seconds=search.seconds))


def list_ideals(pieces: Pieces, most: int) -> Lattice | None:
    """None if there are too many."""
    count = len(pieces.time)
    words = (count + 63) // 64
    needs = np.zeros((count, words), np.uint64)
    source, target = pieces.edges
    bits = np.left_shift(np.uint64(1), (source % 64).astype(np.uint64))
    np.bitwise_or.at(needs, (target, source // 64), bits)
    found = _enumerate(needs, pieces.next_ptr, pieces.next_of, most)
    ideals, links = int(found[3]), int(found[4])
    if ideals > most:
        return None
    return Lattice(found[0][: ideals + 1], found[1][:links], found[2][:links])


@kernel
def _enumerate(
    needs: NDArray[np.uint64], next_ptr: Indices, next_of: Indices, most: int
) -> tuple[Indices, Indices, Indices, int, int]:
    """Breadth first; sets are bit rows, found again by an open hash table."""
    count, words = needs.shape
    sets = np.zeros((most + 1, words), np.uint64)
    ready = np.zeros((most + 1, words), np.uint64)
    size = 4
    while size < 3 * most:
        size *= 2
    slots = np.full(size, -1, np.int32)
    pointer = np.zeros(most + 2, np.int32)
    room = 8 * most + 64
    added, grown = np.zeros(room, np.int32), np.zeros(room, np.int32)
    for v in range(count):
        free = True
        for word in range(words):
            free = free and needs[v, word] == 0
        if free:
            ready[0, v >> 6] |= np.uint64(1) << np.uint64(v & 63)
    slots[0] = 0
    total, links, index = 1, 0, 0
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
            if slots[slot] < 0:
                if total > most or links >= room:
                    return pointer, added, grown, most + 1, 0
                slots[slot] = total
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
            if links >= room:
                return pointer, added, grown, most + 1, 0
            added[links], grown[links] = v, slots[slot]
            links += 1
        index += 1
        pointer[index] = links
    return pointer, added, grown, total, links


@part
def _hash(bits: NDArray[np.uint64]) -> np.uint64:
    mixed = np.uint64(0)
    for word in bits:
        mixed = (mixed ^ word) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed


@part
def _same(first: NDArray[np.uint64], second: NDArray[np.uint64]) -> bool:
    different = np.uint64(0)
    for word in range(len(first)):
        different |= first[word] ^ second[word]
    return bool(different == 0)


def _best_chain(pieces: Pieces, lattice: Lattice, target: int, stop: Ints, most_steps: int) -> tuple[int, Indices]:
    """The best value below `target` (NEVER if there is none, -1 if it took too long) and its devices."""
    stages = min(pieces.problem.stage_limit, len(pieces.stage_devices))
    ideals = len(lattice.pointer) - 1
    best = np.full((ideals, stages + 1), NEVER, np.int64)
    origin = np.full((ideals, stages + 1), -1, np.int32)
    work = np.ascontiguousarray(pieces.time[:, pieces.stage_devices[0]])
    readers = np.diff(pieces.reader_ptr).astype(np.int32)
    inside, maker_in = np.zeros(len(readers), np.int32), np.zeros(len(readers), np.bool_)
    tensors = _StageTensors(*pieces.reads, *pieces.makes, readers, pieces.transfer_time, inside, maker_in)
    if not _fill(lattice, tensors, work, target, best, origin, stop, most_steps):
        return -1, np.zeros(0, np.int32)
    last = ideals - 1
    stage = int(best[last].argmin())
    value = int(best[last, stage])
    if value >= NEVER:
        return NEVER, np.zeros(0, np.int32)
    level = np.zeros(len(work), np.int32)
    while last > 0:
        first = int(origin[last, stage])
        stage -= 1
        level[_held(lattice, last, len(work)) & ~_held(lattice, first, len(work))] = stage
        last = first
    return value, np.array(pieces.stage_devices, np.int32)[level]


def _held(lattice: Lattice, ideal: int, count: int) -> NDArray[np.bool_]:
    """The pieces of an ideal, by walking down to the empty one."""
    ptr, added, grown = lattice
    held = np.zeros(count, np.bool_)
    while ideal > 0:
        edge = int(np.flatnonzero(grown == ideal)[0])
        held[added[edge]] = True
        ideal = int(np.searchsorted(ptr, edge, side="right")) - 1
    return held


@kernel
def _fill(
    lattice: Lattice,
    tensors: _StageTensors,
    work: Ints,
    target: int,
    best: Ints,
    origin: Indices,
    stop: Ints,
    limit: int,
) -> bool:
    """best[J, j + 1] = the least over ideals I inside J of max(best[I, j], cost of stage J - I), if below target."""
    ideals, stages = len(lattice.pointer) - 1, best.shape[1] - 1
    best[0, 0] = 0
    seen = np.full(ideals, -1, np.int64)
    held = np.zeros(ideals, np.int64)  # work of each ideal
    for start in range(ideals):
        for e in range(lattice.pointer[start], lattice.pointer[start + 1]):
            held[lattice.grown[e]] = held[start] + work[lattice.added[e]]
    steps = 0
    for start in range(ideals):
        # The rest must fit into the stages that are left.
        needed = (held[ideals - 1] - held[start] + target - 2) // max(1, target - 1)
        least = NEVER
        for j in range(min(stages, stages - needed + 1)):
            least = min(least, best[start, j])
        if least >= target:
            continue
        if stop[0] != 0 or steps > limit:
            return False
        steps += _stages_from(lattice, tensors, work, start, target, best, origin, seen)
    return True


@part
def _stages_from(
    lattice: Lattice,
    tensors: _StageTensors,
    work: Ints,
    start: int,
    target: int,
    best: Ints,
    origin: Indices,
    seen: Ints,
) -> int:
    """Every stage that begins at an ideal, depth first -> how many there are.

    At each step the stage holds what lies between the ideals at the ends of `path`; its load and its total cost follow
    piece by piece. Each larger ideal is met once (`seen`): a stage costs the same whichever path leads to it.
    """
    ptr, added, grown, stages = lattice.pointer, lattice.added, lattice.grown, best.shape[1] - 1
    path = np.zeros(len(work) + 1, np.int64)  # ideals on the path down
    edge = np.zeros(len(work) + 1, np.int64)  # next edge to try at each
    depth, load, total, steps = 0, 0, 0, 0
    path[0], edge[0] = start, ptr[start]
    while depth >= 0:
        here = path[depth]
        if edge[depth] < ptr[here + 1]:
            e = edge[depth]
            edge[depth] += 1
            v, there = added[e], grown[e]
            if seen[there] == start or load + work[v] >= target:
                continue
            seen[there] = start
            steps += 1
            load += work[v]
            total += work[v] + _toggle(tensors, v, True)
            if total < target:
                for j in range(stages):
                    value = max(best[start, j], total)
                    if value < best[there, j + 1]:
                        best[there, j + 1] = value
                        origin[there, j + 1] = start
            depth += 1
            path[depth], edge[depth] = there, ptr[there]
        else:
            if depth > 0:
                v = added[edge[depth - 1] - 1]
                load -= work[v]
                total -= work[v]
                total += _toggle(tensors, v, False)
            depth -= 1
    return steps


@part
def _toggle(tensors: _StageTensors, v: int, enters: bool) -> int:
    """Put a piece into the stage or take it out -> how the transfers change."""
    readers, cost, inside, maker_in = tensors.readers, tensors.cost, tensors.inside, tensors.maker_in
    change = 0
    for i in range(tensors.read_ptr[v], tensors.read_ptr[v + 1]):
        t = tensors.read_of[i]
        change -= _crossing(t, readers, cost, inside, maker_in)
        inside[t] += 1 if enters else -1
        change += _crossing(t, readers, cost, inside, maker_in)
    for i in range(tensors.made_ptr[v], tensors.made_ptr[v + 1]):
        t = tensors.made_of[i]
        change -= _crossing(t, readers, cost, inside, maker_in)
        maker_in[t] = enters
        change += _crossing(t, readers, cost, inside, maker_in)
    return change


@part
def _crossing(t: int, readers: Indices, cost: Ints, inside: Indices, maker_in: NDArray[np.bool_]) -> int:
    crosses = inside[t] < readers[t] if maker_in[t] else inside[t] > 0
    return cost[t] if crosses else 0


SOLVER = Solver(
    "ideals",
    "exact by dynamic programming over ideals, for equal devices and narrow graphs",
    _solve,
    parameters=IdealsParameters,
)
