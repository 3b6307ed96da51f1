"""Tests of latency timelines worked out by hand, of bad decisions, and of graphs that are wide or large."""

import numpy as np
import pytest

from weftline.cluster import Device
from weftline.cost import CostTable
from weftline.errors import InfeasibleError, UsageError
from weftline.graph import Op, Tensor, assemble
from weftline.problem import Problem, Rules
from weftline.simulate import INFEASIBLE, Timeline, default_order, evaluate, replay, simulate_latency, upward_rank
from weftline.simulate.reference import reference_latency
from weftline.testing.generate import Feed, problem_of


def _run(problem: Problem, placement: list[int], order: list[int] | None = None) -> Timeline:
    order = list(range(len(placement))) if order is None else order
    return simulate_latency(problem, np.array(placement, np.int32), np.array(order, np.int32))


def _spans(timeline: Timeline) -> list[tuple[int, int]]:
    return list(zip(timeline.start.tolist(), timeline.end.tolist(), strict=True))


def _sent(timeline: Timeline) -> list[tuple[int, ...]]:
    return [tuple(row) for row in timeline.transfers.tolist()]


def test_send_port_serves_one_transfer_at_a_time() -> None:
    """Tests that two transfers from one device to two others follow each other."""
    # d0 makes t0 (done at 2) and t1 (done at 3); t0 leaves for d1 at 2..6, so t1 leaves for d2 at 6..8.
    problem = problem_of([[2] * 3, [1] * 3, [1] * 3, [1] * 3], [Feed(0, (2,), 4), Feed(1, (3,), 2)])
    timeline = _run(problem, [0, 0, 1, 2])
    assert _spans(timeline) == [(0, 2), (2, 3), (6, 7), (8, 9)]
    assert _sent(timeline) == [(0, 0, 1, -1, 2, 6), (1, 0, 2, -1, 6, 8)]
    # Booked the other way round: t1 at 3..5, then t0 at 5..9.
    assert _spans(_run(problem, [0, 0, 1, 2], [0, 1, 3, 2])) == [(0, 2), (2, 3), (9, 10), (5, 6)]


def test_receive_port_serves_the_earlier_producer_first() -> None:
    """Tests that the inputs of an op arrive in the order in which their producers ended."""
    # t0 is done at 2 on d0, t1 at 1 on d2: t1 comes at 1..3, t0 at 3..7.
    problem = problem_of([[2] * 3, [1] * 3, [1] * 3], [Feed(0, (2,), 4), Feed(1, (2,), 2)])
    timeline = _run(problem, [0, 2, 1])
    assert _spans(timeline) == [(0, 2), (0, 1), (7, 8)]
    assert _sent(timeline) == [(1, 2, 1, -1, 1, 3), (0, 0, 1, -1, 3, 7)]


def test_sending_receiving_and_computing_overlap() -> None:
    """Tests that a device receives while it sends and computes."""
    # d0 sends t0 at 1..6, computes op1 at 1..6 and receives t2 (made by op2 on d1 at 0..2) at 2..7.
    wires = [Feed(0, (3,), 5), Feed(2, (4,), 5)]
    timeline = _run(problem_of([[1, 1], [5, 5], [2, 2], [1, 1], [1, 1]], wires), [0, 0, 1, 1, 0])
    assert _spans(timeline) == [(0, 1), (1, 6), (0, 2), (6, 7), (7, 8)]


@pytest.mark.parametrize(("buses", "second"), [((), (3, 5)), (((0, 1, "x"), (2, 3, "x")), (6, 8))])
def test_shared_bus(buses: tuple[tuple[int, int, str], ...], second: tuple[int, int]) -> None:
    """Tests that links on one bus exclude each other, though they share no port."""
    problem = problem_of([[2] * 4, [3] * 4, [1] * 4, [1] * 4], [Feed(0, (2,), 4), Feed(1, (3,), 2)], buses=buses)
    timeline = _run(problem, [0, 2, 1, 3])
    assert _sent(timeline) == [(0, 0, 1, -1, 2, 6), (1, 2, 3, -1, *second)]
    assert timeline.value == max(7, second[1] + 1)


def test_transfers_per_tensor_and_per_edge() -> None:
    """Tests that a tensor goes to a device once, or once for every consumer there."""
    time, wires = [[2, 2], [1, 1], [1, 1]], [Feed(0, (1, 2), 4)]
    once = _run(problem_of(time, wires), [0, 1, 1])
    assert _spans(once) == [(0, 2), (6, 7), (7, 8)]
    assert _sent(once) == [(0, 0, 1, -1, 2, 6)]
    twice = _run(problem_of(time, wires, transfers="per-edge"), [0, 1, 1])
    assert _spans(twice) == [(0, 2), (6, 7), (10, 11)]
    assert _sent(twice) == [(0, 0, 1, 1, 2, 6), (0, 0, 1, 2, 6, 10)]


def test_sequential_is_a_sum() -> None:
    """Tests that in the sequential runtime everything follows everything, transfers included."""
    wires = [Feed(0, (1, 2), 4)]
    problem = problem_of([[2, 9], [9, 3], [1, 9]], wires, runtime="sequential")
    timeline = _run(problem, [0, 1, 0])
    assert _spans(timeline) == [(0, 2), (6, 9), (9, 10)]
    assert _spans(_run(problem, [0, 1, 0], [0, 2, 1])) == [(0, 2), (7, 10), (2, 3)]
    assert timeline.value == 2 + 4 + 3 + 1


def test_what_takes_no_time_occupies_nothing() -> None:
    """Tests that an op of 0 ns passes a busy device, and that a transfer of 0 ns is not listed and needs no port."""
    # op1 takes no time on d0, which is busy with op0 until 5; op2 on d1 gets its tensor at once.
    problem = problem_of([[5, 5], [0, 0], [3, 3]], [Feed(1, (2,), 0)])
    timeline = _run(problem, [0, 0, 1])
    assert _spans(timeline) == [(0, 5), (0, 0), (0, 3)]
    assert _sent(timeline) == []
    # An op of 0 ns that waits for the tensor of a busy device starts when it is there.
    chain = problem_of([[5, 5], [0, 0], [3, 3]], [Feed(0, (1,), 2), Feed(1, (2,), 7)])
    assert _spans(_run(chain, [0, 1, 0])) == [(0, 5), (7, 7), (14, 17)]


def test_zero_time_ops_keep_their_place_in_a_sequential_replay() -> None:
    """Tests that an op of 0 ns stays before the long action that starts at the same moment."""
    # op1 takes no time at 2; then t0 goes to d1 at 2..6. Replayed after the transfer it would start at 6.
    problem = problem_of([[2, 2], [0, 0], [1, 1]], [Feed(0, (2,), 4)], runtime="sequential")
    timeline = _run(problem, [0, 0, 1])
    assert _spans(timeline) == [(0, 2), (2, 2), (6, 7)]
    again = replay(problem, timeline.placement, timeline.actions(problem.graph.arrays.producer))
    assert _spans(again) == _spans(timeline)


def test_inputs_of_the_model_are_everywhere() -> None:
    """Tests that a tensor without producer is present on every device at time 0."""
    assert _run(problem_of([[1, 1], [2, 2]], [Feed(-1, (0, 1), 9)]), [0, 1]).value == 2


def test_upward_rank_by_hand() -> None:
    """Tests mean times and mean transfers, rounded down, along the longest path; absent ones do not count."""
    matrix = [[0, 3, -1], [4, 0, -1], [-1, -1, 0]]  # mean of 3 and 4 -> 3
    problem = problem_of([[2, 5, -1], [6, -1, -1], [1, 1, 2]], [Feed(0, (1, 2), matrix)])
    assert upward_rank(problem).tolist() == [3 + 3 + 6, 6, 1]
    assert default_order(problem).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("placement", "order", "message"),
    [
        ([1, 0], [0, 1], "device 'd1' cannot run op 'op0'"),
        ([0, 1], [0, 1], "no link from d0 to d1 for tensor 't0'"),
        ([0, 0], [1, 0], "not topological"),
    ],
)
def test_says_why_it_cannot_run(placement: list[int], order: list[int], message: str) -> None:
    """Tests the reason in the error, and that the batch knows the same."""
    problem = problem_of([[1, -1], [1, 1]], [Feed(0, (1,), [[0, -1], [1, 0]])])
    with pytest.raises(InfeasibleError, match=message):
        _run(problem, placement, order)
    assert evaluate(problem, np.array(placement), np.array(order)).value[0] >= INFEASIBLE


def test_bad_decisions_are_usage_errors() -> None:
    """Tests that shapes, ranges and repeated ops are refused before any kernel sees them."""
    problem = problem_of([[1, 1], [1, 1]], [Feed(0, (1,), 1)])
    for placement, order in (([0], [0, 1]), ([0, 2], [0, 1]), ([0, -1], [0, 1]), ([0, 0], [0, 0]), ([0, 0], [0])):
        with pytest.raises(UsageError):
            _run(problem, placement, order)
    with pytest.raises(UsageError):
        evaluate(problem, np.array([[0, 5]]))
    with pytest.raises(UsageError):
        evaluate(problem, np.array([[0, 0]]), np.array([[0, 2]]))


def test_an_order_that_repeats_an_op_is_infeasible_in_the_batch() -> None:
    """Tests that a repeated op cannot book transfers without end."""
    wires = [Feed(0, tuple(range(1, 6)), 3)]
    problem = problem_of([[1, 1]] * 6, wires, transfers="per-edge")
    batch = evaluate(problem, np.array([0, 1, 1, 1, 1, 1]), np.array([0, 1, 1, 1, 1, 1]), memory=True)
    assert batch.value[0] >= INFEASIBLE


@pytest.mark.parametrize("rule", ["per-tensor", "per-edge"])
def test_replay_refuses_what_cannot_be_done(rule: str) -> None:
    """Tests lists of actions that use what is not there, or send what nobody reads."""
    problem = problem_of([[1] * 3, [1] * 3], [Feed(0, (1,), [[0, 9, 1], [1, 0, 1], [1, 1, 0]])], transfers=rule)
    placement, reader = np.array([0, 1], np.int32), 1 if rule == "per-edge" else -1
    good = [[0, -1, -1], [0, 1, reader], [1, -1, -1]]
    assert replay(problem, placement, np.array(good)).value == 1 + 9 + 1
    for bad in (
        [good[1], good[0], good[2]],  # sent before it is made
        [good[0], good[2], good[1]],  # used before it is there
        [good[0], good[1], good[1], good[2]],  # sent twice
        [good[0], [0, 2, reader], good[2]],  # sent to a device where nobody reads it
        [good[0], [0, 1, -1 if rule == "per-edge" else 1], good[2]],  # for one reader, or for a device
        [good[0], [0, 0, reader], good[1], good[2]],  # sent to where it is
    ):
        with pytest.raises((InfeasibleError, UsageError)):
            replay(problem, placement, np.array(bad))
    with pytest.raises(UsageError):
        replay(problem, placement, np.array([[0, -1, -1], [0, 1, reader]]))
    with pytest.raises(UsageError):
        replay(problem, placement, np.array([[0, -1, -1], [7, 1, reader], [1, -1, -1]]))


@pytest.mark.parametrize("rule", ["per-tensor", "per-edge"])
def test_op_with_many_remote_inputs(rule: str) -> None:
    """Tests an op with 60 inputs from other devices, more than the insertion sort of the kernel takes."""
    width = 60
    rng = np.random.default_rng(5)
    wires = [Feed(i, (width,), int(rng.integers(0, 4)), 1) for i in range(width)]
    times = [[int(t)] * 4 for t in rng.integers(0, 6, width + 1)]  # many ties
    problem = problem_of(times, wires, transfers=rule)
    placement, order = [*(1 + i % 3 for i in range(width)), 0], [*rng.permutation(width).tolist(), width]
    fast, slow = _run(problem, placement, order), reference_latency(problem, placement, order)
    assert _sent(fast) == slow.transfers
    assert len(slow.transfers) > 40
    assert (fast.value, fast.peak.tolist()) == (slow.value, slow.peak)


def test_twenty_thousand_ops() -> None:
    """Tests that the batch and the single run agree on a large graph."""
    n, k = 20_000, 4
    rng = np.random.default_rng(1)
    readers: list[set[int]] = [set() for _ in range(n)]
    for op in range(1, n):
        for maker in rng.integers(max(0, op - 50), op, 2):
            readers[maker].add(op)
    tensors = [Tensor(f"t{i}", i, tuple(sorted(found)), 3) for i, found in enumerate(readers)]
    transfer = rng.integers(0, 20, (3, k, k))
    transfer[:, range(k), range(k)] = 0
    problem = Problem(
        assemble("large", [Op(f"op{i}") for i in range(n)], tensors),
        tuple(Device(f"d{i}", "gpu", None) for i in range(k)),
        CostTable(rng.integers(0, 100, (n, k)), transfer, rng.integers(0, 3, n).astype(np.int32)),
        Rules(),
    )
    placements = rng.integers(0, k, (3, n)).astype(np.int32)
    batch = evaluate(problem, placements, memory=True)
    singles = [simulate_latency(problem, placement) for placement in placements]
    assert batch.peak is not None
    assert batch.value.tolist() == [single.value for single in singles]
    assert batch.peak.tolist() == [single.peak.tolist() for single in singles]
    assert min(batch.value) > int(problem.cost.time.min(axis=1).sum()) // k
