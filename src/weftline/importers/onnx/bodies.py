"""The bodies of If, Loop, Scan and SequenceMap: what flows into them, how often they run, and what comes out.

In: a node and its `Call`. Out: `BodyCall`s, and the types of the node's outputs. Simplified: a Loop whose trip count is
not known, neither given nor by a number that it counts up to a limit, is counted as one round, which is called a guess;
where a condition may end it early the trip count is an upper bound; a carried value that grows is taken to grow by as
much in every round, and to be as large in all of them as at the end.
"""

from __future__ import annotations

from typing import NamedTuple

from weftline.importers.onnx.call import BOOL, INT64, Call, TensorType
from weftline.importers.onnx.rules import merged
from weftline.importers.onnx.scope import Node, Scope
from weftline.importers.onnx.sizes import Size, is_guessed, largest, rounded_up
from weftline.importers.onnx.values import stored_value

__all__ = ["CONTROL_FLOW", "BodyCall", "body_calls", "node_results", "widened"]

CONTROL_FLOW = ("If", "Loop", "Scan", "SequenceMap")
MOST_CONDITIONS = 16
MOST_COUNTED = 2**32
"""Rounds; what counts further says nothing."""
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
        counted = _Counter(call, body).rounds()
        return Size(1, guessed=True) if counted is None else Size(counted, guessed=is_guessed(counted))
    if isinstance(trips, Size):
        return trips
    trips = max(trips, 0)
    return trips if _runs_through(call, body) else Size(trips)


class _Counter:
    """A loop that counts by itself: as long as a number that grows from round to round is below a limit that stays."""

    def __init__(self, call: Call, body: Scope) -> None:
        self._call, self._body = call, body
        self._made_by = {out: node for node in body.nodes for out in node.outputs}
        self._inputs, self._outputs = list(body.inputs), list(body.outputs)

    def rounds(self) -> int | None:
        """At most so many; None where the condition is another one."""
        asked = self._outputs[:1]
        found = []
        for name in asked:
            node = self._made_by.get(self.plain(name))
            if node is None or len(node.inputs) != 2:
                continue
            if node.kind == "And" and len(asked) < MOST_CONDITIONS:
                asked += node.inputs
            elif node.kind in ("Less", "LessOrEqual"):
                found.append(self._until(node.inputs[0], node.inputs[1], node.kind == "LessOrEqual"))
            elif node.kind in ("Greater", "GreaterOrEqual"):
                found.append(self._until(node.inputs[1], node.inputs[0], node.kind == "GreaterOrEqual"))
        known = [rounds for rounds in found if rounds is not None and rounds <= MOST_COUNTED]
        return min(known, key=int) if known else None

    def _until(self, count: str, limit: str, reached: bool) -> int | None:
        last, counted = self._unchanged(limit), self._counted(count)
        if last is None or counted is None:
            return None
        begin, step, ahead = counted
        far = last + (1 if reached else 0) - begin
        return largest(rounded_up(far, step) + (0 if ahead else 1), 1)

    def _counted(self, name: str) -> tuple[int, int, bool] | None:
        """Where a number begins, its step, and whether the step is already taken where it is compared."""
        name = self.plain(name)
        for place, carried in enumerate(self._inputs):
            if place == 1:  # the condition
                continue
            begin = 0 if place == 0 else self._call.limit(place)
            step = 1 if place == 0 else self._step(place)
            if begin is None or step is None or isinstance(begin, Size):
                continue
            if name == carried:
                return begin, step, False
            if self._added(name, carried) == step:
                return begin, step, True
        return None

    def _step(self, place: int) -> int | None:
        """By how much a carried number grows in every round."""
        return self._added(self.plain(self._outputs[place - 1]), self._inputs[place]) if place >= 2 else None

    def _added(self, name: str, carried: str) -> int | None:
        node = self._made_by.get(name)
        if node is None or node.kind != "Add" or len(node.inputs) != 2:
            return None
        plain = [self.plain(each) for each in node.inputs]
        if carried not in plain:
            return None
        step = self._number(plain[1 - plain.index(carried)])
        return step if step is not None and step > 0 else None

    def _unchanged(self, name: str) -> int | None:
        """A number that is the same in every round."""
        name = self.plain(name)
        if name not in self._inputs:
            return self._number(name)
        place = self._inputs.index(name)
        same = place >= 2 and self.plain(self._outputs[place - 1]) == name
        return self._call.limit(place) if same else None

    def _number(self, name: str) -> int | None:
        """One stored number."""
        node = self._made_by.get(name)
        tensor = self._body.constants.get(name)
        if node is not None and node.kind == "Constant" and not node.domain:
            tensor = Call(node.kind, node.domain, node.proto, ()).attributes.get("value")
        if tensor is None or not hasattr(tensor, "data_location"):
            return None
        value = stored_value(tensor, TensorType(tensor.data_type, tuple(tensor.dims)))
        if value is None or value.size != 1 or value.dtype.kind not in "iu":
            return None
        return int(value.reshape(-1)[0])

    def plain(self, name: str) -> str:
        """What a name is once it is not renamed or cast."""
        for _ in range(len(self._body.nodes) + 1):
            node = self._made_by.get(name)
            if node is None or node.kind not in ("Identity", "Cast") or not node.inputs:
                break
            name = node.inputs[0]
        return name


def _runs_through(call: Call, body: Scope) -> bool:
    """Does the condition stay what it was from the beginning?"""
    if call.has(1) and not call.number(1):
        return False
    name, made_by = next(iter(body.outputs), ""), {out: node for node in body.nodes for out in node.outputs}
    name = _Counter(call, body).plain(name)
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
