"""Example inputs for models of the zoo and for others."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from weftline import zoo
from weftline.errors import InputError, UsageError


def _model(*inputs: onnx.ValueInfoProto) -> onnx.ModelProto:
    return helper.make_model(helper.make_graph([], "m", inputs, []))


def test_kinds_of_inputs() -> None:
    """Tests that pixels are normal, ids lie in their table, token types in theirs, and masks are ones."""
    inputs = zoo.example_inputs(zoo.build("flava", size="small", batch=64, vocabulary=50))
    assert inputs["pixel_values"].dtype == np.float32
    assert abs(inputs["pixel_values"].std() - 1) < 0.1
    assert set(np.unique(inputs["input_ids"])) == set(range(50))
    assert set(np.unique(inputs["token_type_ids"])) == {0, 1}
    assert (inputs["attention_mask"] == 1).all()
    assert inputs["input_ids"].dtype == inputs["attention_mask"].dtype == np.int64


def test_seeds() -> None:
    """Tests that the same seed gives the same inputs and another one others."""
    model = zoo.build("unet", size="small", weights=False)
    first, again, other = (zoo.example_inputs(model, seed=seed)["input"] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    with pytest.raises(UsageError, match="negative"):
        zoo.example_inputs(model, seed=-1)


def test_other_element_types() -> None:
    """Tests that half floats, booleans and bare integers get values of their type."""
    model = _model(
        helper.make_tensor_value_info("half", TensorProto.FLOAT16, [3]),
        helper.make_tensor_value_info("flag", TensorProto.BOOL, [3]),
        helper.make_tensor_value_info("count", TensorProto.INT32, [30]),
    )
    inputs = zoo.example_inputs(model)
    assert [value.dtype.name for value in inputs.values()] == ["float16", "bool", "int32"]
    assert inputs["flag"].all()
    assert set(inputs["count"]) == {0, 1}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3]), "fixed shape"),
        (helper.make_tensor_value_info("x", TensorProto.FLOAT, None), "fixed shape"),
        (helper.make_tensor_value_info("x", TensorProto.FLOAT, [-4]), "fixed shape"),
        (helper.make_tensor_value_info("x", TensorProto.FLOAT, [2**20, 2**20]), "more than"),
        (helper.make_tensor_value_info("x", TensorProto.STRING, [3]), "have no example"),
        (helper.make_tensor_value_info("x", 999, [3]), "not known"),
    ],
)
def test_impossible_inputs(value: onnx.ValueInfoProto, message: str) -> None:
    """Tests that an input without a fixed shape or a usual type is refused by name."""
    with pytest.raises(InputError, match=message) as error:
        zoo.example_inputs(_model(value))
    assert error.value.where == "input 'x'"
