"""Plans of three solvers on OpenVINO's HETERO for real: equal outputs, and affinities that survive their file."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.run.openvino_samples import RUNTIMES, graph_of, model_files

from weftline.ask import make_plan
from weftline.cluster import Cluster, Limits, OpDevice
from weftline.export import ExportOptions, plan_exporters
from weftline.plans import Plan
from weftline.problem import Rules, build_problem
from weftline.run.compare import difference
from weftline.run.openvino.devices import OpenvinoDevice, core_for
from weftline.run.openvino.load_affinity import AffinityError, compile_with_affinity
from weftline.run.openvino.run import run_openvino
from weftline.run.openvino.worker import make_inputs

SOLVERS: dict[str, dict[str, str]] = {"min-cut": {}, "policy": {}, "hsdag": {"episodes": "3", "polish": "off"}}


def _plan(xml: Path, solver: str) -> Plan:
    """On the laptop, sequential runtime, where the model begins on the CPU and ends on the GPU."""
    graph, laptop = graph_of(xml), Cluster.preset("laptop")
    ends = (OpDevice(graph.ops[0].name, "cpu"), OpDevice(graph.ops[-1].name, "gpu"))
    laptop = msgspec.structs.replace(laptop, limits=Limits(pin=ends))
    problem = build_problem(graph, laptop, rules=Rules(runtime="sequential"))
    return make_plan(problem, solver=solver, work_limit=1000, settings=SOLVERS[solver])


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", ["resnet50", "bert"])
def test_plans_run_and_survive_their_file(name: str, solver: str, tmp_path: Path) -> None:
    """Tests that a split gives the outputs of the whole model: run by us, and by the exported loader and file."""
    xml, _ = model_files(name, tmp_path)
    plan = _plan(xml, solver)
    result = run_openvino(plan, model=xml, runtimes=RUNTIMES, rounds=1)
    result.check(1e-3)
    assert {*result.devices} >= {"cpu", "gpu"}
    assert result.predicted_seconds == pytest.approx(plan.value_ns / 1e9)
    plan_exporters()["openvino"].write(plan, tmp_path, ExportOptions(xml, RUNTIMES))
    affinity = json.loads((tmp_path / "affinity.json").read_text())
    names = {id: runtime.removeprefix("openvino:") for id, runtime in RUNTIMES.items()}
    assert affinity == {op: names[device] for op, device in plan.placement.items()}
    core = core_for([OpenvinoDevice(each, {}) for each in names.values()])
    config = {"INFERENCE_PRECISION_HINT": "f32"}
    model = core.read_model(str(xml))
    whole = core.compile_model(model, "CPU", config).create_infer_request()
    split = compile_with_affinity(str(xml), tmp_path / "affinity.json", config, core)
    assert {"CPU", "CPU2"} <= set(split.get_property("EXECUTION_DEVICES"))
    requests = (split.create_infer_request(), whole)
    for request in requests:
        for number, tensor in enumerate(make_inputs(model, 0)):
            request.set_input_tensor(number, tensor)
        request.infer()
    ours, theirs = ([np.array(r.get_output_tensor(i).data) for i in range(len(model.outputs))] for r in requests)
    assert difference(ours, theirs) <= 1e-3


def test_a_file_with_other_names_is_refused(tmp_path: Path) -> None:
    """Tests that the exported loader says which name the model does not have, and which has no device."""
    xml, _ = model_files("bert", tmp_path)
    plan = _plan(xml, "policy")
    plan_exporters()["openvino"].write(plan, tmp_path, ExportOptions(xml, RUNTIMES))
    affinity = json.loads((tmp_path / "affinity.json").read_text())
    first = next(iter(affinity))
    with pytest.raises(AffinityError, match="no operation 'ghost'"):
        compile_with_affinity(str(xml), {**affinity, "ghost": "CPU"})
    del affinity[first]
    with pytest.raises(AffinityError, match="no device is given for operation"):
        compile_with_affinity(str(xml), affinity)
