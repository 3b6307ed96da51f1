"""A live `openvino.Model` -> Graph, through OpenVINO's API; the same graph as that of the saved IR.

In: a model that OpenVINO read, converted or built. Out: the graph; op names are friendly names. No weight is looked at.
Simplified: see `graph`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weftline.errors import InputError, UsageError
from weftline.graph import Graph
from weftline.importers.openvino import last_line, openvino_module
from weftline.importers.openvino.graph import graph_of_net
from weftline.importers.openvino.layers import OPEN_SIZE, PARAMETER, Layer, Net, Port, element_name, in_order

__all__ = ["graph_of_openvino", "net_of_model", "reshaped"]


def graph_of_openvino(model: Any, name: str = "") -> Graph:
    """The graph of an `openvino.Model`; inputs must have static shapes (`model.reshape` gives them)."""
    if not hasattr(model, "get_ordered_ops") or not hasattr(model, "get_parameters"):
        raise UsageError(
            f"an openvino.Model is wanted, not {type(model).__name__}; openvino.Core().read_model gives one"
        )
    for parameter in model.get_parameters():
        shape = parameter.get_output_partial_shape(0)
        if shape.is_dynamic:
            raise InputError(
                f"shape {shape} is not fixed",
                where=f"input {parameter.get_friendly_name()[:80]!r}",
                hint="try model.reshape({name: shape}) first",
            )
    return graph_of_net(net_of_model(model), name)


def net_of_model(model: Any) -> Net:
    """The layers of a model, in the order in which OpenVINO writes them to a file."""
    inputs = list(model.get_parameters())  # first and in the model's order, as in a file
    nodes = inputs + [node for node in model.get_ordered_ops() if node.get_type_name() != PARAMETER]
    index = {node.get_name(): number for number, node in enumerate(nodes)}  # unlike friendly names, unique
    return Net(model.get_friendly_name(), in_order([_layer(node, index) for node in nodes]))


def reshaped(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """The model of a file with these shapes of inputs, worked out by OpenVINO."""
    core = openvino_module().Core()
    try:
        model = core.read_model(str(path))
    except RuntimeError as error:
        raise InputError(
            f"OpenVINO cannot read the model: {last_line(error)}",
            hint="to work out shapes, OpenVINO needs the .bin file beside the .xml",
        ) from error
    named = {}
    for parameter in model.get_parameters():
        words = (parameter.get_friendly_name(), *parameter.output(0).get_names())
        given = next((shapes[word] for word in words if word in shapes), None)
        if given is not None:
            named[parameter.output(0)] = list(given)
    try:
        model.reshape(named)
    except RuntimeError as error:
        raise InputError(f"OpenVINO cannot give the model these shapes: {last_line(error)}") from error
    return model


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
        shape = tuple(size.get_length() if size.is_static else OPEN_SIZE for size in partial)
    return Port(element_name(output.get_element_type().get_type_name()), shape, tuple(sorted(output.get_names())))


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
            return max(int(shape[axis]) // max(abs(int(entry.part_size)), 1), 1)
    return 1


def _text(value: object) -> str:
    """An attribute as a file spells it."""
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
