"""Types of intermediate tensors: computed shapes, data-dependent ones, fused kinds, guards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from weftline.graph import Graph
from weftline.importers.onnx.model import graph_of_model
from weftline.importers.registry import ImportOptions

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def _read(nodes: list[Any], inputs: dict[str, Any], outputs: list[str], weights: dict[str, Any] | None = None) -> Graph:
    value = helper.make_tensor_value_info
    given = [value(name, INT64 if name.startswith("ids") else FLOAT, shape) for name, shape in inputs.items()]
    stored = [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "g", given, [value(name, 0, None) for name in outputs], stored)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return graph_of_model(helper.make_model(graph, opset_imports=opsets), ImportOptions())


def _shapes(graph: Graph) -> dict[str, tuple[int, ...]]:
    return {tensor.name: tensor.shape for tensor in graph.tensors}


def test_shapes_computed_by_the_graph() -> None:
    """Tests the way exporters compute a shape: Shape, Gather, arithmetic, Concat, Where, Expand, Reshape, Range."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "one"], ["length"]),
        helper.make_node("Div", ["length", "two"], ["half"]),
        helper.make_node("Unsqueeze", ["half", "axes"], ["h"]),
        helper.make_node("Slice", ["s", "first", "second"], ["batch"]),
        helper.make_node("Concat", ["batch", "h", "minus"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["r"]),
        helper.make_node("Shape", ["target"], ["rank"]),
        helper.make_node("ConstantOfShape", ["rank"], ["ones"], value=helper.make_tensor("v", INT64, [1], [1])),
        helper.make_node("Equal", ["target", "minus"], ["open"]),
        helper.make_node("Where", ["open", "ones", "target"], ["wide"]),
        helper.make_node("Expand", ["scalar", "wide"], ["e"]),
        helper.make_node("Range", ["zero", "length", "step"], ["positions"]),
        helper.make_node("Cast", ["positions"], ["p"], to=FLOAT),
    ]
    weights = {"one": 1, "two": 2, "zero": 0, "step": 1, "axes": [0], "first": [0], "second": [1], "minus": [-1]}
    constants = {name: np.array(value, np.int64) for name, value in weights.items()}
    graph = _read(nodes, {"x": [3, 10, 4], "scalar": []}, ["r", "e", "p"], constants)
    shapes = _shapes(graph)
    assert shapes["r"] == (3, 5, 8)
    assert shapes["e"] == (3, 5, 1)
    assert shapes["p"] == (10,)


def test_data_dependent_shapes_are_bounded() -> None:
    """Tests that shapes which depend on data take their largest possible value, and that what follows is sized."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["where"]),
        helper.make_node("Transpose", ["where"], ["rows"]),
        helper.make_node("Unique", ["x"], ["u", "first", "inverse", "counts"]),
        helper.make_node("Compress", ["x", "mask"], ["c"], axis=0),
        helper.make_node("Cast", ["x"], ["mask2"], to=TensorProto.BOOL),
        helper.make_node("Reshape", ["mask2", "flat"], ["mask"]),
        helper.make_node("NonMaxSuppression", ["boxes", "scores", "most"], ["kept"]),
    ]
    inputs = {"x": [3, 4], "boxes": [2, 50, 4], "scores": [2, 3, 50]}
    weights = {"flat": np.array([-1]), "most": np.array([10])}
    shapes = _shapes(_read(nodes, inputs, ["rows", "u", "counts", "c", "kept"], weights))
    assert shapes["rows"] == (12, 2)
    assert shapes["u"] == shapes["counts"] == (12,)
    assert shapes["c"] == (3, 4)
    assert shapes["kept"] == (2 * 3 * 10, 3)


def test_unknown_reshape_keeps_the_elements() -> None:
    """Tests that a Reshape to a shape which only the caller knows holds as many elements as before."""
    nodes = [helper.make_node("Reshape", ["x", "ids"], ["y"]), helper.make_node("Relu", ["y"], ["z"])]
    graph = _read(nodes, {"x": [6, 4], "ids": [3]}, ["z"])
    assert [len(shape) for shape in (_shapes(graph)["y"], _shapes(graph)["z"])] == [3, 3]
    assert graph.tensors[-1].bytes == 96


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes", "shape"),
    [
        ("FusedMatMul", [(4, 7, 5), (4, 7, 3)], {"transA": 1}, (4, 5, 3)),
        ("MatMulNBits", [(2, 5, 64), (32, 2, 16), (64,)], {"K": 64, "N": 32}, (2, 5, 32)),
        ("Attention", [(2, 5, 24), (24, 72)], {"num_heads": 3}, (2, 5, 24)),
        ("MultiHeadAttention", [(2, 5, 24), (2, 7, 24), (2, 7, 12)], {"num_heads": 3}, (2, 5, 12)),
        ("MultiHeadAttention", [(2, 5, 3, 3, 8)], {"num_heads": 3}, (2, 5, 24)),
        ("GroupQueryAttention", [(2, 5, 40)], {"num_heads": 3, "kv_num_heads": 1}, (2, 5, 24)),
        ("BiasSplitGelu", [(2, 8), (8,)], {}, (2, 4)),
        ("QLinearAdd", [(2, 8), (), (), (8,), (), (), (), ()], {}, (2, 8)),
        ("QLinearConcat", [(), (), (2, 8), (), (), (3, 8), (), ()], {"axis": 0}, (5, 8)),
        ("QLinearGlobalAveragePool", [(2, 8, 5, 5), (), (), (), ()], {}, (2, 8, 1, 1)),
        ("Gelu", [(2, 8)], {}, (2, 8)),
    ],
)
def test_fused_shapes(kind: str, inputs: list[Any], attributes: dict[str, Any], shape: tuple[int, ...]) -> None:
    """Tests the shapes of kinds that ONNX does not know, and that standard inference goes on behind them."""
    names = [f"i{index}" for index in range(len(inputs))]
    nodes = [
        helper.make_node(kind, names, ["h"], domain="com.microsoft", **attributes),
        helper.make_node("Transpose", ["h"], ["y"]),
    ]
    shapes = _shapes(_read(nodes, dict(zip(names, inputs, strict=True)), ["y"]))
    assert (shapes["h"], shapes["y"]) == (shape, shape[::-1])


@pytest.mark.parametrize(
    ("equation", "inputs", "shape"),
    [
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)], (2, 3, 5)),
        ("ij,jk", [(3, 4), (4, 5)], (3, 5)),
        ("...ij,...jk->...ik", [(2, 6, 3, 4), (1, 4, 5)], (2, 6, 3, 5)),
        ("ii->i", [(3, 3)], (3,)),
        ("ij->", [(3, 4)], ()),
        ("-~", [(3, 4)], (3, 4)),
        ("i,j->k", [(3,), (4,)], (3,)),
        ("ijk->i", [(3, 4)], (3, 4)),
    ],
)
def test_einsum(equation: str, inputs: list[Any], shape: tuple[int, ...]) -> None:
    """Tests the shapes that equations give; a malformed one, on which ONNX would hang, keeps the first input's."""
    names = [f"i{index}" for index in range(len(inputs))]
    nodes = [helper.make_node("Einsum", names, ["y"], equation=equation)]
    assert _shapes(_read(nodes, dict(zip(names, inputs, strict=True)), ["y"]))["y"] == shape


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("LayerNormalization", ["x", "s"], ["y"], axis=2**63 - 1),
        helper.make_node("LayerNormalization", ["x", "s"], ["y"], axis=2**31),
        helper.make_node("GatherND", ["x", "ids"], ["y"], batch_dims=-5),
        helper.make_node("Split", ["x"], ["y", "z", "w"], num_outputs=2),
    ],
    ids=lambda node: node.op_type,
)
def test_nodes_that_would_crash_onnx(node: Any) -> None:
    """Tests that nodes which end the process inside ONNX's inference are read like unknown kinds."""
    graph = _read([node], {"x": [2, 4], "s": [4], "ids": [2, 1]}, ["y"])
    assert _shapes(graph)["y"] == (2, 4)
