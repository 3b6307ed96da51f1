"""Tests contraction for latency: the smaller problem, the way back, cycles."""

import random
from dataclasses import replace

import numpy as np
import pytest

from weftline import zoo
from weftline.cluster import Cluster
from weftline.cost import NO_TIME
from weftline.errors import InfeasibleError, UsageError
from weftline.graph.arrays import Indices
from weftline.graph.build import check_graph
from weftline.problem import Problem, build_problem
from weftline.reduce.contract import acyclic, contract, in_order, is_acyclic
from weftline.simulate import simulate_latency
from weftline.testing.generate import Feed, SeededChooser, make_order, make_placement, problem_of, random_problem


def _random_group(problem: Problem, seed: int) -> Indices:
    dice = random.Random(seed)
    n = len(problem.graph.ops)
    return np.array([dice.randrange(max(1, n // 2)) for _ in range(n)], np.int32)


def _is_topological(problem: Problem, order: Indices) -> bool:
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    source, target, _ = problem.graph.arrays.edges()
    return bool((place[source] < place[target]).all())


@pytest.mark.parametrize("seed", range(150))
def test_single_ops_change_nothing(seed: int) -> None:
    """Tests that a problem whose groups are single ops has the same values and the same memory."""
    problem = random_problem(seed, "latency", max_ops=8)
    whole = contract(problem, np.random.default_rng(seed).permutation(len(problem.graph.ops)))
    choose = SeededChooser(seed)
    placement, order = make_placement(choose, problem), make_order(choose, problem)
    try:
        expected = simulate_latency(problem, placement, order)
    except InfeasibleError:
        return
    lowered = whole.lower(placement)
    assert lowered is not None
    found = simulate_latency(whole.small, lowered, whole.of[order])
    assert found.value == expected.value
    assert found.peak.tolist() == expected.peak.tolist()
    assert whole.lift(lowered).tolist() == placement.tolist()
    assert whole.lift_order(whole.of[order]).tolist() == order.tolist()


@pytest.mark.parametrize("seed", range(150))
def test_split_groups_are_acyclic_and_lift(seed: int) -> None:
    """Tests that any grouping can be split until it contracts, and that placements and orders come back whole."""
    problem = random_problem(seed, "latency", max_ops=14)
    given = _random_group(problem, seed)
    group = acyclic(problem, given)
    assert all(len(set(given[group == g].tolist())) == 1 for g in set(group.tolist()))
    contracted = contract(problem, group)
    check_graph(contracted.small.graph)
    assert len(set(zip(contracted.of.tolist(), group.tolist(), strict=True))) == len(contracted.small.graph.ops)
    coarse = make_order(SeededChooser(seed), contracted.small)
    order = contracted.lift_order(coarse)
    assert _is_topological(problem, order)
    assert contracted.of[order].tolist() == np.repeat(coarse, np.bincount(contracted.of)[coarse]).tolist()
    device = np.arange(len(contracted.small.graph.ops), dtype=np.int32) % len(problem.devices)
    lowered = contracted.lower(contracted.lift(device))
    assert lowered is not None
    assert lowered.tolist() == device.tolist()


@pytest.mark.parametrize("seed", range(100))
def test_totals_are_kept(seed: int) -> None:
    """Tests that times, weights, rules, sets and model outputs survive, and that absent stays absent."""
    problem = random_problem(seed, "latency", max_ops=10)
    contracted = contract(problem, acyclic(problem, _random_group(problem, seed)))
    for g in range(len(contracted.small.graph.ops)):
        rows = problem.cost.time[contracted.of == g]
        expected = np.where((rows == NO_TIME).any(axis=0), NO_TIME, rows.sum(axis=0))
        assert contracted.small.cost.time[g].tolist() == expected.tolist()
    fine, coarse = problem.graph.arrays, contracted.small.graph.arrays
    assert fine.weight_bytes.sum() + fine.tied_bytes.sum() == coarse.weight_bytes.sum() + coarse.tied_bytes.sum()
    outputs = {tensor.name for tensor in problem.graph.tensors if tensor.output}
    assert outputs == {tensor.name for tensor in contracted.small.graph.tensors if tensor.output}
    assert (contracted.small.rules, contracted.small.buses) == (problem.rules, problem.buses)
    rows = {t.name: problem.cost.transfer_row[i] for i, t in enumerate(problem.graph.tensors)}
    assert [rows[t.name] for t in contracted.small.graph.tensors] == contracted.small.cost.transfer_row.tolist()
    for members in problem.together:
        homes = {int(contracted.of[op]) for op in members}
        assert len(homes) == 1 or any(homes <= set(group) for group in contracted.small.together)


@pytest.mark.parametrize("seed", range(100))
def test_memory_is_not_forgotten(seed: int) -> None:
    """Tests that on one device, group after group, the smaller problem needs at least the memory of the ops."""
    problem = random_problem(seed, "latency", max_ops=10, limits=False)
    problem = replace(problem, cost=problem.cost.with_time(problem.cost.time + 1))
    contracted = contract(problem, acyclic(problem, _random_group(problem, seed)))
    order = np.arange(len(contracted.small.graph.ops), dtype=np.int32)
    fine = simulate_latency(problem, np.zeros(len(problem.graph.ops), np.int32), contracted.lift_order(order))
    coarse = simulate_latency(contracted.small, np.zeros(len(order), np.int32), order)
    assert coarse.value == fine.value
    assert coarse.peak[0] >= fine.peak[0]


def test_by_hand() -> None:
    """Tests a chain of four with a side branch: tensors inside go, readers merge, the inside is workspace."""
    problem = problem_of(
        [[1, 2], [3, 4], [5, -1], [7, 8]],
        [
            Feed(-1, (0, 1), bytes=10),
            Feed(0, (1, 2, 3), 6, bytes=20),
            Feed(1, (2,), 6, bytes=30),
            Feed(2, (3,), 6, bytes=40),
            Feed(3, (), 0, bytes=50, output=True),
        ],
        weights=[1, 2, 3, 4],
        workspace=[5, 6, 7, 8],
        tied=[(100, (1, 2)), (200, (0, 3))],
        together=((1, 3),),
    )
    small = contract(problem, np.array([0, 1, 1, 3])).small
    assert small.cost.time.tolist() == [[1, 2], [8, -1], [7, 8]]
    assert [(t.name, t.producer, t.consumers) for t in small.graph.tensors] == [
        ("t0", -1, (0, 1)),
        ("t1", 0, (1, 2)),
        ("t3", 1, (2,)),
        ("t4", 2, ()),
    ]
    assert [op.weight_bytes for op in small.graph.ops] == [1, 105, 4]
    assert [op.workspace_bytes for op in small.graph.ops] == [5, 37, 8]
    assert [op.name for op in small.graph.ops] == ["op0", "op2", "op3"]
    assert [tied.ops for tied in small.graph.tied] == [(0, 2)]
    assert small.together == ((1, 2),)


def test_static_memory_adds_workspace() -> None:
    """Tests that under static memory the workspace of a group is the sum."""
    problem = problem_of([[1], [1]], [Feed(0, (1,), bytes=9)], workspace=[5, 6], memory="static")
    assert contract(problem, np.array([0, 0])).small.graph.ops[0].workspace_bytes == 11


def test_cycle_is_refused_and_split() -> None:
    """Tests that a group around another op is an error, and is split where the path leaves it."""
    problem = problem_of([[1]] * 4, [Feed(0, (1,)), Feed(1, (2,)), Feed(2, (3,))])
    group = np.array([7, 7, 3, 7])
    assert not is_acyclic(problem.graph, group)
    with pytest.raises(UsageError, match="acyclic"):
        contract(problem, group)
    assert acyclic(problem, group).tolist() == [0, 0, 1, 2]


def test_groups_follow_the_order_of_the_ops() -> None:
    """Tests that groups are numbered by their first op wherever the edges allow it."""
    problem = problem_of([[1]] * 4, [Feed(2, (3,))])
    order = in_order(problem.graph, np.array([5, 4, 5, 4]))
    assert order is not None
    assert order.tolist() == [0, 1, 0, 1]


def test_wrong_groups_are_refused() -> None:
    """Tests that a grouping of another length, and a pipeline, are errors."""
    problem = problem_of([[1], [1]])
    with pytest.raises(UsageError, match="one group for each"):
        contract(problem, np.array([0]))
    with pytest.raises(UsageError, match="latency"):
        contract(random_problem(1, "throughput"), np.array([0]))


def test_many_ops() -> None:
    """Tests that a large graph of tangled groups is split and contracted."""
    graph = zoo.synthetic("layered", ops=20_000, seed=1)
    problem = build_problem(graph, Cluster.preset("laptop"), without=("memory",))
    contracted = contract(problem, acyclic(problem, np.random.default_rng(0).integers(0, 5000, len(graph.ops))))
    assert 5000 <= len(contracted.small.graph.ops) <= len(graph.ops)
