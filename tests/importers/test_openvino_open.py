"""OpenVINO models with open sizes: exact, at most so much, or a guess that is called one; never 1 without a word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.run.openvino_samples import model_files, openvino

import weftline as wl
from weftline.errors import InputError
from weftline.graph import Graph
from weftline.importers import ImportOptions, read_file
from weftline.importers.openvino.live import graph_of_openvino


def _saved(model: Any, path: Path) -> Path:
    openvino().save_model(model, str(path), compress_to_fp16=False)
    return path


def _exact(graph: Graph) -> Graph:
    """Without what is said of open axes."""
    tensors = tuple(msgspec.structs.replace(tensor, dynamic=()) for tensor in graph.tensors)
    return msgspec.structs.replace(graph, tensors=tensors)


def test_a_batch_that_is_open(tmp_path: Path) -> None:
    """Tests a real model: no size is an error, a given one reaches every tensor, a limit counts and is called one."""
    xml, _ = model_files("resnet50", tmp_path)
    model = openvino().Core().read_model(str(xml))
    fixed = tuple(model.inputs[0].get_shape())
    rest = list(fixed[1:])
    four = (4, *rest)
    model.reshape([4, *rest])
    wanted = graph_of_openvino(model)
    model.reshape([-1, *rest])
    name = model.inputs[0].get_any_name()
    with pytest.raises(InputError, match=r"shape \[\?,.*is not fixed"):
        graph_of_openvino(model)
    path = _saved(model, tmp_path / "open.xml")
    with pytest.raises(InputError, match="is not fixed"):
        read_file(path)
    assert read_file(path, ImportOptions(shapes={name: four})).graph == wanted
    assert wl.from_openvino(model, shapes={name: four}) == wanted
    assert model.inputs[0].get_partial_shape().is_dynamic, "the caller's model has changed"
    model.reshape([openvino().Dimension(1, 4), *rest])
    limited = graph_of_openvino(model)
    assert limited != wanted
    assert _exact(limited) == wanted
    assert all(tensor.dynamic == (0,) for tensor in limited.tensors)
    assert not limited.guessed
    bounded = _saved(model, tmp_path / "limited.xml")
    assert read_file(bounded).graph == limited
    two = read_file(bounded, ImportOptions(shapes={name: (2, *rest)})).graph
    assert sum(op.flops for op in two.ops) == pytest.approx(sum(op.flops for op in wanted.ops) / 2, rel=0.01)
    assert not any(tensor.dynamic for tensor in two.tensors)
    with pytest.raises(InputError, match=r"contradicts the file, which says \(up to 4\)x3"):
        read_file(bounded, ImportOptions(shapes={name: (5, *rest)}))


def _detector() -> Any:
    """Boxes that a suppression leaves, picked out, and the places of what is not zero."""
    import openvino.opset13 as ops

    boxes = ops.parameter([1, 100, 4], np.float32, name="boxes")
    scores = ops.parameter([1, 5, 100], np.float32, name="scores")
    limits = [ops.constant(np.float32(0.5)) for _ in range(2)]
    found = ops.non_max_suppression(boxes, scores, ops.constant(np.int64(20)), *limits, name="nms")
    rows = ops.gather(found.output(0), ops.constant(np.array([2])), ops.constant(1), name="rows")
    flat = ops.squeeze(rows, ops.constant(1), name="flat")
    plain = ops.squeeze(boxes, ops.constant(0), name="plain")
    picked = ops.gather(plain, flat, ops.constant(0), name="picked")
    places = ops.non_zero(scores, name="places")
    sums = ops.add(picked, ops.constant(np.ones((1, 4), np.float32)), name="sums")
    return openvino().Model([sums, places], [boxes, scores], "detector")


def _tensor(graph: Graph, op: str) -> Any:
    return next(t for t in graph.tensors if t.producer == graph.index[op])


def test_limits_of_what_depends_on_data(tmp_path: Path) -> None:
    """Tests that a live model, and a file with a shape given, have OpenVINO's limits of what its data decide."""
    live = graph_of_openvino(_detector())
    assert _tensor(live, "nms").shape == (100, 3)
    assert _tensor(live, "picked").shape == (100, 4)
    assert _tensor(live, "sums").dynamic == (0,)
    assert _tensor(live, "places").shape == (3, 500)
    assert _tensor(live, "places").dynamic == (1,)
    assert live.ops[live.index["sums"]].flops == 400
    assert not live.guessed
    path = _saved(_detector(), tmp_path / "detector.xml")
    graph = read_file(path, ImportOptions(shapes={"boxes": (1, 100, 4)})).graph
    assert set(graph.ops) == set(live.ops)
    assert all(_tensor(graph, op.name).shape == _tensor(live, op.name).shape for op in live.ops)
    assert all(_tensor(graph, op.name).dynamic == _tensor(live, op.name).dynamic for op in live.ops)


def test_a_file_alone_has_no_limits(tmp_path: Path) -> None:
    """Tests that what a file leaves open is a guess, said first in the answer; --strict refuses it."""
    path = _saved(_detector(), tmp_path / "detector.xml")
    path.with_suffix(".bin").unlink()
    graph = read_file(path).graph
    guessed = {op.name for op in graph.guessed}
    assert {"nms", "rows", "picked", "sums", "places"} <= guessed
    assert "plain" not in guessed
    assert _tensor(graph, "picked").guessed
    assert min(_tensor(graph, "picked").shape) > 1
    plan = wl.plan(path, "laptop", solver="greedy", work_limit=10)
    assert plan.summary().startswith(f"{len(guessed)} ops have dimensions that could not be computed, first")
    assert not isinstance(plan.guessed, msgspec.UnsetType)
    with pytest.raises(InputError, match="could not be computed"):
        wl.plan(path, "laptop", solver="greedy", work_limit=10, strict=True)


def test_open_sizes_inside_a_loop_are_guesses() -> None:
    """Tests a body whose rows are open, and a loop of which nobody knows the rounds: neither counts as 1 silently."""
    ov = openvino()
    import openvino.opset13 as ops

    x = ops.parameter([5, 8], np.float32, name="x")
    row = ops.parameter([-1, 8], np.float32)
    weight = ops.constant(np.ones((8, 8), np.float32))
    going = ops.constant(np.array(True))
    body = ov.Model([ops.matmul(row, weight, False, False), going], [row], "body")
    loop = ops.loop(ops.constant(np.int64(7)), ops.constant(np.array(True)))
    loop.set_function(body)
    loop.set_special_body_ports([-1, 1])
    loop.set_merged_input(row, x.output(0), body.results[0].output(0))
    end = loop.get_iter_value(body.results[0].output(0), -1)
    loop.set_friendly_name("loop")
    graph = graph_of_openvino(ov.Model([end], [x], "rounds"))
    (op,) = graph.ops
    assert op.guessed
    assert op.flops >= 2 * 5 * 8 * 8


def test_a_rank_that_nobody_knows() -> None:
    """Tests that a tensor of which not even the number of dimensions is known is a guess like its input."""
    import openvino.opset13 as ops

    x, shape = ops.parameter([6, 4], np.float32, name="x"), ops.parameter([2], np.int64, name="shape")
    flag = ops.parameter([openvino().Dimension(1, 3)], np.int64, name="axes")
    squeezed = ops.squeeze(ops.reshape(x, shape, False, name="any"), flag, name="squeezed")
    graph = graph_of_openvino(openvino().Model([ops.relu(squeezed, name="end")], [x, shape, flag], "ranks"))
    assert [op.name for op in graph.guessed] == ["end"]  # what only reshapes costs nothing
    assert _tensor(graph, "any").guessed
    assert all(size > 1 for size in _tensor(graph, "end").shape)
