"""The section on real models: what is collected, what is counted, what the page says of failures."""

from __future__ import annotations

from collections import Counter
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
import onnx
import pytest
from benchmarks.models.collection import SOURCES
from benchmarks.models.count import count_by_runtime
from benchmarks.models.source import Source, feeds_of, missing
from benchmarks.render import text_of
from benchmarks.results import Collector, Row
from benchmarks.section import Run
from benchmarks.sections import models
from benchmarks.sections.models import SECTION, SIZES
from onnx import TensorProto, helper

KINDS = {
    "file in a package",
    "torch export, legacy",
    "torch export, dynamo",
    "ORT-quantised",
    "ORT-fused",
    "genai builder",
    "OpenVINO IR",
    "live module",
}


def test_collection() -> None:
    """Tests that there are enough models, of every kind, each name once, and that sizes ask for names that exist."""
    assert len(SOURCES) >= 60
    assert set(Counter(source.kind for source in SOURCES.values())) == KINDS
    for size in SIZES.values():
        assert set(size["models"]) <= set(SOURCES)
    assert {SOURCES[name].kind for name in SIZES["quick"]["models"]} == KINDS


def saved(path: Path) -> Path:
    """A convolution, a transposed one, a product, an LSTM and a Gemm."""
    weights = {
        "w": (4, 3, 3, 3),
        "v": (4, 2, 2, 2),
        "m": (16, 5),
        "lw": (1, 12, 5),
        "lr": (1, 12, 3),
        "g": (7, 3),
    }
    tensors = [helper.make_tensor(name, 1, shape, np.zeros(shape).ravel()) for name, shape in weights.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("ConvTranspose", ["a", "v"], ["b"], strides=[2, 2]),
        helper.make_node("MatMul", ["b", "m"], ["c"]),
        helper.make_node("Squeeze", ["c"], ["d"]),
        helper.make_node("LSTM", ["d", "lw", "lr"], ["", "h"], hidden_size=3),
        helper.make_node("Flatten", ["h"], ["f"], axis=2),
        helper.make_node("Gemm", ["f", "g"], ["y"], transB=1),
    ]
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "high", 8])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, "wide"])
    graph = helper.make_graph(nodes, "g", [image], [result], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path))
    return path


def test_counter(tmp_path: Path) -> None:
    """Tests the independent count by hand, for a file whose dimension is open."""
    path = saved(tmp_path / "m.onnx")
    shapes, feeds = feeds_of(path, {}, {}, {"high": 8})
    assert shapes == {"x": (1, 3, 8, 8)}
    convolution = 2 * 4 * 8 * 8 * 3 * 3 * 3
    transposed = 2 * 4 * 8 * 8 * 2 * 2 * 2
    product = 2 * 2 * 16 * 5 * 16
    recurrent = 2 * 4 * 2 * 16 * 3 * (5 + 3)
    last = 2 * 16 * 7 * 3
    assert count_by_runtime(path, feeds) == convolution + transposed + product + recurrent + last


def test_counter_of_bodies(tmp_path: Path) -> None:
    """Tests that the branch that is taken counts, every round of a loop, and a Fourier transform."""
    make, value, whole = helper.make_node, helper.make_tensor_value_info, TensorProto.INT64
    wide, narrow = np.ones((4, 5), np.float32), np.ones((4, 2), np.float32)

    def branch(name: str, weight: np.ndarray) -> onnx.GraphProto:
        stored = onnx.numpy_helper.from_array(weight, f"{name} w")
        nodes = [make("MatMul", ["x", f"{name} w"], [f"{name} y"])]
        return helper.make_graph(nodes, name, [], [value(f"{name} y", 1, None)], [stored])

    rounds = helper.make_graph(
        [make("MatMul", ["x in", "s"], ["x out"]), make("Identity", ["go"], ["going"])],
        "rounds",
        [value("turn", whole, []), value("go", TensorProto.BOOL, []), value("x in", 1, [3, 4])],
        [value("going", TensorProto.BOOL, []), value("x out", 1, [3, 4])],
    )
    stored = {"s": np.ones((4, 4), np.float32), "trips": np.array(6), "yes": np.array(True), "step": np.array(64)}
    stored |= {"window": np.ones(128, np.float32)}
    nodes = [
        make("If", ["which"], ["a"], then_branch=branch("then", wide), else_branch=branch("else", narrow)),
        make("Loop", ["trips", "yes", "x"], ["b"], body=rounds),
        make("STFT", ["sound", "step", "window"], ["c"]),
    ]
    inputs = [value("x", 1, [3, 4]), value("which", TensorProto.BOOL, []), value("sound", 1, [1, 320])]
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in stored.items()]
    graph = helper.make_graph(nodes, "g", inputs, [value(name, 1, None) for name in "abc"], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(tmp_path / "m.onnx"))
    for which, columns in ((True, 5), (False, 2)):
        feeds = {"x": np.ones((3, 4), np.float32), "which": np.array(which), "sound": np.ones((1, 320), np.float32)}
        products = 2 * 3 * 4 * columns + 6 * 2 * 3 * 4 * 4
        assert count_by_runtime(tmp_path / "m.onnx", feeds) == products + 5 * 4 * 128 * 7 // 2


def test_values_of_inputs(tmp_path: Path) -> None:
    """Tests that an input can be set to a number, that masks are 1, and that ids stay below a limit."""
    kinds = {"length": TensorProto.INT64, "attention_mask": TensorProto.INT64, "ids": TensorProto.INT64}
    inputs = [helper.make_tensor_value_info(name, kind, [1, "n"]) for name, kind in kinds.items()]
    model = helper.make_model(helper.make_graph([], "g", inputs, []))
    onnx.save(model, str(tmp_path / "m.onnx"))
    _, feeds = feeds_of(tmp_path / "m.onnx", {"ids": (1, 50)}, {"length": 24}, {"n": 4}, most=7)
    assert feeds["length"].tolist() == [[24] * 4]
    assert feeds["attention_mask"].tolist() == [[1] * 4]
    assert feeds["ids"].shape == (1, 50)
    assert 2 <= feeds["ids"].max() < 7


def test_what_is_not_installed_is_a_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tests that a model without its package is a row that the page shows, with the command that installs it."""
    source = Source("a", "file in a package", ("onnx", "no-such-package-of-ours"), lambda folder: None)  # type: ignore[arg-type, return-value]
    assert distribution("onnx")
    assert missing(source) == ["no-such-package-of-ours"]
    monkeypatch.setitem(SOURCES, "a", source)
    collect = Collector(tmp_path / "a.json", {}, resume=False)
    SECTION.measure({**SIZES["tiny"], "models": ["a"]}, collect)
    assert collect.rows[0]["missing"] == ["no-such-package-of-ours"]
    run = Run(collect.rows, SIZES["tiny"])
    (_, loss) = SECTION.losses(run)
    assert loss.startswith("**Not installed:** 1 models need no-such-package-of-ours; `pip install")
    assert "| a | file in a package | not installed: no-such-package-of-ours |" in "\n".join(
        text_of(SECTION.blocks, run)
    )


def test_a_process_that_takes_too_long_is_one_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tests that a model beyond its limit is ended and told, and that the next one is judged."""
    monkeypatch.setattr(models, "missing", lambda source: [])
    collect = Collector(tmp_path / "a.json", {}, resume=False)
    SECTION.measure({**SIZES["tiny"], "models": ["onnx-shufflenet"], "seconds": 0}, collect)
    assert collect.rows[0]["failures"] == {"process": "ended after 0 s"}
    (_, loss) = SECTION.losses(Run(collect.rows))
    assert loss == "**Failed:** onnx-shufflenet (process: ended after 0 s)."


def row(model: str, **more: object) -> Row:
    done = {"ops": 5, "guessed": 0, "flops": 105, "counted": 100, "gap": 0.0, "proof": "proved", "alone": False}
    ran = {"verify": True, "ort": True, "run": True, "difference": 1e-6, "segments": 2, "export": 4, "seconds": 3.0}
    return {"model": model, "kind": "ORT-fused", "failures": {}, **done, **ran, **more}


def test_page() -> None:
    """Tests that runs are counted against those that run unsplit, and that failures and far counts are said."""
    rows = [
        row("good"),
        row("far", flops=150),
        row("guess", flops=150, guessed=2),
        row("broken", run=None, failures={"run": "device 'w0': no"}),
        row("chaotic", run=None, difference=5.0, own_difference=4.0, failures={"run": "outputs differ"}),
        row("wrong", run=None, difference=5.0, own_difference=1e-6, failures={"run": "outputs differ"}),
        row("theirs", ort=False, run=None, failures={"ort": "it does not run"}),
    ]
    run = Run(rows, SIZES["tiny"])
    assert "**3 of the 5 that run unsplit run on two workers**" in next(iter(SECTION.losses(run)))
    assert list(SECTION.losses(run))[1:] == [
        "**Failed:** broken (run: device 'w0': no); wrong (run: outputs differ); theirs (ort: it does not run).",
        "**Ran, but not comparable: ONNX Runtime alone differs as much from itself once its optimiser is off:** "
        "chaotic (5e+00).",
        "**Flops are more than 12% off (ours over counted):** far 1.50.",
        "**As far off, but called a guess by the importer:** guess 1.50.",
    ]
    page = "\n".join(text_of(SECTION.blocks, run))
    assert "| ORT-fused | 7 | 0 | 7 | 7 | 3 of 5 | 7 | 1.05 to 1.50 |" in page
    assert "| broken | ORT-fused | 5 ops | 1.050 | gap 0.0%, proved | yes | yes | 2 | **failed** | 4 | 3 |" in page
    assert "| broken | run | device 'w0': no |" in page


def test_tiny_run(tmp_path: Path) -> None:
    """Tests one model of the package onnx through everything, in its own process."""
    collect = Collector(tmp_path / "a.json", {}, resume=False)
    SECTION.measure(dict(SIZES["tiny"]), collect)
    (found,) = collect.rows
    assert found["failures"] == {}
    assert found["run"]
    assert found["verify"]
    assert found["export"]
    assert found["difference"] < 1e-3
    assert 1 <= found["flops"] / found["counted"] < 1.12
