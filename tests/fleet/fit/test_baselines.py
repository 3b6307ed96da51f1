"""Tests of what simple splits and engines' own defaults would do."""

from __future__ import annotations

import pytest

from weftline.fleet.fit import fit_violations
from weftline.fleet.fit.baselines import baseline_segments, before_the_last, shares_split, to_the_last
from weftline.problem.fit import (
    FitBuffers,
    FitDevice,
    FitPool,
    FitProblem,
    FitRules,
    FitUnit,
    HostRows,
    check_fit_problem,
)
from weftline.testing.fits import random_fit_problem

MIB = 2**20


@pytest.mark.parametrize(
    ("shares", "layers", "expected"),
    [
        ([12, 5], 17, [12, 5]),
        ([9, 8], 17, [9, 8]),
        ([1, 1], 33, [17, 16]),
        ([24, 12], 33, [22, 11]),
        ([0, 1], 5, [0, 5]),
    ],
)
def test_shares_become_layers_as_llamacpp_counts_them(shares: list[int], layers: int, expected: list[int]) -> None:
    """Tests the rule for `-ts`: the first device whose end lies above the layer's share; ties go to the next one."""
    assert shares_split(shares, layers) == expected


def test_pipelines_of_servers_put_the_remainder_elsewhere() -> None:
    """Tests that vLLM gives more blocks to the stages before the last, SGLang to the last ones."""
    assert before_the_last(32, 3) == [11, 11, 10]
    assert sum(before_the_last(47, 6)) == 47
    assert before_the_last(29, 4) == [7, 7, 8, 7]
    assert to_the_last(29, 4) == [7, 7, 7, 8]


def boxed(limits: list[int], host: int, *, experts: int = 0) -> FitProblem:
    """Eight equal blocks of 1 GiB (or of 100 MiB and experts) and an output layer, cards and a host."""
    devices = (
        *(FitDevice(f"gpu{i}", limit * MIB) for i, limit in enumerate(limits)),
        FitDevice("cpu", host * MIB, True),
    )
    pools = tuple(FitPool(device.id, (number,)) for number, device in enumerate(devices))
    buffers = FitBuffers(0, 0, 0, 0)
    dense = 100 * MIB if experts else 1024 * MIB
    bytes_ = ((dense, experts * MIB), (100 * MIB, 0))
    units = tuple(
        FitUnit(
            device.id,
            ((number, 1),),
            bytes_,
            tuple(tuple(size // (100 if device.host else 1000) for size in row) for row in bytes_),
            (0, 0),
            buffers,
            buffers,
        )
        for number, device in enumerate(devices)
    )
    hops = tuple(tuple(0 for _ in units) for _ in units)
    rules = FitRules("llamacpp", HostRows.FIRST, ("experts",))
    names = ("block", "output"), ("ffn", "experts")
    return check_fit_problem(FitProblem("box", (0,) * 8 + (1,), *names, devices, pools, units, hops, rules))


def test_the_rule_of_fit_fills_cards_from_the_back() -> None:
    """Tests that the last card gets the last layers, as many as fit with the margin, and the host the first ones."""
    plan = dict(baseline_segments(boxed([4000, 4000], 64_000)))["llamacpp-fit"]
    assert plan is not None
    assert [(one.unit, one.first, one.last) for one in plan] == [(2, 0, 2), (0, 2, 5), (1, 5, 9)]


def test_the_rule_of_fit_leaves_experts_on_the_host_first() -> None:
    """Tests that experts of the first layers move in where there is room, and the others stay."""
    plan = dict(baseline_segments(boxed([4000], 64_000, experts=1000)))["llamacpp-fit"]
    assert plan is not None
    assert [(one.unit, one.first, one.last) for one in plan] == [(0, 0, 9)]
    assert [row for row, _ in plan[0].moved] == [2, 3, 4, 5, 6, 7]


def test_the_rule_of_fit_changes_nothing_that_fits() -> None:
    """Tests that the default stays where it fits."""
    found = dict(baseline_segments(boxed([16_000, 8000], 64_000)))
    assert found["llamacpp-fit"] == found["free-memory"]


def test_baselines_obey_the_rules_and_limits() -> None:
    """Tests that whatever is given as a baseline could be run."""
    seen = 0
    for seed in range(80):
        problem = random_fit_problem(seed)
        for name, plan in baseline_segments(problem):
            assert plan is None or not fit_violations(problem, plan), (seed, name)
            seen += plan is not None
    assert seen > 40
