"""Sizes that are not known before the model runs: upper bounds, guesses, notes, symbols inside the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from weftline.errors import InputError
from weftline.graph import Graph, Tensor
from weftline.importers.onnx.model import graph_of_model
from weftline.importers.onnx.sizes import Size, broadcast, is_guessed, largest, least
from weftline.importers.registry import ImportOptions

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Node = helper.make_node


def _read(
    nodes: list[Any],
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    weights: dict[str, Any] | None = None,
    notes: dict[str, Any] | None = None,
    dims: dict[str, int] | None = None,
) -> Graph:
    value = helper.make_tensor_value_info
    given = [value(name, INT64 if name.startswith("ids") else FLOAT, shape) for name, shape in inputs.items()]
    stored = [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()]
    ends = [value(name, FLOAT if shape else 0, shape) for name, shape in outputs.items()]
    said = [value(name, FLOAT, shape) for name, shape in (notes or {}).items()]
    graph = helper.make_graph(nodes, "g", given, ends, stored, value_info=said)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("somebody", 1)]
    return graph_of_model(helper.make_model(graph, opset_imports=opsets), ImportOptions(dims=dims or {}))


def _tensors(graph: Graph) -> dict[str, Tensor]:
    return {tensor.name: tensor for tensor in graph.tensors}


def _seen(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.dynamic, tensor.guessed


ROWS = [Node("NonZero", ["m"], ["where"]), Node("Transpose", ["where"], ["t"]), Node("GatherND", ["x", "t"], ["rows"])]
"""At most 6 rows of 8 numbers: `rows`."""
MODEL = {"x": [6, 8], "m": [6]}


@pytest.mark.parametrize(
    ("nodes", "weights", "name", "seen"),
    [
        ([], {}, "rows", ((6, 8), (0,), False)),
        ([Node("Relu", ["rows"], ["y"])], {}, "y", ((6, 8), (0,), False)),
        ([Node("MatMul", ["rows", "w"], ["y"])], {"w": np.ones((8, 5), np.float32)}, "y", ((6, 5), (0,), False)),
        ([Node("Concat", ["rows", "x"], ["y"], axis=0)], {}, "y", ((12, 8), (0,), False)),
        ([Node("Reshape", ["rows", "s"], ["y"])], {"s": [-1, 4]}, "y", ((12, 4), (0,), False)),
        ([Node("Reshape", ["rows", "s"], ["y"])], {"s": [0, 2, 4]}, "y", ((6, 2, 4), (0,), False)),
        ([Node("ReduceSum", ["rows", "s"], ["y"])], {"s": [0]}, "y", ((1, 8), (), False)),
        ([Node("Slice", ["rows", "a", "b", "c"], ["y"])], {"a": [1], "b": [4], "c": [0]}, "y", ((3, 8), (0,), False)),
        ([Node("Slice", ["rows", "a", "b", "c"], ["y"])], {"a": [0], "b": [9], "c": [1]}, "y", ((6, 8), (0,), False)),
        ([Node("Tile", ["rows", "s"], ["y"])], {"s": [2, 3]}, "y", ((12, 24), (0,), False)),
        ([Node("Unique", ["x"], ["y", "", "i"])], {}, "y", ((48,), (0,), False)),
        ([Node("Unique", ["x"], ["u", "", "y"])], {}, "y", ((48,), (), False)),
        ([Node("Somebody", ["x"], ["y"], domain="somebody")], {}, "y", ((6, 8), (0, 1), True)),
    ],
)
def test_what_follows_from_a_bound(nodes: list[Any], weights: dict[str, Any], name: str, seen: Any) -> None:
    """Tests that a size which data decides stays an upper bound, and that exact axes stay exact."""
    stored = {key: value if isinstance(value, np.ndarray) else np.array(value) for key, value in weights.items()}
    graph = _read([*ROWS, *nodes], MODEL, {name: None}, stored)
    assert _seen(_tensors(graph)[name]) == seen
    assert bool(graph.guessed) == seen[2]


def test_partly_known_shape_vectors() -> None:
    """Tests that the known entries of a computed shape are kept beside those that data decides."""
    nodes = [
        *ROWS,
        Node("Shape", ["rows"], ["s"]),
        Node("Gather", ["s", "zero"], ["n"]),
        Node("Concat", ["n", "two", "minus"], ["target"], axis=0),
        Node("Reshape", ["rows", "target"], ["y"]),
        Node("Concat", ["n", "two"], ["pair"], axis=0),
        Node("ConstantOfShape", ["pair"], ["z"]),
        Node("Min", ["n", "two"], ["k"]),
        Node("TopK", ["x", "k"], ["v", "i"], axis=1),
        Node("Equal", ["pair", "minus"], ["no"]),
        Node("Where", ["no", "two", "pair"], ["wide"]),
        Node("Expand", ["one", "wide"], ["e"]),
    ]
    weights = {"zero": np.array([0]), "two": np.array([2]), "minus": np.array([-1]), "one": np.ones((1, 1), np.float32)}
    found = _tensors(_read(nodes, MODEL, dict.fromkeys(("y", "z", "v", "e")), weights))
    assert _seen(found["y"]) == ((6, 2, 4), (0,), False)
    assert _seen(found["z"]) == ((6, 2), (0,), False)
    assert _seen(found["v"]) == ((6, 2), (1,), False)
    assert _seen(found["e"]) == ((6, 2), (0,), False)


def test_a_shape_that_only_the_caller_knows() -> None:
    """Tests that stand-ins are called guesses, that the number of elements holds, and that one unknown follows."""
    nodes = [Node("Reshape", ["x", "ids"], ["y"]), Node("Relu", ["y"], ["z"])]
    graph = _read(nodes, {"x": [6, 4], "ids": [3]}, {"z": None})
    assert _tensors(graph)["z"].guessed
    assert _tensors(graph)["z"].bytes == 96
    assert [op.name for op in graph.guessed] == ["z"]
    joined = [Node("Concat", ["ids", "four"], ["s"], axis=0), *nodes[1:], Node("Reshape", ["x", "s"], ["y"])]
    graph = _read(joined, {"x": [6, 4], "ids": [1]}, {"z": None}, {"four": np.array([4])})
    assert _seen(_tensors(graph)["z"]) == ((6, 4), (), False)
    assert not graph.guessed


def test_a_range_to_a_value_that_data_decides() -> None:
    """Tests that its length is a guess of the size of the model's inputs, not 1."""
    nodes = [Node("Range", ["zero", "ids", "one"], ["r"]), Node("Cast", ["r"], ["y"], to=FLOAT)]
    graph = _read(nodes, {"ids": [], "x": [6, 40]}, {"y": None}, {"zero": np.array(0), "one": np.array(1)})
    assert _seen(_tensors(graph)["y"]) == ((40,), (0,), True)
    assert graph.ops[-1].guessed


def test_symbols_inside_the_model_can_be_set() -> None:
    """Tests `--dim` for a symbol that stands in outputs and notes alone."""
    nodes = [Node("Somebody", ["x"], ["a"], domain="somebody"), Node("Relu", ["a"], ["y"])]
    asked: dict[str, Any] = {"inputs": {"x": [6, 8]}, "outputs": {"y": ["found", 4]}, "notes": {"a": ["found", 4]}}
    assert _read(nodes, **asked).guessed
    graph = _read(nodes, **asked, dims={"found": 100})
    assert _seen(_tensors(graph)["y"]) == ((100, 4), (0, 1), False)
    assert not graph.guessed
    with pytest.raises(InputError, match=r"'lost', which the model does not have.*found"):
        _read(nodes, **asked, dims={"lost": 1})


def test_inner_dimensions_that_disagree() -> None:
    """Tests that a matrix product which cannot be is refused, and that both makers and shapes are named."""
    nodes = [Node("Relu", ["x"], ["a"], name="left"), Node("MatMul", ["a", "w"], ["y"], name="product")]
    told = r"'product' \(MatMul\).*8 and 5 disagree.*'left' \(Relu\) makes 6x8.*'w' makes 5x3"
    with pytest.raises(InputError, match=told):
        _read(nodes, {"x": [6, 8]}, {"y": None}, {"w": np.ones((5, 3), np.float32)})
    gemm = [Node("Gemm", ["x", "w"], ["y"], transB=1)]
    assert _tensors(_read(gemm, {"x": [6, 8]}, {"y": None}, {"w": np.ones((3, 8), np.float32)}))["y"].shape == (6, 3)


@pytest.mark.parametrize("size", [320, 640])
def test_shape_arithmetic_of_a_detector(size: int) -> None:
    """Tests the way Faster R-CNN scales its image: a ratio by Reciprocal, Floor, Cast, Resize; then boxes by NMS and a
    head for each of at most 100. Flops are counted again by hand."""
    nodes = [
        Node("Shape", ["x"], ["s"]),
        Node("Slice", ["s", "two", "four"], ["hw"]),
        Node("Cast", ["hw"], ["f"], to=FLOAT),
        Node("ReduceMin", ["f"], ["least"], keepdims=0),
        Node("Reciprocal", ["least"], ["r"]),
        Node("Mul", ["r", "wanted"], ["ratio"]),
        Node("Mul", ["f", "ratio"], ["scaled"]),
        Node("Floor", ["scaled"], ["floor"]),
        Node("Cast", ["floor"], ["whole"], to=INT64),
        Node("Concat", ["nc", "whole"], ["sizes"], axis=0),
        Node("Resize", ["x", "", "", "sizes"], ["big"]),
        Node("Conv", ["big", "w"], ["features"]),
        Node("NonMaxSuppression", ["boxes", "scores", "most"], ["kept"]),
        Node("Gather", ["kept", "last"], ["index"], axis=1),
        Node("Shape", ["index"], ["n"]),
        Node("Min", ["n", "hundred"], ["k"]),
        Node("Slice", ["index", "none", "k"], ["first"]),
        Node("Gather", ["vectors", "first"], ["rois"], axis=0),
        Node("MatMul", ["rois", "head"], ["y"]),
    ]
    ints = {"two": [2], "four": [4], "nc": [1, 3], "most": [1000], "last": 2, "hundred": [100], "none": [0]}
    weights: dict[str, Any] = {name: np.array(value, np.int64) for name, value in ints.items()}
    weights |= {
        "wanted": np.float32(800),
        "w": np.ones((16, 3, 1, 1), np.float32),
        "head": np.ones((64, 9), np.float32),
    }
    inputs = {"x": [1, 3, size, size], "boxes": [1, 2000, 4], "scores": [1, 1, 2000], "vectors": [2000, 64]}
    graph = _read(nodes, inputs, {"features": None, "y": None}, weights)
    found = _tensors(graph)
    assert _seen(found["features"]) == ((1, 16, 800, 800), (), False)
    assert _seen(found["kept"]) == ((1000, 3), (0,), False)
    assert _seen(found["y"]) == ((100, 9), (0,), False)
    work = {op.kind: op.flops for op in graph.ops}
    assert work["Conv"] == 2 * 800 * 800 * 16 * 3
    assert work["MatMul"] == 2 * 100 * 64 * 9
    assert not graph.guessed


def _body(nodes: list[Any], ends: list[str]) -> Any:
    value = helper.make_tensor_value_info
    given = [value("i", INT64, []), value("going", BOOL, []), value("s", FLOAT, None)]
    return helper.make_graph(nodes, "body", given, [value(name, 0, None) for name in ends])


def test_loops() -> None:
    """Tests rounds that a condition may end, that nobody limits, and a value that grows."""
    stops = [Node("ReduceMax", ["s"], ["top"], keepdims=0), Node("Less", ["top", "ten"], ["go"])]
    body = _body([*stops, Node("Exp", ["s"], ["n"]), Node("Identity", ["n"], ["out"])], ["go", "n", "out"])
    nodes = [Node("Loop", ["trips", "", "x"], ["last", "all"], body=body)]
    weights = {"trips": np.array(7), "ten": np.float32(10)}
    found = _tensors(_read(nodes, {"x": [2, 3]}, {"last": None, "all": None}, weights))
    assert _seen(found["all"]) == ((7, 2, 3), (0,), False)
    assert _seen(found["last"]) == ((2, 3), (), False)
    graph = _read(nodes, {"x": [2, 3]}, {"last": None, "all": None}, {**weights, "trips": np.array(2**63 - 1)})
    assert graph.ops[0].guessed
    assert _tensors(graph)["all"].guessed
    grows = _body([Node("Identity", ["going"], ["go"]), Node("Concat", ["s", "x"], ["n"], axis=0)], ["go", "n"])
    found = _tensors(_read([Node("Loop", ["trips", "", "x"], ["y"], body=grows)], {"x": [2, 3]}, {"y": None}, weights))
    assert found["y"].shape == (16, 3)
    assert found["y"].dynamic == (0,)


def test_branches() -> None:
    """Tests that a known condition takes its branch alone, and that an unknown one takes the larger size."""
    value = helper.make_tensor_value_info

    def choice(condition: list[Any], weights: dict[str, Any]) -> Graph:
        one = helper.make_graph([Node("Relu", ["x"], ["a"])], "one", [], [value("a", FLOAT, None)])
        two = helper.make_graph([Node("Concat", ["x", "x"], ["b"], axis=0)], "two", [], [value("b", FLOAT, None)])
        both = Node("If", ["c"], ["y"], then_branch=one, else_branch=two)
        return _read([*condition, both], {"x": [2, 3]}, {"y": None}, weights)

    unknown = choice([Node("ReduceMax", ["x"], ["m"], keepdims=0), Node("Cast", ["m"], ["c"], to=BOOL)], {})
    assert _seen(_tensors(unknown)["y"]) == ((4, 3), (0,), False)
    asked = [Node("Shape", ["x"], ["s"]), Node("Gather", ["s", "zero"], ["n"]), Node("Equal", ["n", "two"], ["c"])]
    known = choice(asked, {"zero": np.array(0), "two": np.array(2)})
    assert _seen(_tensors(known)["y"]) == ((2, 3), (), False)
    assert {op.kind: op.flops for op in known.ops}["If"] == 6


def test_sizes() -> None:
    """Tests what arithmetic keeps: upper bounds through sums and products, guesses through everything."""
    most, guess = Size(5, symbol="n"), Size(5, guessed=True)
    assert (most + 1, most * 2, 2 * most, most // 2) == (6, 10, 10, 2)
    assert not any(map(is_guessed, (most + 1, 3 * most, most - 1, most + most, most // 2)))
    assert all(map(is_guessed, (guess + 1, most * guess, 9 - most, 9 // most, most - Size(1), -most)))
    assert (most * 1).symbol == "n"
    assert not isinstance(least(3, 4), Size)
    assert (least(guess, 3), is_guessed(least(guess, 3)), is_guessed(least(guess, 9))) == (3, False, False)
    assert is_guessed(largest(guess, 3))
    assert broadcast((most, 1), (7,)) == (5, 7)
    assert broadcast((most,), (7,)) == (7,)
    with pytest.raises(ValueError, match="do not fit"):
        broadcast((2,), (3,))


def test_what_is_exact_is_rounded_beside_what_is_not() -> None:
    """Tests that half of 5 rounded up is 3, although the number beside it is only known when the model runs."""
    nodes = [
        *ROWS,
        Node("Shape", ["five"], ["fixed"]),
        Node("Shape", ["rows"], ["open"]),
        Node("Concat", ["open", "fixed"], ["sizes"], axis=0),
        Node("Cast", ["sizes"], ["floats"], to=FLOAT),
        Node("Mul", ["floats", "half"], ["halves"]),
        Node("Ceil", ["halves"], ["up"]),
        Node("Cast", ["up"], ["whole"], to=INT64),
        Node("ConstantOfShape", ["whole"], ["y"]),
    ]
    weights = {"half": np.array([0.5], np.float32)}
    graph = _read(nodes, {**MODEL, "five": [5]}, {"y": None}, weights)
    tensor = _tensors(graph)["y"]
    assert tensor.shape == (3, 4, 3)
    assert tensor.dynamic == (0,)


def test_no_axis_is_less_than_nothing() -> None:
    """Tests that a part of rows that may not be there is no error."""
    cut = {"starts": [0], "ends": [-9], "axes": [0]}
    graph = _read([*ROWS, Node("Slice", ["rows", "starts", "ends", "axes"], ["y"])], MODEL, {"y": None}, cut)
    assert _tensors(graph)["y"].shape[0] == 0
