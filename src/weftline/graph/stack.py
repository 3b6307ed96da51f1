"""The stacks of layers of a graph, and the sentence for a plan that cuts a layer.

In: a graph whose ops carry blocks (`encoder/layer.3`, `model.layers.3.mlp`); where there are none, layers are sub-
graphs that repeat (`repeats.py`). Out: `Stack`: the ops of every layer. By names a stack is a numbered sequence with
a separator (`h.0`, `h.1`); `linear1` and `linear2` are none. Its members follow each other in the graph, so experts
are none. Members at its ends with fewer matrix products than any layer has (the norm or head at the end of a
Sequential) are not counted as layers. Simplified: with `layer_0`, only where no name is like `layer.0`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from weftline.errors import UsageError
from weftline.graph.ir import Graph, Op
from weftline.graph.repeats import PRODUCT_KIND, repeated_layers
from weftline.units import format_name, format_names

__all__ = ["Stack", "layer_words", "layers_of_graph", "named_stacks", "one_device", "one_stack", "path_of"]
__all__ += ["stacks_of", "whole_hint"]

_NUMBERED = re.compile(r"(?<![^./])\d{1,6}(?![^./])")
_UNDERSCORED = re.compile(r"(?<=[_-])\d{1,6}(?![^./])")
LEAST_PRODUCTS = 2
"""Of a layer; a head or a projection has one, a norm or an embedding none."""
MOST_SHOWN = 4
"""Patterns in a hint, or stacks in a sentence."""
MOST_LETTERS = 80
"""Of a name in a sentence."""

_Members = Mapping[int, Sequence[int]]


@dataclass(frozen=True)
class Stack:
    """Layers that follow each other."""

    key: str
    """What stands before the number: `encoder/layer.`."""
    numbers: tuple[int, ...]
    """Of the layers, as the names have them; from 0 on, unless other members come first."""
    layers: tuple[tuple[int, ...], ...]
    """Ops of each layer, ascending."""

    @property
    def name(self) -> str:
        """What the layers are called without their number: `encoder/layer`."""
        return self.key.rstrip("._/-")

    def holds(self, other: Stack) -> list[int]:
        """The layers that the other stack is inside of."""
        return [n for n in self.numbers if re.match(re.escape(f"{self.key}{n}") + "[./]", other.key)]


def path_of(op: Op) -> str:
    """The modules around an op. Blocks end at the first number; names of ONNX nodes may go on."""
    parents = op.name.strip("/").rpartition("/")[0]
    return parents if parents.startswith(f"{op.block}/") else op.block


def stacks_of(graph: Graph) -> list[Stack]:
    """Every stack of layers: by names where there are any, else by structure."""
    return named_stacks(graph) or repeated_stacks(graph)


def repeated_stacks(graph: Graph) -> list[Stack]:
    """Stacks of sub-graphs that repeat; their keys are made up, no op has such a name."""
    found = repeated_layers(graph)
    many = len(found) > 1
    return [
        Stack(f"repeated{n if many else ''}.", tuple(range(len(layers))), tuple(map(tuple, layers)))
        for n, layers in enumerate(found)
    ]


def layers_of_graph(graph: Graph) -> list[tuple[int, ...]]:
    """The ops of every layer of every stack; `UsageError` where there are no layers."""
    found = [ops for stack in stacks_of(graph) for ops in stack.layers]
    if not found:
        raise UsageError(
            "no layers were found in this model: no names of numbered blocks, and no sub-graph of two or more matrix "
            "products that repeats. Name what stays together in the cluster file: [limits] together or block"
        )
    return found


def layer_words(graph: Graph) -> str:
    """A sentence that says how many layers there are, how they were found, and where they begin and end."""
    layers, named = layers_of_graph(graph), named_stacks(graph)
    how = "sub-graphs that repeat"
    if named:
        ends = [f"{_cut(s.key)}{s.numbers[0]} to {s.numbers[-1]}" for s in named[:MOST_SHOWN]]
        more = f" and {len(named) - MOST_SHOWN} more" if len(named) > MOST_SHOWN else ""
        how = f"numbered blocks by their names: {', '.join(ends)}{more}"
    first, last = (_cut(graph.ops[op].name) for op in (layers[0][0], layers[-1][-1]))
    many = f"{len(layers)} layers were" if len(layers) > 1 else "1 layer was"
    return f"{many} found ({how}); the first op is '{first}', the last '{last}'"


def _cut(name: str) -> str:
    return format_name(name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 3]}...")


def named_stacks(graph: Graph) -> list[Stack]:
    """Every stack of layers by names that is not inside a layer of another one."""
    paths = [path_of(op) for op in graph.ops]
    members = _members(paths, _NUMBERED) or _members(paths, _UNDERSCORED)
    product = [PRODUCT_KIND.search(op.kind) is not None for op in graph.ops]
    most = max((sum(product[op] for op in ops) for stack in members.values() for ops in stack.values()), default=0)
    found = [_layers(key, stack, product, min(most, LEAST_PRODUCTS)) for key, stack in members.items()]
    found = [stack for stack in found if stack.layers and _in_a_row(graph, stack)]
    long = [stack for stack in found if len(stack.layers) > 1]
    return _outer(long or found)


def one_stack(graph: Graph, target: str) -> Stack:
    """The stack of a model that has one, with no number left out; `target` stands in the errors."""
    stacks = stacks_of(graph)
    if not stacks:
        missing = "its ops have no names of layers" if not any(op.block for op in graph.ops) else "no block is numbered"
        raise UsageError(
            f"{target} needs a model of numbered layers, such as encoder/layer.0; here {missing}, and no sub-graph "
            "repeats (onnx-stages takes any ONNX model)"
        )
    if len(stacks) > 1:
        names = format_names(sorted(stack.name for stack in stacks))
        raise UsageError(f"{target} takes one stack of layers; this model has {names} (accelerate takes several)")
    stack = stacks[0]
    first = stack.numbers[0]
    if stack.numbers != tuple(range(first, first + len(stack.numbers))):
        lost = next(n for n in range(first, stack.numbers[-1]) if n not in stack.numbers)
        raise UsageError(
            f"{target} counts layers, and number {lost} of {stack.name!r} is none (there are no ops, or no matrix "
            "products in it); number the layers of the model without it"
        )
    return stack


def one_device(what: str, graph: Graph, ids: Sequence[str], ops: Sequence[int], target: str) -> str:
    """The device of these ops; refused if they are on several."""
    used = sorted({ids[op] for op in ops})
    if len(used) > 1:
        raise UsageError(
            f"{target} cannot cut inside {what}, which the plan has on {format_names(used)} ({whole_hint(graph, ops)})"
        )
    return used[0]


def whole_hint(graph: Graph, ops: Sequence[int]) -> str:
    """How to keep these ops on one device, in the names of this model."""
    patterns = _patterns(graph, ops)
    shown = [f'"{pattern}"' for pattern in patterns[:MOST_SHOWN]] + ["..."] * (len(patterns) > MOST_SHOWN)
    whole = "plan again with --keep layers, or keep it whole by a set in the cluster file"
    return f"{whole}: [limits] together = [[{', '.join(shown)}], ...]"


def _members(paths: Iterable[str], numbered: re.Pattern[str]) -> dict[str, dict[int, list[int]]]:
    found: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for op, path in enumerate(paths):
        for match in numbered.finditer(path):
            found[path[: match.start()]][int(match[0])].append(op)
    return {key: dict(stack) for key, stack in found.items()}


def _layers(key: str, members: _Members, product: Sequence[bool], least: int) -> Stack:
    numbers = sorted(n for n, ops in members.items() if sum(product[op] for op in ops) >= least)
    return Stack(key, tuple(numbers), tuple(tuple(members[n]) for n in numbers))


def _in_a_row(graph: Graph, stack: Stack) -> bool:
    """Every layer reads what the one before it made. Ops are in topological order."""
    layer = {op: n for n, ops in enumerate(stack.layers) for op in ops}
    before = [-1] * len(graph.ops)  # the last layer that leads here, other than the op's own
    for tensor in sorted(graph.tensors, key=lambda tensor: tensor.producer):
        if tensor.producer < 0:
            continue
        own = layer.get(tensor.producer, -1)
        for op in tensor.consumers:
            led = before[tensor.producer] if own in (-1, layer.get(op, -1)) else own
            before[op] = max(before[op], led)
    return all(max(before[op] for op in ops) == n - 1 for n, ops in enumerate(stack.layers))


def _outer(stacks: Sequence[Stack]) -> list[Stack]:
    """A stack inside a layer is a part of it; but where only some members hold one, those members are no layers."""
    kept: list[Stack] = []
    for stack in sorted(stacks, key=lambda stack: len(stack.key)):
        held = {n for other in stacks for n in stack.holds(other)}
        if (not held or held == set(stack.numbers)) and not any(outer.holds(stack) for outer in kept):
            kept.append(stack)
    return kept


def _patterns(graph: Graph, ops: Sequence[int]) -> list[str]:
    whole = _pattern(graph, ops)
    if whole:
        return [whole]
    blocks: dict[str, list[int]] = defaultdict(list)
    for op in ops:
        blocks[graph.ops[op].block].append(op)
    found: list[str] = []
    for group in blocks.values():
        pattern = _pattern(graph, group)
        found += [pattern] if pattern else [graph.ops[op].name[:80] for op in group]
    return found


def _pattern(graph: Graph, ops: Sequence[int]) -> str:
    """One pattern that matches these ops and no others, or nothing."""
    names = [graph.ops[op].name for op in ops]
    low, high = min(names), max(names)
    differ = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))
    shared = re.match(r".*[./]", low[:differ])
    if shared is None:
        return ""
    pattern = f"{shared[0]}*"
    return pattern if [i for i, op in enumerate(graph.ops) if fnmatchcase(op.name, pattern)] == list(ops) else ""
