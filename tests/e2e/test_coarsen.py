"""`weftline plan --coarsen` from end to end: fused groups stay whole, the plan verifies, mistakes are usage errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.e2e.test_command_line import run

import weftline as wl
from weftline import zoo
from weftline.ask.answer import resolve
from weftline.ask.request import PlanRequest
from weftline.certify import Verdict
from weftline.graph import graph_to_json


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small model."""
    folder = tmp_path_factory.mktemp("coarsen")
    zoo.save(zoo.build("bert", size="small", weights=False), folder / "bert.onnx")
    return folder


def test_fused_groups_stay_whole(work: Path) -> None:
    """Tests that no group is cut, and that the plan verifies and explains like any other."""
    run("plan", "bert.onnx", "-c", "laptop", "--solver", "heft", "--coarsen", "oracle", "-o", "fused.json", cwd=work)
    plan = json.loads((work / "fused.json").read_text())
    groups = plan["problem"]["together"]
    names = [op["name"] for op in plan["problem"]["graph"]["ops"]]
    assert len(groups) > 10
    for members in groups:
        assert len({plan["placement"][names[op]] for op in members}) == 1
    assert json.loads(run("verify", "fused.json", "--json", cwd=work).stdout)["ok"] is True
    chain = json.loads(run("explain", "fused.json", "--json", cwd=work).stdout)["chain"]
    assert chain[-1]["end_ns"] == plan["value_ns"]
    assert plan["provenance"]["argv"][-2:] == ["--coarsen", "oracle"]


def test_usage_errors(work: Path) -> None:
    """Tests that pipelines, unknown words and models without an ONNX file are refused in one sentence."""
    words = ("plan", "bert.onnx", "-c", "two-gpus", "--coarsen", "gcof")
    assert "latency" in run(*words, "--objective", "throughput", cwd=work, code=2).stderr
    assert "coplace" in run("plan", "bert.onnx", "--coarsen", "all", cwd=work, code=2).stderr
    (work / "graph.json").write_bytes(graph_to_json(zoo.synthetic("chain", ops=5)))
    assert "ONNX file" in run("plan", "graph.json", "-c", "laptop", "--coarsen", "oracle", cwd=work, code=2).stderr


@pytest.mark.parametrize("method", ["chains", "coplace"])
def test_groups_for_the_search(method: str, work: Path) -> None:
    """Tests that these leave the problem as it is, and keep the groups beside it."""
    found = resolve(PlanRequest(model=work / "bert.onnx", cluster="laptop", coarsen=method))
    assert found.problem.together == ()
    assert found.group is not None
    assert 1 < len(set(found.group.tolist())) < len(found.problem.graph.ops)


def test_facade(work: Path) -> None:
    """Tests the same from Python: the oracle needs the file, a wrong file falls back with a warning."""
    graph, cluster = wl.load(work / "bert.onnx"), wl.Cluster.preset("laptop")
    plain = wl.plan(graph, cluster, solver="heft")
    for method in ("oracle", "gcof"):
        plan = wl.plan(graph, cluster, solver="heft", coarsen=method, model_file=work / "bert.onnx")
        verdict = wl.verify(plan)
        assert isinstance(verdict, Verdict)
        assert verdict.value_ns == plan.value_ns < plain.value_ns
    with pytest.raises(wl.UsageError, match="ONNX file"):
        wl.plan(graph, cluster, coarsen="oracle")
    zoo.save(zoo.build("unet", size="small", weights=False), work / "unet.onnx")
    with pytest.warns(UserWarning, match="gcof"):
        wl.plan(graph, cluster, solver="heft", coarsen="oracle", model_file=work / "unet.onnx")
