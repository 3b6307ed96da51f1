"""Which model files fit a plan: the same bytes, the same graph with other weights, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.run.openvino_samples import graph_of, model_files

from weftline.ask import make_plan
from weftline.cluster import Cluster
from weftline.errors import InputError
from weftline.export.exporter import ExportOptions
from weftline.export.openvino import openvino_affinity
from weftline.plans import Plan
from weftline.problem import build_problem, load_problem
from weftline.run.inputs import check_planned_model
from weftline.zoo import build, save


def _plan(path: Path) -> Plan:
    problem, digest = load_problem(path, cluster=Cluster.preset("laptop"))
    return make_plan(problem, solver="single-device", work_limit=5, inputs={"model": digest})


def test_weights_are_no_part_of_a_plan(tmp_path: Path) -> None:
    """Tests that the file itself and one with other weights or none are the same model, whoever planned."""
    first, other, empty = (tmp_path / name for name in ("first.onnx", "other.onnx", "empty.onnx"))
    save(build("resnet50", size="small"), first)
    save(build("resnet50", size="small", seed=1), other)
    save(build("resnet50", size="small", weights=False), empty)
    assert first.read_bytes() != other.read_bytes()
    plan = _plan(first)
    unhashed = make_plan(build_problem(graph_of(first), Cluster.preset("laptop")), solver="greedy", work_limit=5)
    for path in (first, other, empty):
        check_planned_model(plan, path)
        check_planned_model(unhashed, path)


@pytest.mark.parametrize(
    ("name", "parameters", "says"),
    [
        ("bert", {}, "it has no operation"),
        ("resnet50", {"image": 64}, "has shape"),
        ("resnet50", {"classes": 7}, "has shape"),
    ],
)
def test_other_models_are_refused(name: str, parameters: dict[str, int], says: str, tmp_path: Path) -> None:
    """Tests other names, other sizes of inputs and of layers."""
    first, other = tmp_path / "first.onnx", tmp_path / "other.onnx"
    save(build("resnet50", size="small"), first)
    save(build(name, size="small", weights=False, **parameters), other)
    with pytest.raises(InputError, match=f"is not the model that the plan was made for: .*{says}"):
        check_planned_model(_plan(first), other)


def test_exports_look_at_the_model(tmp_path: Path) -> None:
    """Tests that affinities are not written for another model, and that a missing file is one."""
    xml, _ = model_files("resnet50", tmp_path)
    plan = _plan(xml)
    other, _ = model_files("bert", tmp_path)
    runtimes = {device.id: f"openvino:CPU{number}" for number, device in enumerate(plan.problem.devices, 2)}
    with pytest.raises(InputError, match="is not the model that the plan was made for"):
        openvino_affinity(plan, ExportOptions(other, runtimes))
    with pytest.raises(InputError, match="no such file"):
        openvino_affinity(plan, ExportOptions(tmp_path / "none.xml", runtimes))
