"""Tests of a plan's pictures: they show what the simulator says, whatever the rules."""

from __future__ import annotations

import numpy as np
import pytest

from weftline.ask import make_plan
from weftline.plans import plan_result
from weftline.report.html.pack import PageBudget
from weftline.report.html.plan import plan_data
from weftline.simulate import Loads, Timeline
from weftline.testing import random_problem


@pytest.mark.parametrize("seed", range(12))
def test_the_timeline_is_the_simulators(seed: int) -> None:
    """Tests ops, transfers at both ends, and peaks of memory, under random rules."""
    plan = make_plan(random_problem(seed, "latency", limits=False), work_limit=5)
    problem, result = plan_result(plan)
    assert isinstance(result, Timeline)
    data = plan_data(plan, PageBudget())
    lanes = data["timeline"]["lanes"]
    for lane in lanes:
        starts = np.cumsum(lane["start"]).tolist()
        if lane["role"] == "compute":
            for start, length, op in zip(starts, lane["length"], lane["item"], strict=True):
                assert result.placement[op] == lane["device"]
                assert (result.start[op], result.end[op]) == (start, start + length)
    for role, column in (("send", 1), ("receive", 2)):
        shown = sorted(
            (start, lane["device"], peer)
            for lane in lanes
            if lane["role"] == role
            for start, peer in zip(np.cumsum(lane["start"]).tolist(), lane["peer"], strict=True)
        )
        rows = result.transfers.tolist()
        assert shown == sorted((row[4], row[column], row[3 - column]) for row in rows)
    assert [lane["peak"] for lane in data["memory"]["lanes"]] == result.peak.tolist()
    assert sum(node["ops"] for node in data["graph"]["nodes"]) == len(problem.graph.ops)


@pytest.mark.parametrize("seed", range(8))
def test_stages_are_the_simulators(seed: int) -> None:
    """Tests loads of stages, and that layers go up along the pipeline."""
    plan = make_plan(random_problem(seed, "throughput", limits=False), work_limit=5)
    problem, result = plan_result(plan)
    assert isinstance(result, Loads)
    data = plan_data(plan, PageBudget())
    assert [stage["load"] for stage in data["stages"]] == [int(result.load[d]) for d in result.stages]
    assert max(stage["load"] for stage in data["stages"]) == plan.value_ns
    layer = [node["layer"] for node in data["graph"]["nodes"]]
    for edge in data["graph"]["edges"]:
        assert edge["from"] > edge["to"] or layer[edge["from"]] < layer[edge["to"]]
    times = [int(problem.cost.time[i, d]) for i, d in enumerate(result.placement)]
    assert data["ops"]["time"] == times


@pytest.mark.parametrize("seed", range(4))
def test_what_crosses_is_counted_once_per_device(seed: int) -> None:
    """Tests the bytes of the ways by counting tensors the slow way."""
    plan = make_plan(random_problem(seed, "latency", limits=False), solver="round-robin", work_limit=1)
    problem, result = plan_result(plan)
    expected: dict[tuple[str, str], int] = {}
    ids = [device.id for device in problem.devices]
    for tensor in problem.graph.tensors:
        readers = {ids[result.placement[op]] for op in tensor.consumers}
        if tensor.producer >= 0:
            home = ids[result.placement[tensor.producer]]
            for device in readers - {home}:
                expected[home, device] = expected.get((home, device), 0) + tensor.bytes
    graph = plan_data(plan, PageBudget())["graph"]
    names = [node["name"] for node in graph["nodes"]]
    assert {(names[edge["from"]], names[edge["to"]]): edge["bytes"] for edge in graph["edges"]} == expected


def test_the_chain_ends_with_the_last_op() -> None:
    """Tests that the chain that decides holds the op that ends last."""
    plan = make_plan(random_problem(3, "latency", limits=False), work_limit=5)
    _, result = plan_result(plan)
    assert isinstance(result, Timeline)
    chain = plan_data(plan, PageBudget())["timeline"]["chain"]
    assert max(int(result.end[op]) for op in chain) == plan.value_ns
