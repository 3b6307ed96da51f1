"""OpenVINO as the backend of a measured search, with the CPU's plugin as two devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.run.openvino_samples import RUNTIMES, graph_of, model_files

import weftline as wl
from weftline.cluster import Cluster
from weftline.errors import InputError, LimitReached, UsageError
from weftline.graph import graph_to_json
from weftline.problem import Problem, Rules, build_problem, read_model
from weftline.run.openvino.meter import OpenvinoMeter, openvino_backend
from weftline.run.openvino.run import run_openvino


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Problem, Path]:
    """A problem on the laptop and its model file."""
    xml, _ = model_files("resnet50", tmp_path_factory.mktemp("small"))
    return build_problem(graph_of(xml), Cluster.preset("laptop"), rules=Rules(runtime="sequential")), xml


@pytest.mark.parametrize("solver", ["policy", "rnn"])
def test_a_measured_plan_runs(small: tuple[Problem, Path], solver: str) -> None:
    """Tests that candidates are run, and that the best of them is the plan and gives the model's outputs."""
    _, xml = small
    plan = wl.plan(
        read_model(xml),
        Cluster.preset("laptop"),
        solver=solver,
        reward="measured",
        measurements=5,
        model_file=xml,
        runtimes=RUNTIMES,
    )
    assert plan.problem.rules.runtime == "sequential"
    assert plan.measured
    assert (plan.measured.backend, plan.measured.count, plan.measured.reference) == ("openvino", 5, "cpu")
    assert plan.measured.failures < 5
    assert 0 < plan.measured.ratio < 100
    run_openvino(plan, model=xml, runtimes=RUNTIMES, rounds=1).check(1e-3)


def test_two_placements_in_turns(small: tuple[Problem, Path]) -> None:
    """Tests that two splits are compared with each other, one ratio for each round, outside the budget."""
    problem, xml = small
    n = len(problem.graph.ops)
    half, third = (np.where(np.arange(n) < cut, 0, 2).tolist() for cut in (n // 2, n // 3))
    with OpenvinoMeter(problem.graph, problem.devices, xml, runtimes=RUNTIMES, budget=1) as meter:
        found = meter.compare(half, third, rounds=4)
        assert not found.failed
        assert len(found.ratios) == found.rounds == 4
        assert min(found.ratios) <= found.ratio <= max(found.ratios)
        assert found.difference <= 1e-3
        assert (meter.spent, meter.left) == (0, 1)


def test_time_ends_a_measurement(small: tuple[Problem, Path]) -> None:
    """Tests that a measurement which the search has no time for is no failure, and leaves no process."""
    problem, xml = small
    with OpenvinoMeter(problem.graph, problem.devices, xml, runtimes=RUNTIMES) as meter:
        with pytest.raises(LimitReached, match="during a measurement"):
            meter.measure([0] * len(problem.graph.ops), 0.01)
        assert meter._process is None
        assert meter.spent == 0


def test_what_cannot_be_measured(small: tuple[Problem, Path], tmp_path: Path) -> None:
    """Tests the sentences about files without weights, devices without a runtime, and nothing to measure."""
    problem, xml = small

    def opened(model: Path, **options: Any) -> None:
        with openvino_backend(problem, model, **{"runtimes": RUNTIMES, **options}):
            raise AssertionError("it was opened")

    graph = tmp_path / "graph.json"
    graph.write_bytes(graph_to_json(problem.graph))
    with pytest.raises(InputError, match="a weftline file cannot be run"):
        opened(graph)
    with pytest.raises(InputError, match="device 'igpu' cannot be run by OpenVINO"):
        opened(xml, runtimes={"cpu": "openvino:CPU", "gpu": "openvino:CPU2"})
    with pytest.raises(UsageError, match="a runtime is given for 'tpu'"):
        opened(xml, runtimes={**RUNTIMES, "tpu": "openvino:CPU4"})
    with pytest.raises(UsageError, match="at least one measurement"):
        opened(xml, measurements=0)
    with pytest.raises(UsageError, match="need model_file"):
        wl.plan(problem, reward="measured")
