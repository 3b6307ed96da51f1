"""Plans on OpenVINO's HETERO, with the CPU's plugin as several devices."""

from __future__ import annotations

import math
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.run.openvino_samples import RUNTIMES, graph_of, model_files, openvino, split_plan

from weftline.ask import make_plan
from weftline.cluster import Cluster, Device
from weftline.errors import ExecutionMismatch, InfeasibleError, InputError, LimitReached, UsageError, WeftlineError
from weftline.importers.openvino.live import graph_of_openvino
from weftline.problem import Rules, build_problem, read_model
from weftline.run.compare import difference
from weftline.run.openvino.devices import (
    OpenvinoDevice,
    core_for,
    forbid_unsupported,
    openvino_device,
    openvino_devices,
    unsupported_ops,
)
from weftline.run.openvino.load_affinity import compile_with_affinity, placed_operations
from weftline.run.openvino.meter import OpenvinoMeter, measure_placements
from weftline.run.openvino.run import run_openvino
from weftline.run.verb import run
from weftline.zoo import build, example_inputs


@pytest.mark.parametrize(
    ("name", "kind"), [("resnet50", ".xml"), ("bert", ".xml"), ("bert", ".onnx"), ("inception-v3", ".xml")]
)
def test_minimum_cuts_run(name: str, kind: str, tmp_path: Path) -> None:
    """Tests that a cut of a real model over two devices gives the outputs of the whole one, beside its prediction."""
    model = next(path for path in model_files(name, tmp_path) if path.suffix == kind)
    plan = split_plan(model)
    result = run_openvino(plan, model=model, runtimes=RUNTIMES, rounds=3)
    result.check(1e-3)
    assert {*result.devices} >= {"cpu", "gpu"}
    assert {result.devices[id] for id in ("cpu", "gpu")} == {"CPU", "CPU2"}
    assert sum(result.ops.values()) == len(plan.placement)
    assert min(result.ops.values()) > 0
    assert result.predicted_seconds == plan.value_ns / 1e9
    assert result.reference == "cpu"
    assert 0 < result.measured_seconds < math.inf
    assert result.measured_ratio > 0
    assert result.predicted_ratio is None  # the last op is pinned away from the reference
    assert f"measured {result.measured_seconds * 1e3:.2f} ms" in result.summary()


def test_prediction_beside_the_reference(tmp_path: Path) -> None:
    """Tests that a plan for the parallel runtime is predicted as HETERO runs it, beside one device alone."""
    xml, _ = model_files("bert", tmp_path)
    problem = build_problem(graph_of(xml), Cluster.preset("laptop"))
    plan = make_plan(problem, solver="single-device", work_limit=5)
    first = {op.name for op in problem.graph.ops[:40]}
    plan = msgspec.structs.replace(plan, placement={name: "cpu" if name in first else "gpu" for name in plan.placement})
    result = run_openvino(plan, model=xml, runtimes=RUNTIMES, rounds=2, reference="gpu")
    result.check()
    time = problem.cost.time
    sent = [
        t
        for t, tensor in enumerate(problem.graph.tensors)
        if 0 <= tensor.producer < 40 <= max(tensor.consumers, default=-1)
    ]
    crossing = problem.cost.transfer[problem.cost.transfer_row[sent], 0, 2].sum()
    assert crossing > 0
    assert result.predicted_seconds == (time[:40, 0].sum() + time[40:, 2].sum() + crossing) / 1e9
    assert result.reference_predicted_seconds == time[:, 2].sum() / 1e9
    assert result.reference_predicted_seconds is not None
    assert result.predicted_ratio == pytest.approx(result.predicted_seconds / result.reference_predicted_seconds)


def test_outputs_follow_the_inputs(tmp_path: Path) -> None:
    """Tests that a split model computes anew: other inputs give other outputs, those of the whole model."""
    xml, _ = model_files("resnet50", tmp_path)
    core = core_for([OpenvinoDevice("CPU", {}), OpenvinoDevice("CPU2", {})])
    model = core.read_model(str(xml))
    names = [node.get_friendly_name() for node in placed_operations(model)]
    halves = {name: "CPU" if number < len(names) // 2 else "CPU2" for number, name in enumerate(names)}
    config = {"INFERENCE_PRECISION_HINT": "f32"}
    whole, split = core.compile_model(model, "CPU", config), compile_with_affinity(model, halves, config, core)
    assert sorted(split.get_property("EXECUTION_DEVICES")) == ["CPU", "CPU2"]
    seen = []
    for seed in range(2):
        image = np.random.default_rng(seed).standard_normal((1, 3, 32, 32)).astype(np.float32)
        ours, theirs = (np.array(compiled([image])[0]) for compiled in (split, whole))
        assert difference([ours], [theirs]) <= 1e-3
        seen.append(ours)
    assert difference([seen[0]], [seen[1]]) > 0.1


def test_given_inputs_and_differences(tmp_path: Path) -> None:
    """Tests that inputs are matched by name and shape, and that a difference is an error with exit code 7."""
    xml, _ = model_files("resnet50", tmp_path)
    plan = split_plan(xml)
    inputs = example_inputs(build("resnet50", size="small"))
    result = run_openvino(plan, model=xml, inputs=inputs, runtimes=RUNTIMES, rounds=1)
    result.check()
    assert "do not compare" in replace(result, steady=False).summary()
    assert "do not compare" not in replace(result, steady=True).summary()
    with pytest.raises(ExecutionMismatch, match="outputs differ") as caught:
        replace(result, max_output_difference=0.5).check()
    assert caught.value.exit_code == 7
    with pytest.raises(ExecutionMismatch):
        replace(result, max_output_difference=math.nan).check()
    with pytest.raises(InputError, match=r"no values are given"):
        run_openvino(plan, model=xml, inputs={"wrong": inputs["input"]}, runtimes=RUNTIMES)
    with pytest.raises(InputError, match="the inputs are no plain arrays"):
        run(plan, model=xml, inputs=[{"input": object()}], runtimes=RUNTIMES)
    with pytest.raises(InputError, match=r"'input'.*shape"):
        run_openvino(plan, model=xml, inputs={"input": inputs["input"][..., :5]}, runtimes=RUNTIMES)


def test_plans_that_cannot_be_run(tmp_path: Path) -> None:
    """Tests the sentences about devices without a runtime, absent devices, other models, and plans for throughput."""
    xml, onnx = model_files("resnet50", tmp_path)
    plan = split_plan(xml)
    with pytest.raises(InputError, match=r"device 'cpu' cannot be run by OpenVINO: its runtime is 'ort:"):
        run_openvino(plan, model=xml)
    with pytest.raises(UsageError, match="a runtime is given for 'tpu'"):
        run_openvino(plan, model=xml, runtimes={**RUNTIMES, "tpu": "openvino:GPU"})
    with pytest.raises(InputError, match=r"no device 'GPU\.7' on this machine"):
        run_openvino(plan, model=xml, runtimes={**RUNTIMES, "gpu": "openvino:GPU.7"})
    with pytest.raises(InputError, match="are both OpenVINO's 'CPU'"):
        run_openvino(plan, model=xml, runtimes={**RUNTIMES, "gpu": "openvino:CPU"})
    with pytest.raises(InputError, match="refuses a device"):
        run_openvino(plan, model=xml, runtimes={**RUNTIMES, "gpu": "openvino:CPU2,NO_SUCH_PROPERTY=1"})
    with pytest.raises(InputError, match="no such file"):
        run_openvino(plan, model=tmp_path / "none.xml", runtimes=RUNTIMES)
    other, _ = model_files("bert", tmp_path)
    with pytest.raises(InputError, match="is not the model that the plan was made for: it has no operation"):
        run_openvino(plan, model=other, runtimes=RUNTIMES)
    with pytest.raises(InputError, match="ops of the plan are not in it"):
        run_openvino(plan, model=onnx, runtimes=RUNTIMES)
    with pytest.raises(UsageError, match="throughput"):
        run_openvino(msgspec.structs.replace(plan, objective="throughput"), model=xml, runtimes=RUNTIMES)


def test_runtimes_of_devices() -> None:
    """Tests names and properties of runtimes, and that everything else is refused."""

    def device(runtime: str) -> Device:
        return Device("a", "gpu", None, runtime=runtime)

    assert openvino_device(device("openvino:GPU.1")) == OpenvinoDevice("GPU.1", {})
    found = openvino_device(device("openvino:CPU2,INFERENCE_NUM_THREADS=1,PERF_COUNT=NO"))
    assert found == OpenvinoDevice("CPU2", {"INFERENCE_NUM_THREADS": "1", "PERF_COUNT": "NO"})
    assert openvino_device(device("ort:X"), {"a": "openvino:NPU"}).name == "NPU"
    for wrong in (
        "",
        "openvino:",
        "openvino:cpu",
        "openvino:CPU,",
        "openvino:CPU,A",
        "openvino:HETERO:CPU",
        "OPENVINO:CPU",
    ):
        with pytest.raises(InputError, match="openvino:GPU"):
            openvino_device(device(wrong))
    assert list(openvino_devices([device("openvino:CPU")])) == ["a"]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, tuple[Device, ...], Path]:
    """A graph, devices and the model file."""
    xml, _ = model_files("bert", tmp_path_factory.mktemp("small"))
    return read_model(xml), Cluster.preset("laptop").devices, xml


def test_measured_placements(small: tuple[Any, tuple[Device, ...], Path]) -> None:
    """Tests that placements are measured up to the budget, each in turns with the reference."""
    graph, devices, xml = small
    n = len(graph.ops)
    dice = np.random.default_rng(0)
    placements = [np.zeros(n, int), np.arange(n) // (n // 2 + 1) * 2, dice.choice([0, 2], n), np.zeros(n, int)]
    runtimes = {**RUNTIMES, "gpu": "openvino:CPU2,INFERENCE_NUM_THREADS=1"}
    found = measure_placements(graph, devices, xml, placements, runtimes=runtimes, budget=3, rounds=3)
    assert len(found) == 3
    for one in found:
        assert one.failed == (one.ratio == math.inf)
        assert one.failed or (one.rounds == 3 and one.seconds > 0 and one.difference <= 1e-3)
        assert one.failed or (0 < one.quickest_ratio < math.inf and one.spread >= 0)
        assert one.steady == (one.spread <= 0.2)
    assert not found[0].failed
    assert not found[1].failed


def test_a_meter_survives_its_process(small: tuple[Any, tuple[Device, ...], Path]) -> None:
    """Tests that a crash or a silence is a penalty, that the next placement is measured again, and the budget."""
    graph, devices, xml = small
    everything = [0] * len(graph.ops)
    with OpenvinoMeter(graph, devices, xml, runtimes=RUNTIMES, rounds=1, budget=4) as meter:
        assert not meter.measure(everything).failed
        assert meter._process is not None
        os.kill(meter._process.pid, signal.SIGKILL)
        crashed = meter.measure(everything)
        assert crashed.ratio == math.inf
        assert "signal 9" in crashed.error
        assert not meter.measure(everything).failed
        assert meter._process is not None
        os.kill(meter._process.pid, signal.SIGSTOP)
        meter._limit = 0.2
        assert "no answer within" in meter.measure(everything).error
        assert meter._process is None
        assert (meter.spent, meter.left) == (4, 0)
        with pytest.raises(LimitReached, match="budget of 4"):
            meter.measure(everything)


def test_a_meter_refuses_nonsense(small: tuple[Any, tuple[Device, ...], Path]) -> None:
    """Tests placements of the wrong length or on devices that OpenVINO does not run, before anything is started."""
    graph, devices, xml = small
    meter = OpenvinoMeter(graph, devices, xml, runtimes={"cpu": "openvino:CPU"})
    with pytest.raises(UsageError, match="one device for each"):
        meter.measure([0])
    with pytest.raises(InputError, match="device 'gpu' has no OpenVINO runtime"):
        meter.measure([2] * len(graph.ops))
    with pytest.raises(InputError, match="there is no device 9"):
        meter.measure([9] * len(graph.ops))
    with pytest.raises(UsageError, match="reference 'gpu'"):
        OpenvinoMeter(graph, devices, xml, runtimes={"cpu": "openvino:CPU"}, reference="gpu")
    with pytest.raises(InputError, match="device 'cpu' cannot be run by OpenVINO"):
        OpenvinoMeter(graph, devices, xml)
    assert meter._process is None


def test_inputs_of_any_name(tmp_path: Path) -> None:
    """Tests that inputs may be called like options of what stores them, and that each gets its own values."""
    ov = openvino()
    import openvino.opset13 as ops

    shapes = {"file": [1, 4], "allow_pickle": [2, 4], "a/../b": [3, 4], "arr_0": [4, 4]}
    ports = [ops.parameter(shape, np.float32, name=name) for name, shape in shapes.items()]
    xml = tmp_path / "model.xml"
    ov.save_model(ov.Model([ops.relu(ops.concat(ports, 0, name="join"), name="relu")], ports, "m"), str(xml))
    inputs = {name: np.ones(shapes[name], np.float32) for name in reversed(shapes)}
    graph, devices = graph_of(xml), Cluster.preset("laptop").devices
    (found,) = measure_placements(graph, devices, xml, [[0, 0]], runtimes=RUNTIMES, inputs=inputs, rounds=1)
    assert not found.failed


def _with_a_strange_op() -> Any:
    """A model with an operation that OpenVINO's CPU cannot run."""
    ov = openvino()
    import openvino.opset13 as ops

    class Strange(ov.Op):  # type: ignore[misc, name-defined]
        class_type_info = ov.DiscreteTypeInfo("Strange", "extension")

        def __init__(self, inputs: Any = None) -> None:
            super().__init__(self)
            if inputs is not None:
                self.set_arguments(inputs)
                self.constructor_validate_and_infer_types()

        def validate_and_infer_types(self) -> None:
            self.set_output_type(0, self.get_input_element_type(0), self.get_input_partial_shape(0))

        def clone_with_new_inputs(self, inputs: Any) -> Any:
            return Strange(inputs)

        def get_type_info(self) -> Any:
            return Strange.class_type_info

    x = ops.parameter([1, 4], np.float32, name="x")
    strange = Strange([ops.relu(x, name="before").output(0)])
    strange.set_friendly_name("strange[0]")
    return ov.Model([ops.exp(strange.output(0), name="after")], [x], "odd")


def test_unsupported_ops_are_forbidden() -> None:
    """Tests that an op a plugin does not list is planned elsewhere, and that it is said where there is no elsewhere."""
    model = _with_a_strange_op()
    graph = graph_of_openvino(model)
    found = unsupported_ops(graph, model, {"cpu": OpenvinoDevice("CPU", {})})
    assert [(entry.op, entry.device) for entry in found] == [("strange[0]", "cpu")]
    laptop = Cluster.preset("laptop")
    limited = forbid_unsupported(laptop, graph, model, {"cpu": "openvino:CPU", "gpu": "openvino:CPU2"})
    problem = build_problem(graph, limited, rules=Rules(runtime="sequential"))
    plan = make_plan(problem, solver="min-cut", work_limit=100)
    assert plan.placement["strange[0]"] == "igpu"
    with pytest.raises(InfeasibleError, match=r"no device is left for op 'strange\[0\]'"):
        build_problem(graph, forbid_unsupported(laptop, graph, model, RUNTIMES))


def test_a_supported_model_has_no_forbids(small: tuple[Any, tuple[Device, ...], Path], tmp_path: Path) -> None:
    """Tests that the CPU says yes to every op of a zoo model, from its IR and from ONNX."""
    graph, _, xml = small
    assert unsupported_ops(graph, xml, {"cpu": OpenvinoDevice("CPU", {})}) == ()
    _, onnx = model_files("resnet50", tmp_path)
    assert unsupported_ops(graph_of(onnx), onnx, {"cpu": OpenvinoDevice("CPU", {})}) == ()


def test_models_that_openvino_cannot_run(small: tuple[Any, tuple[Device, ...], Path], tmp_path: Path) -> None:
    """Tests that a model whose weights are missing is one error that says so."""
    graph, devices, xml = small
    alone = tmp_path / "alone.xml"
    alone.write_bytes(xml.read_bytes())
    meter = OpenvinoMeter(graph, devices, alone, runtimes=RUNTIMES)
    with pytest.raises(WeftlineError, match="OpenVINO cannot"):
        meter.measure([0] * len(graph.ops))
    assert meter._process is None


def test_difference() -> None:
    """Tests what counts as a difference: relative, with a floor, and never by accident of NaN or shape."""
    one = np.array([1.0, -2.0, 1e-9], np.float32)
    assert difference([one], [one]) == 0
    assert difference([one * np.float32(1.01)], [one]) == pytest.approx(0.01, rel=1e-3)
    assert difference([one + np.array([0, 0, 1e-6], np.float32)], [one]) == pytest.approx(5e-5, rel=1e-2)
    assert difference([one[:2]], [one]) == math.inf
    assert difference([one.astype(np.float64)], [one]) == math.inf
    holed = np.array([1.0, np.nan, np.inf], np.float32)
    assert difference([holed], [holed]) == 0
    assert difference([one], [holed]) == math.inf
    assert difference([holed], [one]) == math.inf
    assert difference([np.array([True])], [np.array([False])]) == math.inf
    assert difference([np.zeros(3, np.float32)], [np.zeros(3, np.float32)]) == 0
    assert difference([np.array([50257])], [np.array([50256])]) == math.inf
    assert difference([np.array([2**60 + 1])], [np.array([2**60])]) == math.inf
