"""The bodies of If, Loop, Scan and SequenceMap: what flows into them, how often they run, and what comes out.

In: a node and its `Call`. Out: `BodyCall`s, and the types of the node's outputs. Simplified: a Loop whose trip count is
not known is counted as one round, which is called a guess; where a condition may end it early the trip count is an
upper bound; a carried value that grows is taken to grow by as much in every round, and to be as large in all of them as
at the end.
"""

from __future__ import annotations

from typing import NamedTuple

from weftline.importers.onnx.call import BOOL, INT64, Call, TensorType
from weftline.importers.onnx.rules import merged
from weftline.importers.onnx.scope import Node, Scope
from weftline.importers.onnx.sizes import Size

__all__ = ["CONTROL_FLOW", "BodyCall", "body_calls", "node_results", "widened"]

CONTROL_FLOW = ("If", "Loop", "Scan", "SequenceMap")
NO_LIMIT_OF_ROUNDS = 2**63 - 1
"""What exporters write for: as long as the condition holds."""


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
            return [BodyCall("body", body, (*counter, *call.inputs[2:]), _rounds(call, body))]
        if node.kind == "Scan":
            given, rounds = _scan_inputs(call, body)
            return [BodyCall("body", body, given, rounds)]
        if node.kind == "SequenceMap":
            single = tuple(kind and kind._replace(tensors=1) for kind in call.inputs)
            return [BodyCall("body", body, single, call.input(0).tensors)]
    taken = _taken(node, call)
    return [BodyCall(attribute, body, (), 1) for attribute, body in node.bodies.items() if taken in ("", attribute)]


def _taken(node: Node, call: Call) -> str:
    """The branch of an If whose condition is known."""
    chosen = call.number(0) if node.kind == "If" and not node.domain else None
    branch = "" if chosen is None else "then_branch" if chosen else "else_branch"
    return branch if branch in node.bodies else ""


def widened(entered: BodyCall, ends: list[TensorType]) -> BodyCall | None:
    """A Loop whose carried values change their shape from round to round, entered with what they can become."""
    given, changed = list(entered.given), False
    for index, (before, after) in enumerate(zip(entered.given[2:], ends[1:], strict=False), start=2):
        if before is None or before.shape == after.shape or len(before.shape) != len(after.shape):
            continue
        sizes = [
            a if a == b else Size(max(a, a + int(entered.times) * (b - a)), guessed=b > a)
            for a, b in zip(map(int, before.shape), map(int, after.shape), strict=True)
        ]
        given[index], changed = before._replace(shape=tuple(sizes)), True
    return entered._replace(given=tuple(given)) if changed else None


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
    return [merged([side[i] for side in sides if i < len(side)]) for i in range(count)]


def _rounds(call: Call, body: Scope) -> int:
    """A stand-in of one round where nothing limits them; fewer than the limit if a condition may end the loop."""
    trips = call.limit(0) if call.has(0) else None
    if trips is None or int(trips) >= NO_LIMIT_OF_ROUNDS:
        return Size(1, guessed=True)
    if isinstance(trips, Size):
        return trips
    trips = max(trips, 0)
    return trips if _runs_through(call, body) else Size(trips)


def _runs_through(call: Call, body: Scope) -> bool:
    """Does the condition stay what it was from the beginning?"""
    if call.has(1) and not call.number(1):
        return False
    name, made_by = next(iter(body.outputs), ""), {out: node for node in body.nodes for out in node.outputs}
    for _ in range(len(body.nodes) + 1):
        node = made_by.get(name)
        if node is None or node.kind not in ("Identity", "Cast") or not node.inputs:
            break
        name = node.inputs[0]
    return (
        name in list(body.inputs)[1:2] or name in body.constants or getattr(made_by.get(name), "kind", "") == "Constant"
    )


def _loop_results(call: Call, entered: BodyCall, ends: list[TensorType]) -> list[TensorType]:
    carried = max(len(call.inputs) - 2, 0)
    results = []
    for index, end in enumerate(ends[1:]):
        kind = end
        if index >= carried:
            results.append(kind._replace(shape=(entered.times, *kind.shape)))
            continue
        before = call.input(index + 2)
        entry = entered.given[index + 2] if index + 2 < len(entered.given) else None
        if entry is not None and len(entry.shape) == len(kind.shape):  # after no round at all it is as it was
            pairs = zip(entry.shape, kind.shape, strict=True)
            kind = kind._replace(shape=tuple(a if isinstance(a, Size) else b for a, b in pairs))
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
