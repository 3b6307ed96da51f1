"""Tests of the loads of pipelines, worked out by hand."""

import numpy as np
import pytest

from weftline.errors import InfeasibleError
from weftline.problem import Problem
from weftline.simulate import Loads, simulate_throughput
from weftline.testing.generate import Feed, problem_of


def _run(problem: Problem, placement: list[int]) -> Loads:
    return simulate_throughput(problem, np.array(placement, np.int32))


def _chain(**options: object) -> Problem:
    wires = [Feed(-1, (0,), 0, 7), Feed(0, (1,), 5, 4), Feed(1, (2,), 4, 5), Feed(2, (), 0, 6, output=True)]
    return problem_of(
        [[2, 2], [3, 3], [1, 1]],
        wires,
        weights=[1, 2, 3],
        objective="throughput",
        **options,  # type: ignore[arg-type]
    )


def test_added_and_overlapped() -> None:
    """Tests both rules of communication on a chain cut once."""
    added = _run(_chain(), [0, 0, 1])
    assert (added.compute.tolist(), added.entering.tolist(), added.leaving.tolist()) == ([5, 1], [0, 4], [4, 0])
    assert (added.load.tolist(), added.value, added.stages) == ([9, 5], 9, (0, 1))
    overlapped = _run(_chain(communication="overlapped"), [0, 0, 1])
    assert (overlapped.load.tolist(), overlapped.value) == ([5, 4], 5)


def test_memory_of_stages() -> None:
    """Tests the peak inside a stage; overlapped communication holds twice what crosses a border."""
    # d0 (weights 3): op0 input 7 + t1 4; op1 t1 4 + t2 5. d1 (weights 3): t2 5 + result 6.
    assert _run(_chain(), [0, 0, 1]).peak.tolist() == [3 + 11, 3 + 11]
    # Twice: the input, t2 and the result; once: t1.
    assert _run(_chain(communication="overlapped"), [0, 0, 1]).peak.tolist() == [3 + 18, 3 + 22]
    assert _run(_chain(memory="static"), [0, 0, 1]).peak.tolist() == [3, 3]


def test_a_tensor_leaves_once_and_enters_each_device_once() -> None:
    """Tests that the sender pays the dearest destination, each receiver its own transfer, for all its readers."""
    matrix = [[0, 3, 8], [1, 0, 1], [1, 1, 0]]
    problem = problem_of([[1] * 3] * 5, [Feed(0, (1, 2, 3, 4), matrix)], objective="throughput")
    loads = _run(problem, [0, 1, 1, 2, 0])
    assert (loads.leaving.tolist(), loads.entering.tolist()) == ([8, 0, 0], [0, 3, 8])
    assert loads.load.tolist() == [2 + 8, 2 + 3, 1 + 8]


def test_cycle_between_stages() -> None:
    """Tests that stages which need each other are refused, and that stages are listed in pipeline order."""
    problem = problem_of([[1, 1]] * 3, [Feed(0, (1,)), Feed(1, (2,))], objective="throughput")
    with pytest.raises(InfeasibleError, match="cycle"):
        _run(problem, [0, 1, 0])
    assert _run(problem, [1, 0, 0]).stages == (1, 0)


def test_host_pays_nothing_and_need_not_be_contiguous() -> None:
    """Tests the rule of host devices: ops on both sides of a stage, and no transfer counted on the host."""
    wires = [Feed(0, (1,), 4), Feed(1, (2,), 5)]
    problem = problem_of([[1, 1], [2, 2], [3, 3]], wires, objective="throughput", hosts=[1])
    loads = _run(problem, [1, 0, 1])
    assert loads.load.tolist() == [2 + 4 + 5, 1 + 3]
    assert (loads.entering.tolist(), loads.leaving.tolist()) == ([4, 0], [5, 0])
    with pytest.raises(InfeasibleError, match="cycle"):  # the stage itself must be contiguous
        _run(problem, [0, 1, 0])


def test_training_is_acyclic_on_its_forward_part() -> None:
    """Tests that gradients may flow back through the stages."""
    wires = [Feed(0, (1,)), Feed(1, (2,)), Feed(2, (3,))]
    training = problem_of([[1, 1]] * 4, wires, objective="throughput", backward=[2, 3])
    loads = _run(training, [0, 1, 1, 0])
    assert (loads.load.tolist(), loads.stages) == ([2, 2], (0, 1))
    with pytest.raises(InfeasibleError, match="cycle"):
        _run(problem_of([[1, 1]] * 4, wires, objective="throughput"), [0, 1, 1, 0])


def test_stage_limit() -> None:
    """Tests that more devices than stages are refused."""
    problem = problem_of([[1, 1, 1]] * 3, objective="throughput", stages=2)
    assert _run(problem, [0, 2, 2]).value == 2
    with pytest.raises(InfeasibleError, match="more devices are used than stages are allowed"):
        _run(problem, [0, 1, 2])


def test_absent_times_and_links() -> None:
    """Tests that what cannot run or be sent is refused."""
    problem = problem_of([[1, -1], [1, 1]], [Feed(0, (1,), [[0, -1], [1, 0]])], objective="throughput")
    with pytest.raises(InfeasibleError, match="cannot run"):
        _run(problem, [1, 1])
    with pytest.raises(InfeasibleError, match="no link"):
        _run(problem, [0, 1])
    assert _run(problem, [0, 0]).value == 2
