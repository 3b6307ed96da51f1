"""Every architecture of the zoo through the ONNX importer, and its work against an independent count."""

from __future__ import annotations

from math import prod
from pathlib import Path

import onnx
import pytest

from weftline import zoo
from weftline.importers import ImportOptions, read_file
from weftline.importers.onnx.model import graph_of_model

NAMES = sorted(zoo.architectures())


def shapes_of(model: onnx.ModelProto) -> dict[str, list[int]]:
    """Shapes by onnx's own inference on the whole model, which the importer does not use."""
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    values = [*inferred.graph.value_info, *inferred.graph.input, *inferred.graph.output]
    found = {value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in values}
    return found | {tensor.name: list(tensor.dims) for tensor in inferred.graph.initializer}


def multiply_adds(model: onnx.ModelProto) -> int:
    """Multiply-adds of convolutions and matrix products, from shapes alone."""
    shapes, total = shapes_of(model), 0
    for node in model.graph.node:
        if node.op_type == "Conv":
            total += prod(shapes[node.output[0]]) * prod(shapes[node.input[1]][1:])
        elif node.op_type == "MatMul":
            total += prod(shapes[node.output[0]]) * shapes[node.input[0]][-1]
        elif node.op_type == "Gemm":
            transposed = any(a.name == "transA" and a.i for a in node.attribute)
            total += prod(shapes[node.output[0]]) * shapes[node.input[0]][0 if transposed else 1]
    return total


@pytest.mark.parametrize("name", NAMES)
def test_work_of_full_models(name: str) -> None:
    """Tests that flops of products and convolutions are twice the multiply-adds counted here, within 1 %."""
    model = zoo.build(name, weights=False)
    graph = graph_of_model(model, ImportOptions(), name)
    counted = sum(op.flops for op in graph.ops if op.kind in ("Conv", "MatMul", "Gemm")) / 2
    assert counted == pytest.approx(multiply_adds(model), rel=0.01)


@pytest.mark.parametrize(("name", "giga"), [("resnet50", 4.1), ("inception-v3", 5.7)])
def test_published_work(name: str, giga: float) -> None:
    """Tests the two well-known figures: multiply-adds at the published input sizes."""
    assert multiply_adds(zoo.build(name, weights=False)) == pytest.approx(giga * 1e9, rel=0.01)


@pytest.mark.parametrize("name", NAMES)
def test_small_files_import(name: str, tmp_path: Path) -> None:
    """Tests that a saved model with weights gives the same graph as the one that never had any."""
    path = tmp_path / "model.onnx"
    zoo.save(zoo.build(name, size="small"), path)
    graph = read_file(path).graph
    bare = zoo.zoo_graph(name, size="small")
    assert [op.name for op in graph.ops] == [op.name for op in bare.ops]
    assert sum(op.weight_bytes for op in graph.ops) == sum(op.weight_bytes for op in bare.ops)
    assert graph.tied == bare.tied
    assert any(op.block for op in graph.ops)


def test_shared_embeddings_are_tied() -> None:
    """Tests that the language models with one embedding for input and head hold it once."""
    for name in ("gpt2", "mt5"):
        graph = zoo.zoo_graph(name, size="small")
        assert max(tied.bytes for tied in graph.tied) > 0


def test_thirteen_billion_parameters() -> None:
    """Tests that the largest size is planned from a graph without weights."""
    graph = zoo.zoo_graph("gpt2", size="13b")
    total = sum(op.weight_bytes for op in graph.ops) + sum(tied.bytes for tied in graph.tied)
    assert 12e9 < total / 4 < 14e9
