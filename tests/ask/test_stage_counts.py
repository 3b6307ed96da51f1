"""Which numbers of stages are tried, and the problem of each."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from weftline.ask.stage_counts import parse_counts, same_placement, stage_problems
from weftline.cluster import Device
from weftline.errors import UsageError
from weftline.problem import Problem, asked_rules, load_problem
from weftline.testing.generate import problem_of

FIDDLE = {
    "maxFPGAs": 2,
    "maxCPUs": 1,
    "maxSizePerFPGA": 100,
    "nodes": [{"id": i, "supportedOnFpga": 1, "cpuLatency": 9, "fpgaLatency": 2, "size": 1} for i in range(4)],
    "edges": [{"sourceId": i, "destId": i + 1, "cost": 0.5} for i in range(3)],
}


def _devices(count: int) -> Problem:
    return problem_of([[1] * count] * 2, objective="throughput")


def _loader(problem: Problem) -> Callable[[int | None], Problem]:
    return lambda stages: problem.with_rules(asked_rules({"stages": stages}, problem.rules))


def test_words() -> None:
    """Tests ranges and lists, sorted and each once."""
    assert parse_counts("1..4") == (1, 2, 3, 4)
    assert parse_counts("3..3") == (3,)
    assert parse_counts("8,1,2,2") == (1, 2, 8)


@pytest.mark.parametrize(
    "text", ["", "0..3", "4..2", "1..8:2", "1..", "a,b", "1,,2", "-1..2", "0", "1..100", "1..9999"]
)
def test_words_that_make_no_sense(text: str) -> None:
    """Tests that anything else is a usage error."""
    with pytest.raises(UsageError, match="stages"):
        parse_counts(text)


@pytest.mark.parametrize(
    ("devices", "counts"),
    [(1, (1,)), (3, (1, 2, 3)), (16, tuple(range(1, 17))), (40, (*range(1, 17), 32, 40)), (32, (*range(1, 17), 32))],
)
def test_auto_tries_all_devices(devices: int, counts: tuple[int, ...]) -> None:
    """Tests every number up to 16, then doubled, and the last."""
    problems = stage_problems(_loader(_devices(devices)), "auto")
    assert (problems.counts, problems.most) == (counts, devices)


def test_a_cluster_keeps_its_devices() -> None:
    """Tests that only the limit of stages changes."""
    problems = stage_problems(_loader(_devices(4)), [4, 1, 2])
    assert problems.counts == (1, 2, 4)
    assert [(problems.at(k).rules.stages, len(problems.at(k).devices)) for k in (1, 2, 3, 4)] == [
        (1, 4),
        (2, 4),
        (3, 4),
        (4, 4),
    ]


def test_accelerators_follow_the_stages(tmp_path: Path) -> None:
    """Tests that a file with accelerators may have more of them than it says, and `auto` takes as many as it says."""
    path = tmp_path / "fiddle.json"
    path.write_text(json.dumps(FIDDLE))

    def load(stages: int | None) -> Problem:
        return load_problem(path, rules={"objective": "throughput", "stages": stages})[0]

    assert stage_problems(load, "auto").counts == (1, 2)
    problems = stage_problems(load, "1..5")
    assert problems.most > 5
    assert [len(problems.at(k).devices) for k in (1, 2, 5, 6)] == [2, 3, 6, 7]
    one, five = problems.at(1), problems.at(5)
    moved = same_placement(np.array([0, 0, 1, 1], np.int32), one, five)
    assert moved is not None
    assert [five.devices[d].id for d in moved] == ["acc0", "acc0", "cpu", "cpu"]
    assert same_placement(np.array([4, 4, 4, 4], np.int32), five, one) is None


def test_kinds_called_accelerator_in_a_cluster() -> None:
    """Tests that the word alone does not make the number of devices follow the stages."""
    problem = replace(_devices(2), devices=(Device("a", "accelerator", None), Device("b", "cpu", None)))
    problems = stage_problems(_loader(problem), "auto")
    assert (problems.counts, problems.most, problems.load) == ((1, 2), 2, None)


def test_latency_has_no_stages() -> None:
    """Tests that numbers of stages are not compared for latency."""
    with pytest.raises(UsageError, match="throughput"):
        stage_problems(_loader(problem_of([[1, 1]])), "auto")
