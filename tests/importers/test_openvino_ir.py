"""From an OpenVINO IR to a graph: the same facts as from the ONNX file, and nothing of the weight file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.run.openvino_samples import model_files, openvino

from weftline.cluster import Cluster
from weftline.cost import analytic_costs
from weftline.errors import InputError, UsageError
from weftline.graph import Graph, Op, Tensor
from weftline.importers import ImportOptions, read_file
from weftline.importers.openvino.live import graph_of_openvino

NAMES = ("resnet50", "bert", "inception-v3", "mobilenet-v3", "gpt2", "mt5")


def _saved(model: Any, folder: Path) -> Graph:
    """The graph of the saved file, which must be that of the live model."""
    path = folder / "saved.xml"
    openvino().save_model(model, str(path), compress_to_fp16=False)
    path.with_suffix(".bin").unlink()
    graph = read_file(path).graph
    assert graph == graph_of_openvino(model)
    return graph


def _ends(graph: Graph) -> list[tuple[str, tuple[int, ...], str]]:
    """What comes in and what goes out."""
    return sorted((t.name, t.shape, t.dtype) for t in graph.tensors if t.producer < 0 or t.output)


@pytest.mark.parametrize("name", NAMES)
def test_like_the_onnx_file(name: str, tmp_path: Path) -> None:
    """Tests that work, weights and times are those of the ONNX file, but for what OpenVINO's converter fuses."""
    xml, onnx = model_files(name, tmp_path)
    ours, theirs = read_file(xml).graph, read_file(onnx).graph
    laptop = Cluster.preset("laptop")

    def weights(graph: Graph) -> int:
        return sum(op.weight_bytes for op in graph.ops) + sum(tied.bytes for tied in graph.tied)

    assert not {"Constant", "Const", "Parameter", "Result"} & {op.kind for op in ours.ops}
    assert sum(op.flops for op in ours.ops) == pytest.approx(sum(op.flops for op in theirs.ops), rel=0.02)
    assert weights(ours) == pytest.approx(weights(theirs), rel=0.04)
    times = analytic_costs(ours, laptop).time.sum(0) / analytic_costs(theirs, laptop).time.sum(0)
    assert (times > 0.75).all()
    assert (times < 1.15).all()
    assert _ends(ours) == _ends(theirs)


@pytest.mark.parametrize("name", ["bert", "inception-v3"])
def test_file_and_live_model_agree(name: str, tmp_path: Path) -> None:
    """Tests that a live model gives the graph of its file, names and all, whether the weights are there or not."""
    xml, _ = model_files(name, tmp_path)
    model = openvino().Core().read_model(str(xml))
    live = graph_of_openvino(model)
    del model
    xml.with_suffix(".bin").unlink()
    found = read_file(xml)
    assert found.format == "openvino"
    assert found.graph == live
    names = {line.split('name="')[1].split('"')[0] for line in xml.read_text().splitlines() if "<layer " in line}
    assert {op.name for op in live.ops} <= names


def test_found_by_content(tmp_path: Path) -> None:
    """Tests that the name of the file does not matter."""
    xml, _ = model_files("bert", tmp_path)
    other = xml.rename(tmp_path / "model.txt")
    assert read_file(other).format == "openvino"


def test_small_model_in_full(tmp_path: Path) -> None:
    """Tests every field of a graph of two ops."""
    ov = openvino()
    import openvino.opset13 as ops

    x = ops.parameter([2, 3], np.float32, name="x")
    x.output(0).set_names({"x"})
    product = ops.matmul(x, ops.constant(np.ones((3, 4), np.float32)), False, False, name="/layer.0/MatMul")
    end = ops.relu(product, name="/layer.0/Relu")
    end.output(0).set_names({"y"})
    graph = _saved(ov.Model([end], [x], "tiny"), tmp_path)
    assert graph == Graph(
        name="tiny",
        ops=(
            Op("/layer.0/MatMul", "MatMul", 48, 48, traffic_bytes=24 + 48 + 32, block="layer.0"),
            Op("/layer.0/Relu", "Relu", 8, traffic_bytes=64, block="layer.0"),
        ),
        tensors=(
            Tensor("x", -1, (0,), 24, (2, 3), "float32"),
            Tensor("/layer.0/MatMul:0", 0, (1,), 32, (2, 4), "float32"),
            Tensor("y", 1, (), 32, (2, 4), "float32", output=True),
        ),
    )


def test_weights_of_the_constant_cone(tmp_path: Path) -> None:
    """Tests shared weights, converted weights, and weights in few bits, which are held as they are stored."""
    ov = openvino()
    import openvino.opset13 as ops

    x = ops.parameter([1, 64], np.float32, name="x")
    shared = ops.convert(ops.constant(np.ones((64, 64), np.float16), name="w"), "f32")
    a = ops.matmul(x, shared, False, False, name="a")
    b = ops.matmul(a, shared, False, True, name="b")
    packed = ops.convert(ops.constant(np.ones((64, 64), np.int8)), "f32")
    unpacked = ops.multiply(packed, ops.constant(np.ones((64, 1), np.float32)))
    c = ops.matmul(b, unpacked, False, False, name="c")
    graph = _saved(ov.Model([c], [x], "cone"), tmp_path)
    assert [op.name for op in graph.ops] == ["a", "b", "c"]
    assert [(tied.bytes, tied.ops) for tied in graph.tied] == [(64 * 64 * 4, (0, 1))]
    assert [op.weight_bytes for op in graph.ops] == [0, 0, 64 * 64 + 64 * 4]


def test_flops_of_kinds_with_other_inputs_than_in_onnx(tmp_path: Path) -> None:
    """Tests convolution in groups, attention with a scale, and recurrence against counts by hand."""
    ov = openvino()
    import openvino.opset13 as ops

    image = ops.parameter([1, 8, 10, 10], np.float32, name="image")
    grouped = ops.group_convolution(
        image, ops.constant(np.ones((4, 3, 2, 3, 3), np.float32)), [1, 1], [1, 1], [1, 1], [1, 1], name="grouped"
    )
    query = ops.parameter([1, 2, 5, 16], np.float32, name="query")
    mask, scale = ops.constant(np.zeros((5, 5), np.float32)), ops.constant(np.float32(0.5))
    attention = ops.scaled_dot_product_attention(query, query, query, mask, scale, name="attention")
    tokens = ops.parameter([1, 7, 6], np.float32, name="tokens")
    state = ops.constant(np.zeros((1, 1, 5), np.float32))

    def ones(*shape: int) -> Any:
        return ops.constant(np.ones(shape, np.float32))

    sequence = ops.lstm_sequence(
        tokens, state, state, ops.constant(np.array([7])), ones(1, 20, 6), ones(1, 20, 5), ones(1, 20), 5, "forward"
    )
    sequence.set_friendly_name("lstm")
    model = ov.Model([grouped.output(0), attention.output(0), sequence.output(0)], [image, query, tokens], "kinds")
    flops = {op.name: (op.kind, op.flops) for op in _saved(model, tmp_path).ops}
    assert flops["grouped"] == ("Conv", 2 * (12 * 10 * 10) * (2 * 3 * 3))
    assert flops["attention"] == ("Attention", 2 * 2 * 160 * 5 + 5 * 2 * 5 * 5)
    assert flops["lstm"] == ("LSTM", 7 * (2 * (20 * 6 + 20 * 5) + 30 * 5))


def test_branches_and_loops_are_one_op(tmp_path: Path) -> None:
    """Tests that If costs its dearer branch and TensorIterator its body times its rounds, weights included."""
    ov = openvino()
    import openvino.opset13 as ops

    x, flag = ops.parameter([5, 8], np.float32, name="x"), ops.parameter([], bool, name="flag")
    cheap, dear = ops.parameter([5, 8], np.float32), ops.parameter([5, 8], np.float32)
    then = ov.Model([ops.relu(cheap)], [cheap], "then")
    weight = ops.constant(np.ones((8, 8), np.float32))
    other = ov.Model([ops.matmul(dear, weight, False, False)], [dear], "else")
    choice = ops.if_op(flag)
    choice.set_then_body(then)
    choice.set_else_body(other)
    choice.set_input(x.output(0), cheap, dear)
    chosen = choice.set_output(then.results[0], other.results[0])
    choice.set_friendly_name("choice")
    row = ops.parameter([1, 8], np.float32)
    body = ov.Model([ops.matmul(row, ops.constant(np.ones((8, 8), np.float32)), False, False)], [row], "body")
    rows = ops.tensor_iterator()
    rows.set_body(body)
    rows.set_sliced_input(row, chosen, 0, 1, 1, -1, 0)
    joined = rows.get_concatenated_slices(body.results[0].output(0), 0, 1, 1, -1, 0)
    rows.set_friendly_name("rows")
    graph = _saved(ov.Model([joined], [x, flag], "control"), tmp_path)
    found = {op.name: (op.kind, op.flops, op.weight_bytes) for op in graph.ops}
    assert found == {"choice": ("If", 2 * 40 * 8, 256), "rows": ("Loop", 5 * 2 * 8 * 8, 256)}


def test_state_is_no_constant(tmp_path: Path) -> None:
    """Tests that a variable is read and written by ops, although it begins as a constant."""
    ov = openvino()
    import openvino.opset13 as ops

    x = ops.parameter([1, 4], np.float32, name="x")
    read = ops.read_value(ops.constant(np.zeros((1, 4), np.float32)), "state", np.float32, [1, 4])
    total = ops.add(read, x, name="total")
    write = ops.assign(total, "state")
    model = ov.Model([ops.result(total)], [write], [x], "state")
    assert [op.kind for op in _saved(model, tmp_path).ops] == ["ReadValue", "Add", "Assign"]


def _open_model() -> Any:
    """A model whose batch is open, and a Reshape that must follow it."""
    import openvino.opset13 as ops

    x = ops.parameter([-1, 4], np.float32, name="x")
    flat = ops.reshape(ops.relu(x, name="relu"), ops.constant(np.array([-1])), False, name="flat")
    return openvino().Model([flat], [x], "open")


def test_open_shapes(tmp_path: Path) -> None:
    """Tests that an open input is an error that says what to do, and that a given shape reaches every tensor."""
    path = tmp_path / "open.xml"
    openvino().save_model(_open_model(), str(path))
    with pytest.raises(InputError, match=r"shape \?x4 is not fixed.*--shape x=\?x4, with a number"):
        read_file(path)
    graph = read_file(path, ImportOptions(shapes={"x": (3, 4)})).graph
    assert [tensor.shape for tensor in graph.tensors] == [(3, 4), (3, 4), (12,)]
    with pytest.raises(InputError, match="contradicts"):
        read_file(path, ImportOptions(shapes={"x": (3, 5)}))
    with pytest.raises(InputError, match="not an input"):
        read_file(path, ImportOptions(shapes={"x": (3, 4), "y": (1,)}))
    with pytest.raises(InputError, match=r"'batch', but openvino files have no named dimensions.*--shape"):
        read_file(path, ImportOptions(dims={"batch": 1}))
    path.with_suffix(".bin").unlink()
    with pytest.raises(InputError, match="bin"):
        read_file(path, ImportOptions(shapes={"x": (3, 4)}))
    with pytest.raises(InputError, match="not fixed"):
        graph_of_openvino(_open_model())


def test_two_ops_of_one_name() -> None:
    """Tests that a live model whose names are not unique is refused: devices are set by name."""
    import openvino.opset13 as ops

    x = ops.parameter([4], np.float32, name="x")
    model = openvino().Model([ops.relu(ops.exp(x, name="same"), name="same")], [x], "twins")
    with pytest.raises(InputError, match="'same'"):
        graph_of_openvino(model)
    with pytest.raises(UsageError, match="not str"):
        graph_of_openvino("model.xml")


def test_weights_in_16_bits(tmp_path: Path) -> None:
    """Tests what openvino.save_model writes by default: constants of one name, each with a Convert that has it too."""
    if "CI" not in os.environ:  # there, it must be installed
        pytest.importorskip("openvino")
    import openvino.opset13 as ops

    x = ops.parameter([1, 3, 32, 32], np.float32, name="x")

    def convolution(given: Any, channels: int, name: str) -> Any:
        weight = ops.constant(np.ones((8, channels, 3, 3), np.float32), name="weight")
        sum_ = ops.constant(np.ones((1, 8, 1, 1), np.float32), name=name)  # as converters do: the reader's name
        product = ops.convolution(given, weight, [1, 1], [1, 1], [1, 1], [1, 1], name=f"{name}/conv")
        return ops.swish(ops.add(product, sum_, name=name), name=f"{name}/act")

    first = convolution(x, 3, "a")
    halves = ops.split(convolution(first, 8, "b"), ops.constant(1), 2, name="halves")
    joined = ops.concat([halves.output(0), halves.output(1), first.output(0)], 1, name="joined")
    model = openvino().Model([joined], [x], "yolo")
    plain = _saved(model, tmp_path)
    path = tmp_path / "half.xml"
    openvino().save_model(model, str(path))
    assert "decompression" in path.read_text()
    graph = read_file(path).graph
    assert [(op.name, op.kind, op.flops) for op in graph.ops] == [(op.name, op.kind, op.flops) for op in plain.ops]
    assert graph.tensors == plain.tensors
    assert graph == graph_of_openvino(openvino().Core().read_model(str(path)))
