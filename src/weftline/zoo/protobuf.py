"""Recorded network -> ONNX ModelProto, with the values of its weights or with pointers to where they would lie.

In: a `Builder`. Out: a ModelProto of opset 17 that holds the shape of every tensor. Equal recordings and seeds
give equal bytes. Simplified: without weights the external file is only named, never written.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

if TYPE_CHECKING:
    from weftline.zoo.builder import Builder, Parameter, RecordedNode, Value

__all__ = ["WEIGHT_ALIGNMENT", "point_outside", "to_model"]

OPSET_VERSION = 17
IR_VERSION = 8
WEIGHT_ALIGNMENT = 4096
"""Each tensor of a weight file starts at a multiple of this, so that a runtime can map it."""

_ELEMENT = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "bool": TensorProto.BOOL}


def to_model(builder: Builder) -> onnx.ModelProto:
    """The ONNX model of a recorded network."""
    graph = helper.make_graph(
        [_node(node) for node in builder.nodes],
        builder.name,
        [_value(value) for value in builder.inputs],
        [_value(value) for value in builder.outputs],
        value_info=[_value(value) for value in builder.made.values()],
    )
    offset = 0
    for name, parameter in builder.parameters.items():
        tensor = graph.initializer.add(name=name, dims=parameter.shape, data_type=TensorProto.FLOAT)
        if builder.weights:
            tensor.raw_data = _draw(builder.seed, name, parameter).tobytes()
        else:
            point_outside(tensor, f"{builder.name}.weights", offset, parameter.bytes)
            offset += -(-parameter.bytes // WEIGHT_ALIGNMENT) * WEIGHT_ALIGNMENT
    graph.initializer.extend(_constant(name, array) for name, array in builder.constants.items())
    opsets = [helper.make_opsetid("", OPSET_VERSION)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="weftline")


def point_outside(tensor: TensorProto, location: str, offset: int, length: int) -> None:
    """Make a tensor say that its values lie in another file."""
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))


def _draw(seed: int, name: str, parameter: Parameter) -> NDArray[np.float32]:
    words = np.frombuffer(hashlib.sha256(name.encode()).digest(), "<u4")
    values = np.random.default_rng([seed, *words.tolist()]).standard_normal(parameter.shape, np.float32)
    values *= np.float32(parameter.scale)
    values += np.float32(parameter.mean)
    return values.astype("<f4", copy=False)


def _node(node: RecordedNode) -> onnx.NodeProto:
    attributes = {
        key: _constant("", value) if isinstance(value, np.ndarray) else value for key, value in node.attributes.items()
    }
    return helper.make_node(node.kind, node.inputs, node.outputs, name=node.name, **attributes)


def _value(value: Value) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(value.name, _ELEMENT[value.dtype], value.shape)


def _constant(name: str, array: NDArray[np.generic]) -> TensorProto:
    """Typed fields instead of raw bytes: small numbers take one byte each."""
    return helper.make_tensor(name, _ELEMENT[array.dtype.name], array.shape, array.ravel().tolist())
