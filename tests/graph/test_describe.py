"""A model in a few words."""

from __future__ import annotations

import pytest

from weftline.graph import Graph, Op, Tensor, Tied, assemble
from weftline.graph.describe import halved_weights, input_words, model_words, precision, weight_bytes


def _graph(kind: str = "MatMul", dtype: str = "float32", inputs: int = 1) -> Graph:
    given = [Tensor(f"in{i}", -1, (0,), 1024, (1, 128), "int64") for i in range(inputs)]
    made = [Tensor("x", 0, (1,), 4096, (1, 1024), dtype), Tensor("y", 1, (), 8, (1,), "bool", True)]
    ops = [Op("a", kind, weight_bytes=1 << 20), Op("b", "Relu")]
    return assemble("m", ops, [*given, *made], [Tied("w", 1 << 19, (0, 1))])


def test_words() -> None:
    """Tests inputs with shapes and types, and weights, those that are shared once, with their precision."""
    assert weight_bytes(_graph()) == (1 << 20) + (1 << 19)
    assert model_words(_graph()) == "inputs: in0 1x128 int64; weights: fp32, 1.5 MiB"
    assert input_words(_graph(inputs=6)).endswith("in3 1x128 int64 and 2 more")


@pytest.mark.parametrize(("dtype", "word"), [("float16", "fp16"), ("bfloat16", "bf16"), ("int8", ""), ("", "")])
def test_precision(dtype: str, word: str) -> None:
    """Tests that the precision is that of floating-point tensors, and nothing where there are none."""
    assert precision(_graph(dtype=dtype)) == word
    assert not halved_weights(_graph(dtype=dtype))


def test_quantised_weights_are_not_called_fp32() -> None:
    """Tests that activations alone have a precision where weights may have another."""
    assert halved_weights(_graph())
    assert not halved_weights(_graph("MatMulNBits"))
    assert model_words(_graph("MatMulNBits")) == "inputs: in0 1x128 int64; weights: 1.5 MiB; activations: fp32"


def test_nothing_is_known() -> None:
    """Tests a graph of costs alone."""
    assert model_words(assemble("m", [Op("a")], [])) == ""
