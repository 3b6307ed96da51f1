"""What a step between two workers costs a model: cuts, the arithmetic, and a real run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weftline.cluster import Cluster, Device, Limits, Link, OpDevice
from weftline.cost.profile_file import LinkProfile
from weftline.errors import WeftlineError
from weftline.graph.arrays import Indices
from weftline.importers import read_file
from weftline.measure import links, profiling
from weftline.measure.links import MOST_STEP_NS, even_cuts, longer_transfers, measure_steps
from weftline.measure.profiling import profile_model
from weftline.problem import Problem
from weftline.run.devices import ort_devices
from weftline.run.split.segments import Parts
from weftline.testing.generate import Feed, problem_of
from weftline.zoo import build, save


def chain(times: list[int], together: tuple[tuple[int, ...], ...] = ()) -> Problem:
    """Ops one after another on two equal devices; a transfer takes 7."""
    wires = [Feed(op, (op + 1,), 7) for op in range(len(times) - 1)]
    return problem_of([[time, time] for time in times], wires, together=together)


def segments(part: Indices) -> list[list[int]]:
    """Ops of each segment."""
    return [np.flatnonzero(part == number).tolist() for number in range(int(part.max()) + 1)]


def test_segments_are_even_and_divide_no_kernel() -> None:
    """Tests that time is shared out, that one long op is one segment, and that a group stays whole."""
    assert segments(even_cuts(chain([1] * 6), 3)) == [[0, 1], [2, 3], [4, 5]]
    assert segments(even_cuts(chain([1, 1, 100, 1, 1]), 3)) == [[0, 1, 2], [3], [4]]
    assert segments(even_cuts(chain([1] * 6, ((1, 2, 3),)), 6)) == [[0], [1, 2, 3], [4], [5]]
    assert segments(even_cuts(chain([5]), 4)) == [[0]]


def test_what_is_left_is_shared_by_all_transfers() -> None:
    """Tests that planned transfers are taken off, that tensors are counted once for each step, and the limits."""
    problem = chain([1] * 4)
    parts = Parts(np.array([0, 1, 2, 3], np.int32), (0, 1, 0, 1))
    assert longer_transfers(problem, parts, 3 * 7 + 30.0) == 10
    assert longer_transfers(problem, parts, 5.0) == 0
    assert longer_transfers(problem, parts, 1e12) == MOST_STEP_NS
    fan = problem_of([[1, 1]] * 3, [Feed(0, (1, 2), 4)])
    assert longer_transfers(fan, Parts(np.array([0, 1, 1], np.int32), (0, 1)), 4 + 6.0) == 6


CPU = "ort:CPUExecutionProvider"
TWO = Cluster(
    "two",
    (Device("a", "cpu", 2**20, speed=0.5, runtime=CPU), Device("b", "cpu", 2**20, runtime=CPU)),
    (Link("a", "b", 10**9, 10_000),),
    limits=Limits(pin=(OpDevice("no such op", "a"),)),
)
"""Too little memory, a pin without an op, one way only: none of that matters for times."""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small model in a file."""
    path = tmp_path / "model.onnx"
    save(build("mobilenet-v3", size="small"), path)
    return path


def test_a_model_goes_to_and_fro(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests real runs of all three kinds, and that what they take is in the links, whatever the cluster says."""
    seen: list[tuple[float, float, float]] = []

    def noted(*words: Any) -> tuple[float, float, float]:
        seen.append(run(*words))
        return seen[-1][0], seen[-1][0], seen[-1][0] + 10**8

    run = links._run
    monkeypatch.setattr(links, "_run", noted)
    monkeypatch.setattr(profiling, "measure_links", lambda *_: (LinkProfile("a", "b", 20_000, 10**9),))
    profile = profile_model(model, TWO, repeats=3, cache=False)
    assert len(seen) == 1
    assert min(seen[0]) > 0
    assert [link.latency_ns for link in profile.links] == [20_000 + MOST_STEP_NS]
    assert profile.note == ""


def test_steps_that_cannot_be_measured_are_said(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that the profile is there all the same, with a note; and that gloo has links of its own."""

    def broken(*_: Any) -> tuple[float, float, float]:
        raise WeftlineError("a worker has left")

    monkeypatch.setattr(links, "_run", broken)
    monkeypatch.setattr(profiling, "measure_links", lambda *_: (LinkProfile("a", "b", 20_000, 10**9),))
    told: list[str] = []
    profile = profile_model(model, TWO, repeats=3, cache=False, tell=told.append)
    assert profile.note == "steps between workers were not measured: a worker has left" == told[-1]
    assert [link.latency_ns for link in profile.links] == [20_000]
    assert profile_model(model, TWO, repeats=3, cache=False, channel="gloo").note == ""


def test_models_that_are_too_large_or_too_small(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests the reasons for which nothing is measured."""
    graph = read_file(model).graph
    pair = [(device, place) for device, place in zip(TWO.devices, ort_devices(TWO.devices, {}).values(), strict=True)]
    monkeypatch.setattr(profiling, "measure_links", lambda *_: ())
    profile = profile_model(model, TWO, repeats=3, cache=False)
    monkeypatch.setattr(links, "FEWEST_SEGMENTS", 10**6)
    with pytest.raises(WeftlineError, match="too few kernels"):
        measure_steps(model, graph, profile, pair, 0.3)
    monkeypatch.setattr(links, "LARGEST_MODEL_BYTES", 1)
    with pytest.raises(WeftlineError, match="too large"):
        measure_steps(model, graph, profile, pair, 0.3)
