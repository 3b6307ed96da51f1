"""Segments of a placement: a topological order, one device each, and cut where the plan cuts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weftline.ask import make_plan
from weftline.cluster import Cluster
from weftline.cluster.detect import worker_cluster
from weftline.cost import CostTable
from weftline.errors import InputError, UsageError
from weftline.graph import Graph, Op, Tensor, assemble
from weftline.problem import Problem, Rules, build_problem
from weftline.run.split.segments import (
    OVERHEAD_NS,
    Parts,
    cut_places,
    merge_segments,
    parts_by_level,
    parts_by_order,
    parts_by_stage,
    parts_of_plan,
)
from weftline.testing.generate import Objective
from weftline.zoo import zoo_graph


def graph_of(*edges: tuple[int, int]) -> Graph:
    """Ops that send one tensor along every edge."""
    count = max(max(edge) for edge in edges) + 1
    tensors = [Tensor(f"{a}-{b}", a, (b,)) for a, b in edges]
    return assemble("g", [Op(f"op{i}") for i in range(count)], tensors)


@st.composite
def placed_graphs(draw: st.DrawFn) -> tuple[Graph, np.ndarray]:
    count = draw(st.integers(2, 14))
    pairs = [(a, b) for b in range(count) for a in range(b)]
    edges = draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    devices = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    tensors = [Tensor(f"{a}-{b}", a, (b,)) for a, b in edges]
    return assemble("g", [Op(f"op{i}") for i in range(count)], tensors), np.array(devices, np.int32)


def check(graph: Graph, placement: np.ndarray, parts: Parts) -> None:
    """Tensors go to the same segment or a later one, every segment has ops, all of them on its device."""
    source, target, _ = graph.arrays.edges()
    assert (parts.part[source] <= parts.part[target]).all()
    assert sorted(set(parts.part.tolist())) == list(range(len(parts.device)))
    assert [parts.device[part] for part in parts.part.tolist()] == placement.tolist()


@settings(max_examples=200, deadline=None)
@given(placed_graphs())
def test_any_placement_has_segments(sample: tuple[Graph, np.ndarray]) -> None:
    """Tests the rules on placements that are anything but contiguous, by level and by order."""
    graph, placement = sample
    check(graph, placement, parts_by_level(graph, placement))
    parts = parts_by_order(graph, placement, range(len(graph.ops)))
    check(graph, placement, parts)
    source, target, _ = graph.arrays.edges()
    for a, b in zip(source.tolist(), target.tolist(), strict=True):
        if placement[a] != placement[b]:
            assert a == max(np.flatnonzero(parts.part == parts.part[a]))  # ends where it sends
            assert b == min(np.flatnonzero(parts.part == parts.part[b]))  # begins where it receives


def test_places_for_cuts() -> None:
    """Tests that cuts divide no group, however its ops lie."""
    assert cut_places(np.arange(4, dtype=np.int32)) == [1, 2, 3]
    assert cut_places(np.array([0, 1, 0, 2, 3, 3], np.int32)) == [3, 4]
    assert cut_places(np.zeros(3, np.int32)) == []


def test_levels() -> None:
    """Tests the level of the definition: the most changes of device on a path."""
    graph = graph_of((0, 1), (1, 2), (0, 3), (2, 3))
    parts = parts_by_level(graph, np.array([0, 1, 0, 0], np.int32))
    assert parts.part.tolist() == [0, 1, 2, 2]
    assert parts.device == (0, 1, 0)


def test_order_is_kept() -> None:
    """Tests that ops between a receive and a send are one segment, in planned order."""
    graph = graph_of((0, 1), (1, 4), (2, 3), (3, 5), (4, 5))
    placement = np.array([0, 1, 0, 0, 1, 0], np.int32)
    assert parts_by_order(graph, placement, [0, 2, 3, 1, 4, 5]).part.tolist() == [0, 2, 1, 1, 2, 3]
    # Op 2 before the one that sends: the first segment holds both.
    assert parts_by_order(graph, placement, [2, 0, 3, 1, 4, 5]).part.tolist() == [0, 2, 0, 1, 2, 3]
    with pytest.raises(InputError, match="stands before one that it waits for"):
        parts_by_order(graph, placement, [1, 0, 2, 3, 4, 5])
    with pytest.raises(InputError, match="each of the 6 ops once"):
        parts_by_order(graph, placement, [0, 0, 2, 3, 4, 5])


def test_stages() -> None:
    """Tests one segment per stage, a cycle refused, and a host that serves between stages."""
    graph = graph_of((0, 1), (1, 2), (2, 3))
    parts = parts_by_stage(graph, np.array([2, 2, 0, 0], np.int32), [2, 0])
    assert (parts.part.tolist(), parts.device) == ([0, 0, 1, 1], (2, 0))
    back = np.array([1, 0, 1, 2], np.int32)
    with pytest.raises(UsageError, match="cycle"):
        parts_by_stage(graph, back, [0, 1, 2])
    with_host = parts_by_stage(graph, back, [1, 0, 2], hosts=[1])
    check(graph, back, with_host)
    assert with_host.device == (1, 0, 1, 2)


def test_independent_stages_keep_the_pipeline_order() -> None:
    """Tests that the plan's order decides between stages that do not wait for each other."""
    graph = graph_of((0, 2), (1, 2))
    placement = np.array([0, 1, 2], np.int32)
    assert parts_by_stage(graph, placement, [1, 0, 2]).device == (1, 0, 2)
    assert parts_by_stage(graph, placement, [0, 1, 2]).device == (0, 1, 2)


@pytest.mark.parametrize(
    ("objective", "solver"),
    [("latency", "even-split"), ("latency", "heft"), ("throughput", "even-split"), ("throughput", "greedy")],
)
def test_plans(objective: Objective, solver: str) -> None:
    """Tests plans as solvers make them."""
    graph = zoo_graph("flava", size="small")
    problem = build_problem(graph, Cluster.preset("four-unequal"), rules=Rules(objective=objective))
    plan = make_plan(problem, solver=solver, work_limit=500)
    parts = parts_of_plan(plan)
    placement = np.array([problem.device_index[plan.placement[op.name]] for op in graph.ops], np.int32)
    check(graph, placement, parts)
    if objective == "throughput":
        assert [problem.devices[device].id for device in parts.device] == [stage.device for stage in plan.stages]


def ends(problem: Problem, parts: Parts) -> list[int]:
    """When every segment ends, one after another in the order of their numbers; each waits for all that it reads."""
    found: list[int] = []
    free: dict[int, int] = {}
    for number, device in enumerate(parts.device):
        start = free.get(device, 0)
        for t, tensor in enumerate(problem.graph.tensors):
            if tensor.producer >= 0 and any(parts.part[op] == number for op in tensor.consumers):
                maker = int(parts.part[tensor.producer])
                if maker != number:
                    transfer = problem.cost.transfer[problem.cost.transfer_row[t], parts.device[maker], device]
                    start = max(start, found[maker] + int(transfer))
        own = np.flatnonzero(parts.part == number)
        free[device] = start + OVERHEAD_NS + int(problem.cost.time[own, device].sum())
        found.append(free[device])
    return found


@settings(max_examples=100, deadline=None)
@given(placed_graphs(), st.integers(0, 2**20), st.sampled_from([0, 10_000, 200_000]))
def test_merged_segments_are_not_slower(sample: tuple[Graph, np.ndarray], seed: int, link: int) -> None:
    """Tests that merging keeps the rules and the order of each device, and that the last segment ends no later."""
    graph, placement = sample
    dice = np.random.default_rng(seed)
    time = dice.integers(0, 300_000, (len(graph.ops), 3))
    transfer = link * (1 - np.eye(3, dtype=np.int64))[None]
    cost = CostTable(time, transfer, np.zeros(len(graph.tensors), np.int32))
    problem = replace(build_problem(graph, worker_cluster((1.0, 1.0, 1.0))), cost=cost)
    cut = parts_by_order(graph, placement, range(len(graph.ops)))
    merged = merge_segments(problem, cut)
    check(graph, placement, merged)
    assert max(ends(problem, merged)) <= max(ends(problem, cut))
    for device in range(3):
        own = np.flatnonzero(placement == device)
        assert (np.diff(merged.part[own]) >= 0).all()


def test_segments_are_merged_where_nobody_waits() -> None:
    """Tests a branch that another device computes meanwhile: one segment for it, three where the trunk waits for it."""
    graph = graph_of((0, 1), (0, 2), (2, 3), (1, 4), (3, 4))
    placement = np.array([0, 1, 0, 0, 0], np.int32)
    cut = parts_by_order(graph, placement, range(5))
    assert cut.device == (0, 1, 0, 0)
    cost = CostTable(np.full((5, 2), 10**6), np.zeros((1, 2, 2), np.int64), np.zeros(5, np.int32))
    problem = replace(build_problem(graph, worker_cluster((1.0, 1.0))), cost=cost)
    assert merge_segments(problem, cut).device == (0, 1, 0, 0)  # op 4 must not hold up ops 2 and 3
    quick = cost.time.copy()
    quick[1] = 0
    problem = replace(problem, cost=CostTable(quick, cost.transfer, cost.transfer_row))
    merged = merge_segments(problem, cut)
    check(graph, placement, merged)
    assert merged.device == (0, 1, 0)  # one that takes no time may wait for ops 2 and 3, or they for it
