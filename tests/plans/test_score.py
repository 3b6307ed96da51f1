"""Placements of somebody else's are scored by the one simulator, and told which limits they break."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import weftline as wl
from weftline.cli.main import app
from weftline.graph import Op, Tensor, assemble
from weftline.plans.score import Score
from weftline.problem import Problem
from weftline.zoo import zoo_graph

CLUSTER = """
version = 1
name = "three"
[[device]]
id = "a"
kind = "gpu"
memory = "1 MiB"
rate = { fp32 = "1 GFLOP/s", bandwidth = "1 GB/s", launch = "1 us" }
[[device]]
id = "b"
kind = "gpu"
memory = "1 MiB"
rate = { fp32 = "1 GFLOP/s", bandwidth = "1 GB/s", launch = "1 us" }
[[device]]
id = "c"
kind = "gpu"
memory = "1 MiB"
rate = { fp32 = "1 GFLOP/s", bandwidth = "1 GB/s", launch = "1 us" }
[[link]]
between = ["a", "b"]
bandwidth = "1 GB/s"
latency = "1 us"
"""
pytestmark = pytest.mark.filterwarnings("ignore:no link between")


def chain(weight: int = 1000) -> wl.Graph:
    """x -> y -> z."""
    ops = [Op(name, "MatMul", 1_000_000, weight, traffic_bytes=10) for name in "xyz"]
    tensors = [Tensor("xy", 0, (1,), 500), Tensor("yz", 1, (2,), 500), Tensor("out", 2, (), 4, output=True)]
    return assemble("chain", ops, tensors)


def problem(objective: str = "latency", limits: str = "", **given: Any) -> Problem:
    found = wl.resolve(
        wl.PlanRequest(model=chain(**given), cluster=wl.Cluster.parse(CLUSTER + limits), objective=objective)  # type: ignore[arg-type]
    )
    return found.problem


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_scores_a_plan_as_the_plan_says(objective: str) -> None:
    """Tests that the placement of a plan has the plan's value, devices and stages."""
    graph = zoo_graph("resnet50", size="small")
    plan = wl.plan(graph, "two-gpus", objective=objective, solver="single-device")  # type: ignore[arg-type]
    score = wl.simulate(graph, plan.placement, "two-gpus", objective=objective)
    assert isinstance(score, Score)
    assert (score.value_ns, score.devices, score.stages) == (plan.value_ns, plan.devices, plan.stages)
    assert score.placement == plan.placement
    again = wl.simulate(plan.load_problem(), plan)
    assert isinstance(again, Score)
    assert again.value_ns == plan.value_ns


def test_an_order_decides() -> None:
    """Tests that the order of ops is followed, and checked."""
    ops = [Op(name, "MatMul", 1_000_000, traffic_bytes=10) for name in "pq"]
    pair = assemble("pair", ops, [Tensor(f"{name}:0", i, (), 4, output=True) for i, name in enumerate("pq")])
    for order in (["p", "q"], ["q", "p"]):
        score = wl.simulate(pair, dict.fromkeys("pq", "a"), wl.Cluster.parse(CLUSTER), order=order)
        assert isinstance(score, Score)
        assert score.timeline is not None
        assert [score.problem.graph.ops[op].name for op, _, _ in score.timeline.ops] == order
    with pytest.raises(wl.InputError, match="each of them once"):
        wl.simulate(problem(), dict.fromkeys("xyz", "a"), order=["x", "y"])
    with pytest.raises(wl.InfeasibleError, match="not topological"):
        wl.simulate(problem(), dict.fromkeys("xyz", "a"), order=["z", "y", "x"])


@pytest.mark.parametrize(
    ("placement", "error", "words"),
    [
        ({"x": "a", "y": "b"}, wl.InputError, "1 of 3 ops has no device: 'z'"),
        ({"x": "a", "y": "b", "z": "b", "w": "a"}, wl.InputError, "no op 'w'"),
        ({"x": "a", "y": "b", "z": "gpu7"}, wl.InputError, "unknown device 'gpu7' .*the devices are a, b, c"),
        ({"x": "a", "y": "c", "z": "c"}, wl.InfeasibleError, "no link from a to c for tensor 'xy'"),
    ],
)
def test_what_does_not_fit_is_named(placement: dict[str, str], error: type[Exception], words: str) -> None:
    """Tests the messages for placements that cannot run."""
    with pytest.raises(error, match=words):
        wl.simulate(problem(), placement)


def test_limits_that_break_are_named() -> None:
    """Tests memory, sets of ops, pins, numbers of stages, and cycles of stages."""
    with pytest.raises(wl.InfeasibleError, match=r"device a needs .* but holds 1 MiB"):
        wl.simulate(problem(weight=400_000), dict.fromkeys("xyz", "a"))
    torn = problem(limits='[limits]\ntogether = [["x", "y"]]')
    with pytest.raises(wl.InfeasibleError, match="must share a device"):
        wl.simulate(torn, {"x": "a", "y": "b", "z": "b"})
    pinned = problem(limits='[limits]\npin = [{ op = "x", device = "b" }]')
    with pytest.raises(wl.InfeasibleError, match="device a cannot run op 'x'"):
        wl.simulate(pinned, dict.fromkeys("xyz", "a"))
    with pytest.raises(wl.InfeasibleError, match="cycle: a -> b -> a"):
        wl.simulate(problem("throughput"), {"x": "a", "y": "b", "z": "a"})
    with pytest.raises(wl.InfeasibleError, match="uses 2 devices, and a pipeline of 1 stages"):
        wl.simulate(
            chain(), {"x": "a", "y": "b", "z": "b"}, wl.Cluster.parse(CLUSTER), objective="throughput", stages=1
        )


def run(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


def test_the_command_line_scores(tmp_path: Path) -> None:
    """Tests a placement file, a plan as one, its order, JSON, a trace, and the exit codes."""
    model, cluster, file = tmp_path / "chain.json", tmp_path / "three.toml", tmp_path / "placement.json"
    chain().save(model)
    cluster.write_text(CLUSTER)
    file.write_text(json.dumps({"x": "a", "y": "b", "z": "b"}))
    said = run(
        "simulate", str(model), "-c", str(cluster), "--placement", str(file), "--trace", str(tmp_path / "t.json")
    )
    assert said.exit_code == 0, said.output
    assert "with this placement" in said.stdout
    assert json.loads((tmp_path / "t.json").read_bytes())["traceEvents"]
    one = json.loads(run("simulate", str(model), "-c", str(cluster), "--placement", str(file), "--json").stdout)
    busy = {name: use["load_ns"] for name, use in one["devices"].items()}
    assert one["value_ns"] == sum(busy.values()) + 1_500
    assert busy["b"] == 2 * busy["a"] > busy["c"] == 0
    file.write_text(json.dumps({"placement": {"x": "a", "y": "b", "z": "b"}, "order": ["z", "x", "y"]}))
    wrong = run("simulate", str(model), "-c", str(cluster), "--placement", str(file))
    assert isinstance(wrong.exception, wl.InfeasibleError)
    plan = tmp_path / "plan.json"
    wl.plan(model, cluster, solver="single-device").save(plan)
    again = json.loads(run("simulate", str(model), "-c", str(cluster), "--placement", str(plan), "--json").stdout)
    assert again["value_ns"] == wl.Plan.load(plan).value_ns
    late = run("simulate", str(plan), "-c", str(cluster))
    assert isinstance(late.exception, wl.UsageError)
    assert "--placement" in str(late.exception)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1]", "is not a placement"),
        ('{"x": 1}', "is not text"),
        ('{"x": "a", "x": "b"}', "'x' stands twice"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"placement": {"x": "a"}, "order": "x"}', "is not a list"),
    ],
)
def test_hostile_files_are_one_error(tmp_path: Path, text: str, words: str) -> None:
    """Tests that a broken file of a placement is an InputError that names it."""
    file = tmp_path / "placement.json"
    file.write_text(text)
    with pytest.raises(wl.InputError, match=words) as error:
        wl.simulate(problem(), file)
    assert str(file) in str(error.value)
