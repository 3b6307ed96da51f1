"""Tests of measured against predicted: every engine's output, and files that are none."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.report.page_samples import RUN, run_of, sample

from weftline.errors import InputError, UsageError
from weftline.plans import Plan
from weftline.report.html.run import check_run, find_run, read_run, run_table
from weftline.run.local.run import LocalResult


def test_the_local_engine() -> None:
    """Tests the whole, the devices and the baselines of a local run."""
    found = run_table(RUN)
    assert (found.whole.name, found.whole.measured_ns, found.whole.predicted_ns) == ("period", 1_200_000, 1_000_000)
    assert found.whole.ratio == 1.2
    assert [(row.name, row.measured_ns, row.predicted_ns, row.note) for row in found.devices] == [
        ("gpu0", 900_000, 880_000, "busy 75%"),
        ("gpu1", 1_100_000, 950_000, "busy 90%"),
    ]
    assert [row.name for row in found.baselines] == ["replicas", "one process"]
    assert "50 requests were timed." in found.words


def test_openvino() -> None:
    """Tests a run beside one device, in seconds."""
    found = run_table(
        {
            "engine": "openvino",
            "devices": {"gpu0": "GPU.0"},
            "rounds": 20,
            "measured_seconds": 0.002,
            "predicted_seconds": 0.0015,
            "reference": "gpu0",
            "reference_measured_seconds": 0.003,
            "reference_predicted_seconds": None,
        }
    )
    assert (found.whole.name, found.whole.measured_ns, found.whole.predicted_ns) == ("latency", 2_000_000, 1_500_000)
    assert [(row.name, row.measured_ns, row.predicted_ns) for row in found.baselines] == [
        ("all on gpu0", 3_000_000, None)
    ]


def test_torch() -> None:
    """Tests a trained schedule: a step, and what each rank did."""
    ranks = [{"rank": 0, "device": "0", "busy_seconds": 0.5, "step_seconds": 0.6}]
    found = run_table(
        {"engine": "weftline", "steps": 3, "measured_seconds": 0.6, "simulated_seconds": 0.55, "ranks": ranks,
         "max_gradient_difference": 1e-9, "max_output_difference": None, "planned_makespan": 12}
    )  # fmt: skip
    assert (found.whole.name, found.whole.measured_ns, found.whole.predicted_ns) == (
        "one step",
        600_000_000,
        550_000_000,
    )
    assert found.devices[0].measured_ns == 500_000_000
    assert any("Gradients" in sentence for sentence in found.words)


def test_what_a_run_returned() -> None:
    """Tests the result object itself, and that anything else is refused."""
    result = LocalResult("local", "latency", 10, 1, 500, 400, 500, 600, (), (), 0.0, 10, (), {"one process": 700})
    found = find_run(result)
    assert (found.whole.name, found.whole.measured_ns, found.baselines[0].measured_ns) == ("latency", 500, 700)

    @dataclass(frozen=True)
    class Other:
        engine: int = 3

    with pytest.raises(InputError, match="run --json"):
        find_run(Other())
    with pytest.raises(UsageError):
        find_run(7)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"engine": "local"}', '{"engine": "x", "measured_ns": -3}', '{"engine": "x", "measured_ns": "1"}',
     '{"engine": "x", "measured_ns": ' + 400 * "9" + "}", '{"engine": "x", "measured_ns": 1, "latency_ns": -5}',
     "[" * 100_000, '{"engine": "x", "measured_seconds": 1e300}', '{"format": "weftline-plan"}'],
)  # fmt: skip
def test_files_that_are_no_run(tmp_path: Path, text: str) -> None:
    """Tests that each is one error that names the file."""
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"run\.json"):
        read_run(path)


def test_a_file(tmp_path: Path) -> None:
    """Tests that a file is the object in it."""
    path = tmp_path / "run.json"
    path.write_text(json.dumps(RUN))
    assert find_run(path) == find_run(str(path)) == run_table(RUN)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"objective": "latency"}, "it ran for latency"),
        ({"predicted_ns": 7}, "not this plan's value"),
        ({"devices": [{"device": "zzz", "compute_ns": 1}]}, "no device 'zzz'"),
    ],
)
def test_a_run_of_another_plan(change: dict[str, object], says: str) -> None:
    """Tests that a run is shown only beside the plan that it may be of."""
    plan = sample("run")
    assert isinstance(plan, Plan)
    check_run(run_table(run_of(plan)), plan)
    with pytest.raises(InputError, match=says):
        check_run(run_table({**run_of(plan), **change}), plan)
