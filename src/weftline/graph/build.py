"""Ops and tensors -> a checked Graph, and Graph <-> canonical JSON.

`check_graph` holds the rules of the graph as code; it raises on the first one that is broken, and names the place.

1. Names of ops, of tensors and of tied weights are unique, not empty, at most 1,000 characters of valid Unicode.
2. Indices point at ops that exist; consumers are ascending, each once.
3. Ops are in topological order: every consumer stands after the producer. (So there is no cycle.)
4. Counts and sizes lie in 0..2^60, and so do their sums; tied weights are used by at least two ops.
5. Dynamic axes of a tensor are axes of its shape, ascending, each once.

`assemble` takes ops in any order and shows the cycle if there is one. JSON has a fixed field order, defaults left out,
no spaces; equal graphs give equal bytes. A hand-written file may list ops in any order; indices refer to its own list.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from weftline.errors import InputError
from weftline.graph.arrays import ready_first
from weftline.graph.ir import MODEL_INPUT, Graph, Op, Tensor, Tied
from weftline.units import MAX_QUANTITY

__all__ = ["GRAPH_FORMAT", "MAX_OPS", "assemble", "check_graph", "graph_from_json", "graph_to_json"]

MAX_OPS = 5_000_000
MAX_NAME = 1_000


def check_graph(graph: Graph) -> Graph:
    """Return the graph if it keeps every rule, raise `InputError` otherwise."""
    count = len(graph.ops)
    _check_texts("graph", [graph.name])
    if not 1 <= count <= MAX_OPS or len(graph.tensors) > 4 * MAX_OPS:
        raise InputError(f"a graph has 1 to {MAX_OPS} ops, this one has {count}", where=f"graph {graph.name!r}")
    _check_names("op", [op.name for op in graph.ops])
    _check_names("tensor", [tensor.name for tensor in graph.tensors])
    _check_names("tied weight", [tied.name for tied in graph.tied])
    _check_texts("op", [text for op in graph.ops for text in (op.name, op.kind, op.block)])
    _check_texts("tensor", [text for tensor in graph.tensors for text in (tensor.name, tensor.dtype)])
    _check_texts("tied weight", [tied.name for tied in graph.tied])
    _check_sizes(graph)
    for tensor in graph.tensors:
        _check_tensor(tensor, graph.ops)
    for tied in graph.tied:
        place = f"tied weight {tied.name!r}"
        _check_ascending(tied.ops, count, place)
        if len(tied.ops) < 2:
            raise InputError("is used by fewer than two ops", where=place, hint="count it in the op's weight_bytes")
        if not 0 <= tied.bytes <= MAX_QUANTITY:
            raise InputError(f"size {tied.bytes} is not in 0..2^60", where=place)
    return graph


def _check_texts(what: str, texts: Sequence[str]) -> None:
    """Every text can be written to a file, and is not absurdly long."""
    if max(map(len, texts), default=0) > MAX_NAME:
        longest = max(texts, key=len)
        raise InputError(f"{longest[:40]!r}... is longer than {MAX_NAME} characters", where=what)
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"a text is not valid Unicode: {error.reason}", where=what) from error


def _check_names(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"duplicate {what} name {name[:80]!r}", hint=f"every {what} needs a name of its own")
        if not 0 < len(name) <= MAX_NAME:
            raise InputError(f"{what} name {name[:80]!r} is empty or longer than {MAX_NAME} characters")
        seen.add(name)


def _check_sizes(graph: Graph) -> None:
    totals = dict.fromkeys(("flops", "weight_bytes", "workspace_bytes", "traffic_bytes"), 0)
    for op in graph.ops:
        for field in totals:
            value: int = getattr(op, field)
            if not 0 <= value <= MAX_QUANTITY:
                raise InputError(f"{field} = {value} is not in 0..2^60", where=f"op {op.name!r}")
            totals[field] += value
    totals["tensor bytes"] = 0
    for tensor in graph.tensors:
        if not 0 <= tensor.bytes <= MAX_QUANTITY:
            raise InputError(f"bytes = {tensor.bytes} is not in 0..2^60", where=f"tensor {tensor.name!r}")
        if tensor.shape and not 0 <= min(tensor.shape) <= max(tensor.shape) <= MAX_QUANTITY:
            raise InputError(f"shape {tensor.shape[:8]} has a size outside 0..2^60", where=f"tensor {tensor.name!r}")
        totals["tensor bytes"] += tensor.bytes
    totals["tied bytes"] = sum(tied.bytes for tied in graph.tied)
    for field, total in totals.items():
        if total > MAX_QUANTITY:
            raise InputError(f"the sum of {field} over the graph is {total}, more than 2^60")


def _check_tensor(tensor: Tensor, ops: Sequence[Op]) -> None:
    if not MODEL_INPUT <= tensor.producer < len(ops):
        raise InputError(f"producer {tensor.producer} is not an op", where=f"tensor {tensor.name!r}")
    if tensor.dynamic:
        _check_axes(tensor)
    consumers = tensor.consumers
    if not consumers:
        return
    place = f"tensor {tensor.name!r}"
    _check_ascending(consumers, len(ops), place)
    if consumers[0] <= tensor.producer:
        late, early = ops[tensor.producer].name, ops[consumers[0]].name
        raise InputError(f"op {early!r} reads it but stands before its producer {late!r}", where=place)


def _check_axes(tensor: Tensor) -> None:
    axes = tensor.dynamic
    if axes[0] < 0 or axes[-1] >= len(tensor.shape) or any(a >= b for a, b in pairwise(axes)):
        what = f"dynamic axes {axes[:8]} are not axes of shape {tensor.shape[:8]}, ascending, each once"
        raise InputError(what, where=f"tensor {tensor.name!r}")


def _check_ascending(indices: tuple[int, ...], count: int, place: str) -> None:
    if not indices or indices[0] < 0 or indices[-1] >= count:
        raise InputError(f"op indices must lie in 0..{count - 1}", where=place)
    if any(a >= b for a, b in pairwise(indices)):
        raise InputError("op indices must be ascending, each once", where=place)


def assemble(name: str, ops: Sequence[Op], tensors: Sequence[Tensor], tied: Sequence[Tied] = ()) -> Graph:
    """Sort the ops topologically (keeping the given order wherever it is valid), renumber, check."""
    _check_indices(len(ops), tensors, tied)
    order = _topological_order(ops, tensors)
    position = [0] * len(ops)
    for new, old in enumerate(order):
        position[old] = new
    moved = [
        msgspec.structs.replace(
            tensor,
            producer=MODEL_INPUT if tensor.producer == MODEL_INPUT else position[tensor.producer],
            consumers=tuple(sorted({position[consumer] for consumer in tensor.consumers})),
        )
        for tensor in tensors
    ]
    shared = [Tied(weight.name, weight.bytes, tuple(sorted({position[op] for op in weight.ops}))) for weight in tied]
    return check_graph(Graph(name=name, ops=tuple(ops[i] for i in order), tensors=tuple(moved), tied=tuple(shared)))


def _check_indices(count: int, tensors: Sequence[Tensor], tied: Sequence[Tied]) -> None:
    for tensor in tensors:
        if not MODEL_INPUT <= tensor.producer < count:
            raise _no_such_op("producer", tensor.producer, count, f"tensor {tensor.name[:80]!r}")
        for op in tensor.consumers:
            if not 0 <= op < count:
                raise _no_such_op("consumer", op, count, f"tensor {tensor.name[:80]!r}")
    for weight in tied:
        for op in weight.ops:
            if not 0 <= op < count:
                raise _no_such_op("user", op, count, f"tied weight {weight.name[:80]!r}")


def _no_such_op(role: str, op: int, count: int, place: str) -> InputError:
    return InputError(f"{role} {op!s:.30} is not an op", where=place, hint=f"the {count} ops are numbered from 0")


def _topological_order(ops: Sequence[Op], tensors: Sequence[Tensor]) -> Sequence[int]:
    count = len(ops)
    if all(not t.consumers or t.producer < min(t.consumers) for t in tensors):
        return range(count)
    successors: list[list[int]] = [[] for _ in range(count)]
    waiting = [0] * count
    for tensor in tensors:
        if tensor.producer != MODEL_INPUT:
            successors[tensor.producer].extend(tensor.consumers)
            for consumer in tensor.consumers:
                waiting[consumer] += 1
    order = ready_first(successors, waiting)
    if len(order) < count:
        raise InputError(
            f"the graph has a cycle: {_show_cycle(ops, successors, waiting)}",
            hint="a model is a directed acyclic graph; unroll loops before planning",
        )
    return order


def _show_cycle(ops: Sequence[Op], successors: list[list[int]], waiting: list[int]) -> str:
    """Names along one cycle: every op that still waits has a predecessor that still waits, so walk backwards."""
    predecessor = {s: op for op in range(len(ops)) if waiting[op] for s in successors[op] if waiting[s]}
    op = next(iter(predecessor))
    seen: dict[int, int] = {}
    path: list[int] = []
    while op not in seen:
        seen[op] = len(path)
        path.append(op)
        op = predecessor[op]
    cycle = [*path[seen[op] :], op][::-1]
    names = [ops[i].name for i in cycle]
    shown = names if len(names) <= 7 else [*names[:3], "...", *names[-3:]]
    return " -> ".join(shown)


GRAPH_FORMAT = "weftline-graph"


class _GraphFile(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    format: Literal["weftline-graph"]
    version: Literal[1]
    name: str
    ops: tuple[Op, ...]
    tensors: tuple[Tensor, ...]
    tied: tuple[Tied, ...] = ()


def graph_to_json(graph: Graph) -> bytes:
    """The canonical bytes of a graph."""
    return msgspec.json.encode(
        {"format": GRAPH_FORMAT, "version": 1, **{name: getattr(graph, name) for name in graph.__struct_fields__}}
    )


def graph_from_json(data: bytes) -> Graph:
    """Read, sort and check a graph; a broken file gives an `InputError` with the path inside it."""
    try:
        file = msgspec.json.decode(data, type=_GraphFile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"not a weftline graph: {error}") from error
    return assemble(file.name, file.ops, file.tensors, file.tied)
