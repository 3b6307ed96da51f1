"""Element types of OpenVINO, as files and as the API spell them, and the type of a port.

In: `FP32` or `f32`. Out: `TensorType`, the same value that the ONNX importer uses. Simplified: types of an odd number
of bits count as the next wider one that ONNX has; what is open counts as 32-bit floating point.
"""

from __future__ import annotations

from onnx import TensorProto

from weftline.errors import InputError
from weftline.importers.onnx_types import FLOAT, TensorType, tensor_type
from weftline.importers.openvino_layers import UNKNOWN, Layer, Port

__all__ = ["element_name", "estimated_type", "port_type"]

_IN_FILES = {"fp64": "f64", "fp32": "f32", "fp16": "f16", "bool": "boolean", "bin": "u1"}
_IN_ONNX = {
    "f64": "DOUBLE",
    "f32": "FLOAT",
    "f16": "FLOAT16",
    "bf16": "BFLOAT16",
    "f8e4m3": "FLOAT8E4M3FN",
    "f8e5m2": "FLOAT8E5M2",
    "f8e8m0": "FLOAT8E8M0",
    "f4e2m1": "FLOAT4E2M1",
    "nf4": "UINT4",
    "boolean": "BOOL",
    "string": "STRING",
    **{f"{sign}{bits}": f"{word}{bits}" for bits in (4, 8, 16, 32, 64) for sign, word in (("i", "INT"), ("u", "UINT"))},
    "i2": "INT2",
    "u2": "UINT2",
    "u1": "UINT2",
    "u3": "UINT4",
    "u6": "UINT8",
}
_OLDER = {"INT2": "INT4", "UINT2": "UINT4", "FLOAT8E8M0": "UINT8", "FLOAT4E2M1": "UINT4"}
_NUMBERS: dict[str, int] = dict(TensorProto.DataType.items())


def element_name(word: str) -> str:
    """The API's word for a word of a file; empty where the type is open."""
    small = word.lower()
    small = _IN_FILES.get(small, small)
    return small if small in _IN_ONNX else ""


def port_type(layer: Layer, port: Port) -> TensorType:
    """The type of an output, all of whose dimensions must be known."""
    if not port.is_static:
        raise InputError(
            f"makes a tensor of shape {port.written}, which depends on the data",
            where=layer.place,
            hint="planning needs static shapes; give inputs a shape, or replace the layer",
        )
    return tensor_type(port.names[0] if port.names else layer.name, _element(port), port.shape)


def estimated_type(port: Port) -> TensorType:
    """The type of an output inside a body: what is open counts as 1."""
    shape = tuple(1 if size == UNKNOWN else size for size in port.shape or ())
    return tensor_type(port.names[0] if port.names else "", _element(port), shape)


def _element(port: Port) -> int:
    word = _IN_ONNX.get(port.element, "FLOAT")
    return _NUMBERS.get(word, _NUMBERS.get(_OLDER.get(word, ""), FLOAT))
