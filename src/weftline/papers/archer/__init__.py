"""`brkga-100` and `brkga-10000`: the biased random-key genetic algorithm of Archer et al. (Algorithm 2), a baseline.

In: a Search. Out: candidates. An individual is one key per piece. Of all ready pieces the one with the smallest key
comes next; the order is sliced exactly. Each generation keeps the elite, adds fresh random individuals, and fills up
with children of one elite and one other parent, which take a key from the elite parent more often than not.
Simplified: see README.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from weftline.graph.arrays import Ints
from weftline.pipeline.pieces import make_pieces
from weftline.pipeline.reduce import reduce_exactly
from weftline.pipeline.simple import overflow_of
from weftline.pipeline.slice import Slicer
from weftline.pipeline.slice.orders import Keys, keyed_order
from weftline.search import Search, Solver, alarm
from weftline.simulate.sentinels import NEVER

__all__ = ["SOLVERS"]


@dataclass(frozen=True)
class BrkgaParameters:
    """Numbers of the genetic search, as published."""

    population: int = field(default=10, metadata={"least": 3, "most": 10**6})
    """Individuals of a generation."""
    generations: int = field(default=10, metadata={"least": 1})
    elite_share: float = field(default=0.2, metadata={"most": 0.5})
    """Of a population, which is kept."""
    fresh_share: float = field(default=0.1, metadata={"most": 0.4})
    """Of a population, which is drawn anew."""
    elite_bias: float = field(default=0.7, metadata={"most": 1})
    """Chance that a child's key comes from its elite parent."""
    most_attempts: int = 6
    """Searches, each with less memory where the one before overflowed a device."""


@dataclass(frozen=True)
class LongBrkgaParameters(BrkgaParameters):
    """The longer preset."""

    population: int = field(default=100, metadata={"least": 3, "most": 10**6})
    generations: int = field(default=100, metadata={"least": 1})


def _solve(search: Search, kind: type[BrkgaParameters]) -> None:
    parameters = search.parameters(kind)
    with alarm(search) as stop:
        room = search.problem.capacity.copy()
        for _ in range(parameters.most_attempts):
            overflow = _evolve(search, parameters, room, stop)
            if not overflow.any() or search.is_over:
                return
            room = room - overflow


def _evolve(search: Search, parameters: BrkgaParameters, room: Ints, stop: Ints) -> Ints:
    """Offer every new best -> bytes that its activations overflowed each device (then there is no better one)."""
    pieces = reduce_exactly(make_pieces(search.problem))
    slicer = Slicer(pieces, room)
    overflow = np.zeros(len(room), np.int64)
    best = NEVER
    value = np.full(parameters.population, NEVER, np.int64)
    known: dict[bytes, int] = {}
    for keys, fresh in _populations(len(pieces.time), parameters, value, search.seed):
        before = len(known)
        for i in fresh:
            if search.is_over:
                return overflow
            order = keyed_order(slicer.board, keys[i])
            name = blake2b(order.tobytes(), digest_size=16).digest()
            if name in known:
                value[i] = known[name]
                continue
            found = slicer.cut(order, stop=stop)
            value[i] = known[name] = NEVER if found is None else found[1]
            if found is None or found[1] >= best or search.is_over:
                continue
            if search.offer(pieces.lift(found[0])) is not None:
                best, overflow[:] = found[1], 0
            elif best == NEVER:
                overflow = overflow_of(search.problem, pieces.lift(found[0]))
        if len(known) == before:  # a generation without a single new order: the graph has few
            break
    return overflow


def _populations(count: int, parameters: BrkgaParameters, value: Ints, seed: int) -> Iterator[tuple[Keys, range]]:
    """Each generation and which of its individuals are new; their values are written before the next is made."""
    rng, size = np.random.default_rng(seed), parameters.population
    elite, fresh = max(1, round(parameters.elite_share * size)), max(1, round(parameters.fresh_share * size))
    keys = rng.random((size, count))
    yield keys, range(size)
    for _ in range(parameters.generations - 1):
        rank = np.argsort(value, kind="stable")
        keys, value[:] = keys[rank], value[rank]
        children = size - elite - fresh
        first = rng.integers(0, elite, children)
        second = rng.integers(elite, size, children)
        mixed = np.where(rng.random((children, count)) < parameters.elite_bias, keys[first], keys[second])
        keys = np.concatenate([keys[:elite], rng.random((fresh, count)), mixed])
        yield keys, range(elite, size)


SOLVER_BRKGA = Solver(
    "brkga-100",
    "biased random-key genetic algorithm over orders, 10 x 10 slices (Archer et al., Algorithm 2)",
    lambda search: _solve(search, BrkgaParameters),
    parameters=BrkgaParameters,
)
SOLVER_LONG = Solver(
    "brkga-10000",
    "biased random-key genetic algorithm over orders, 100 x 100 slices (Archer et al., Algorithm 2)",
    lambda search: _solve(search, LongBrkgaParameters),
    parameters=LongBrkgaParameters,
)
SOLVERS = (SOLVER_BRKGA, SOLVER_LONG)
