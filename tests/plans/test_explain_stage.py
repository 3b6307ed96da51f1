"""The slowest stage of a pipeline, its ops and tensors; the whole placement; tensors at both ends of their way."""

from __future__ import annotations

import numpy as np

from weftline.ask import make_plan
from weftline.errors import InfeasibleError
from weftline.plans import PlacedOp, explain_stage, placed_ops, plan_result
from weftline.plans.result import crossings
from weftline.problem import Problem
from weftline.simulate import Loads
from weftline.testing import random_problem
from weftline.testing.generate import Feed, problem_of


def _pinned(hosts: tuple[int, ...] = ()) -> Problem:
    """op0 on d0, six ops on d1, op7 on d2; t0 goes to both."""
    time = [[10, -1, -1], *([-1, t, -1] for t in (1, 7, 3, 4, 5, 6)), [-1, -1, 20]]
    wires = [Feed(0, (1, 7), 3), *(Feed(i, (i + 1,), 2) for i in range(1, 7))]
    return problem_of(time, wires, hosts=hosts, objective="throughput")


def test_the_slowest_stage() -> None:
    """Tests its split, its five dearest ops, its tensors with their other ends, and the room beside it."""
    slowest = explain_stage(make_plan(_pinned(), solver="greedy"))
    assert slowest is not None
    assert (slowest.stage, slowest.device, slowest.load_ns) == (1, "d1", 31)
    assert (slowest.compute_ns, slowest.in_ns, slowest.out_ns) == (26, 3, 2)
    assert [(op.op, op.time_ns) for op in slowest.ops] == [("op2", 7), ("op6", 6), ("op5", 5), ("op4", 4), ("op3", 3)]
    assert [(t.tensor, t.time_ns, t.devices) for t in slowest.enters] == [("t0", 3, ("d0",))]
    assert [(t.tensor, t.time_ns, t.devices) for t in slowest.leaves] == [("t6", 2, ("d2",))]
    assert slowest.before is not None
    assert (slowest.before.device, slowest.before.room_ns) == ("d0", 31 - 13)
    assert slowest.after is not None
    assert (slowest.after.device, slowest.after.room_ns) == ("d2", 31 - 25)


def test_its_lines() -> None:
    """Tests that a reader sees the same."""
    slowest = explain_stage(make_plan(_pinned(), solver="greedy"))
    assert slowest is not None
    lines = slowest.lines()
    assert lines[0] == (
        "The slowest stage is 1 on d1, 31 ns: compute 26 ns (84%), tensors that enter 3 ns (10%), that leave 2 ns (6%)."
    )
    assert lines[2].split() == ["7", "ns", "op2"]
    assert any(line.split() == ["3", "ns", "t0", "(from", "d0)"] for line in lines)
    assert (
        lines[-1] == "Next to it: stage 0 on d0 before it has 18 ns of room; stage 2 on d2 after it has 6 ns of room."
    )


def test_the_only_stage() -> None:
    """Tests a pipeline of one stage, which moves nothing."""
    slowest = explain_stage(make_plan(problem_of([[5]], objective="throughput"), solver="greedy"))
    assert slowest is not None
    assert slowest.lines()[-1] == "It is the only stage, so no other has room."
    assert slowest.enters == slowest.leaves == ()


def test_latency_has_no_stage() -> None:
    """Tests that a latency plan has no slowest stage."""
    assert explain_stage(make_plan(problem_of([[5]]))) is None


def test_the_whole_placement() -> None:
    """Tests every op with its device and its time there, for both objectives."""
    rows = placed_ops(make_plan(_pinned(), solver="greedy"))
    assert rows[0] == PlacedOp("op0", "d0", 10)
    assert rows[-1] == PlacedOp("op7", "d2", 20)
    assert len(rows) == 8
    assert placed_ops(make_plan(problem_of([[5, 9]]))) == [PlacedOp("op0", "d0", 5)]


def test_ends_add_up_to_the_loads() -> None:
    """Tests on random pipelines, host devices too, that the ends of tensors are what the simulator charges."""
    compared = 0
    for seed in range(80):
        try:
            plan = make_plan(random_problem(seed, "throughput"), solver="even-split", work_limit=10)
        except InfeasibleError:
            continue
        problem, loads = plan_result(plan)
        assert isinstance(loads, Loads)
        total = np.zeros((2, len(problem.devices)), np.int64)
        for end in crossings(problem, loads.placement):
            total[int(not end.enters), end.device] += end.time_ns
        assert total[0].tolist() == loads.entering.tolist()
        assert total[1].tolist() == loads.leaving.tolist()
        compared += int(total.any())
    assert compared > 10
