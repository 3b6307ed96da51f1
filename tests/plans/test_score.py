"""Placements of somebody else's are scored by the one simulator, and told which limits they break."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import weftline as wl
from weftline.cli.main import app
from weftline.errors import UsageError
from weftline.graph import Op, Tensor, assemble
from weftline.plans.plan import plan_to_json
from weftline.plans.score import Score
from weftline.problem import Problem
from weftline.search import Search, Solver
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
    plan = wl.plan(graph, "two-gpus", objective=objective, copies=1, solver="single-device")  # type: ignore[call-overload]
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


def fork(tensor: str = "pr", consumers: tuple[int, ...] = (2,)) -> wl.Graph:
    """p and q on their own, r after p."""
    ops = [Op(name, "MatMul", 1_000_000, traffic_bytes=10) for name in "pqr"]
    return assemble("fork", ops, [Tensor(tensor, 0, consumers, 500), Tensor("q:0", 1, (), 4, output=True)])


def late(search: Search) -> None:
    """Both on a, and what nothing waits for first: a bad order that no rank would give."""
    search.offer(np.array([0, 0, 1], np.int32), order=np.array([1, 0, 2], np.int32))


def test_a_plan_brings_its_order(tmp_path: Path) -> None:
    """Tests that the value of a plan's placement is the plan's: of an object and a file, in Python and as a command."""
    model, cluster, file = tmp_path / "fork.json", tmp_path / "three.toml", tmp_path / "plan.json"
    fork().save(model)
    cluster.write_text(CLUSTER)
    plan = wl.plan(model, cluster, solver=Solver("late", "a bad order", late))
    plan.save(file)
    bare = wl.simulate(fork(), plan.placement, wl.Cluster.parse(CLUSTER))
    assert isinstance(bare, Score)
    assert bare.order == "rank"
    assert bare.value_ns < plan.value_ns
    for given in (plan, file):
        score = wl.simulate(fork(), given, wl.Cluster.parse(CLUSTER))
        assert isinstance(score, Score)
        assert (score.order, score.note) == ("plan", "")
        assert (score.value_ns, score.timeline) == (plan.value_ns, plan.timeline)
        ranked = wl.simulate(fork(), given, wl.Cluster.parse(CLUSTER), order=["p", "q", "r"])
        assert isinstance(ranked, Score)
        assert (ranked.order, ranked.value_ns) == ("given", bare.value_ns)
    said = run("simulate", str(model), "-c", str(cluster), "--placement", str(file))
    assert "with this placement and the plan's order" in said.stdout
    assert said.stderr == ""


def test_an_order_that_cannot_be_taken_is_said(tmp_path: Path) -> None:
    """Tests other rules, another graph, another way of the data, a throughput plan, and a plan with a given order."""
    cluster, solver = wl.Cluster.parse(CLUSTER), Solver("late", "a bad order", late)
    plan = wl.plan(fork(), cluster, solver=solver)
    pipe = wl.plan(fork(), cluster, objective="throughput", copies=1, stages=2, work_limit=20)
    joined = fork(consumers=(1, 2))
    per_edge = "its transfers is per-tensor, and per-edge is asked for"
    for graph, given, asked, why in (
        (fork(), plan, {"transfers": "per-edge"}, per_edge),
        (fork("other"), plan, {}, "it is a plan of another graph"),
        (joined, plan, {}, "'q' cannot be done"),
        (fork(), pipe, {}, "it is a plan for throughput"),
    ):
        score = wl.simulate(graph, given, cluster, **asked)
        assert isinstance(score, Score)
        assert score.order == "rank"
        assert score.note.startswith(f"only the placement of the plan is taken, not its order: {why}")
        bare = wl.simulate(graph, given.placement, cluster, **asked)
        assert (score.value_ns, bare.note) == (bare.value_ns, "")  # type: ignore[union-attr]
        assert json.loads(score.to_json())["note"] == score.note
    file, model = tmp_path / "plan.json", tmp_path / "fork.json"
    (tmp_path / "three.toml").write_text(CLUSTER)
    fork().save(model)
    file.write_text(json.dumps({**json.loads(plan_to_json(plan)), "order": ["p", "q", "r"]}))
    words = ["simulate", str(model), "-c", str(tmp_path / "three.toml"), "--placement", str(file)]
    assert json.loads(run(*words, "--json").stdout)["order"] == "given"
    plan.save(file)
    said = run(*words, "--transfers", "per-edge")
    assert said.stderr.strip().endswith(per_edge)
    file.write_text(json.dumps({**json.loads(plan_to_json(plan)), "value_ns": "soon"}))
    with pytest.raises(wl.InputError, match="not a weftline plan"):
        wl.simulate(fork(), file, cluster)


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


def test_numbers_of_devices() -> None:
    """Tests that an array, or a list, of a device for each op is a placement, and what is none."""
    problem = wl.load_problem("zoo:bert:small", cluster="laptop")
    n, ids = len(problem.graph.ops), [device.id for device in problem.devices]
    numbers = [op % 2 for op in range(n)]
    named = {op.name: ids[number] for op, number in zip(problem.graph.ops, numbers, strict=True)}
    score = wl.simulate(problem, named)
    assert isinstance(score, Score)
    for given in (numbers, tuple(numbers), np.array(numbers), np.array(numbers, np.uint8)):
        found = wl.simulate(problem, given)
        assert isinstance(found, Score)
        assert (found.value_ns, found.placement) == (score.value_ns, named)
    wrong: list[Any] = [numbers[1:], [0.5] * n, [numbers, numbers], [[0], [0, 1]], 3, [True] * n]
    for given in wrong:
        with pytest.raises(UsageError, match=f"the number of a device for each of the {n} ops"):
            wl.simulate(problem, given)
    for number in (-1, 3):
        with pytest.raises(UsageError, match=f"there is no device number {number}: they are numbered from 0 to 2"):
            wl.simulate(problem, [*numbers[1:], number])


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
