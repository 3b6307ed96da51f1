"""The rules of the graph as code: `check_graph` raises on the first one that is broken, and names the place.

1. Names of ops, of tensors and of tied weights are unique, not empty, at most 1,000 characters of valid Unicode.
2. Indices point at ops that exist; consumers are ascending, each once.
3. Ops are in topological order: every consumer stands after the producer. (So there is no cycle.)
4. Counts and sizes lie in 0..2^60, and so do their sums; tied weights are used by at least two ops.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from weftline.errors import InputError
from weftline.graph.ir import INPUT, Graph, Op, Tensor
from weftline.units import MAX_QUANTITY

__all__ = ["MAX_OPS", "check_graph"]

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
    if not INPUT <= tensor.producer < len(ops):
        raise InputError(f"producer {tensor.producer} is not an op", where=f"tensor {tensor.name!r}")
    consumers = tensor.consumers
    if not consumers:
        return
    place = f"tensor {tensor.name!r}"
    _check_ascending(consumers, len(ops), place)
    if consumers[0] <= tensor.producer:
        late, early = ops[tensor.producer].name, ops[consumers[0]].name
        raise InputError(f"op {early!r} reads it but stands before its producer {late!r}", where=place)


def _check_ascending(indices: tuple[int, ...], count: int, place: str) -> None:
    if not indices or indices[0] < 0 or indices[-1] >= count:
        raise InputError(f"op indices must lie in 0..{count - 1}", where=place)
    if any(a >= b for a, b in pairwise(indices)):
        raise InputError("op indices must be ascending, each once", where=place)
