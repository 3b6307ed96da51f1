"""What a run's JSON says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from weftline.run.result import RunResult, in_ns


@dataclass(frozen=True)
class Timed(RunResult):
    """A run whose devices have ids that look like times."""

    in_seconds: ClassVar[bool] = True
    measured_ns: int
    predicted_ns: int
    reference_ns: int | None
    devices: dict[str, str]


def test_only_fields_are_times() -> None:
    """Tests that ids of devices stay as they are, in both directions."""
    devices = {"cpu_ns": "openvino:CPU", "gpu_seconds": "openvino:GPU"}
    found = Timed(1_500_000_000, 10**9, None, devices).to_json()
    assert found == {"measured_seconds": 1.5, "predicted_seconds": 1.0, "reference_seconds": None, "devices": devices}
    back = in_ns(found)
    assert (back["measured_ns"], back["devices"]) == (1_500_000_000, devices)
