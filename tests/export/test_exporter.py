"""What a target says before it is asked: whether it can take an answer, and why not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.export.layer_plans import by_layer, placed

import weftline as wl
from weftline.ask.planning import make_plan
from weftline.errors import WeftlineError
from weftline.export import Exporter, ExportOptions, plan_exporters, schedule_exporters, why_not
from weftline.graph import Op, Tensor, assemble
from weftline.plans import Plan
from weftline.problem import load_problem
from weftline.zoo import build, save

PLANS: dict[str, tuple[str, Callable[[Op], str], int, str]] = {
    "gpus": ("gpt2", by_layer(["gpu0", "gpu1"]), 2, ""),
    "cpu": ("gpt2", by_layer(["gpu0", "cpu0"]), 2, "no stages on CPUs"),
    "cnn": ("resnet50", lambda op: "gpu0", 0, "takes one stack"),
}
"""Name -> model, placement, layers, and what vLLM says about it."""


def said(target: Exporter, plan: Plan, folder: Path, options: ExportOptions) -> str:
    """What the target says when it is told to write."""
    folder.mkdir()
    try:
        target.write(plan, folder, options)
    except WeftlineError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", PLANS)
def test_targets_know_before_they_write(name: str, tmp_path: Path) -> None:
    """Tests that every target of ours says beforehand what it says when it is told to write."""
    model, choose, layers, words = PLANS[name]
    plan, targets = placed(model, choose, layers=layers), plan_exporters()
    found = {name: why_not(target, plan) for name, target in targets.items()}
    assert found == {name: said(target, plan, tmp_path / name, ExportOptions()) for name, target in targets.items()}
    assert words in found["vllm"]
    assert bool(words) == bool(found["vllm"])


def test_weights_that_are_not_there(tmp_path: Path) -> None:
    """Tests that a model without its weights cannot be cut, that one with them can, and that other files cannot."""
    whole, bare = tmp_path / "whole.onnx", tmp_path / "bare.onnx"
    save(build("bert", size="small"), whole)
    save(build("bert", size="small", weights=False), bare)
    problem, digest = load_problem(whole, cluster=wl.Cluster.preset("laptop"), rules={"objective": "latency"})
    plan = make_plan(problem, solver="single-device", work_limit=1, inputs={"model": digest})
    stages = plan_exporters()["onnx-stages"]
    assert why_not(stages, plan, ExportOptions(whole)) == ""
    assert "external data" in why_not(stages, plan, ExportOptions(bare))
    assert why_not(stages, plan, ExportOptions(Path(__file__))) == "onnx-stages cuts ONNX files; this model is none"
    assert "no such file" in why_not(stages, plan, ExportOptions(tmp_path / "absent.onnx"))


def test_what_is_read_is_not_written_over(tmp_path: Path) -> None:
    """Tests a plan and a schedule, under other names too, and the model with its weights."""
    files = {name: tmp_path / name for name in ("plan.json", "schedule.json", "model.xml", "model.bin")}
    graph = assemble("one", [Op("x", "MatMul", 1000, 10)], [Tensor("out", 0, (), 4, output=True)])
    wl.plan(graph, "two-gpus", solver="single-device", work_limit=1).save(files["plan.json"])
    wl.schedule(wl.shape("vshape", 2), micro_batches=2, solver="1f1b", work_limit=1).save(files["schedule.json"])
    for name in ("model.xml", "model.bin"):
        files[name].write_text("a model")
    (tmp_path / "link").symlink_to(files["plan.json"])
    before = {path: path.read_bytes() for path in files.values()}
    tries = [(files[name], files[name]) for name in ("plan.json", "schedule.json")]
    tries += [(files["plan.json"], files[name]) for name in ("model.xml", "model.bin")]
    for answer, output in [*tries, (files["plan.json"], tmp_path / "link")]:
        with pytest.raises(wl.InputError, match="is also what is read"):
            wl.export(answer, "svg", output, model=files["model.xml"])
    assert {path: path.read_bytes() for path in before} == before
    assert wl.export(files["plan.json"], "svg", files["schedule.json"]) == [files["schedule.json"]]


def test_schedules() -> None:
    """Tests a schedule that torch can read, and one with blocks on several devices, which it cannot."""
    target = schedule_exporters()["torch-csv"]
    plain = wl.schedule(wl.shape("vshape", 2), micro_batches=4, solver="gpipe", work_limit=1)
    wide = wl.schedule(wl.shape("mshape", 2), micro_batches=4, work_limit=10)
    assert why_not(target, plain) == ""
    assert why_not(target, wide)
