"""Sizes and names of element types."""

from __future__ import annotations

import pytest
from onnx import TensorProto, TypeProto, helper

from weftline.errors import InputError
from weftline.importers.onnx.call import TensorType, declared_type, tensor_type


@pytest.mark.parametrize(
    ("element", "shape", "size", "dtype"),
    [
        (TensorProto.FLOAT, (2, 3), 24, "float32"),
        (TensorProto.DOUBLE, (2, 3), 48, "float64"),
        (TensorProto.FLOAT16, (2, 3), 12, "float16"),
        (TensorProto.BFLOAT16, (5,), 10, "bfloat16"),
        (TensorProto.FLOAT8E4M3FN, (5,), 5, "float8_e4m3fn"),
        (TensorProto.BOOL, (7,), 7, "bool"),
        (TensorProto.INT8, (7,), 7, "int8"),
        (TensorProto.INT64, (), 8, "int64"),
        (TensorProto.INT4, (4, 4), 8, "int4"),
        (TensorProto.INT4, (7,), 4, "int4"),
        (TensorProto.UINT4, (1,), 1, "uint4"),
        (TensorProto.COMPLEX64, (2,), 16, "complex64"),
        (TensorProto.FLOAT, (0, 5), 0, "float32"),
    ],
)
def test_bytes_and_names(element: int, shape: tuple[int, ...], size: int, dtype: str) -> None:
    """Tests that sizes are exact, packed below one byte, and that names are numpy's."""
    kind = TensorType(element, shape)
    assert (kind.bytes, kind.dtype) == (size, dtype)


def test_every_element_type_is_known() -> None:
    """Tests that the installed onnx has no element type without a size."""
    known = [number for name, number in TensorProto.DataType.items() if name != "UNDEFINED"]
    assert [number for number in known if not TensorType(number, ()).dtype] == []


def test_sequences_count_every_tensor() -> None:
    """Tests that a sequence is as large as its tensors together."""
    assert TensorType(TensorProto.FLOAT, (3,), 4).bytes == 48


@pytest.mark.parametrize("shape", [(-1,), (2**40, 2**40), (1,) * 65])
def test_impossible_shapes(shape: tuple[int, ...]) -> None:
    """Tests that negative, absurd and over-long shapes are refused."""
    with pytest.raises(InputError, match="tensor 't'"):
        tensor_type("t", TensorProto.FLOAT, shape)


def test_declared_dimensions() -> None:
    """Tests that numbers, symbols and unknown dimensions of a declared type are told apart."""
    proto = helper.make_tensor_type_proto(TensorProto.FLOAT, [2, "N", None, -1])
    assert declared_type(proto) == (TensorProto.FLOAT, [2, "N", None, None])
    assert declared_type(helper.make_sequence_type_proto(proto)) == (TensorProto.FLOAT, [2, "N", None, None])
    assert declared_type(helper.make_tensor_type_proto(TensorProto.INT8, None)) == (TensorProto.INT8, None)
    assert declared_type(TypeProto()) == (0, None)
