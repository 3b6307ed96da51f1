"""`assemble`: ops and tensors in any order -> a Graph in topological order, or an error that shows the cycle.

Graph <-> canonical JSON: fixed field order, defaults left out, no spaces; equal graphs give equal bytes.

A hand-written file may list ops in any order; indices refer to the order of its own `ops` list.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Literal

import msgspec

from weftline.errors import InputError
from weftline.graph.ir import INPUT, Graph, Op, Tensor, Tied
from weftline.graph.rules import check_graph

__all__ = ["GRAPH_FORMAT", "assemble", "graph_from_json", "graph_to_json"]


def assemble(name: str, ops: Sequence[Op], tensors: Sequence[Tensor], tied: Sequence[Tied] = ()) -> Graph:
    """Sort the ops topologically (keeping the given order wherever it is valid), renumber, check."""
    _check_indices(len(ops), tensors, tied)
    order = _topological_order(ops, tensors)
    position = [0] * len(ops)
    for new, old in enumerate(order):
        position[old] = new
    moved = [
        Tensor(
            name=tensor.name,
            producer=INPUT if tensor.producer == INPUT else position[tensor.producer],
            consumers=tuple(sorted({position[consumer] for consumer in tensor.consumers})),
            bytes=tensor.bytes,
            shape=tensor.shape,
            dtype=tensor.dtype,
            output=tensor.output,
        )
        for tensor in tensors
    ]
    shared = [Tied(weight.name, weight.bytes, tuple(sorted({position[op] for op in weight.ops}))) for weight in tied]
    return check_graph(Graph(name=name, ops=tuple(ops[i] for i in order), tensors=tuple(moved), tied=tuple(shared)))


def _check_indices(count: int, tensors: Sequence[Tensor], tied: Sequence[Tied]) -> None:
    for tensor in tensors:
        if not INPUT <= tensor.producer < count:
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
        if tensor.producer != INPUT:
            successors[tensor.producer].extend(tensor.consumers)
            for consumer in tensor.consumers:
                waiting[consumer] += 1
    ready = [op for op in range(count) if waiting[op] == 0]  # ascending, hence a heap
    order: list[int] = []
    while ready:
        op = heapq.heappop(ready)
        order.append(op)
        for successor in successors[op]:
            waiting[successor] -= 1
            if waiting[successor] == 0:
                heapq.heappush(ready, successor)
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
