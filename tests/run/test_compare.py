"""Tests of how outputs are compared: by kind, and by the arithmetic of the model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from weftline.graph import Op, Tensor, assemble
from weftline.run.compare import PRECISIONS, as_numbers, output_difference, precision_of
from weftline.run.local.slots import pack_value, unpack_value

FLOAT32 = PRECISIONS["float32"]


@pytest.mark.parametrize(
    ("kinds", "dtypes", "name"),
    [
        (["MatMul"], ["float32"], "float32"),
        (["MatMul"], ["float64"], "float32"),
        (["Cast"], ["float32", "float16"], "float16"),
        (["Cast"], ["float16", "bfloat16"], "bfloat16"),
        (["QuantizeLinear"], ["float32"], "8 bits"),
        (["QLinearConv"], ["uint8"], "8 bits"),
        (["DynamicQuantizeMatMul"], ["float16"], "8 bits"),
        (["DequantizeLinear", "MatMulNBits"], ["float32"], "float32"),
    ],
)
def test_precision(kinds: list[str], dtypes: list[str], name: str) -> None:
    """Tests that the coarsest arithmetic counts, and that stored weights of few bits are none."""
    ops = [Op(f"op{number}", kind) for number, kind in enumerate(kinds)]
    tensors = [Tensor(f"t{number}", 0, (), 4, (1,), dtype, True) for number, dtype in enumerate(dtypes)]
    assert precision_of(assemble("g", ops, tensors, ())).name == name


def test_values_of_every_kind() -> None:
    """Tests lists, maps, text, None, holes and whole numbers; numbers that are no steps of a scale are exact."""
    one = np.array([1.0, np.nan, 2.0], np.float32)
    text = np.array(["a", "b"], object)
    values: list[Any] = [one, [one, one], {"x": one, 3: text}, text, None, np.array([True, False]), []]
    for value in values:
        assert output_difference(value, unpack_value(pack_value(value)), FLOAT32) == 0
    assert output_difference([one], [one, one], FLOAT32) == math.inf
    assert output_difference({"x": one}, {"y": one}, FLOAT32) == math.inf
    assert output_difference(None, one, FLOAT32) == math.inf
    assert output_difference(text, np.array(["a", "c"], object), FLOAT32) == math.inf
    a, b = np.array([7, 200], np.uint8), np.array([8, 200], np.uint8)
    assert output_difference(a, b, FLOAT32) == math.inf
    assert output_difference(a, b, PRECISIONS["8 bits"]) == pytest.approx(1 / 255)
    assert output_difference(a.astype(np.int64), b.astype(np.int64), PRECISIONS["8 bits"]) == math.inf


def test_bits_of_bfloat16_are_numbers() -> None:
    """Tests that types that numpy lacks are compared as what they mean."""
    bits = np.array([0x3F80, 0x4000], np.uint16)
    assert as_numbers(bits, "bfloat16").tolist() == [1, 2]
    near = as_numbers(bits + np.uint16(1), "bfloat16")
    found = output_difference(near, as_numbers(bits, "bfloat16"), PRECISIONS["bfloat16"])
    assert 0 < found < PRECISIONS["bfloat16"].tolerance
