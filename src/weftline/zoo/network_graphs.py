"""Synthetic graphs that look like networks: chain, layered, series-parallel (inception-like), transformer-like.

In: a number of ops and a random generator. Out: graphs whose FLOP, tensors (64 KB to 8 MB) and weights (to 64 MB) give
sensible times on a GPU under a roofline model. Simplified: shapes are not modelled; sizes are drawn, not derived.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weftline.graph import Graph
from weftline.graph.arrays import Ints
from weftline.zoo.random_graphs import Draft, graph_of_network

__all__ = ["chain", "layered", "series_parallel", "transformer_like"]

HEAVY = frozenset({"Conv", "MatMul", "Gemm"})
SMALLEST, LARGEST = 2**16, 2**23  # bytes of a tensor
LARGEST_WEIGHT = 2**26
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
    size = np.clip(4 * elements.astype(np.int64), SMALLEST, LARGEST)
    work = np.clip(10 ** (random.uniform(8.7, 9.3) + random.normal(0, 0.3, count)), 1e8, 1e10).astype(np.int64)
    flops = np.where(heavy, work, size // 4 * random.integers(1, 9, count))
    megabytes = np.exp(random.uniform(np.log(2**20), np.log(2**23)) + random.normal(0, 0.8, count))
    weights = np.where(weighted, np.minimum(megabytes.astype(np.int64) // 4 * 4, LARGEST_WEIGHT), 0)
    return graph_of_network(name, draft, flops=flops, weights=weights, size=size, input_bytes=int(size[0]))
