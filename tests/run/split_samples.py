"""Models for the tests of splitting, and a runner: segments in their order, in this process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper

from weftline.graph import Graph
from weftline.importers import read_file
from weftline.run.devices import open_session
from weftline.run.split.manifest import Manifest, read_manifest
from weftline.run.split.segments import Parts, parts_by_level, parts_by_stage
from weftline.run.split.split import split_model

Arrays = Mapping[str, NDArray[Any]]
DEVICES = ("left", "right", "third")
RTOL = 1e-4
onnxruntime.set_default_logger_severity(3)


def options(optimised: bool = True) -> onnxruntime.SessionOptions:
    """One thread: the machine may be busy."""
    made = onnxruntime.SessionOptions()
    if not optimised:
        made.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    made.intra_op_num_threads = made.inter_op_num_threads = 1
    return made


def with_logits(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the input of every Softmax that ends it as a further output: a saturated one hides differences."""
    outputs = {value.name for value in model.graph.output}
    for node in model.graph.node:
        if node.op_type == "Softmax" and outputs & set(node.output) and node.input[0] not in outputs:
            model.graph.output.append(helper.make_tensor_value_info(node.input[0], TensorProto.FLOAT, None))
    return model


def even(graph: Graph, count: int) -> Parts:
    """Stages of as many ops each, along the graph's order."""
    n = len(graph.ops)
    return parts_by_stage(graph, (np.arange(n) * count // n).astype(np.int32), range(count))


def scattered(graph: Graph, seed: int = 0) -> Parts:
    """Runs of ops, one to twelve long, by turns on two devices: never contiguous."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(1, 13, len(graph.ops))
    placement = np.repeat(np.arange(len(lengths)) % 2, lengths)[: len(graph.ops)]
    return parts_by_level(graph, placement.astype(np.int32))


def run_whole(path: Path, inputs: Arrays, optimised: bool = True) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(str(path), options(optimised), providers=["CPUExecutionProvider"])
    names = list(dict.fromkeys(value.name for value in session.get_outputs()))
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def run_segments(folder: Path, inputs: Arrays, optimised: bool = True) -> dict[str, Any]:
    """Run the segments of a folder in their order; every one of them passes onnx's checker."""
    manifest = read_manifest(folder)
    held: dict[str, Any] = {name: inputs[name] for name in manifest.inputs}
    for segment in manifest.segments:
        if not manifest.weights_folder:
            onnx.checker.check_model(str(folder / segment.file))
        session = open_session(folder, manifest, segment.number, options(optimised), ["CPUExecutionProvider"])
        assert [value.name for value in session.get_inputs()] == list(segment.inputs)
        given = {name: held[name] for name in segment.inputs}
        held.update(zip(segment.outputs, session.run(segment.outputs, given), strict=True))
    return {name: held[name] for name in manifest.outputs}


def check_equal(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype
        assert found[name].shape == value.shape
        scale = float(np.abs(value).max()) if value.size and value.dtype.kind == "f" else 0.0
        np.testing.assert_allclose(found[name], value, rtol=RTOL, atol=RTOL * scale, err_msg=name)


def split_and_compare(
    path: Path, parts: Parts, folder: Path, inputs: Arrays, graph: Graph | None = None, in_place: bool = False
) -> Manifest:
    """Split, run, compare with the whole model."""
    folder.mkdir()
    manifest = split_model(path, graph or read_file(path).graph, parts, DEVICES, folder, in_place=in_place)
    assert read_manifest(folder) == manifest
    check_equal(run_segments(folder, inputs), run_whole(path, inputs))
    return manifest


def floats(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def value(name: str, *shape: int, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def stored(name: str, array: NDArray[Any]) -> Any:
    return onnx.numpy_helper.from_array(array, name)


def save_graph(
    path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: list[Any], ir: int = 9
) -> Path:
    graph = helper.make_graph(nodes, "sample", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=ir, producer_name="tests")
    helper.set_model_props(model, {"author": "nobody"})
    path.write_bytes(model.SerializeToString())
    return path


def placed(graph: Graph, *devices: int) -> Parts:
    return parts_by_level(graph, np.array(devices, np.int32))


def outside(name: str, dims: list[int], location: str, offset: int = 0, length: int | None = None) -> Any:
    """A tensor whose bytes lie in another file."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
    size = int(np.prod(dims)) * 4 if length is None else length
    for key, given in (("location", location), ("offset", offset), ("length", size)):
        tensor.external_data.add(key=key, value=str(given))
    return tensor
