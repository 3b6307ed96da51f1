"""REGAL-like random graphs: Erdos-Renyi, Barabasi-Albert, Watts-Strogatz, stochastic block model.

In: a number of ops and a random generator. Out: undirected pairs, directed by a random order of ops; costs and sizes
from a normal around 50. Simplified: mean degrees are our own choice, about 2 (drawn per graph), so that at 16 stages
the work alone is a half to two thirds of the best value, near what is reported for such graphs; pairs that are drawn
twice count once, so degrees are slightly below the textbook's on small graphs; ops without edges are kept.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weftline.graph import Graph
from weftline.graph.arrays import Ints
from weftline.zoo.from_edges import graph_of_units

__all__ = ["barabasi_albert", "block_model", "erdos_renyi", "watts_strogatz"]

Pairs = tuple[Ints, Ints]


def erdos_renyi(name: str, ops: int, random: np.random.Generator) -> Graph:
    """Every pair of ops is an edge with the same probability."""
    return _directed(name, ops, random, _erdos_renyi)


def barabasi_albert(name: str, ops: int, random: np.random.Generator) -> Graph:
    """Ops come one by one and prefer neighbours that have many edges already: a few hubs."""
    return _directed(name, ops, random, _barabasi_albert)


def watts_strogatz(name: str, ops: int, random: np.random.Generator) -> Graph:
    """A ring of near neighbours in which some edges lead far away instead."""
    return _directed(name, ops, random, _watts_strogatz)


def block_model(name: str, ops: int, random: np.random.Generator) -> Graph:
    """Communities with many edges inside and few between them."""
    return _directed(name, ops, random, _block_model)


def _directed(
    name: str, count: int, random: np.random.Generator, model: Callable[[int, np.random.Generator], Pairs]
) -> Graph:
    a, b = model(count, random)
    rank = random.permutation(count)
    source, target = np.minimum(rank[a], rank[b]), np.maximum(rank[a], rank[b])
    proper = source != target
    deviation = random.uniform(10, 15, 2)
    cost, size = (np.maximum(1, np.rint(random.normal(50, sd, count))).astype(np.int64) for sd in deviation)
    return graph_of_units(name, cost, size, source[proper], target[proper])


def _erdos_renyi(count: int, random: np.random.Generator) -> Pairs:
    pairs = count * (count - 1) // 2
    if not pairs:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    probability = min(1.0, random.uniform(1.8, 2.6) / (count - 1))
    chosen = random.choice(pairs, random.binomial(pairs, probability), replace=False)
    # Pair p of the lower triangle: row a holds a pairs (a, 0..a-1), so a(a-1)/2 <= p < a(a+1)/2.
    a = ((1 + np.sqrt(1 + 8.0 * chosen)) / 2).astype(np.int64)
    a -= a * (a - 1) // 2 > chosen
    a += a * (a + 1) // 2 <= chosen
    return a, chosen - a * (a - 1) // 2


def _barabasi_albert(count: int, random: np.random.Generator) -> Pairs:
    """Edge e joins op `young[e]` to a random end of an earlier edge: ends are hit in proportion to their degree.

    Ends stand in one list: position 2e is the young op, 2e+1 its partner, which copies an earlier position. Following
    the copies for all edges at once takes a logarithmic number of rounds.
    """
    each = 1 + int(random.random() < 0.25)
    young = np.repeat(np.arange(1, count, dtype=np.int64), each)
    earlier = 2 * each * (young - 1)  # positions filled before the young op came
    copied = np.where(earlier > 0, (random.random(len(young)) * earlier).astype(np.int64), -1)
    position = copied.copy()
    while (partner := (position >= 0) & (position % 2 == 1)).any():
        position[partner] = copied[position[partner] // 2]
    old = np.where(position < 0, 0, young[np.maximum(position, 0) // 2])
    return young, old


def _watts_strogatz(count: int, random: np.random.Generator) -> Pairs:
    near = 1 + int(random.random() < 0.25)
    start = np.repeat(np.arange(count, dtype=np.int64), near)
    end = (start + np.tile(np.arange(1, near + 1, dtype=np.int64), count)) % count
    rewired = random.random(len(start)) < random.uniform(0.05, 0.3)
    return start, np.where(rewired, random.integers(0, count, len(start)), end)


def _block_model(count: int, random: np.random.Generator) -> Pairs:
    blocks = max(1, min(count, int(random.integers(2, 6)) * (1 + count // 200)))
    block = np.sort(random.integers(0, blocks, count))
    bounds = np.searchsorted(block, np.arange(blocks + 1))
    start = random.integers(0, count, int(count * random.uniform(0.9, 1.3)))
    low, high = bounds[block[start]], bounds[block[start] + 1]
    inside = low + (random.random(len(start)) * (high - low)).astype(np.int64)
    anywhere = random.integers(0, count, len(start))
    return start, np.where(random.random(len(start)) < random.uniform(0.7, 0.95), inside, anywhere)
