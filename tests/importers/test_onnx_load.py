"""Loading: damaged files, external weights, model functions."""

from __future__ import annotations

import builtins
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from weftline.errors import InputError
from weftline.importers.onnx.model import IMPORTERS
from weftline.importers.registry import ImportOptions, read_file


def _value(name: str, shape: Any) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _model() -> Any:
    weight = numpy_helper.from_array(np.ones((4, 3), np.float32), "w")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    return helper.make_model(helper.make_graph([node], "g", [_value("x", [2, 4])], [_value("y", None)], [weight]))


def _read(path: Path, data: bytes) -> Any:
    path.write_bytes(data)
    return IMPORTERS[0].read(path, ImportOptions())[0]


def test_registered(tmp_path: Path) -> None:
    """Tests that the registry finds the format by content, whatever the file is called, and errors name the file."""
    path = tmp_path / "model.txt"
    path.write_bytes(_model().SerializeToString())
    found = read_file(path)
    assert (found.format, len(found.graph.ops), found.costs) == ("onnx", 1, None)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(InputError, match=r"model\.txt"):
        read_file(path)


@pytest.mark.parametrize(
    ("name", "said"),
    [("bert", "bert"), ("main_graph", "vision"), ("torch_jit", "vision"), ("", "vision"), ("tf2onnx", "vision")],
)
def test_a_model_that_its_exporter_named_is_called_as_its_file(name: str, said: str, tmp_path: Path) -> None:
    """Tests that what an exporter calls every graph (PyTorch: `main_graph`) is not the name of a model."""
    model = _model()
    model.graph.name = name
    (tmp_path / "vision.onnx").write_bytes(model.SerializeToString())
    assert read_file(tmp_path / "vision.onnx").graph.name == said
    hostile = os.fsdecode(b"\xff\x1b[2J.onnx")
    (tmp_path / "vision.onnx").rename(tmp_path / hostile)
    assert read_file(tmp_path / hostile).graph.name == (name or "model")


@pytest.mark.parametrize("data", [b"", b"\x08\x07", b"random bytes that are no model", b"\x08\x07\x3a\x05abc"])
def test_not_a_model(tmp_path: Path, data: bytes) -> None:
    """Tests that bytes without a graph are refused."""
    with pytest.raises(InputError):
        _read(tmp_path / "m.onnx", data)


def test_truncated(tmp_path: Path) -> None:
    """Tests that every proper prefix of a model that lacks part of its graph is refused."""
    data = _model().SerializeToString()
    end = data.rindex(b"B")  # the opset import comes after the graph
    for length in range(0, end, 7):
        with pytest.raises(InputError):
            _read(tmp_path / "m.onnx", data[:length])


def test_external_data_is_never_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that weights in another file count by shape, and that nothing even asks whether that file exists."""
    model = _model()
    shape = model.graph.initializer.add(name="s", data_type=TensorProto.INT64, dims=[2])
    model.graph.node.append(helper.make_node("Reshape", ["y", "s"], ["z"]))
    fill = TensorProto(name="f", data_type=TensorProto.FLOAT, dims=[1])
    model.graph.node.append(helper.make_node("ConstantOfShape", ["five"], ["big"], value=fill))
    model.graph.initializer.append(helper.make_tensor("five", TensorProto.INT64, [1], [5]))
    constant = helper.make_node("Constant", [], ["c"], value=fill)
    model.graph.node.extend([constant, helper.make_node("Sum", ["big", "c", "z"], ["out"])])
    model.graph.output[0].name = "out"
    held = [model.graph.initializer[0], shape, *(node.attribute[0].t for node in model.graph.node if node.attribute)]
    for tensor in held:
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="secret.bin")
    touched: list[str] = []

    def watch(module: Any, name: str) -> None:
        real = getattr(module, name)

        def watched(path: Any, *args: Any, **kwargs: Any) -> Any:
            touched.append(str(path))
            return real(path, *args, **kwargs)

        monkeypatch.setattr(module, name, watched)

    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    for module, name in ((builtins, "open"), (os, "open"), (os, "stat"), (os, "lstat")):
        watch(module, name)
    graph = IMPORTERS[0].read(path, ImportOptions())[0]
    monkeypatch.undo()
    assert graph.ops[0].weight_bytes == 48
    assert [name for name in touched if "secret" in name] == []


def _with_functions(calls: dict[str, list[str]]) -> Any:
    model = _model()
    model.graph.node.append(helper.make_node("start", ["y"], ["z"], domain="mine", name="/block.1/call"))
    model.graph.output[0].name = "z"
    for name, called in calls.items():
        nodes = [
            helper.make_node(kind, [f"t{i}"], [f"t{i + 1}"], domain="mine" if kind in calls else "")
            for i, kind in enumerate(called)
        ]
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)]
        model.functions.append(helper.make_function("mine", name, ["t0"], [f"t{len(called)}"], nodes, opsets))
    del model.opset_import[:]
    model.opset_import.extend([helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)])
    return model


def test_functions_are_inlined(tmp_path: Path) -> None:
    """Tests that calls of model functions become the nodes of their bodies, through several levels."""
    model = _with_functions({"start": ["Relu", "inner", "Exp"], "inner": ["Abs", "Neg"]})
    graph = _read(tmp_path / "m.onnx", model.SerializeToString())
    assert [op.kind for op in graph.ops] == ["MatMul", "Relu", "Abs", "Neg", "Exp"]
    assert [tensor.shape for tensor in graph.tensors if tensor.output] == [(2, 3)]


@pytest.mark.parametrize("calls", [{"start": ["start"]}, {"start": ["other"], "other": ["start"]}])
def test_recursive_functions_are_refused(tmp_path: Path, calls: dict[str, list[str]]) -> None:
    """Tests that a function which calls itself, directly or not, is an error."""
    with pytest.raises(InputError, match="calls itself"):
        _read(tmp_path / "m.onnx", _with_functions(calls).SerializeToString())


def test_exploding_functions_are_refused(tmp_path: Path) -> None:
    """Tests that functions which double thirty times are refused before they are inlined."""
    calls = {"start": ["f0", "f0"]} | {f"f{i}": [f"f{i + 1}"] * 2 for i in range(29)} | {"f29": ["Relu"]}
    with pytest.raises(InputError, match="inlined"):
        _read(tmp_path / "m.onnx", _with_functions(calls).SerializeToString())


def test_missing_graph(tmp_path: Path) -> None:
    """Tests that a model without graph is refused."""
    with pytest.raises(InputError, match="no graph"):
        _read(tmp_path / "m.onnx", ModelProto(ir_version=8, producer_name="p").SerializeToString())


def test_missing_opset_import(tmp_path: Path) -> None:
    """Tests that a file that forgets its opset is read with the newest one."""
    model = _model()
    del model.opset_import[:]
    assert _read(tmp_path / "m.onnx", model.SerializeToString()).tensors[-1].shape == (2, 3)
