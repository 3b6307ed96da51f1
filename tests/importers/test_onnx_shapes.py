"""Input shapes: fixed, symbolic, given by the user."""

from __future__ import annotations

from typing import Any

import pytest
from onnx import TensorProto, helper

from weftline.errors import InputError
from weftline.graph import Graph
from weftline.importers.onnx.model import graph_of_model
from weftline.importers.registry import ImportOptions


def _read(
    shapes: dict[str, tuple[int, ...]], first: Any, second: Any = (1,), dims: dict[str, int] | None = None
) -> Graph:
    nodes = [helper.make_node("Relu", ["a"], ["y"]), helper.make_node("Relu", ["b"], ["z"])]
    value = helper.make_tensor_value_info
    inputs = [value("a", TensorProto.FLOAT, first), value("b", TensorProto.FLOAT, second)]
    outputs = [value("y", TensorProto.FLOAT, first), value("z", TensorProto.FLOAT, None)]
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs))
    return graph_of_model(model, ImportOptions(shapes=shapes, dims=dims or {}))


def _shape(graph: Graph, name: str) -> tuple[int, ...]:
    return next(tensor.shape for tensor in graph.tensors if tensor.name == name)


@pytest.mark.parametrize("first", [["N", 3], ["batch_size", 3], [None, 3], [-1, 3]])
def test_symbolic_dimension_is_an_error_with_the_way_out(first: list[Any]) -> None:
    """Tests that an open dimension names the input, the dimension and the option to use."""
    with pytest.raises(InputError) as caught:
        _read({}, first)
    assert caught.value.where == "input 'a'"
    assert "dimension 0" in caught.value.what
    assert not isinstance(first[0], str) or first[0] in caught.value.what
    wanted = f"--dim {first[0]}=..." if isinstance(first[0], str) else "--shape a=?x3, with a number for each ?"
    assert caught.value.hint == f"try {wanted}"


def test_a_hint_holds_no_guess() -> None:
    """Tests that a hint has the file's own sizes and the names of all that is open, on other inputs too."""
    with pytest.raises(InputError) as caught:
        _read({}, ["batch", 3, "height", "width"], ["batch", "past + 1"])
    assert caught.value.hint == "try --dim batch=... --dim height=... --dim width=... --dim 'past + 1=...'"
    with pytest.raises(InputError) as caught:
        _read({}, ["batch", 3, None, 8])
    assert "--shape a=?x3x?x8" in caught.value.hint


def test_unknown_rank_is_an_error() -> None:
    """Tests that an input without any shape is refused with a hint."""
    with pytest.raises(InputError, match=r"input 'a'.*--shape a="):
        _read({}, None)


def test_given_shape_is_used() -> None:
    """Tests that a given shape flows through the graph, over symbols, unknown dimensions and unknown ranks."""
    for first in (["N", 3], [None, None], None):
        assert _shape(_read({"a": (8, 3)}, first), "y") == (8, 3)


def test_symbol_is_filled_in_elsewhere() -> None:
    """Tests that a symbol fixed on one input holds on the others."""
    assert _shape(_read({"a": (8, 3)}, ["N", 3], ["N", 5]), "z") == (8, 5)


def test_a_symbol_has_one_size() -> None:
    """Tests that two sizes for one symbol, by shapes or by name, are refused, and that both are named."""
    with pytest.raises(InputError, match=r"'N'.*--shape a=8x3 and --shape b=4 give it two sizes: 8 and 4"):
        _read({"a": (8, 3), "b": (4,)}, ["N", 3], ["N"])
    with pytest.raises(InputError, match=r"'N'.*--dim N=4 and --shape a=8x3 give it two sizes"):
        _read({"a": (8, 3)}, ["N", 3], ["N"], {"N": 4})
    with pytest.raises(InputError, match=r"'N'.*--shape a=8x4 give it two sizes: 8 and 4"):
        _read({"a": (8, 4)}, ["N", "N"])
    assert _shape(_read({"a": (8, 3)}, ["N", 3], ["N"], {"N": 8}), "z") == (8,)


def test_dimensions_by_name() -> None:
    """Tests that a symbol is set wherever it stands, together with others and with shapes."""
    graph = _read({}, ["N", 3, "M"], ["M", "N"], {"N": 8, "M": 5})
    assert (_shape(graph, "y"), _shape(graph, "z")) == ((8, 3, 5), (5, 8))
    assert _shape(_read({"b": (7,)}, ["N", 3], [None], {"N": 8}), "y") == (8, 3)


@pytest.mark.parametrize(
    ("first", "dims", "message"),
    [
        (["N", "height"], {"batch": 1}, r"'batch', which the model does not have.*symbols: N, height"),
        ([1, 3], {"batch": 1}, r"'batch', which the model does not have.*numbers"),
        (["N", 3], {"N": -1}, r"'N'.*-1 is not a whole number"),
        (["N", 3], {"N": 2**60}, "absurdly large"),
    ],
)
def test_wrong_dimensions(first: list[Any], dims: dict[str, int], message: str) -> None:
    """Tests that a name that no input has, or a size that makes no sense, is refused."""
    with pytest.raises(InputError, match=message):
        _read({}, first, dims=dims)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"ghost": (1,)}, r"'ghost'.*not an input.*inputs: a, b"),
        ({"a": (1, 3, 3)}, r"input 'a'.*3 dimensions, not 2"),
        ({"a": (1, 4)}, r"input 'a'.*1x4 contradicts.*Nx3"),
        ({"a": (-1, 3)}, r"input 'a'.*negative"),
        ({"a": (2**60, 3)}, r"tensor 'a'.*absurdly large"),
    ],
)
def test_wrong_shapes(shapes: dict[str, tuple[int, ...]], message: str) -> None:
    """Tests that a shape for no input, of the wrong rank, contradictory, negative or absurd is refused."""
    with pytest.raises(InputError, match=message):
        _read(shapes, ["N", 3])


def test_zero_is_a_size() -> None:
    """Tests that an empty past (length 0) can be given, and costs nothing."""
    graph = _read({"a": (0, 3)}, ["N", 3])
    assert _shape(graph, "y") == (0, 3)
    assert graph.ops[0].flops == 0
