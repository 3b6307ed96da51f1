"""Bodies of If, Loop, Scan and SequenceMap: what flows into them, how often they run, and what comes out.

In: the node and the types of its inputs (then: the types its bodies end with). Out: types. Simplified: a Loop whose
trip count is not constant counts as one round; a value carried round keeps the shape that the first round gives it.
"""

from __future__ import annotations

from typing import NamedTuple

from weftline.importers.onnx.call import BOOL, INT64, Call, TensorType
from weftline.importers.onnx.scope import Node, Scope

__all__ = ["CONTROL_FLOW", "BodyCall", "body_calls", "node_results"]

CONTROL_FLOW = ("If", "Loop", "Scan", "SequenceMap")


class BodyCall(NamedTuple):
    """One body, entered `times` times with these inputs."""

    attribute: str
    body: Scope
    given: tuple[TensorType | None, ...]
    times: int


def body_calls(node: Node, call: Call) -> list[BodyCall]:
    """How a node enters each of its bodies."""
    if node.domain == "" and "body" in node.bodies:
        body = node.bodies["body"]
        if node.kind == "Loop":
            counter = (TensorType(INT64, ()), TensorType(BOOL, ()))
            return [BodyCall("body", body, (*counter, *call.inputs[2:]), _rounds(call))]
        if node.kind == "Scan":
            given, rounds = _scan_inputs(call, body)
            return [BodyCall("body", body, given, rounds)]
        if node.kind == "SequenceMap":
            single = tuple(kind and kind._replace(tensors=1) for kind in call.inputs)
            return [BodyCall("body", body, single, call.input(0).tensors)]
    return [BodyCall(attribute, body, (), 1) for attribute, body in node.bodies.items()]


def node_results(node: Node, call: Call, made: list[tuple[BodyCall, list[TensorType]]]) -> list[TensorType]:
    """The types of the node's outputs from those its bodies end with; none for kinds we do not know."""
    if node.domain or node.kind not in CONTROL_FLOW:
        return []
    entered, ends = made[0]
    if node.kind == "Loop":
        return _loop_results(call, entered, ends)
    if node.kind == "Scan":
        return _scan_results(call, entered, ends)
    if node.kind == "SequenceMap":
        return [kind._replace(tensors=entered.times) for kind in ends]
    # Branches may disagree: plan for the larger.
    sides = [types for _, types in made]
    count = max(map(len, sides))
    return [max((side[i] for side in sides if i < len(side)), key=lambda kind: kind.bytes) for i in range(count)]


def _rounds(call: Call) -> int:
    trips = call.number(0) if call.has(0) else None
    return 1 if trips is None else max(trips, 0)


def _loop_results(call: Call, entered: BodyCall, ends: list[TensorType]) -> list[TensorType]:
    carried = max(len(call.inputs) - 2, 0)
    results = []
    for index, kind in enumerate(ends[1:]):
        if index >= carried:
            results.append(kind._replace(shape=(entered.times, *kind.shape)))
            continue
        before = call.input(index + 2)
        grown = before.tensors + entered.times * (
            kind.tensors - before.tensors
        )  # a sequence that every round appends to
        results.append(kind._replace(tensors=max(grown, 0)))
    return results


def _batched(call: Call, body: Scope) -> bool:
    """The Scan of opset 8: sequence lengths come first, and every value has a batch dimension."""
    return len(call.inputs) == len(body.inputs) + 1


def _scan_inputs(call: Call, body: Scope) -> tuple[tuple[TensorType | None, ...], int]:
    batched = _batched(call, body)
    inputs = call.inputs[1:] if batched else call.inputs
    batch = call.dimension(1, 0) if batched else 1
    states = max(len(inputs) - call.integer("num_scan_inputs", 1), 0)
    axes = call.integers("scan_input_axes")
    given: list[TensorType | None] = []
    length = 1
    for index, kind in enumerate(inputs):
        if kind is None:
            given.append(None)
            continue
        shape = kind.shape[1:] if batched else kind.shape
        if index >= states and shape:
            axis = axes[index - states] if index - states < len(axes) and not batched else 0
            axis = axis % len(shape)
            length = shape[axis]
            shape = (*shape[:axis], *shape[axis + 1 :])
        given.append(kind._replace(shape=shape))
    return tuple(given), length * batch


def _scan_results(call: Call, entered: BodyCall, ends: list[TensorType]) -> list[TensorType]:
    batched = _batched(call, entered.body)
    states = max(len(entered.given) - call.integer("num_scan_inputs", 1), 0)
    axes = call.integers("scan_output_axes")
    batch = call.dimension(1, 0) if batched else 1
    results = []
    for index, kind in enumerate(ends):
        shape = kind.shape
        if index >= states:
            axis = axes[index - states] if index - states < len(axes) else 0
            axis = axis % (len(shape) + 1)
            shape = (*shape[:axis], entered.times // max(batch, 1), *shape[axis:])
        results.append(kind._replace(shape=(batch, *shape) if batched else shape))
    return results
