"""Hostile bytes: whatever a file holds, it imports or raises InputError, nothing else."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from weftline.errors import InputError
from weftline.graph import check_graph
from weftline.importers.onnx.model import IMPORTERS
from weftline.importers.registry import ImportOptions

relaxed = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@cache
def _valid() -> bytes:
    """A small model with weights, shape computation, control flow, optional inputs and a foreign kind."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Add", ["state", "h"], ["next"]), helper.make_node("Identity", ["going"], ["go"])],
        "body",
        [value("i", TensorProto.INT64, []), value("going", TensorProto.BOOL, []), value("state", 1, None)],
        [value("go", TensorProto.BOOL, []), value("next", 1, None)],
    )
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["h0"], name="/layer.0/Conv", pads=[1, 1, 1, 1]),
        helper.make_node("Clip", ["h0", "", "high"], ["h1"]),
        helper.make_node("Shape", ["h1"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
        helper.make_node("Concat", ["n", "minus"], ["target"], axis=0),
        helper.make_node("Reshape", ["h1", "target"], ["h"]),
        helper.make_node("Loop", ["trips", "", "h"], ["looped"], body=body),
        helper.make_node("Custom", ["looped"], ["c"], domain="foreign", level=3),
        helper.make_node("Einsum", ["c", "c"], ["y"], equation="ij,kj->ik"),
    ]
    weights = {
        "w": np.ones((4, 3, 3, 3), np.float32),
        "b": np.ones(4, np.float32),
        "high": np.float32(6),
        "zero": np.array([0]),
        "minus": np.array([-1]),
        "trips": np.array(3),
    }
    stored = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", [value("x", 1, [2, 3, 8, 8])], [value("y", 1, None)], stored)
    return bytes(helper.make_model(graph, producer_name="test").SerializeToString())


def _survives(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    IMPORTERS[0].accepts(path, data[:4096])
    try:
        graph, _ = IMPORTERS[0].read(path, ImportOptions())
    except InputError:
        return
    check_graph(graph)


def test_the_valid_model_is_valid(tmp_path: Path) -> None:
    """Tests the starting point of the mutations."""
    path = tmp_path / "m.onnx"
    path.write_bytes(_valid())
    graph, _ = IMPORTERS[0].read(path, ImportOptions())
    assert [op.kind for op in graph.ops][-3:] == ["Loop", "Custom", "Einsum"]
    assert graph.tensors[-1].shape == (2, 2)
    assert graph.ops[-1].flops == 2 * 2 * 2 * 256


@given(data=st.binary(max_size=300))
@relaxed
def test_random_bytes(tmp_path: Path, data: bytes) -> None:
    """Tests random bytes, with and without the beginning of a model."""
    _survives(tmp_path / "m.onnx", data)
    _survives(tmp_path / "m.onnx", b"\x08\x08\x3a" + data)


@given(length=st.integers(0, len(_valid())))
@relaxed
def test_truncations(tmp_path: Path, length: int) -> None:
    """Tests a model that ends early."""
    _survives(tmp_path / "m.onnx", _valid()[:length])


@given(flips=st.lists(st.tuples(st.integers(0, len(_valid()) - 1), st.integers(0, 7)), min_size=1, max_size=6))
@relaxed
def test_bit_flips(tmp_path: Path, flips: list[tuple[int, int]]) -> None:
    """Tests a model with flipped bits."""
    data = bytearray(_valid())
    for place, bit in flips:
        data[place] ^= 1 << bit
    _survives(tmp_path / "m.onnx", bytes(data))


@given(place=st.integers(0, len(_valid()) - 1), inserted=st.binary(max_size=8), removed=st.integers(0, 8))
@relaxed
def test_splices(tmp_path: Path, place: int, inserted: bytes, removed: int) -> None:
    """Tests a model in which bytes were replaced by others."""
    data = _valid()
    _survives(tmp_path / "m.onnx", data[:place] + inserted + data[place + removed :])


@pytest.mark.parametrize("size", [2**31, 2**40, 2**62, 2**63 - 1])
def test_huge_dimensions(tmp_path: Path, size: int) -> None:
    """Tests that inputs of absurd size end in an error that names a tensor or the limit."""
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("MatMul", ["x", "x"], ["y"]), helper.make_node("NonZero", ["y"], ["z"])]
    graph = helper.make_graph(nodes, "g", [value("x", 1, [size, size])], [value("z", 7, None)])
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    with pytest.raises(InputError, match=r"2\^60"):
        IMPORTERS[0].read(path, ImportOptions())
