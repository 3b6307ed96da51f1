"""A split model gives what the whole one gives: every model of the zoo, and the odd cases."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.run.split_samples import (
    DEVICES,
    even,
    floats,
    placed,
    run_segments,
    save_graph,
    scattered,
    split_and_compare,
    stored,
    value,
    with_logits,
)

from weftline import zoo
from weftline.errors import InputError
from weftline.importers import read_file
from weftline.run.split.manifest import MANIFEST, read_manifest
from weftline.run.split.split import split_model
from weftline.run.split.weights import WEIGHTS


@pytest.mark.parametrize("name", sorted(zoo.architectures()))
def test_zoo(name: str, tmp_path: Path) -> None:
    """Tests two stages, three stages and a scattered placement of every architecture, weights inside the file."""
    model = with_logits(zoo.build(name, size="small"))
    path = tmp_path / "model.onnx"
    zoo.save(model, path)
    graph, inputs = read_file(path).graph, zoo.example_inputs(model)
    for number, parts in enumerate((even(graph, 2), even(graph, 3), scattered(graph))):
        manifest = split_and_compare(path, parts, tmp_path / str(number), inputs, graph)
        assert len(manifest.segments) == len(parts.device)
        assert sorted(op for segment in manifest.segments for op in segment.ops) == sorted(graph.index)


@pytest.mark.parametrize("in_place", [False, True])
def test_external_weights(in_place: bool, tmp_path: Path) -> None:
    """Tests a model whose weights lie beside it: copied once for all segments, or left where they are."""
    model = with_logits(zoo.build("gpt2", size="small"))
    path = tmp_path / "model.onnx"
    zoo.save(model, path, inside=0)
    weights = tmp_path / "model.onnx.weights"
    manifest = split_and_compare(
        path, even(read_file(path).graph, 3), tmp_path / "out", zoo.example_inputs(model), in_place=in_place
    )
    sizes = {file.name: file.stat().st_size for file in (tmp_path / "out").iterdir()}
    if in_place:
        assert manifest.weights_folder == str(tmp_path)
        assert WEIGHTS not in sizes
    else:
        assert manifest.weights_folder == ""
        assert sizes[WEIGHTS] <= weights.stat().st_size * 1.2  # tied weights stand there once
    assert all(size < 100_000 for name, size in sizes.items() if name != WEIGHTS)


def test_files_of_a_folder(tmp_path: Path) -> None:
    """Tests which files there are, and that a second split gives the same bytes."""
    path = tmp_path / "model.onnx"
    zoo.save(zoo.build("unet", size="small"), path)
    graph = read_file(path).graph
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        split_model(path, graph, even(graph, 2), DEVICES, folder)
    names = ["manifest.json", "segment_0.onnx", "segment_1.onnx", WEIGHTS]
    assert sorted(file.name for file in (tmp_path / "a").iterdir()) == names
    assert all((tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes() for name in names)


def test_large_constant_nodes_are_stored_once(tmp_path: Path) -> None:
    """Tests that the tensor of a Constant node goes to the common file, and that what follows from it is cloned."""
    nodes = [
        helper.make_node("Constant", [], ["w"], value=stored("", floats(64, 64))),
        helper.make_node("Transpose", ["w"], ["t"]),
        helper.make_node("MatMul", ["x", "t"], ["a"], "first"),
        helper.make_node("MatMul", ["a", "t"], ["b"], "second"),
        helper.make_node("MatMul", ["b", "w"], ["y"], "third"),
    ]
    path = save_graph(tmp_path / "m.onnx", nodes, [value("x", 2, 64)], [value("y", 2, 64)], [])
    graph = read_file(path).graph
    manifest = split_and_compare(path, placed(graph, 0, 1, 2), tmp_path / "out", {"x": floats(2, 64)})
    assert (tmp_path / "out" / WEIGHTS).stat().st_size == 64 * 64 * 4
    assert [wire.name for wire in manifest.tensors] == ["x", "a", "b", "y"]
    first = onnx.load(tmp_path / "out" / "segment_0.onnx", load_external_data=False)
    assert [node.op_type for node in first.graph.node] == ["Transpose", "MatMul"]


def test_head_is_kept(tmp_path: Path) -> None:
    """Tests that versions, operator sets and metadata come along; symbols of the inputs stay symbols where they go."""
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["y"])]
    symbolic = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])
    path = save_graph(
        tmp_path / "m.onnx", nodes, [symbolic], [helper.make_tensor_value_info("y", 1, ["batch", 3])], [], ir=8
    )
    from weftline.importers import ImportOptions

    graph = read_file(path, ImportOptions(shapes={"x": (5, 3)})).graph
    split_and_compare(path, placed(graph, 0, 1), tmp_path / "out", {"x": floats(5, 3)}, graph)
    second = onnx.load(tmp_path / "out" / "segment_1.onnx")
    assert (second.ir_version, second.producer_name) == (8, "tests")
    assert [(entry.key, entry.value) for entry in second.metadata_props] == [("author", "nobody")]
    assert [(opset.domain, opset.version) for opset in second.opset_import] == [("", 17)]
    sizes = second.graph.input[0].type.tensor_type.shape.dim
    assert [size.dim_param or size.dim_value for size in sizes] == ["batch", 3]


def if_model(path: Path) -> Path:
    """Both branches of an If capture: a weight, a constant that a node makes, an input and a live tensor."""
    branches = []
    for name, kind in (("then", "Add"), ("else", "Sub")):
        inner = [
            helper.make_node(kind, ["a", "w"], [f"{name}_1"]),
            helper.make_node("Mul", [f"{name}_1", "x"], [f"{name}_2"]),
            helper.make_node("Add", [f"{name}_2", "t"], [f"{name}_3"]),
        ]
        branches.append(helper.make_graph(inner, name, [], [value(f"{name}_3", 32, 32)]))
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"]),
        helper.make_node("Tanh", ["x"], ["a"], "make"),
        helper.make_node("Not", ["c"], ["d"], "turn"),
        helper.make_node("If", ["d"], ["z"], "choose", then_branch=branches[0], else_branch=branches[1]),
        helper.make_node("Neg", ["z"], ["y"], "end"),
    ]
    inputs = [value("x", 32, 32), helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    return save_graph(path, nodes, inputs, [value("y", 32, 32)], [stored("w", floats(32, 32, seed=1))])


@pytest.mark.parametrize("condition", [False, True])
def test_captures_of_branches(condition: bool, tmp_path: Path) -> None:
    """Tests that what the bodies of an If read from outside comes to its segment."""
    path = if_model(tmp_path / "m.onnx")
    graph = read_file(path).graph
    inputs = {"x": floats(32, 32), "c": np.array(condition)}
    manifest = split_and_compare(path, placed(graph, 0, 1, 2, 1), tmp_path / "out", inputs, graph)
    chosen = next(segment for segment in manifest.segments if "choose" in segment.ops)
    assert set(chosen.inputs) == {"x", "a", "d"}


def test_loops(tmp_path: Path) -> None:
    """Tests a Loop that captures, whose result has a size that no plan can know."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["still"]),
            helper.make_node("Add", ["carried", "a"], ["next"]),
            helper.make_node("Identity", ["next"], ["row"]),
        ],
        "body",
        [value("i", kind=TensorProto.INT64), value("go", kind=TensorProto.BOOL), value("carried", 3)],
        [value("still", kind=TensorProto.BOOL), value("next", 3), value("row", 3)],
    )
    nodes = [
        helper.make_node("Neg", ["x"], ["a"], "make"),
        helper.make_node("Loop", ["rounds", "", "x"], ["last", "rows"], "loop", body=body),
        helper.make_node("ReduceMax", ["rows"], ["y"], "end", axes=[0], keepdims=0),
        helper.make_node("Abs", ["last"], ["z"], "other"),
    ]
    inputs = [value("x", 3), value("rounds", kind=TensorProto.INT64)]
    path = save_graph(tmp_path / "m.onnx", nodes, inputs, [value("y", 3), value("z", 3)], [])
    graph = read_file(path).graph
    parts = placed(graph, *[{"make": 0, "loop": 1, "end": 0, "other": 2}[op.name] for op in graph.ops])
    split_and_compare(path, parts, tmp_path / "out", {"x": floats(3), "rounds": np.array(4)}, graph)


def test_shapes_that_depend_on_data(tmp_path: Path) -> None:
    """Tests that a crossing tensor may be smaller than planned."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Cast", ["places"], ["y"], to=TensorProto.FLOAT),
    ]
    path = save_graph(
        tmp_path / "m.onnx", nodes, [value("x", 6)], [helper.make_tensor_value_info("y", 1, [1, "found"])], []
    )
    given = np.array([0, 1, 0, 2, 3, 0], np.float32)
    manifest = split_and_compare(path, placed(read_file(path).graph, 0, 1), tmp_path / "out", {"x": given})
    assert next(wire.shape for wire in manifest.tensors if wire.name == "places") == (1, 6)


def test_odd_outputs(tmp_path: Path) -> None:
    """Tests outputs that are an input, a weight, or a constant made by a node, and a tensor both sent and given."""
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"]),
        helper.make_node("Add", ["x", "w"], ["a"], "first"),
        helper.make_node("Mul", ["a", "x"], ["y"], "second"),
    ]
    outputs = [value(name, 20, 20) for name in ("y", "x", "w", "t", "a")]
    path = save_graph(tmp_path / "m.onnx", nodes, [value("x", 20, 20), value("unread", 2)], outputs,
                      [stored("w", floats(20, 20))])  # fmt: skip
    inputs = {"x": floats(20, 20, seed=3), "unread": floats(2)}
    manifest = split_and_compare(path, placed(read_file(path).graph, 0, 1), tmp_path / "out", inputs)
    assert manifest.inputs == ("x", "unread")
    wires = {wire.name: (wire.source, wire.targets, wire.output) for wire in manifest.tensors}
    assert wires == {
        "x": (-1, (0, 1), True),
        "unread": (-1, (), False),
        "a": (0, (1,), True),
        "y": (1, (), True),
        "w": (0, (), True),
        "t": (0, (), True),
    }


def test_an_output_that_comes_twice(tmp_path: Path) -> None:
    """Tests that the list of outputs is the model's own, and that a segment names the tensor once."""
    nodes = [helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Abs", ["a"], ["y"])]
    path = save_graph(tmp_path / "m.onnx", nodes, [value("x", 4)], [value("y", 4), value("y", 4)], [])
    manifest = split_model(path, graph := read_file(path).graph, placed(graph, 0, 1), DEVICES, tmp_path)
    assert manifest.outputs == ("y", "y")
    np.testing.assert_array_equal(run_segments(tmp_path, {"x": np.ones(4, np.float32)})["y"], np.ones(4))


@pytest.mark.parametrize("ir", [3, 9])
def test_weights_that_are_inputs_too(ir: int, tmp_path: Path) -> None:
    """Tests that initializers named as inputs are weights, in old files (which must) and in new ones (which may)."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Add", ["a", "b"], ["y"])]
    inputs = [value("x", 2, 40), value("w", 40, 40), value("b", 40)]
    weights = [stored("w", floats(40, 40)), stored("b", floats(40))]
    path = save_graph(tmp_path / "m.onnx", nodes, inputs, [value("y", 2, 40)], weights, ir=ir)
    manifest = split_and_compare(path, placed(read_file(path).graph, 0, 1), tmp_path / "out", {"x": floats(2, 40)})
    assert manifest.inputs == ("x",)


def test_chance_is_no_constant(tmp_path: Path) -> None:
    """Tests that random numbers are drawn by one segment and sent to the others."""
    nodes = [
        helper.make_node("RandomNormal", [], ["r"], "draw", shape=[300]),
        helper.make_node("Add", ["x", "r"], ["a"], "add"),
        helper.make_node("Sub", ["a", "r"], ["y"], "take"),
    ]
    path = save_graph(tmp_path / "m.onnx", nodes, [value("x", 300)], [value("y", 300)], [])
    graph = read_file(path).graph
    parts = placed(graph, *[{"draw": 0, "add": 1, "take": 2}[op.name] for op in graph.ops])
    manifest = split_model(path, graph, parts, DEVICES, tmp_path)
    assert {wire.name for wire in manifest.tensors} == {"x", "r", "a", "y"}
    x = floats(300)
    np.testing.assert_allclose(run_segments(tmp_path, {"x": x})["y"], x, atol=1e-5)


def sequence_nodes() -> list[onnx.NodeProto]:
    return [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("SequenceConstruct", ["x", "a"], ["s"], "pack"),
        helper.make_node("Identity", ["s"], ["same"], "pass"),
        helper.make_node("ConcatFromSequence", ["same"], ["y"], "join", axis=0),
    ]


def test_sequences_cross_a_cut(tmp_path: Path) -> None:
    """Tests that a sequence goes from one segment to another."""
    path = save_graph(tmp_path / "m.onnx", sequence_nodes(), [value("x", 3)], [value("y", 6)], [])
    graph = read_file(path).graph
    split_and_compare(path, placed(graph, 0, 1, 1, 1), tmp_path / "out", {"x": floats(3)}, graph)
    split_and_compare(path, placed(graph, 0, 0, 0, 1), tmp_path / "cut", {"x": floats(3)}, graph)


def test_maps_stay_on_a_device(tmp_path: Path) -> None:
    """Tests that a list of maps, whose keys nobody knows, is refused across a cut with a way out."""
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("ZipMap", ["a"], ["maps"], "zip", domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2]),
        helper.make_node("SequenceLength", ["maps"], ["y"], "count"),
    ]
    output = helper.make_tensor_value_info("y", TensorProto.INT64, [])
    path = save_graph(tmp_path / "m.onnx", nodes, [value("x", 3)], [output], [])
    graph = read_file(path).graph
    with pytest.raises(InputError, match=r"'maps', made by op 'zip': is a value of kind sequence of maps.*together"):
        split_model(path, graph, placed(graph, 0, 0, 1), DEVICES, tmp_path)


def test_text_crosses_a_cut(tmp_path: Path) -> None:
    """Tests that strings go from one segment to another."""
    nodes = [
        helper.make_node("Cast", ["x"], ["s"], "write", to=TensorProto.STRING),
        helper.make_node("Cast", ["s"], ["y"], "read", to=TensorProto.FLOAT),
    ]
    path = save_graph(tmp_path / "m.onnx", nodes, [value("x", 3)], [value("y", 3)], [])
    graph = read_file(path).graph
    split_and_compare(path, placed(graph, 0, 1), tmp_path / "out", {"x": floats(3)}, graph)


def test_another_model_is_refused(tmp_path: Path) -> None:
    """Tests that a graph and a file that do not belong together are noticed."""
    nodes = [helper.make_node("Neg", ["x"], ["a"], "one"), helper.make_node("Abs", ["a"], ["y"], "two")]
    path = save_graph(tmp_path / "m.onnx", nodes, [value("x", 4)], [value("y", 4)], [])
    graph = read_file(path).graph
    nodes[0].name = "three"
    other = save_graph(tmp_path / "other.onnx", nodes, [value("x", 4)], [value("y", 4)], [])
    with pytest.raises(InputError, match="is not the model of this graph"):
        split_model(other, graph, placed(graph, 0, 1), DEVICES, tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"segment_1.onnx"', '"../segment_1.onnx"'),
        ('"source": 0', '"source": 7'),
        ('"number": 1', '"number": 0'),
        ('"weftline-stages"', '"other"'),
        ('"targets": [1]', '"targets": [0]'),
        ('"targets": [1]', '"targets": [1, 1]'),
        ('"segment_1.onnx"', '"segment_0.onnx"'),
        ('"shape": [4]', f'"shape": [{2**61}]'),
        ('"shape": [4]', f'"shape": [{", ".join(["2"] * 100_000)}]'),
        ('"shape": [4]', f'"shape": [{", ".join(["256"] * 9)}]'),
        ('"shape": [4]', f'"shape": [{10**30}]'),
    ],
)
def test_a_manifest_that_does_not_fit(old: str, new: str, tmp_path: Path) -> None:
    """Tests that a changed manifest is an `InputError` that names the file."""
    nodes = [helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Abs", ["a"], ["y"])]
    path = save_graph(tmp_path / "m.onnx", nodes, [value("x", 4)], [value("y", 4)], [])
    split_model(path, graph := read_file(path).graph, placed(graph, 0, 1), DEVICES, tmp_path)
    text = (tmp_path / MANIFEST).read_text().replace("[\n    1\n   ]", "[1]").replace("[\n    4\n   ]", "[4]")
    assert old in text
    (tmp_path / MANIFEST).write_text(text.replace(old, new))
    with pytest.raises(InputError, match=MANIFEST):
        read_manifest(tmp_path)
