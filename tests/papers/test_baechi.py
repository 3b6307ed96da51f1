"""Tests of m-TOPO, m-ETF, m-SCT and GETF on examples worked out by hand."""

import numpy as np
import pytest

from weftline.latency.list import favourites
from weftline.latency.list.favourites import costliest_pairs, edge_costs, favourite_children, pair_up, solve_within
from weftline.papers import getf
from weftline.papers.baechi import m_topo
from weftline.papers.baechi.m_etf import VirtualDevices
from weftline.problem import Problem
from weftline.search import Search
from weftline.testing.generate import Feed, problem_of

CHAIN = [Feed(i, (i + 1,), 3) for i in range(5)]


def _m_topo(problem: Problem) -> list[int]:
    search = Search(problem)
    m_topo.SOLVER.solve(search)
    assert search.best is not None
    return list(search.best.placement.tolist())


def _virtual(problem: Problem, favourite: list[int] | None = None) -> tuple[list[int], list[int]]:
    children = None if favourite is None else np.array(favourite, np.int32)
    plan = VirtualDevices(problem, "test", children).schedule(Search(problem), problem.capacity)
    assert plan is not None
    assert plan.order is not None
    return plan.placement.tolist(), plan.order.tolist()


def test_m_topo_fills_device_after_device() -> None:
    """Tests the share of a device: total / devices + the largest op, without and with limits of memory."""
    # Six ops of 2 bytes on three devices: 4 + 2 = 6 bytes each, so d0 and d1 take three and d2 none.
    equal = problem_of([[1, 1, 1]] * 6, CHAIN, weights=[2] * 6)
    assert m_topo.shares(m_topo.group_memory(equal), equal.capacity).tolist() == [6, 6, 6]
    assert _m_topo(equal) == [0, 0, 0, 1, 1, 1]
    # Memory 4, 8, 12 (the last as much as everything): 12 * 4 / 24 + 2 = 4, 6 and 8.
    unequal = problem_of([[1, 1, 1]] * 6, CHAIN, weights=[2] * 6, capacity=[4, 8, None])
    assert m_topo.shares(m_topo.group_memory(unequal), unequal.capacity).tolist() == [4, 6, 8]
    assert _m_topo(unequal) == [0, 0, 1, 1, 1, 2]


def test_m_topo_memory_of_sets() -> None:
    """Tests weights + the largest of workspace and outputs, and a set that goes where its first op goes."""
    wires = [Feed(0, (1,), 1, 5), Feed(1, (2,), 1, 1)]
    problem = problem_of([[1, 1]] * 3, wires, weights=[1, 2, 3], workspace=[0, 7, 0], together=((0, 1),))
    assert m_topo.group_memory(problem).tolist() == [3 + 8, 3]
    assert _m_topo(problem) == [0, 0, 0]


def test_m_topo_passes_over_a_device_that_cannot_run_an_op() -> None:
    """Tests that the next device takes the op, and that the filling goes on where it was."""
    assert _m_topo(problem_of([[1, 1], [-1, 1], [1, 1], [1, 1]], CHAIN[:3], weights=[1] * 4)) == [0, 1, 0, 0]


def test_m_etf_by_hand() -> None:
    """Tests starts, ties by Kahn's order, and the wait for a tensor."""
    # op0, op1 start at 0 on d0, d1. op2 (of op0) is ready at 2: d0 is free, d1 busy until 5: d0.
    problem = problem_of([[2, 2], [5, 5], [3, 3]], [Feed(0, (2,), 4)])
    assert _virtual(problem) == ([0, 1, 0], [0, 1, 2])
    # op1 reads op0 and may run on d1 only: its tensor arrives at 6, and d1 meanwhile runs op2.
    problem = problem_of([[2, -1], [-1, 1], [-1, 3]], [Feed(0, (1,), 4)])
    assert _virtual(problem) == ([0, 1, 1], [0, 2, 1])


def test_m_etf_has_one_channel_per_device() -> None:
    """Tests that a device that sends cannot receive at the same time, and that a received tensor is kept."""
    # op0 (d0) ends at 1 and sends 1..5 to d1 for op2. op1 (d1) ends at 2, its tensor for op3 leaves d1 after 5: at 9
    # it is on d0. On ports of their own both would arrive by 6, and op3 would start on d0 before op4 ends.
    wires = [Feed(0, (2,), 4), Feed(1, (3,), 4)]
    placement, order = _virtual(problem_of([[1, -1], [-1, 2], [-1, 1], [1, -1], [7, -1]], wires))
    assert placement == [0, 1, 1, 0, 0]
    assert order.index(3) == 4
    # Two consumers on d1 of one tensor: it is sent once, so the second can start right behind the first.
    shared = problem_of([[1, -1], [-1, 1], [-1, 1]], [Feed(0, (1, 2), 4)])
    assert _virtual(shared) == ([0, 1, 1], [0, 1, 2])


def test_m_etf_keeps_activations_in_memory() -> None:
    """Tests that an output which is still needed blocks an op, and that it is ignored where nothing else can go on."""
    # op0 and op1 each make 4 bytes that op2 needs at the end; d0 holds 6: op1 must go to d1.
    wires = [Feed(0, (2,), 0, 4), Feed(1, (2,), 0, 4)]
    problem = problem_of([[1, 9], [1, 9], [-1, 1]], wires, capacity=[6, 20])
    assert _virtual(problem)[0] == [0, 1, 1]
    alone = problem_of([[1], [1], [1]], wires, capacity=[6])
    assert _virtual(alone)[0] == [0, 0, 0]


def test_awake_device_waits_for_the_favourite_child() -> None:
    """Tests that a device keeps itself for a child whose other input still comes, and takes an urgent op instead."""
    # op0 (d0) ends at 1, op1 (d1) at 2; op2 reads both: it could start on d0 at 2 + 1 = 3, on d1 at 2 + 1 = 3.
    # op3 reads op0, could start on d0 at 1. Favourite of op0 is op2, which is not ready at 1: d0 is FREE, takes op3.
    wires = [Feed(0, (2, 3), 1), Feed(1, (2,), 1)]
    problem = problem_of([[1, -1], [-1, 2], [5, 5], [4, 4]], wires)
    assert _virtual(problem, [2, -1, -1, -1])[0][3] == 0
    # op0 makes a and b: both ready at 1 on d0, a first in Kahn's order. Its favourite child is b: d0 takes b.
    fork = problem_of([[1, -1], [5, 9], [5, 9]], [Feed(0, (1,), 2), Feed(0, (2,), 2)])
    assert _virtual(fork)[1] == [0, 1, 2]
    assert _virtual(fork, [2, -1, -1])[1] == [0, 2, 1]
    assert _virtual(fork, [2, -1, -1])[0] == [0, 1, 0]


def test_favourite_children_by_hand() -> None:
    """Tests the program on a fork: the costly edge on the longest chain becomes the favourite."""
    # op0 feeds op1 (10 long) and op2 (1 long): without communication to op1 the length is 1 + 10, else more.
    fork = problem_of([[1, 1], [10, 10], [1, 1]], [Feed(0, (1,), 5), Feed(0, (2,), 5)])
    assert favourite_children(Search(fork)).tolist() == [1, -1, -1]
    chain = problem_of([[1, 1]] * 4, CHAIN[:3])
    assert favourite_children(Search(chain)).tolist() == [1, 2, 3, -1]
    # A join has one favourite parent: the one on the longer way.
    join = problem_of([[1, 1], [8, 8], [1, 1]], [Feed(0, (2,), 5), Feed(1, (2,), 5)])
    assert favourite_children(Search(join)).tolist() == [-1, 2, -1]
    assert favourite_children(Search(problem_of([[1, 1]]))).tolist() == [-1]


def test_length_of_the_favourite_program() -> None:
    """Tests the optimum of the program where half a favourite each is best."""
    # Two equal children: one edge may be 0, the other is 1; or both 1/2: length 1 + 5 / 2 + 4.
    fork = problem_of([[1, 1], [4, 4], [4, 4]], [Feed(0, (1,), 5), Feed(0, (2,), 5)])
    source, target, cost = edge_costs(fork)
    program = favourites.sct_program(source, target, cost, favourites.mean_times(fork))
    solution = solve_within(Search(fork), 0, lambda: program)
    assert solution is not None
    unit = max(favourites.mean_times(fork).mean(), cost.mean())
    assert solution[-1] * unit == pytest.approx(1 + 2.5 + 4, rel=1e-3)


def test_pairs_are_repaired() -> None:
    """Tests that a later edge wins at both ends, and the pairing without a program."""
    source, target = np.array([0, 0, 1, 2]), np.array([2, 3, 3, 4])
    assert pair_up(source, target, np.array([True] * 4), 5).tolist() == [-1, 3, 4, -1, -1]
    assert pair_up(source, target, np.array([True, False, True, False]), 5).tolist() == [2, 3, -1, -1, -1]
    assert costliest_pairs(source, target, np.array([1.0, 5.0, 3.0, 2.0]), 5).tolist() == [3, -1, 4, -1, -1]


def test_edges_of_several_tensors_add_up() -> None:
    """Tests the mean over links, and the sum over the tensors between two ops."""
    wires = [Feed(0, (1,), [[0, 2], [4, 0]]), Feed(0, (1,), 5), Feed(0, (2,), [[0, -1], [7, 0]])]
    source, target, cost = edge_costs(problem_of([[1, 1]] * 3, wires))
    assert (source.tolist(), target.tolist(), cost.tolist()) == ([0, 0], [1, 2], [8.0, 7.0])


def test_getf_speeds_and_groups() -> None:
    """Tests speeds scaled to the number of devices, groups, and devices that are left out."""
    problem = problem_of([[4, 2, 1, 40]] * 3)
    assert getf.device_speeds(problem).tolist() == pytest.approx([1.0, 2.0, 4.0, 0.1])
    # gamma = log 4 / log log 4 = 4.24: 1, 2 and 4 are all in [1, 4.24).
    assert getf.speed_groups(getf.device_speeds(problem)).tolist() == [1, 1, 1, 0]
    assert getf.speed_groups(np.array([1.0, 1.9, 2.0])).tolist() == [1, 1, 1]
    assert getf.speed_groups(np.array([1.0, 2.0])).tolist() == [1, 2]


def test_getf_assigns_by_half_of_the_mass() -> None:
    """Tests the least group an op needs, and the one of greatest total speed above it."""
    speed, level = np.array([1.0, 1.0, 1.5, 2.0]), np.array([1, 1, 1, 2])
    mass = np.array([[0.6, 0.0, 0.0, 0.4], [0.4, 0.0, 0.0, 0.6]])
    # The first op needs group 1, where the greatest total speed is (3.5 against 2); the second needs group 2.
    assert getf.assign(mass, speed, level).tolist() == [[0, 0, 0, 1], [2, 2, 2, 0]]


def test_getf_program_by_hand() -> None:
    """Tests the length of the program: two equal ops on equal devices, and a chain on the faster one."""
    two = problem_of([[4, 4], [4, 4]])
    possible = np.ones((2, 2), np.bool_)
    solution = solve_within(Search(two), 0, lambda: getf.getf_program(two, possible))
    assert solution is not None
    assert solution[-1] * 4 == pytest.approx(4)
    chain = problem_of([[4, 2], [4, 2]], CHAIN[:1])
    solution = solve_within(Search(chain), 0, lambda: getf.getf_program(chain, possible))
    assert solution is not None
    assert solution[-1] * 3 == pytest.approx(4)


def test_program_too_large_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that m-SCT and GETF also answer without their programs."""
    monkeypatch.setattr("weftline.latency.list.favourites.ROWS_WITHIN_TIME", 0)
    fork = problem_of([[1, 2], [10, 10], [1, 1]], [Feed(0, (1,), 5), Feed(0, (2,), 7)])
    assert favourite_children(Search(fork)).tolist() == [2, -1, -1]
    search = Search(fork)
    getf.SOLVER_GETF.solve(search)
    assert search.best is not None
