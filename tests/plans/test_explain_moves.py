"""Why an op stands where it stands: moves with their values, worked out on paper."""

from __future__ import annotations

import numpy as np

from weftline.ask import make_plan
from weftline.errors import InfeasibleError
from weftline.plans import explain_op, plan_result
from weftline.plans.moves import moves_of, why_here
from weftline.simulate import simulate_latency, simulate_throughput, violations
from weftline.testing import random_problem
from weftline.testing.generate import Feed, Objective, problem_of


def test_moves_of_a_latency_plan() -> None:
    """Tests value, change and own time on each device, and the sentence."""
    # A chain of two ops; d1 is slower, and a transfer takes 3.
    plan = make_plan(problem_of([[10, 15], [10, 12]], [Feed(0, (1,), 3)]))
    assert plan.value_ns == 20
    story = explain_op(plan, "op1")
    assert [(m.device, m.here, m.ops, m.time_ns, m.value_ns, m.breaks) for m in story.moves] == [
        ("d0", True, 0, 10, 20, ()),
        ("d1", False, 1, 12, 25, ()),
    ]
    assert story.why == ("The only possible move, to d1, would cost 5 ns (+25.00%).",)


def test_memory_binds() -> None:
    """Tests that a move that would be better but breaks a memory limit is told as such."""
    problem = problem_of([[10, 2]], weights=[8], capacity=[100, 5])
    story = explain_op(make_plan(problem), "op0")
    better = story.moves[1]
    assert (better.value_ns, better.memory_bytes, better.memory_limit, better.allowed) == (2, 8, 5, False)
    assert story.why == (
        "No other device can take it within the limits.",
        "On d1 the plan would be better by 8 ns, but a limit binds: device d1 needs 8 B but holds 5 B.",
    )


def test_pinned() -> None:
    """Tests an op that only one device may run."""
    story = explain_op(make_plan(problem_of([[10, -1]])), "op0")
    assert story.moves[1].value_ns is None
    assert "pinned elsewhere, forbidden" in story.moves[1].breaks[0]
    assert story.why == ("No other device can take it.",)
    assert explain_op(make_plan(problem_of([[10]])), "op0").why == ("There is no other device.",)


def test_a_set_moves_as_one() -> None:
    """Tests that ops that stay together move together."""
    problem = problem_of([[1, 5], [1, 5], [1, 5]], [Feed(0, (1,), 1), Feed(1, (2,), 1)], together=((0, 1),))
    story = explain_op(make_plan(problem), "op0")
    assert story.together == ("op1",)
    assert (story.moves[1].ops, story.moves[1].value_ns) == (2, 12)


def test_a_pipeline_stays_a_pipeline() -> None:
    """Tests that in a pipeline an op takes along what would make a cycle, and that a stage limit is named."""
    wires = [Feed(i, (i + 1,), 1) for i in range(3)]
    problem = problem_of([[5, 5, 5], [5, 5, -1], *[[5, 5, 5]] * 2], wires, objective="throughput", stages=2)
    plan = make_plan(problem, solver="greedy")
    _, loads = plan_result(plan)
    assert loads.placement.tolist() == [0, 0, 1, 1]
    first = explain_op(plan, "op0").moves
    assert (first[1].ops, first[1].value_ns) == (2, 20)
    assert first[2].value_ns is None
    assert "more devices are used than stages are allowed" in first[2].breaks[0]
    third = explain_op(plan, "op3").moves
    assert (third[2].ops, third[2].value_ns) == (2, 11)  # its whole stage
    second = explain_op(plan, "op1").moves
    assert (second[1].ops, second[1].value_ns) == (1, 16)


def test_values_are_those_of_the_simulator() -> None:
    """Tests on random plans of both kinds that no move is told a value that the simulator does not have."""
    compared = 0
    for seed in range(60):
        kind: Objective = "throughput" if seed % 2 else "latency"
        try:
            plan = make_plan(random_problem(seed, kind, max_ops=8), solver="even-split", work_limit=10)
        except InfeasibleError:
            continue
        problem, result = plan_result(plan)
        for op in range(len(problem.graph.ops)):
            members = next((list(group) for group in problem.together if op in group), [op])
            for d, move in enumerate(moves_of(problem, result, op)):
                placement = result.placement.copy()
                placement[members] = d
                if move.value_ns is None or move.here or move.ops != int((placement != result.placement).sum()):
                    continue
                simulate = simulate_latency if kind == "latency" else simulate_throughput
                expected = simulate(problem, placement)
                if not violations(problem, expected):
                    assert move.value_ns <= expected.value
                    assert move.allowed
                if kind == "throughput":
                    assert move.value_ns == expected.value
                compared += 1
    assert compared > 60


def test_the_sentences() -> None:
    """Tests the words for moves that change nothing, and for moves that would be better."""
    # op0 and op1 do not depend on each other; the plan puts op0 on the slow device, on purpose.
    problem = problem_of([[5, 20], [9, 9]])
    result = simulate_latency(problem, np.array([1, 0], np.int32))
    assert why_here(result.value, moves_of(problem, result, 0))[0].startswith(
        "On d0 the plan would be better by 6 ns (-30.00%): its search did not come to this"
    )
    free = problem_of([[5, 5], [9, 9]], together=())
    result = simulate_latency(free, np.array([0, 1], np.int32))
    assert why_here(result.value, moves_of(free, result, 0)) == [
        "The only possible move, to d1, would cost 5 ns (+55.56%)."
    ]
    three = problem_of([[5, 5, 5], [9, 9, 9]])
    result = simulate_latency(three, np.array([0, 1], np.int32))
    assert why_here(result.value, moves_of(three, result, 0)) == [
        "On d2 the value would be the same: something else decides it."
    ]
