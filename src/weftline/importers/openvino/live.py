"""A live `openvino.Model` -> Graph, through OpenVINO's API; the same graph as that of the saved IR.

In: a model that OpenVINO read, converted or built, and shapes for open inputs. Out: the graph; op names are friendly
names. Where a dimension of an input has a limit (`1..512`) and no shape is given, the limit counts; OpenVINO works out
what follows for all others, which have limits then, too, or none (such as of what NonZero finds, where its input has
none). The caller's model stays as it is. No weight is looked at. Simplified: see `graph`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from weftline.errors import InputError, UsageError
from weftline.graph import Graph
from weftline.importers.onnx.sizes import Size
from weftline.importers.openvino import last_line, openvino_module
from weftline.importers.openvino.graph import graph_of_net
from weftline.importers.openvino.layers import (
    OPEN_SIZE,
    PARAMETER,
    Layer,
    Net,
    Port,
    check_given,
    element_name,
    in_order,
    rounds_of,
)

__all__ = ["graph_of_openvino", "net_of_model", "read_openvino"]

Shapes = Mapping[str, tuple[int, ...]]


def graph_of_openvino(model: Any, name: str = "", shapes: Shapes = MappingProxyType({})) -> Graph:
    """The graph of an `openvino.Model`; an input that is open without a limit needs a shape."""
    if not hasattr(model, "get_ordered_ops") or not hasattr(model, "get_parameters"):
        raise UsageError(
            f"an openvino.Model is wanted, not {type(model).__name__}; openvino.Core().read_model gives one"
        )
    given = _given(model, shapes)
    if given:
        model = _reshaped(model, given)
    for parameter in model.get_parameters():
        port = _port(parameter.output(0))
        if not port.is_limited:
            where, shape = f"input {parameter.get_friendly_name()[:80]!r}", parameter.get_output_partial_shape(0)
            hint = "give shapes={name: shape}, or try model.reshape({name: shape}) first"
            raise InputError(f"shape {shape} is not fixed", where=where, hint=hint)
    return graph_of_net(net_of_model(model), name)


def _given(model: Any, shapes: Shapes) -> dict[int, tuple[int, ...]]:
    """Number of an input -> the shape that is given for it; one that makes no sense is an `InputError`."""
    left, found = dict(shapes), {}
    for number, parameter in enumerate(model.get_parameters()):
        port = _port(parameter.output(0))
        name = parameter.get_friendly_name()
        given = next((left.pop(word) for word in (name, *port.names) if word in left), None)
        if given is not None:
            check_given(name, port, tuple(given))
            if not port.is_static:
                found[number] = tuple(given)
    if left:
        known = ", ".join(parameter.get_friendly_name() for parameter in model.get_parameters()[:8]) or "none"
        raise InputError(
            f"a shape is given for {next(iter(left))!r:.80}, which is not an input", hint=f"inputs: {known}"
        )
    return found


def _reshaped(model: Any, given: Mapping[int, tuple[int, ...]]) -> Any:
    """A copy with these shapes of inputs, worked out by OpenVINO."""
    copy = model.clone()
    try:
        copy.reshape({copy.get_parameters()[number].output(0): list(shape) for number, shape in given.items()})
    except RuntimeError as error:
        raise InputError(f"OpenVINO cannot give the model these shapes: {last_line(error)}") from error
    return copy


def net_of_model(model: Any) -> Net:
    """The layers of a model, in the order in which OpenVINO writes them to a file."""
    inputs = list(model.get_parameters())  # first and in the model's order, as in a file
    nodes = inputs + [node for node in model.get_ordered_ops() if node.get_type_name() != PARAMETER]
    index = {node.get_name(): number for number, node in enumerate(nodes)}  # unlike friendly names, unique
    return Net(model.get_friendly_name(), in_order([_layer(node, index) for node in nodes]))


def read_openvino(path: Path) -> Any:
    """The model of a file, read by OpenVINO."""
    try:
        return openvino_module().Core().read_model(str(path))
    except RuntimeError as error:
        raise InputError(
            f"OpenVINO cannot read the model: {last_line(error)}",
            hint="to work out shapes, OpenVINO needs the .bin file beside the .xml",
        ) from error


def _layer(node: Any, index: Mapping[str, int]) -> Layer:
    sources = [entry.get_source_output() for entry in node.inputs()]
    bodies = tuple(net_of_model(body) for body in _bodies(node))
    return Layer(
        node.get_friendly_name(),
        node.get_type_name(),
        tuple((index[source.get_node().get_name()], source.get_index()) for source in sources),
        tuple(_port(output) for output in node.outputs()),
        {str(word): _text(value) for word, value in node.get_attributes().items()},
        bodies,
        _rounds(node) if bodies else 1,
    )


def _port(output: Any) -> Port:
    partial = output.get_partial_shape()
    shape = None
    if partial.rank.is_static:
        shape = tuple(map(_size, partial))
    return Port(element_name(output.get_element_type().get_type_name()), shape, tuple(sorted(output.get_names())))


def _size(dimension: Any) -> int:
    """A number, a limit, or neither."""
    if dimension.is_static:
        return int(dimension.get_length())
    most = int(dimension.get_max_length())  # negative where there is none
    return OPEN_SIZE if most < 0 else Size(most)


def _bodies(node: Any) -> list[Any]:
    if node.get_type_name() == "If":
        return [node.get_then_body(), node.get_else_body()]
    return [node.get_function()] if node.get_type_name() in ("Loop", "TensorIterator") else []


def _rounds(node: Any) -> int:
    """How often a body runs, from the first tensor that is cut into parts or joined from them."""
    if node.get_type_name() == "If":
        return 1
    entries = [(entry, node.input_value(entry.input_index)) for entry in node.get_input_descriptions()]
    entries += [(entry, node.output(entry.output_index)) for entry in node.get_output_descriptions()]
    for entry, port in entries:
        axis, shape = getattr(entry, "axis", None), _port(port).shape or ()
        if axis is not None and -len(shape) <= axis < len(shape) and shape[axis] > 0:
            return rounds_of(shape[axis], int(entry.part_size))
    return Size(1, guessed=True)


def _text(value: object) -> str:
    """An attribute as a file spells it."""
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
