"""The constant cone, weights by op, tied weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from weftline.graph import Graph
from weftline.importers.onnx.model import graph_of_model
from weftline.importers.registry import ImportOptions

Node = tuple[str, list[str], list[str]] | tuple[str, list[str], list[str], dict[str, Any]]


def _graph(nodes: list[Node], weights: dict[str, Any], outputs: tuple[str, ...] = ("y",), ids: bool = False) -> Graph:
    made = [helper.make_node(*node[:3], **(node[3] if len(node) > 3 else {})) for node in nodes]
    stored = [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    value = helper.make_tensor_value_info
    inputs = [value("x", TensorProto.INT64, [5])] if ids else [value("x", TensorProto.FLOAT, [2, 8])]
    ends = [value(name, TensorProto.FLOAT, None) for name in outputs]
    model = helper.make_model(helper.make_graph(made, "g", inputs, ends, stored))
    return graph_of_model(model, ImportOptions())


def _matrix(rows: int, columns: int) -> Any:
    return np.ones((rows, columns), np.float32)


def test_constant_nodes_are_folded() -> None:
    """Tests that a chain of nodes on weights alone is no op, and that its result is the consumer's weight."""
    graph = _graph(
        [
            ("ConstantOfShape", ["shape"], ["zeros"]),
            ("Add", ["zeros", "w"], ["sum"]),
            ("Transpose", ["sum"], ["turned"]),
            ("MatMul", ["x", "turned"], ["y"]),
        ],
        {"shape": np.array([4, 8]), "w": np.float32(1)},
    )
    assert [(op.kind, op.weight_bytes) for op in graph.ops] == [("MatMul", 4 * 8 * 4)]
    assert [tensor.name for tensor in graph.tensors] == ["x", "y"]
    assert graph.tensors[1].shape == (2, 4)


def test_constant_node_with_a_tensor() -> None:
    """Tests that a Constant node is a weight of its consumer."""
    tensor = numpy_helper.from_array(_matrix(8, 3))
    graph = _graph([("Constant", [], ["c"], {"value": tensor}), ("MatMul", ["x", "c"], ["y"])], {})
    assert [(op.kind, op.weight_bytes) for op in graph.ops] == [("MatMul", 96)]


def test_chance_is_not_constant() -> None:
    """Tests that a random source without inputs stays an op."""
    graph = _graph([("RandomNormal", [], ["r"], {"shape": [2, 8]}), ("Add", ["x", "r"], ["y"])], {})
    assert [op.kind for op in graph.ops] == ["RandomNormal", "Add"]
    assert graph.tensors[1].consumers == (1,)


def test_live_identity_stays() -> None:
    """Tests that nodes that move live tensors are ops without work."""
    graph = _graph([("Identity", ["x"], ["a"]), ("Dropout", ["a"], ["y"])], {})
    assert [(op.kind, op.flops, op.traffic_bytes) for op in graph.ops] == [("Identity", 0, 0), ("Dropout", 0, 0)]


def test_tied_weight() -> None:
    """Tests that a weight of two ops is tied and belongs to neither alone."""
    graph = _graph([("MatMul", ["x", "w"], ["a"]), ("MatMul", ["a", "w"], ["y"])], {"w": _matrix(8, 8)})
    assert [(tied.name, tied.bytes, tied.ops) for tied in graph.tied] == [("w", 256, (0, 1))]
    assert [op.weight_bytes for op in graph.ops] == [0, 0]


@pytest.mark.parametrize("through", ["Transpose", "Identity"])
def test_tied_embedding_with_a_folded_move(through: str) -> None:
    """Tests that the embedding and its folded transpose in the output layer are one weight."""
    table = _matrix(8, 8)
    graph = _graph(
        [("Gather", ["table", "x"], ["rows"]), (through, ["table"], ["head"]), ("MatMul", ["rows", "head"], ["y"])],
        {"table": table},
        ids=True,
    )
    assert [op.kind for op in graph.ops] == ["Gather", "MatMul"]
    assert [(tied.name, tied.bytes, tied.ops) for tied in graph.tied] == [("table", 256, (0, 1))]


def test_changed_weight_is_not_tied() -> None:
    """Tests that a weight and its folded scaling are two weights."""
    graph = _graph(
        [
            ("MatMul", ["x", "w"], ["a"]),
            ("Mul", ["w", "two"], ["scaled"]),
            ("MatMul", ["a", "scaled"], ["y"]),
        ],
        {"w": _matrix(8, 8), "two": np.float32(2)},
    )
    assert graph.tied == ()
    assert [op.weight_bytes for op in graph.ops] == [256, 256]


def test_one_op_reading_a_weight_twice() -> None:
    """Tests that a weight read twice by one op is held once."""
    graph = _graph([("Sum", ["x", "w", "w"], ["y"])], {"w": _matrix(2, 8)})
    assert (graph.ops[0].weight_bytes, graph.tied) == (64, ())


def test_shared_scalars_are_copied() -> None:
    """Tests that a scalar or a short shape vector is not worth tying."""
    graph = _graph(
        [("Mul", ["x", "two"], ["a"]), ("Mul", ["a", "two"], ["b"]), ("Reshape", ["b", "s"], ["y"])],
        {"two": np.float32(2), "s": np.array([4, 4])},
    )
    assert graph.tied == ()
    assert [op.weight_bytes for op in graph.ops] == [4, 4, 16]


def test_dequantised_weight_is_held_quantised() -> None:
    """Tests that an int8 weight behind a folded DequantizeLinear keeps its size, plus its scales."""
    graph = _graph(
        [("DequantizeLinear", ["q", "scale", "zero"], ["w"], {"axis": 1}), ("MatMul", ["x", "w"], ["y"])],
        {"q": np.ones((8, 16), np.int8), "scale": np.ones(16, np.float32), "zero": np.zeros(16, np.int8)},
    )
    assert graph.ops[0].weight_bytes == 8 * 16 + 16 * 4 + 16
    assert graph.ops[0].flops == 2 * 2 * 8 * 16


def test_packed_int4_weight() -> None:
    """Tests that an int4 weight counts half a byte per element."""
    weight = helper.make_tensor("q", TensorProto.INT4, [8, 16], [1] * 128)
    scale = numpy_helper.from_array(np.float32(1), "scale")
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("DequantizeLinear", ["q", "scale"], ["w"]), helper.make_node("MatMul", ["x", "w"], ["y"])]
    graph = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, [2, 8])], [value("y", TensorProto.FLOAT, None)], [weight, scale]
    )
    found = graph_of_model(helper.make_model(graph), ImportOptions())
    assert found.ops[0].weight_bytes == 64 + 4


def test_half_precision() -> None:
    """Tests sizes of a float16 model."""
    value = helper.make_tensor_value_info
    weight = numpy_helper.from_array(np.ones((8, 4), np.float16), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [value("x", TensorProto.FLOAT16, [2, 8])],
        [value("y", TensorProto.FLOAT16, None)],
        [weight],
    )
    found = graph_of_model(helper.make_model(graph), ImportOptions())
    assert [(t.bytes, t.dtype) for t in found.tensors] == [(32, "float16"), (16, "float16")]
    assert found.ops[0].weight_bytes == 64


def test_initializers_that_are_also_inputs() -> None:
    """Tests that old files, which list every weight as an input too, give the same graph."""
    value = helper.make_tensor_value_info
    weight = numpy_helper.from_array(_matrix(8, 4), "w")
    inputs = [value("x", TensorProto.FLOAT, [2, 8]), value("w", TensorProto.FLOAT, ["symbolic", 4])]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", inputs, [value("y", TensorProto.FLOAT, None)], [weight]
    )
    found = graph_of_model(helper.make_model(graph, ir_version=3), ImportOptions())
    assert [tensor.name for tensor in found.tensors] == ["x", "y"]
    assert found.ops[0].weight_bytes == 128


def test_constant_output_is_left_out() -> None:
    """Tests that an output that needs no input is not a tensor of the graph."""
    graph = _graph([("Relu", ["x"], ["y"]), ("Neg", ["w"], ["c"])], {"w": _matrix(2, 2)}, outputs=("y", "c"))
    assert [tensor.name for tensor in graph.tensors] == ["x", "y"]
