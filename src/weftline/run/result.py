"""What a run of any engine found: whole nanoseconds inside, today's names and units in its JSON.

In: what an engine measured, as a dataclass of its own fields. Out: `check`, `summary`, and `to_json`: what `weftline
run --json` prints. `in_ns` reads that back, whichever engine wrote it. Simplified: engines that print seconds print all
of them so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from weftline.errors import ExecutionMismatch

__all__ = ["OUTPUT_TOLERANCE", "LaneRun", "RunResult", "in_ns", "misplaced_ops", "whole_ns"]

OUTPUT_TOLERANCE = 1e-3
MOST_SECONDS = 1e9
OTHER_NAMES = MappingProxyType({"simulated_ns": "predicted_ns"})
"""Name in the JSON of an engine -> ours."""


@dataclass(frozen=True)
class LaneRun:
    """One lane of a fleet. Rates are inputs per second."""

    lane: int
    devices: tuple[str, ...]
    """In the order in which an input comes to them first."""
    segments: int
    share: float
    """Of the inputs, as planned."""
    requests: int
    """Of those that count."""
    predicted_rate: float
    measured_rate: float | None
    """None where too few requests took this lane."""

    def words(self) -> str:
        """A line for a terminal."""
        way = " -> ".join(self.devices)
        rate = "-" if self.measured_rate is None else f"{self.measured_rate:.4g}"
        return (
            f"lane {self.lane} ({way}): {self.requests} requests, {self.share:.1%} planned; measured {rate} "
            f"per second, predicted {self.predicted_rate:.4g}"
        )


class RunResult:
    """One run; engines add what only they know."""

    in_seconds: ClassVar[bool] = False
    """The JSON has seconds, with names that say so."""
    json_names: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Our name -> that of the JSON, where they differ in more than the unit."""
    compared_with: ClassVar[str] = "the unsplit model"
    tolerance: ClassVar[float] = OUTPUT_TOLERANCE
    """Of `check`."""

    engine: str
    measured_ns: int
    """Latency of a request, period of a pipeline, or time of a training step."""
    predicted_ns: int
    max_output_difference: float | None
    """None if it was not checked."""

    @property
    def measured_seconds(self) -> float:
        """The same as `measured_ns`."""
        return self.measured_ns / 1e9

    @property
    def predicted_seconds(self) -> float:
        """The same as `predicted_ns`."""
        return self.predicted_ns / 1e9

    def difference(self) -> tuple[str, float | None]:
        """What was compared with one process, and how far it is from it; None if it was not compared."""
        return "outputs", self.max_output_difference

    @property
    def allowed(self) -> float:
        """The largest difference that `check` lets pass unless it is told another."""
        return self.tolerance

    def mistakes(self) -> list[str]:
        """What else is wrong with this run, in words."""
        return []

    def check(self, tolerance: float | None = None) -> None:
        """Raise `ExecutionMismatch` if results differ more from those of one process, or it did not run as planned."""
        limit = self.allowed if tolerance is None else tolerance
        what, found = self.difference()
        if found is not None and not found <= limit:
            raise ExecutionMismatch(f"{what} differ from {self.compared_with} by {found:.2e}, more than {limit:.0e}")
        for mistake in self.mistakes():
            raise ExecutionMismatch(mistake)

    def opening(self) -> list[str]:
        """Lines of the summary before what was compared."""
        return []

    def closing(self) -> list[str]:
        """Lines of the summary after what was compared."""
        return []

    def summary(self) -> str:
        """A few lines for a terminal."""
        what, found = self.difference()
        compared = f"{what} were not compared"
        if found is not None:
            compared = f"{what} differ from {self.compared_with} by at most {found:.2e}{self.how_compared()}"
        return "\n".join((*self.opening(), compared, *self.closing()))

    def how_compared(self) -> str:
        """The end of the sentence that says how far results differ."""
        return " (relative)"

    def to_json(self) -> dict[str, Any]:
        """What `weftline run --json` prints."""
        found: dict[str, Any] = _plain(self, self.in_seconds)
        return {self.json_names.get(name, name): value for name, value in found.items()}


def misplaced_ops(found: tuple[str, ...]) -> list[str]:
    """The mistake that something did not run where the plan says, if any."""
    return [f"what ran is not the plan: {'; '.join(found[:3])}"] if found else []


def _plain(found: Any, in_seconds: bool) -> Any:
    """Fields as a dict, of whatever depth; times in seconds if wanted. Keys of tables are ids, and stay."""
    if isinstance(found, list | tuple):
        return type(found)(_plain(part, in_seconds) for part in found)
    if isinstance(found, dict):
        return {name: _plain(value, in_seconds) for name, value in found.items()}
    if not is_dataclass(found):
        return found
    made = {}
    for field in fields(found):
        value = _plain(getattr(found, field.name), in_seconds)
        if in_seconds and field.name.endswith("_ns"):
            made[f"{field.name.removesuffix('_ns')}_seconds"] = None if value is None else value / 1e9
        else:
            made[field.name] = value
    return made


def whole_ns(seconds: float) -> int:
    """Seconds that were measured -> ns."""
    return round(seconds * 1e9)


def in_ns(found: Any) -> Any:
    """The JSON of a run with every time in ns, under our names; what is no time of ours stays as it is."""
    if isinstance(found, list):
        return [in_ns(part) for part in found]
    if not isinstance(found, dict):
        return found
    made: dict[str, Any] = {}
    for name, value in found.items():
        ours, kept = name, in_ns(value)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if isinstance(name, str) and name.endswith("_seconds") and (number or value is None):
            ours = f"{name.removesuffix('_seconds')}_ns"
            if number:
                kept = whole_ns(value) if 0 <= value < MOST_SECONDS else -1
        made.setdefault(OTHER_NAMES.get(ours, ours), kept)
    return made
