"""Tests of the brute-force optima: by hand, and against an even simpler enumeration."""

from itertools import permutations, product

import pytest

from weftline.problem import Problem
from weftline.simulate.reference import reference_loads, reference_replay
from weftline.testing.conformance import brute_force_latency, brute_force_throughput, placements
from weftline.testing.generate import Feed, problem_of, random_problem


def _keeps_limits(problem: Problem, placement: tuple[int, ...], peak: list[int]) -> bool:
    torn = any(len({placement[op] for op in members}) > 1 for members in problem.together)
    return not torn and all(used <= limit for used, limit in zip(peak, problem.capacity.tolist(), strict=True))


def _actions(problem: Problem, placement: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Every op, and every transfer that takes time."""
    found = [(op, -1, -1) for op in range(len(placement))]
    for t, tensor in enumerate(problem.graph.tensors):
        for op in tensor.consumers if tensor.producer >= 0 else ():
            home, target = placement[tensor.producer], placement[op]
            if problem.cost.transfer[problem.cost.transfer_row[t], home, target] > 0:
                found.append((t, target, op if problem.rules.transfers == "per-edge" else -1))
    return sorted(set(found))


def _every_permutation(problem: Problem) -> int | None:
    """All devices for all ops, all sequences of all actions; those that make no sense fail in the reference."""
    values = []
    for placement in product(range(len(problem.devices)), repeat=len(problem.graph.ops)):
        for sequence in permutations(_actions(problem, placement)):
            try:
                result = reference_replay(problem, placement, sequence)
            except (ValueError, KeyError):
                continue
            if _keeps_limits(problem, placement, result.peak):
                values.append(result.value)
    return min(values, default=None)


def _every_placement(problem: Problem) -> int | None:
    values = []
    for placement in product(range(len(problem.devices)), repeat=len(problem.graph.ops)):
        try:
            parts, peak = reference_loads(problem, placement)
        except ValueError:
            continue
        if _keeps_limits(problem, placement, peak):
            values.append(max(parts[3]))
    return min(values, default=None)


@pytest.mark.parametrize("runtime", ["parallel", "sequential"])
def test_latency_against_every_permutation(runtime: str) -> None:
    """Tests 250 problems of at most 3 ops on 2 devices; memory, `together`, buses and both transfer rules included."""
    infeasible = 0
    for seed in range(250):
        problem = random_problem(seed, "latency", max_ops=3, max_devices=2, runtime=runtime)
        expected = _every_permutation(problem)
        assert brute_force_latency(problem) == expected, seed
        infeasible += expected is None
    assert infeasible >= 5


def test_throughput_against_every_placement() -> None:
    """Tests 400 problems of at most 4 ops."""
    found = [random_problem(seed, "throughput", max_ops=4) for seed in range(400)]
    expected = [_every_placement(problem) for problem in found]
    assert [brute_force_throughput(problem) for problem in found] == expected
    assert expected.count(None) >= 5


def test_latency_by_hand() -> None:
    """Tests two branches that are worth a second device only while the transfers are short."""
    time = [[1, 1], [5, 5], [5, 5], [1, 1]]  # op0 -> op1, op2 -> op3
    # On two devices: op0, its tensor, op2, op3 beside op2 (t1 arrives while op2 still runs). On one: 12.
    for length, best in ((0, 7), (1, 1 + 1 + 5 + 1), (4, 1 + 4 + 5 + 1), (5, 12), (6, 12)):
        wires = [Feed(0, (1, 2), length), Feed(1, (3,), length), Feed(2, (3,), length)]
        assert brute_force_latency(problem_of(time, wires)) == best
        assert brute_force_latency(problem_of(time, wires, runtime="sequential")) == 12


def test_the_order_of_transfers_is_part_of_the_optimum() -> None:
    """Tests that the tensor of the longer tail is sent first, though it is ready at the same time."""
    # op0 (fixed on d0, 1 ns) makes t0 and t1 for op1 (9 ns) and op2 (1 ns), both fixed elsewhere: send t0 first.
    time = [[1, -1, -1], [-1, 9, -1], [-1, -1, 1]]
    assert brute_force_latency(problem_of(time, [Feed(0, (1,), 3), Feed(0, (2,), 3)])) == 1 + 3 + 9
    swapped = [time[0], [-1, 1, -1], [-1, -1, 9]]
    assert brute_force_latency(problem_of(swapped, [Feed(0, (1,), 3), Feed(0, (2,), 3)])) == 1 + 3 + 9


def test_throughput_by_hand() -> None:
    """Tests where a chain is cut: before the dear tensor, or not at all."""
    chain = [Feed(0, (1,), 1), Feed(1, (2,), 6)]
    time = [[4, 4], [3, 3], [5, 5]]
    assert brute_force_throughput(problem_of(time, chain, objective="throughput")) == 1 + 3 + 5
    assert brute_force_throughput(problem_of(time, chain, objective="throughput", communication="overlapped")) == 7
    assert brute_force_throughput(problem_of(time, chain, objective="throughput", stages=1)) == 12


def test_nothing_feasible() -> None:
    """Tests that an answer of None means that no placement keeps the limits."""
    problem = problem_of([[1, 1], [1, 1]], weights=[3, 3], capacity=[4, 2])
    assert brute_force_latency(problem) is None
    assert len(placements(problem)) == 4
    assert len(placements(problem_of([[1, -1], [1, 1], [1, 1]], together=((1, 2),)))) == 2
