"""From an ONNX file to a graph, end to end."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from weftline.errors import InputError
from weftline.graph import Graph, check_graph
from weftline.importers.onnx.model import IMPORTERS, graph_of_model
from weftline.importers.registry import ImportOptions

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
MODELS = sorted(LIGHT.glob("*.onnx"))


def _read(path: Path) -> Graph:
    return IMPORTERS[0].read(path, ImportOptions())[0]


def _value(name: str, shape: list[Any] | None, element: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, element, shape)


def _graph(nodes: list[Any], inputs: list[Any], outputs: list[str], weights: dict[str, Any] | None = None) -> Graph:
    stored = [numpy_helper.from_array(np.asarray(value), name) for name, value in (weights or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, [_value(name, None) for name in outputs], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("custom", 1)])
    return graph_of_model(model, ImportOptions())


def _macs_by_another_route(path: Path) -> int:
    """Multiply-adds of the convolutions from strict whole-model inference and weight shapes, without our code."""
    model = onnx.shape_inference.infer_shapes(onnx.load(path), strict_mode=True)
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in [*model.graph.value_info, *model.graph.output, *model.graph.input]
    }
    total = 0
    for node in model.graph.node:
        if node.op_type == "Conv":
            channels_per_group, *kernel = shapes[node.input[1]][1:]
            total += prod(shapes[node.output[0]]) * channels_per_group * prod(kernel)
    return total


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_light_models(path: Path) -> None:
    """Tests that real architectures import, with the convolution work that an independent count gives."""
    graph = _read(path)
    assert check_graph(graph) is graph
    assert not {"Constant", "ConstantOfShape"} & {op.kind for op in graph.ops}
    ours = sum(op.flops for op in graph.ops if op.kind == "Conv")
    assert ours == pytest.approx(2 * _macs_by_another_route(path), rel=0.01)


def test_resnet50_is_resnet50() -> None:
    """Tests work, weights and sizes of ResNet-50 against the published numbers."""
    graph = _read(LIGHT / "light_resnet50.onnx")
    assert sum(op.flops for op in graph.ops) / 2 == pytest.approx(4.1e9, rel=0.02)
    assert sum(op.weight_bytes for op in graph.ops) / 4 == pytest.approx(25.6e6, rel=0.01)
    assert sum(op.kind == "Conv" for op in graph.ops) == 53
    assert graph.tensors[0].name == "gpu_0/data_0"
    assert graph.tensors[0].bytes == 3 * 224 * 224 * 4
    assert [(t.shape, t.dtype) for t in graph.tensors if t.output] == [((1, 1000), "float32")]


def test_small_graph_in_full() -> None:
    """Tests every field of a two-op graph."""
    graph = _graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["h"], name="/layer.0/MatMul"),
            helper.make_node("Relu", ["h"], ["y"], name="/layer.0/Relu"),
        ],
        [_value("x", [2, 3])],
        ["y"],
        {"w": np.ones((3, 5), np.float32)},
    )
    product, relu = graph.ops
    assert (product.name, product.kind, product.block) == ("/layer.0/MatMul", "MatMul", "layer.0")
    assert (product.flops, product.weight_bytes) == (2 * 2 * 3 * 5, 60)
    assert product.traffic_bytes == 24 + 60 + 40
    assert (relu.flops, relu.weight_bytes, relu.traffic_bytes) == (10, 0, 80)
    x, h, y = graph.tensors
    assert (x.producer, x.consumers, x.bytes, x.shape, x.dtype, x.output) == (-1, (0,), 24, (2, 3), "float32", False)
    assert (h.producer, h.consumers, h.bytes, h.output) == (0, (1,), 40, False)
    assert (y.producer, y.consumers, y.output) == (1, (), True)


def test_dead_nodes_are_dropped() -> None:
    """Tests that what no output needs is not an op, even if it is broken beyond inference."""
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Exp", ["x"], ["unused"]),
        helper.make_node("MatMul", ["unused", "x"], ["unused2"]),
    ]
    graph = _graph(nodes, [_value("x", [2, 3])], ["y"])
    assert [op.kind for op in graph.ops] == ["Relu"]


def test_optional_inputs_and_outputs() -> None:
    """Tests that left-out inputs and outputs are no tensors."""
    nodes = [
        helper.make_node("Clip", ["x", "", "high"], ["c"]),
        helper.make_node("Dropout", ["c"], ["y", ""]),
    ]
    graph = _graph(nodes, [_value("x", [4]), _value("high", [])], ["y"])
    assert [tensor.name for tensor in graph.tensors] == ["x", "high", "c", "y"]


def test_nodes_in_any_order() -> None:
    """Tests that a file whose nodes are not sorted is read, and that shapes reach every node."""
    nodes = [
        helper.make_node("Relu", ["b"], ["y"], name="last"),
        helper.make_node("Neg", ["a"], ["b"], name="middle"),
        helper.make_node("Abs", ["x"], ["a"], name="first"),
    ]
    graph = _graph(nodes, [_value("x", [7])], ["y"])
    assert [op.name for op in graph.ops] == ["first", "middle", "last"]
    assert graph.tensors[-1].shape == (7,)


def test_unknown_kinds_keep_their_first_input() -> None:
    """Tests that a kind of a foreign domain, and one that does not exist, count one flop per element."""
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], domain="custom"),
        helper.make_node("NoSuchKind", ["a"], ["b"]),
        helper.make_node("Elsewhere", ["b"], ["c"], domain="never.imported"),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    graph = _graph(nodes, [_value("x", [2, 3])], ["y"])
    assert [op.flops for op in graph.ops] == [6, 6, 6, 6]
    assert [tensor.shape for tensor in graph.tensors] == [(2, 3)] * 5


def test_unknown_kind_with_a_noted_shape() -> None:
    """Tests that the file's own note is believed where inference has no answer."""
    nodes = [helper.make_node("Frobnicate", ["x"], ["a"], domain="custom"), helper.make_node("Relu", ["a"], ["y"])]
    graph = helper.make_graph(
        nodes, "g", [_value("x", [2, 3])], [_value("y", None)], value_info=[_value("a", [9], TensorProto.INT8)]
    )
    found = graph_of_model(helper.make_model(graph), ImportOptions())
    assert [(t.shape, t.dtype) for t in found.tensors][1:] == [((9,), "int8"), ((9,), "int8")]


def test_duplicate_node_names_become_unique() -> None:
    """Tests that nodes which share a name, or have none, are still told apart."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="same"),
        helper.make_node("Relu", ["a"], ["b"], name="same"),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    assert [op.name for op in _graph(nodes, [_value("x", [1])], ["y"]).ops] == ["same", "b", "y"]


def test_input_that_is_an_output() -> None:
    """Tests that an input which the caller gets back is marked as an output."""
    graph = _graph([helper.make_node("Relu", ["x"], ["y"])], [_value("x", [1])], ["y", "x"])
    assert [tensor.output for tensor in graph.tensors] == [True, True]


@pytest.mark.parametrize(
    ("nodes", "outputs", "message"),
    [
        ([("Relu", ["ghost"], ["y"])], ["y"], r"'y' \(Relu\): reads tensor 'ghost'"),
        ([("Relu", ["x"], ["y"])], ["ghost"], "tensor 'ghost': is an output"),
        ([("Relu", ["x"], ["y"]), ("Abs", ["x"], ["y"])], ["y"], r"\(Abs\): makes tensor 'y'"),
        ([("Relu", ["y"], ["x"]), ("Abs", ["x"], ["y"])], ["y"], r"\(Relu\): makes tensor 'x'"),
        ([("Add", ["x", "b"], ["a"]), ("Abs", ["a"], ["b"])], ["b"], r"cycle: .*\(Add\).*\(Abs\)"),
        ([("Relu", ["a"], ["a"])], ["a"], "cycle"),
        ([("Relu", ["x"], ["y"])], [], "no outputs"),
        ([("Relu", ["w"], ["y"])], ["y"], "nothing to plan"),
    ],
)
def test_structural_mistakes(nodes: list[tuple[str, list[str], list[str]]], outputs: list[str], message: str) -> None:
    """Tests that a broken structure is refused with the node or tensor named."""
    made = [helper.make_node(*node) for node in nodes]
    with pytest.raises(InputError, match=message):
        _graph(made, [_value("x", [2])], outputs, {"w": np.ones(3, np.float32)})


@pytest.mark.parametrize("dims", [[-1], [3, -2], [2**62, 2**62]])
def test_impossible_weights(dims: list[int]) -> None:
    """Tests that a weight of negative or absurd size is refused by name."""
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims)
    node = helper.make_node("Add", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", [_value("x", [1])], [_value("y", None)], [weight])
    with pytest.raises(InputError, match="tensor 'w': shape"):
        graph_of_model(helper.make_model(graph), ImportOptions())


def test_duplicate_inputs_and_weights() -> None:
    """Tests that two inputs, or two initializers, of one name are refused."""
    node = helper.make_node("Relu", ["x"], ["y"])
    twice = helper.make_graph([node], "g", [_value("x", [1]), _value("x", [2])], [_value("y", None)])
    with pytest.raises(InputError, match="input name 'x'"):
        graph_of_model(helper.make_model(twice), ImportOptions())
    weight = numpy_helper.from_array(np.ones(2), "w")
    again = helper.make_graph([node], "g", [_value("x", [1])], [_value("y", None)], [weight, weight])
    with pytest.raises(InputError, match="initializer name 'w'"):
        graph_of_model(helper.make_model(again), ImportOptions())


def test_names_that_are_not_text() -> None:
    """Tests that a name which is not UTF-8 is refused."""
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"], name="QQQQ")], "g", [_value("x", [1])], [_value("y", None)]
    )
    data = helper.make_model(graph).SerializeToString().replace(b"QQQQ", b"\xff\xfe\xff\xfe")
    with pytest.raises(InputError, match="not UTF-8"):
        graph_of_model(onnx.ModelProto.FromString(data), ImportOptions())
