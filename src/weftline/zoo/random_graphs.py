"""Arrays -> Graph: the last step of every synthetic family.

In: op names, kinds and drawn sizes, and edges (source, target) with source < target, so there is no cycle. Out: a Graph
in which an op makes one tensor that all its successors read.

REGAL-like random graphs: Erdos-Renyi, Barabasi-Albert, Watts-Strogatz, stochastic block model.

In: a number of ops and a random generator. Out: undirected pairs, directed by a random order of ops; costs and sizes
from a normal around 50. Simplified: mean degrees are our own choice, about 2 (drawn per graph), so that at 16 stages
the work alone is a half to two thirds of the best value, near what is reported for such graphs; pairs that are drawn
twice count once, so degrees are slightly below the textbook's on small graphs; ops without edges are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from weftline.graph import Graph, Op, Tensor, assemble
from weftline.graph.arrays import Ints
from weftline.graph.ir import INPUT
from weftline.zoo.unit_costs import FLOPS_PER_UNIT

__all__ = [
    "Draft",
    "barabasi_albert",
    "block_model",
    "erdos_renyi",
    "graph_of_network",
    "graph_of_units",
    "rows_of",
    "watts_strogatz",
]


@dataclass(frozen=True, eq=False)
class Draft:
    """A network before it is a graph: ops by index, in topological order, and its edges."""

    names: Sequence[str]
    kinds: Sequence[str]
    blocks: Sequence[str]
    source: Ints
    target: Ints


def rows_of(count: int, source: Ints, target: Ints) -> list[tuple[int, ...]]:
    """Successors of every op: ascending, each once."""
    edges = np.unique(source.astype(np.int64) * count + target)
    ends = np.cumsum(np.bincount(edges // count, minlength=count)).tolist()
    successors = (edges % count).tolist()
    return [tuple(successors[start:end]) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def graph_of_units(name: str, cost: Ints, size: Ints, source: Ints, target: Ints) -> Graph:
    """A graph in the units of REGAL: 10^6 FLOP per unit of cost, a byte per unit of size, no kinds, no weights."""
    names = [f"random/op.{i}" for i in range(len(cost))]
    ops = [Op(op, flops=units * FLOPS_PER_UNIT) for op, units in zip(names, cost.tolist(), strict=True)]
    consumers = rows_of(len(cost), source, target)
    tensors = [
        Tensor(f"{op}:0", i, readers, bytes=units)
        for i, (op, readers, units) in enumerate(zip(names, consumers, size.tolist(), strict=True))
        if readers
    ]
    return assemble(name, ops, tensors)


def graph_of_network(name: str, draft: Draft, *, flops: Ints, weights: Ints, size: Ints, input_bytes: int) -> Graph:
    """A graph as a framework would give it: an input for ops without predecessors, outputs where nothing reads on."""
    count = len(draft.names)
    consumers = rows_of(count, draft.source, draft.target)
    first = np.flatnonzero(np.bincount(draft.target, minlength=count) == 0)
    traffic = size + weights
    pairs = np.unique(draft.source.astype(np.int64) * count + draft.target)
    np.add.at(traffic, pairs % count, size[pairs // count])
    traffic[first] += input_bytes
    ops = [
        Op(op, kind, flops=work, weight_bytes=weight, traffic_bytes=moved, block=block)
        for op, kind, work, weight, moved, block in zip(
            draft.names, draft.kinds, flops.tolist(), weights.tolist(), traffic.tolist(), draft.blocks, strict=True
        )
    ]
    tensors = [Tensor("input", INPUT, tuple(first.tolist()), bytes=input_bytes, dtype="float32")]
    tensors += [
        Tensor(f"{op}:0", i, readers, bytes=made, dtype="float32", output=not readers)
        for i, (op, readers, made) in enumerate(zip(draft.names, consumers, size.tolist(), strict=True))
    ]
    return assemble(name, ops, tensors)


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
