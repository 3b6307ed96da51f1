"""Layers by structure: sub-graphs that repeat, for models whose ops have no names of layers.

In: a graph. Out: the ops of every layer, in runs of layers that follow each other. Matrix products in the graph's order
are letters: an operator type, the shapes around it, the bytes of its weights. The longest stretch that repeats with one
period of two or more products is a stack of layers, then the longest of what is left before and behind it, and so on.
Other ops follow the products: what lies between products of one layer is its own; what lies between two layers is cut
where the fewest bytes cross, late if equal; the first and the last layer, which have no such neighbour, take what
matches the layer beside them. Ops that serve several layers (masks, position tables), embeddings and heads are in no
layer. Simplified: products of one layer stand together in the graph's order, as exporters write them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from weftline.graph.arrays import Ints
from weftline.graph.ir import Graph

__all__ = ["PRODUCT_KIND", "repeated_layers"]

PRODUCT_KIND = re.compile(
    r"MatMul|Gemm|Einsum|Attention|FullyConnected|Conv(?!ert)|Linear|linear|addmm|matmul|(?<![a-z])b?mm(?![a-z])"
)
LEAST_PERIOD = 2
"""Products of a layer; a chain of equal products is no stack of layers."""
MOST_PERIOD = 400
"""Products of a layer that are looked for."""
LEAST_RUN = 2
"""Layers of a stack."""

Layers = list[list[int]]


def repeated_layers(graph: Graph) -> list[Layers]:
    """Stacks of layers, in the order of the graph; each layer its ops, ascending."""
    walk = _Walk(graph)
    letters = walk.letters()
    found = []
    for first, period, count in _runs(letters, 0, len(letters)):
        numbers = range(first, first + period * count, period)
        layers = walk.spread([walk.products[n : n + period] for n in numbers])
        if walk.in_a_row(layers):
            found.append(layers)
    return found


def _runs(letters: Ints, begin: int, end: int) -> list[tuple[int, int, int]]:
    """(first, period, count) of the longest repetition between two places, and of what is before and behind it."""
    best = (0, 0, 0, 0)
    here = letters[begin:end]
    for period in range(LEAST_PERIOD, min(MOST_PERIOD, len(here) // LEAST_RUN) + 1):
        same = np.concatenate([[False], here[period:] == here[:-period], [False]])
        edges = np.flatnonzero(np.diff(same.astype(np.int8)))
        for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            count = (stop - start + period) // period
            one = here[start : start + period]
            if count >= LEAST_RUN and count * period > best[0] and len(np.unique(one)) > 1:
                best = (count * period, begin + start, period, count)
    length, first, period, count = best
    if not length:
        return []
    return [*_runs(letters, begin, first), (first, period, count), *_runs(letters, first + length, end)]


class _Walk:
    """A graph with what the search asks of it."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.size = graph, len(graph.ops)
        self.after: list[list[int]] = [[] for _ in range(self.size)]
        self.before: list[list[int]] = [[] for _ in range(self.size)]
        inputs: list[list[tuple[int, ...]]] = [[] for _ in range(self.size)]
        outputs: list[list[tuple[int, ...]]] = [[] for _ in range(self.size)]
        for tensor in graph.tensors:
            if tensor.producer < 0:
                continue
            outputs[tensor.producer].append(tensor.shape or (tensor.bytes,))
            for op in tensor.consumers:
                inputs[op].append(tensor.shape or (tensor.bytes,))
                self.after[tensor.producer].append(op)
                self.before[op].append(tensor.producer)
        tied = [0] * self.size
        for weight in graph.tied:
            for op in weight.ops:
                tied[op] += weight.bytes
        self.signs = [
            (op.kind, tuple(sorted(inputs[i])), tuple(sorted(outputs[i])), op.weight_bytes + tied[i])
            for i, op in enumerate(graph.ops)
        ]
        self.products = [
            i for i, op in enumerate(graph.ops) if PRODUCT_KIND.search(op.kind) is not None and not op.backward
        ]

    def letters(self) -> Ints:
        """A number for each product; equal ones are alike."""
        known: dict[object, int] = {}
        return np.array([known.setdefault(self.signs[op], len(known)) for op in self.products], np.int64)

    def spread(self, cores: Sequence[Sequence[int]]) -> Layers:
        """Products of layers -> all ops of theirs."""
        count = len(cores)
        layer = {op: n for n, ops in enumerate(cores) for op in ops}
        last, first = self._last(layer), self._first(layer, count)
        inside: list[set[int]] = [set(ops) for ops in cores]
        between: dict[int, list[int]] = defaultdict(list)
        for op in (op for op in range(self.size) if op not in layer):
            a, b = last[op], first[op]
            if 0 <= a == b < count or (0 <= a < count - 1 and b > a + 1):
                inside[a].add(op)
            elif a >= 0 and b == a + 1 < count:
                between[b].append(op)
        for n, ops in between.items():
            cut = self._cheapest_cut(inside[n - 1], ops, inside[n])
            inside[n - 1].update(ops[:cut])
            inside[n].update(ops[cut:])
        self._match(inside, 1, 0, self.before)
        self._match(inside, count - 2, count - 1, self.after)
        self._private(inside)
        return [sorted(ops) for ops in inside]

    def _last(self, layer: dict[int, int]) -> list[int]:
        """The last layer with a product that leads to an op; -1: none."""
        found = [-1] * self.size
        for op in range(self.size):
            if op in layer:
                found[op] = layer[op]
            else:
                found[op] = max((found[one] for one in self.before[op]), default=-1)
        return found

    def _first(self, layer: dict[int, int], count: int) -> list[int]:
        """The first layer with a product that an op leads to; count: none."""
        found = [count] * self.size
        for op in reversed(range(self.size)):
            if op in layer:
                found[op] = layer[op]
            else:
                found[op] = min((found[one] for one in self.after[op]), default=count)
        return found

    def _cheapest_cut(self, early: set[int], ops: Sequence[int], late: set[int]) -> int:
        """How many of the ops between two layers belong to the early one: where the fewest bytes cross, late if equal.

        Behind a norm that ends a layer as much crosses as before; behind one that begins a layer also the sum crosses.
        """
        costs = []
        for cut in range(len(ops) + 1):
            left, right = early.union(ops[:cut]), late.union(ops[cut:])
            made = (t for t in self.graph.tensors if t.producer in left)
            costs.append(sum(t.bytes for t in made if any(op in right for op in t.consumers)))
        return max(cut for cut, cost in enumerate(costs) if cost == min(costs))

    def _match(self, inside: list[set[int]], known: int, other: int, step: list[list[int]]) -> None:
        """Give one layer the ops that its neighbour has, walking along edges from ops that are alike already."""
        taken = set().union(*inside)
        pairs = list(zip(self._core(inside[known]), self._core(inside[other]), strict=True))
        seen = {a for a, _ in pairs}
        while pairs:
            model, copy = pairs.pop(0)
            for one in sorted(set(step[model]) & inside[known] - seen):
                seen.add(one)
                alike = [op for op in step[copy] if self.signs[op][0] == self.signs[one][0]]
                same = [op for op in alike if self.signs[op] == self.signs[one]] or alike
                fresh = [op for op in same if op not in taken or op in inside[other]]
                if fresh:
                    inside[other].add(fresh[0])
                    taken.add(fresh[0])
                    pairs.append((one, fresh[0]))

    def _core(self, ops: Iterable[int]) -> list[int]:
        products = set(self.products)
        return sorted(op for op in ops if op in products)

    def _private(self, inside: list[set[int]]) -> None:
        """What only one layer reads, and no layer made (its copy of a mask), goes with it."""
        home = {op: n for n, ops in enumerate(inside) for op in ops}
        for op in reversed(range(self.size)):
            readers = {home.get(one, -1) for one in self.after[op]}
            if op not in home and len(readers) == 1 and -1 not in readers and op not in self.products:
                made = {home.get(one, -1) for one in self.before[op]} - {-1}
                if readers - {0} and not made - readers:
                    home[op] = next(iter(readers))
                    inside[home[op]].add(op)

    def in_a_row(self, layers: Layers) -> bool:
        """Each layer reads what the one before it made."""
        home = {op: n for n, ops in enumerate(layers) for op in ops}
        fed = {home[op] for op in home for one in self.before[op] if home.get(one, -2) == home[op] - 1}
        return len(fed) == len(layers) - 1
