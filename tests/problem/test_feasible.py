"""What can be refused before any search, each kind with its reasons."""

from __future__ import annotations

import numpy as np
import pytest

from weftline.cluster import Device
from weftline.cost import NO_TIME, CostTable
from weftline.errors import InfeasibleError
from weftline.graph import Op, Tied, assemble
from weftline.problem import Problem, Rules, check_feasible
from weftline.problem.feasible import allowed_devices, least_memory
from weftline.testing import brute_force_latency, brute_force_throughput, random_problem


def _problem(
    *,
    memory: tuple[int | None, ...] = (None, None),
    absent: tuple[tuple[int, int], ...] = (),
    together: tuple[tuple[int, ...], ...] = (),
    tied: int = 0,
    rules: Rules | None = None,
) -> Problem:
    """Three ops of 10 bytes of weights and 5 of workspace on two devices."""
    ops = [Op(name, weight_bytes=10, workspace_bytes=5) for name in "abc"]
    time = np.ones((3, 2), np.int64)
    for op, device in absent:
        time[op, device] = NO_TIME
    return Problem(
        assemble("g", ops, [], [Tied("w", tied, (0, 1))] if tied else []),
        tuple(Device(f"d{i}", "gpu", limit) for i, limit in enumerate(memory)),
        CostTable(time, np.zeros((0, 2, 2), np.int64), np.zeros(0, np.int32)),
        rules or Rules(),
        together,
    )


def _conflict(problem: Problem) -> InfeasibleError:
    with pytest.raises(InfeasibleError) as error:
        check_feasible(problem)
    assert error.value.proved
    return error.value


def test_feasible_comes_back() -> None:
    """Tests that a problem with exactly enough room passes."""
    problem = _problem(memory=(20, 10))
    assert check_feasible(problem) is problem


def test_an_op_without_device() -> None:
    """Tests that the op is named."""
    assert "no device can run op 'b'" in str(_conflict(_problem(absent=((1, 0), (1, 1)))))


def test_a_set_without_device() -> None:
    """Tests that the reasons say where each op of the set runs."""
    error = _conflict(_problem(absent=((0, 1), (1, 0)), together=((0, 1),)))
    assert error.conflicts == ("'a' runs on d0", "'b' runs on d1")
    assert error.what == "the ops 'a', 'b' must share a device, but none can run them all"


def test_one_op_larger_than_every_device() -> None:
    """Tests that what is needed and what is there are told."""
    error = _conflict(_problem(memory=(9, 8)))
    assert "'a'" in error.what
    assert error.conflicts == ("the largest device that can run them holds 9 B",)


def test_a_set_larger_than_every_device() -> None:
    """Tests that sets count together, and only devices that can run them."""
    error = _conflict(_problem(memory=(100, 19), together=((0, 1),), absent=((0, 0),)))
    assert error.what == "'a', 'b' need 20 B of weights on one device"
    assert "19 B" in error.conflicts[0]


def test_everything_larger_than_all_devices() -> None:
    """Tests that the sum of weights is compared with the sum of room."""
    error = _conflict(_problem(memory=(15, 14)))
    assert (error.what, error.conflicts) == ("the weights need 30 B", ("all usable devices together hold 29 B",))


def test_tied_weights_count_once() -> None:
    """Tests that a shared weight is part of the sum."""
    assert "33 B" in str(_conflict(_problem(memory=(16, 16), tied=3)))
    check_feasible(_problem(memory=(17, 16), tied=3))


def test_fewer_stages_hold_less() -> None:
    """Tests that a pipeline of one stage cannot use the second device's memory."""
    rules = Rules(objective="throughput", stages=1)
    assert "hold 20 B" in str(_conflict(_problem(memory=(20, 20), rules=rules)))
    check_feasible(_problem(memory=(20, 20), rules=Rules(objective="throughput", stages=2)))


def test_static_memory_counts_workspace() -> None:
    """Tests that under the static rule workspace is held all the time."""
    check_feasible(_problem(memory=(20, 10)))
    assert "45 B" in str(_conflict(_problem(memory=(30, 14), rules=Rules(memory="static"))))
    assert least_memory(_problem(rules=Rules(memory="static"))).tolist() == [15, 15, 15]


def test_allowed_devices_of_sets() -> None:
    """Tests that a set runs where all its ops run; sets come first, single ops after them."""
    problem = _problem(absent=((0, 1), (2, 0)), together=((0, 1),))
    assert allowed_devices(problem).tolist() == [[True, False], [False, True]]


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_never_refuses_what_is_feasible(objective: str) -> None:
    """Tests that whatever has a plan by brute force passes."""
    passed = 0
    for seed in range(120):
        problem = random_problem(seed, objective, max_ops=4, max_devices=2)  # type: ignore[arg-type]
        try:
            check_feasible(problem)
        except InfeasibleError:
            best = (brute_force_latency if objective == "latency" else brute_force_throughput)(problem)
            assert best is None
        else:
            passed += 1
    assert 0 < passed < 120
