"""GCOF, graph coarsening by operator fusion (Moirai): find the patterns of a backend in a graph.

In: a graph and a backend. Out: the kernel of every op. Rules are tried longest first, ops in topological order, until
nothing matches; what a rule joined is found by other rules as one op. Every tensor inside a pattern is read inside it
alone and is no output of the model, so only the last op of a pattern is seen from outside, and no path that leaves the
pattern can come back: joining keeps the graph acyclic.
Simplified: a graph does not say which input of an op is which, and has no attributes, so patterns do not ask for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, permutations
from typing import NamedTuple

import numpy as np

from weftline.graph import Graph
from weftline.graph.arrays import Indices
from weftline.reduce.fusion.gcof_rules import RULES, Rule

__all__ = ["matches", "pattern_of"]

ANY = frozenset({"_"})
LAST = ""
"""Name of the step that is seen from outside, where the rule gives it none."""
MAX_INPUTS = 16
"""Ops with more inputs are compared with patterns of one named input only."""


class Step(NamedTuple):
    """One op of a pattern."""

    name: str
    kinds: frozenset[str]
    inputs: tuple[str, ...]
    constant: bool
    more: bool


class Pattern(NamedTuple):
    """A rule, read."""

    rule: Rule
    steps: dict[str, Step]
    last: Step
    before: tuple[frozenset[str], ...]
    """Kinds that must be among the makers of what the last step reads: a quick test."""


@cache
def pattern_of(rule: Rule) -> Pattern:
    """Read the words of a rule."""
    steps: dict[str, Step] = {}
    for word in rule.pattern.split():
        head, _, inside = word.rstrip(")").partition("(")
        name, _, kinds = head.rpartition("=")
        given = inside.split(",")
        inputs = tuple(item for item in given if item not in ("*", "..."))
        steps[name] = Step(name, frozenset(kinds.split("|")), inputs, "*" in given, "..." in given)
    last = steps[name]
    before = (steps[given].kinds for given in last.inputs if given in steps)
    return Pattern(rule, steps, last, tuple(kinds for kinds in before if kinds != ANY))


def matches(graph: Graph, backend: str, rules: Sequence[Rule] = RULES) -> Indices:
    """(n,): ops with the same number are one kernel of the backend."""
    board = _Board.of(graph)
    by_length: dict[int, dict[str, list[Pattern]]] = {}
    for pattern in _possible(set(board.kind), [pattern_of(rule) for rule in rules if backend in rule.backends]):
        for kind in pattern.last.kinds:
            by_length.setdefault(len(pattern.steps), {}).setdefault(kind, []).append(pattern)
    found = True
    while found:
        found = False
        for length in sorted(by_length, reverse=True):
            patterns = by_length[length]
            for node in range(len(graph.ops)):
                kind = board.kind[node]
                while kind and (kind in patterns or "_" in patterns) and _join_one(board, patterns, node):
                    found, kind = True, board.kind[node]
    kernel = np.empty(len(graph.ops), np.int32)
    for node, members in enumerate(board.members):
        kernel[members] = node
    return kernel


def _possible(kinds: set[str], patterns: list[Pattern]) -> list[Pattern]:
    """The patterns whose kinds all occur in the graph, or are made by other patterns that are possible."""
    while True:
        fit = [pattern for pattern in patterns if all(step.kinds & (kinds | ANY) for step in pattern.steps.values())]
        made = {pattern.rule.gives for pattern in fit}
        if made <= kinds:
            return fit
        kinds = kinds | made


def _join_one(board: _Board, patterns: dict[str, list[Pattern]], node: int) -> bool:
    makers = {board.kind[board.maker[tensor]] for tensor in board.inputs[node] if board.maker[tensor] >= 0}
    for pattern in (*patterns.get(board.kind[node], ()), *patterns.get("_", ())):
        if any(makers.isdisjoint(kinds) for kinds in pattern.before):
            continue
        for bound in _bindings(board, pattern, [(pattern.last, node)], {}, {}):
            if _accepted(board, pattern, bound, node):
                board.join(bound, node, pattern)
                return True
    return False


def _bindings(
    board: _Board, pattern: Pattern, todo: list[tuple[Step, int]], bound: dict[str, int], outside: dict[str, int]
) -> Iterator[dict[str, int]]:
    """Every way to find the steps that are left, as step -> node; `outside` are the tensors of the letters."""
    if not todo:
        yield bound
        return
    (step, node), rest = todo[0], todo[1:]
    if step.name in bound:
        if bound[step.name] == node:
            yield from _bindings(board, pattern, rest, bound, outside)
        return
    inputs = board.inputs[node]
    fits = len(inputs) == len(step.inputs) or (step.more and len(inputs) > len(step.inputs))
    if not fits or node in bound.values() or (step.constant and not board.constant[node]):
        return
    if (step.kinds != ANY and board.kind[node] not in step.kinds) or (
        len(inputs) > MAX_INPUTS and len(step.inputs) > 1
    ):
        return
    for choice in permutations(inputs, len(step.inputs)):
        further, letters = list(rest), dict(outside)
        for name, tensor in zip(step.inputs, choice, strict=True):
            if name in pattern.steps:
                further.append((pattern.steps[name], board.maker[tensor]))
            elif letters.setdefault(name, tensor) != tensor:
                break
        else:
            if all(maker >= 0 for _, maker in further):
                yield from _bindings(board, pattern, further, {**bound, step.name: node}, letters)


def _accepted(board: _Board, pattern: Pattern, bound: dict[str, int], last: int) -> bool:
    """Is everything inside read inside alone?"""
    nodes = set(bound.values())
    for node in nodes - {last}:
        for tensor in board.outputs[node]:
            if board.kept[tensor] or not board.readers[tensor] <= nodes:
                return False
    swap = pattern.rule.swaps_last_two
    return not swap or board.swaps_last_two(bound[swap])


@dataclass(frozen=True)
class _Board:
    """The graph while it shrinks. A joined node has the number of its last op; the others have no kind any more."""

    graph: Graph
    kind: list[str]
    members: list[list[int]]
    inputs: list[list[int]]
    """Node -> tensors from outside."""
    outputs: list[list[int]]
    constant: list[bool]
    """Node -> has it a constant operand?"""
    maker: list[int]
    readers: list[set[int]]
    kept: list[bool]
    """Tensor -> is it an output of the model?"""

    @staticmethod
    def of(graph: Graph) -> _Board:
        arrays = graph.arrays
        tied = {op for weight in graph.tied for op in weight.ops}
        return _Board(
            graph=graph,
            kind=[op.kind or "?" for op in graph.ops],
            members=[[op] for op in range(len(graph.ops))],
            inputs=_rows(arrays.input_ptr, arrays.input_of),
            outputs=_rows(arrays.output_ptr, arrays.output_of),
            constant=[op.weight_bytes > 0 or number in tied for number, op in enumerate(graph.ops)],
            maker=arrays.producer.tolist(),
            readers=[set(tensor.consumers) for tensor in graph.tensors],
            kept=[tensor.output for tensor in graph.tensors],
        )

    def join(self, bound: dict[str, int], last: int, pattern: Pattern) -> None:
        """Make one node of several."""
        gives = pattern.rule.gives
        kind = self.kind[bound[gives[1:]]] if gives.startswith("=") else gives
        others = [node for node in bound.values() if node != last]
        inside = {tensor for node in others for tensor in self.outputs[node]}
        inputs = dict.fromkeys(tensor for node in (*others, last) for tensor in self.inputs[node])
        for node in others:
            for tensor in self.inputs[node]:
                self.readers[tensor].discard(node)
                self.readers[tensor].add(last)
            self.members[last] += self.members[node]
            self.constant[last] |= self.constant[node]
            self.members[node], self.inputs[node], self.outputs[node], self.kind[node] = [], [], [], ""
        self.inputs[last] = [tensor for tensor in inputs if tensor not in inside]
        self.kind[last] = kind

    def swaps_last_two(self, node: int) -> bool:
        """True for a Transpose whose shapes fit a swap of the last two axes."""
        if len(self.inputs[node]) != 1 or not self.outputs[node]:
            return False
        before = self.graph.tensors[self.inputs[node][0]].shape
        after = self.graph.tensors[self.outputs[node][0]].shape
        return len(before) > 1 and after == (*before[:-2], before[-1], before[-2])


def _rows(pointer: Indices, row_of: Indices) -> list[list[int]]:
    ends, values = pointer.tolist(), row_of.tolist()
    return [values[a:b] for a, b in pairwise(ends)]
