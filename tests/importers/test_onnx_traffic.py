"""Bytes that ops move."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from weftline.graph import Graph
from weftline.importers.onnx.model import graph_of_model
from weftline.importers.registry import ImportOptions


def _read(nodes: list[Any], outputs: list[str], weights: dict[str, Any]) -> Graph:
    value = helper.make_tensor_value_info
    inputs = [value("x", TensorProto.FLOAT, [4, 6]), value("ids", TensorProto.INT64, [5])]
    stored = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    ends = [value(name, TensorProto.FLOAT, None) for name in outputs]
    return graph_of_model(helper.make_model(helper.make_graph(nodes, "g", inputs, ends, stored)), ImportOptions())


def test_lookup_reads_rows_only() -> None:
    """Tests that Gather holds the whole table but reads only the rows it takes, and the indices."""
    table = np.ones((1000, 8), np.float32)
    graph = _read([helper.make_node("Gather", ["t", "ids"], ["y"])], ["y"], {"t": table})
    assert graph.ops[0].weight_bytes == 32_000
    assert graph.ops[0].traffic_bytes == 2 * 5 * 8 * 4 + 5 * 8


def test_renaming_moves_nothing() -> None:
    """Tests that shape-only kinds cost neither flops nor traffic."""
    nodes = [
        helper.make_node("Flatten", ["x"], ["a"]),
        helper.make_node("Unsqueeze", ["a", "axes"], ["b"]),
        helper.make_node("Squeeze", ["b", "axes"], ["c"]),
        helper.make_node("Reshape", ["c", "shape"], ["d"]),
        helper.make_node("Identity", ["d"], ["e"]),
        helper.make_node("Shape", ["e"], ["y"]),
    ]
    graph = _read(nodes, ["y"], {"axes": np.array([0]), "shape": np.array([3, 8])})
    assert [(op.flops, op.traffic_bytes) for op in graph.ops] == [(0, 0)] * 6
    assert graph.tensors[-1].shape == (2,)


def test_slices_copy_what_they_keep() -> None:
    """Tests that Slice and Split move their outputs twice, not their inputs."""
    nodes = [
        helper.make_node("Slice", ["x", "zero", "one"], ["row"]),
        helper.make_node("Split", ["row"], ["y", "z"], axis=1, num_outputs=2),
    ]
    graph = _read(nodes, ["y", "z"], {"zero": np.array([0]), "one": np.array([1])})
    assert [op.traffic_bytes for op in graph.ops] == [2 * 24, 2 * 24]


def test_a_tensor_read_twice_is_read_once() -> None:
    """Tests that x * x reads x once."""
    graph = _read([helper.make_node("Mul", ["x", "x"], ["y"])], ["y"], {})
    assert graph.ops[0].traffic_bytes == 2 * 96
