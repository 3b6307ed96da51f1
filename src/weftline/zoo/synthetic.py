"""Seeded families of synthetic graphs by name: `synthetic("layered", ops=1000, seed=7)`.

In: a family, the exact number of ops, a seed. Out: a Graph, the same for the same three values; an op makes one tensor
that all its successors read, and edges go from lower to higher ops, so there is no cycle.

Families that look like networks (chain, layered, series-parallel, transformer-like) need a cluster for their costs:
FLOP, tensors (64 KB to 8 MB) and weights (to 64 MB) give sensible times on a GPU under a roofline model. REGAL-like
ones (Erdos-Renyi, Barabasi-Albert, Watts-Strogatz, stochastic block model) also have unit costs, see `regal_costs`:
undirected pairs, directed by a random order of ops; costs and sizes from a normal around 50.

Simplified: shapes are not modelled; sizes are drawn, not derived. Mean degrees of random graphs are our own choice,
about 2 (drawn per graph), so that at 16 stages the work alone is a half to two thirds of the best value, near what is
reported for such graphs; pairs that are drawn twice count once, so degrees are slightly below the textbook's on small
graphs; ops without edges are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from weftline.errors import UsageError, near
from weftline.graph import Graph, Op, Tensor, assemble
from weftline.graph.arrays import Ints
from weftline.graph.ir import MODEL_INPUT
from weftline.zoo.unit_costs import FLOPS_PER_UNIT, regal_costs, to_cost_graph_text

__all__ = [
    "FAMILIES",
    "MAX_SYNTHETIC_OPS",
    "Family",
    "graph_of_units",
    "regal_costs",
    "synthetic",
    "to_cost_graph_text",
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
    tensors = [Tensor("input", MODEL_INPUT, tuple(first.tolist()), bytes=input_bytes, dtype="float32")]
    tensors += [
        Tensor(f"{op}:0", i, readers, bytes=made, dtype="float32", output=not readers)
        for i, (op, readers, made) in enumerate(zip(draft.names, consumers, size.tolist(), strict=True))
    ]
    return assemble(name, ops, tensors)


Pairs = tuple[Ints, Ints]


def _directed(
    model: Callable[[int, np.random.Generator], Pairs], name: str, count: int, random: np.random.Generator
) -> Graph:
    a, b = model(count, random)
    rank = random.permutation(count)
    source, target = np.minimum(rank[a], rank[b]), np.maximum(rank[a], rank[b])
    proper = source != target
    deviation = random.uniform(10, 15, 2)
    cost, size = (np.maximum(1, np.rint(random.normal(50, sd, count))).astype(np.int64) for sd in deviation)
    return graph_of_units(name, cost, size, source[proper], target[proper])


def erdos_renyi(count: int, random: np.random.Generator) -> Pairs:
    """Every pair of ops is an edge with the same probability."""
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


def barabasi_albert(count: int, random: np.random.Generator) -> Pairs:
    """Ops come one by one and prefer neighbours that have many edges already: a few hubs.

    Edge e joins op `young[e]` to a random end of an earlier edge: ends are hit in proportion to their degree.

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


def watts_strogatz(count: int, random: np.random.Generator) -> Pairs:
    """A ring of near neighbours in which some edges lead far away instead."""
    near = 1 + int(random.random() < 0.25)
    start = np.repeat(np.arange(count, dtype=np.int64), near)
    end = (start + np.tile(np.arange(1, near + 1, dtype=np.int64), count)) % count
    rewired = random.random(len(start)) < random.uniform(0.05, 0.3)
    return start, np.where(rewired, random.integers(0, count, len(start)), end)


def block_model(count: int, random: np.random.Generator) -> Pairs:
    """Communities with many edges inside and few between them."""
    blocks = max(1, min(count, int(random.integers(2, 6)) * (1 + count // 200)))
    block = np.sort(random.integers(0, blocks, count))
    bounds = np.searchsorted(block, np.arange(blocks + 1))
    start = random.integers(0, count, int(count * random.uniform(0.9, 1.3)))
    low, high = bounds[block[start]], bounds[block[start] + 1]
    inside = low + (random.random(len(start)) * (high - low)).astype(np.int64)
    anywhere = random.integers(0, count, len(start))
    return start, np.where(random.random(len(start)) < random.uniform(0.7, 0.95), inside, anywhere)


HEAVY = frozenset({"Conv", "MatMul", "Gemm"})
SMALLEST_TENSOR, LARGEST_TENSOR, LARGEST_WEIGHT = 2**16, 2**23, 2**26  # bytes
MAX_NESTING = 4

_BLOCK: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("attention/norm", "LayerNormalization", (-1,)),
    ("attention/query", "MatMul", (0,)),
    ("attention/key", "MatMul", (0,)),
    ("attention/value", "MatMul", (0,)),
    ("attention/scores", "MatMul", (1, 2)),
    ("attention/softmax", "Softmax", (4,)),
    ("attention/context", "MatMul", (5, 3)),
    ("attention/output", "MatMul", (6,)),
    ("attention/residual", "Add", (7, -1)),
    ("mlp/norm", "LayerNormalization", (8,)),
    ("mlp/up", "MatMul", (9,)),
    ("mlp/gelu", "Gelu", (10,)),
    ("mlp/down", "MatMul", (11,)),
    ("mlp/residual", "Add", (12, 8)),
)
"""One transformer block: name, kind, inputs by position in the block; -1 is the output of the block before."""
_WITHOUT_WEIGHTS = frozenset({"scores", "context"})


def chain(name: str, ops: int, random: np.random.Generator) -> Graph:
    """Every op reads the one before it."""
    position = np.arange(ops, dtype=np.int64)
    kinds = np.array(["Conv", "MatMul", "Add", "Relu", "BatchNormalization"])[random.integers(0, 5, ops)].tolist()
    draft = _draft(kinds, [f"layer.{i // 4}" for i in range(ops)], position[:-1], position[1:])
    return _priced(name, draft, random)


def layered(name: str, ops: int, random: np.random.Generator) -> Graph:
    """Layers of equal width; an op reads one to three ops of the layers just before, a few of them further back."""
    width = max(1, min(int(random.integers(4, 33)), round(ops**0.5)))
    op = np.arange(width, ops, dtype=np.int64)
    reads = random.integers(1, 4, len(op))
    source, target = [], []
    for slot in range(3):
        back = 1 + random.choice(3, len(op), p=(0.8, 0.15, 0.05))
        layer = np.maximum(op // width - back, 0)
        chosen = reads > slot
        source.append((layer * width + random.integers(0, width, len(op)))[chosen])
        target.append(op[chosen])
    kinds = np.array(["Conv", "MatMul", "Add", "Relu", "Mul"])[random.integers(0, 5, ops)].tolist()
    blocks = [f"layer.{i // width}" for i in range(ops)]
    return _priced(name, _draft(kinds, blocks, np.concatenate(source), np.concatenate(target)), random)


def series_parallel(name: str, ops: int, random: np.random.Generator) -> Graph:
    """Modules one after another, each with two to four branches that are joined again and may branch themselves."""
    builder = _SeriesParallel(random)
    module, left, last = 0, ops, -1
    while left:
        size = min(left, int(random.integers(1, 41)))
        last = builder.series(size, last, 0, f"module.{module}")
        module, left = module + 1, left - size
    edges = np.array(builder.edges, np.int64).reshape(-1, 2)
    return _priced(name, _draft(builder.kinds, builder.blocks, edges[:, 0], edges[:, 1]), random)


class _SeriesParallel:
    """Ops are appended in topological order; every method returns the op that ends what it built."""

    def __init__(self, random: np.random.Generator) -> None:
        self.random = random
        self.kinds: list[str] = []
        self.blocks: list[str] = []
        self.edges: list[tuple[int, int]] = []

    def op(self, kind: str, block: str, sources: Sequence[int]) -> int:
        self.edges.extend((source, len(self.kinds)) for source in sources if source >= 0)
        self.kinds.append(kind)
        self.blocks.append(block)
        return len(self.kinds) - 1

    def series(self, size: int, last: int, depth: int, block: str) -> int:
        while size:
            if depth < MAX_NESTING and size >= 4 and self.random.random() < 0.6:
                part = int(self.random.integers(4, size + 1))
                last = self.parallel(part, last, depth, block)
            else:
                part = 1
                last = self.op("Conv" if len(self.kinds) % 2 == 0 else "Relu", block, (last,))
            size -= part
        return last

    def parallel(self, size: int, last: int, depth: int, block: str) -> int:
        """A first op, branches, and a Concat: `size` ops in all, at least four."""
        first = self.op("MaxPool", block, (last,))
        branches = int(self.random.integers(2, min(4, size - 2) + 1))
        extra = self.random.multinomial(size - 2 - branches, [1 / branches] * branches).tolist()
        ends = [
            self.series(1 + more, first, depth + 1, f"{block}/branch.{number}") for number, more in enumerate(extra)
        ]
        return self.op("Concat", block, ends)


def transformer_like(name: str, ops: int, random: np.random.Generator) -> Graph:
    """An embedding, blocks of 14 ops with attention and two residual adds, and a head that takes what is left over."""
    each = len(_BLOCK)
    count = (ops - 1) // each
    head = ops - 1 - count * each
    names = ["embed/gather"] + [f"layer.{block}/{part}" for block in range(count) for part, _, _ in _BLOCK]
    names += [f"head/{'norm' if i % 2 == 0 else 'linear'}.{i}" for i in range(head)]
    kinds = ["Gather"] + [kind for _, kind, _ in _BLOCK] * count
    kinds += ["LayerNormalization" if i % 2 == 0 else "MatMul" for i in range(head)]
    blocks = ["embed"] + [f"layer.{block}" for block in range(count) for _ in _BLOCK] + ["head"] * head
    inner = [(source, target) for target, (_, _, sources) in enumerate(_BLOCK) for source in sources]
    # Position -1 of a block is the op just before it: the residual add of the block before, or the embedding.
    start = 1 + each * np.arange(count, dtype=np.int64)[:, None]
    tail = np.arange(ops - head, ops, dtype=np.int64)
    source = np.concatenate([(start + [pair[0] for pair in inner]).ravel(), tail - 1])
    target = np.concatenate([(start + [pair[1] for pair in inner]).ravel(), tail])
    return _priced(name, Draft(names, kinds, blocks, source.astype(np.int64), target.astype(np.int64)), random)


def _draft(kinds: Sequence[str], blocks: Sequence[str], source: Ints, target: Ints) -> Draft:
    names = [f"{block}/{kind.lower()}.{i}" for i, (kind, block) in enumerate(zip(kinds, blocks, strict=True))]
    return Draft(names, kinds, blocks, source, target)


def _priced(name: str, draft: Draft, random: np.random.Generator) -> Graph:
    """Draw sizes: a scale for the whole graph, some spread for every op; light ops work a little per element."""
    count = len(draft.names)
    heavy = np.fromiter((kind in HEAVY for kind in draft.kinds), np.bool_, count)
    weighted = heavy & np.fromiter(
        (op.rsplit("/", 1)[-1] not in _WITHOUT_WEIGHTS for op in draft.names), np.bool_, count
    )
    elements = np.exp(random.uniform(np.log(2**16), np.log(2**19)) + random.normal(0, 0.7, count))
    size = np.clip(4 * elements.astype(np.int64), SMALLEST_TENSOR, LARGEST_TENSOR)
    work = np.clip(10 ** (random.uniform(8.7, 9.3) + random.normal(0, 0.3, count)), 1e8, 1e10).astype(np.int64)
    flops = np.where(heavy, work, size // 4 * random.integers(1, 9, count))
    megabytes = np.exp(random.uniform(np.log(2**20), np.log(2**23)) + random.normal(0, 0.8, count))
    weights = np.where(weighted, np.minimum(megabytes.astype(np.int64) // 4 * 4, LARGEST_WEIGHT), 0)
    return graph_of_network(name, draft, flops=flops, weights=weights, size=size, input_bytes=int(size[0]))


MAX_SYNTHETIC_OPS = 200_000


@dataclass(frozen=True)
class Family:
    """One way to draw graphs."""

    name: str
    description: str
    build: Callable[[str, int, np.random.Generator], Graph]
    """(name of the graph, number of ops, random generator) -> graph."""
    unit_costs: bool = False
    """True if costs and sizes are REGAL's units, so that `regal_costs` applies."""


def _family(build: Callable[[str, int, np.random.Generator], Graph]) -> Family:
    return Family(build.__name__, (build.__doc__ or "").splitlines()[0], build)


def _random_family(model: Callable[[int, np.random.Generator], Pairs]) -> Family:
    description = (model.__doc__ or "").splitlines()[0]
    return Family(model.__name__, description, partial(_directed, model), unit_costs=True)


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        _family(chain),
        _family(layered),
        _family(series_parallel),
        _family(transformer_like),
        _random_family(erdos_renyi),
        _random_family(barabasi_albert),
        _random_family(watts_strogatz),
        _random_family(block_model),
    )
}


def synthetic(name: str, *, ops: int, seed: int = 0) -> Graph:
    """A graph of the family with exactly `ops` ops; the seed decides everything that is drawn."""
    if name not in FAMILIES:
        raise UsageError(f"no synthetic family {name!r:.100}{near(name, FAMILIES)} (there are: {', '.join(FAMILIES)})")
    if not 1 <= ops <= MAX_SYNTHETIC_OPS:
        raise UsageError(f"a synthetic graph has 1 to {MAX_SYNTHETIC_OPS} ops, not {ops}")
    if seed < 0:
        raise UsageError(f"a seed is not negative, this one is {seed}")
    return FAMILIES[name].build(f"{name}-{ops}-seed{seed}", ops, np.random.default_rng(seed))
