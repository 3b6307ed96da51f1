"""Bytes that a node reads and writes in its device's memory.

In: a node's `Call` and the sizes of what it reads, each tensor once. Out: bytes. Simplified: caches are ignored, so
every tensor is read and written once; kinds that only rename a buffer move nothing; lookups read the rows they find.

Work of one node, bodies included: If costs its dearer branch, Loop and Scan their body times the rounds.

In: a node and its `Environment`. Out: `Work` (flops, bytes moved). Simplified: see `onnx_bodies` for trip counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from weftline.importers.onnx.bodies import CONTROL_FLOW
from weftline.importers.onnx.call import Call
from weftline.importers.onnx.flops import flops_of
from weftline.importers.onnx.infer import Environment
from weftline.importers.onnx.scope import Node, Scope

__all__ = ["Work", "traffic_of", "work_of"]

_RENAMING = {
    *("Shape", "Size", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Dropout", "Constant"),
    *("Optional", "OptionalGetElement", "OptionalHasElement", "SequenceAt", "SequenceConstruct", "SequenceEmpty"),
    *("SequenceInsert", "SequenceErase", "SequenceLength"),
}


def traffic_of(call: Call, read: int) -> int:
    """Bytes moved by one execution; `read` is the size of all its inputs, each counted once."""
    if call.kind in _RENAMING:
        return 0
    rule = _TRAFFIC.get(call.kind)
    return rule(call) if rule else read + _written(call)


def _written(call: Call) -> int:
    return sum(kind.bytes for kind in call.outputs if kind is not None)


def _copied(call: Call) -> int:
    """What comes out was read: the rest of the input is not touched."""
    return 2 * _written(call)


def _looked_up(call: Call) -> int:
    return 2 * call.output().bytes + call.input(1).bytes


def _embedded(call: Call) -> int:
    """Word, position and segment rows are read for every token."""
    rows = 3 if call.has(4) else 2
    ids = sum(call.input(index).bytes for index in (0, 1) if call.has(index))
    return rows * call.output().bytes + _written(call) + ids


def _quantized_rows(call: Call) -> int:
    """Gathered rows are read quantised: at most a quarter of what is written."""
    return call.output().bytes + call.output().bytes // 4 + call.input(1).bytes


def _experts(call: Call) -> int:
    """Only the chosen experts' weights are read."""
    tokens = call.input(0).elements // max(call.dimension(0, -1), 1)
    total = 0
    for kind in call.inputs:
        if kind is not None and len(kind.shape) == 3 and kind.shape[0]:
            chosen = min(kind.shape[0], tokens * max(call.integer("k", 1), 1))
            total += kind.bytes * chosen // kind.shape[0]
        elif kind is not None:
            total += kind.bytes
    return total + _written(call)


_TRAFFIC: dict[str, Callable[[Call], int]] = {
    "Gather": _looked_up,
    "GatherElements": _looked_up,
    "GatherND": _looked_up,
    "GatherBlockQuantized": _quantized_rows,
    "EmbedLayerNormalization": _embedded,
    "Slice": _copied,
    "Split": _copied,
    "SplitToSequence": _copied,
    "MoE": _experts,
    "QMoE": _experts,
}


class Work(NamedTuple):
    """What one execution costs."""

    flops: int
    traffic: int


def work_of(node: Node, types: Environment) -> Work:
    """Flops and bytes of one node."""
    runs = []
    if node.domain or node.kind not in CONTROL_FLOW:
        call = types.call(node)
        kinds = [types.type_of(name) for name in node.reads]
        runs.append(Work(flops_of(call), traffic_of(call, sum(kind.bytes for kind in kinds if kind is not None))))
        if not node.bodies:
            return runs[0]
    for entered, inside in types.calls.get(node.position, ()):
        once = _body_work(entered.body, inside)
        runs.append(Work(once.flops * entered.times, once.traffic * entered.times))
    if node.kind == "If":
        return Work(max((run.flops for run in runs), default=0), max((run.traffic for run in runs), default=0))
    return Work(sum(run.flops for run in runs), sum(run.traffic for run in runs))


def _body_work(body: Scope, types: Environment) -> Work:
    works = [work_of(node, types) for node in body.nodes]
    return Work(sum(work.flops for work in works), sum(work.traffic for work in works))
