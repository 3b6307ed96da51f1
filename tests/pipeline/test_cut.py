"""Tests of the cut bound: by hand, against enumeration, against the checker, and below the optimum."""

from itertools import combinations

import msgspec
import numpy as np
import pytest

from weftline.certify import check
from weftline.pipeline.bounds import cut_bound
from weftline.problem import Problem
from weftline.problem.model import problem_to_file
from weftline.testing.conformance import brute_force_throughput
from weftline.testing.generate import Feed, problem_of, random_problem


def _checked(problem: Problem, witness: dict[str, object]) -> int:
    return check.bound_of(check.PlanProblem(msgspec.to_builtins(problem_to_file(problem))), witness)


def _cheapest_stage(problem: Problem, op: int) -> int:
    """The least cost over all sets of ops that hold `op`, on equal devices."""
    n, best = len(problem.graph.ops), None
    for size in range(n):
        for others in combinations([i for i in range(n) if i != op], size):
            inside = {op, *others}
            cost = sum(int(problem.cost.time[i, 0]) for i in inside)
            for t, tensor in enumerate(problem.graph.tensors):
                readers = [q in inside for q in tensor.consumers]
                made = tensor.producer in inside
                if tensor.producer >= 0 and readers and (not all(readers) if made else any(readers)):
                    cost += int(problem.cost.transfer[problem.cost.transfer_row[t], 0, 1])
            best = cost if best is None else min(best, cost)
    assert best is not None
    return best


def test_by_hand() -> None:
    """Tests that an expensive op costs its time and, for each tensor, the cheaper of keeping or cutting it."""
    problem = problem_of([[1, 1], [9, 9], [4, 4]], [Feed(0, (1,), 5), Feed(1, (2,), 3)], objective="throughput")
    found = cut_bound(problem)
    assert found is not None
    assert (found.value, found.by, found.witness) == (13, "cut", {"kind": "cut", "op": 1})  # 1 + 9 + 3


def test_a_tensor_with_many_readers_counts_once() -> None:
    """Tests that one output to two readers outside is paid for once."""
    problem = problem_of([[9, 9], [50, 50], [50, 50]], [Feed(0, (1, 2), 4)], objective="throughput")
    witness: dict[str, object] = {"kind": "cut", "op": 0}
    assert _checked(problem, witness) == 13


def test_equals_enumeration() -> None:
    """Tests every op of small graphs of equal devices against all sets around it."""
    for seed in range(25):
        drawn = random_problem(seed, "throughput", max_ops=7, max_devices=1, limits=False, communication="added")
        time = np.maximum(drawn.cost.time, 0).repeat(2, axis=1)
        wires = [Feed(t.producer, t.consumers, t.bytes) for t in drawn.graph.tensors if t.producer >= 0 and t.consumers]
        problem = problem_of(time.tolist(), wires, objective="throughput")
        values = [_cheapest_stage(problem, op) for op in range(len(problem.graph.ops))]
        assert [_checked(problem, {"kind": "cut", "op": op}) for op in range(len(values))] == values
        found = cut_bound(problem)
        assert (0 if found is None else found.value) == max(values)


@pytest.mark.parametrize("first", [0, 200, 400])
def test_never_above_the_optimum(first: int) -> None:
    """Tests unequal devices, hosts, sets, training: below brute force, and the checker agrees."""
    seen = 0
    for seed in range(first, first + 200):
        problem = random_problem(seed, "throughput", max_ops=6, max_devices=3)
        found = cut_bound(problem)
        if found is None:
            continue
        seen += 1
        assert found.witness is not None
        assert _checked(problem, found.witness) == found.value
        best = brute_force_throughput(problem)
        assert best is None or found.value <= best
    assert seen > 30


def test_says_nothing_where_it_does_not_hold() -> None:
    """Tests that latency and overlapped communication have no cut bound, and that the checker refuses one."""
    problem = problem_of([[1, 1]] * 2, [Feed(0, (1,), 5)], objective="throughput", communication="overlapped")
    assert cut_bound(problem) is None
    with pytest.raises(check.Refusal):
        _checked(problem, {"kind": "cut", "op": 0})
