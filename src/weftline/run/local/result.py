"""What a run of the local engine found: measured beside predicted, the plan beside its baselines."""

from __future__ import annotations

from dataclasses import dataclass

from weftline.errors import ExecutionMismatch
from weftline.run.result import TOLERANCE, Result
from weftline.units import format_time

__all__ = ["TOLERANCE", "DeviceRun", "LocalResult", "SegmentRun"]


@dataclass(frozen=True)
class SegmentRun:
    """One segment."""

    number: int
    device: str
    ops: int
    compute_ns: int
    """Of one request, the mean, at the speed of the device."""


@dataclass(frozen=True)
class DeviceRun:
    """One worker: in a pipeline, one stage."""

    device: str
    runtime: str
    cores: tuple[int, ...]
    speed: float
    ops: int
    segments: int
    compute_ns: int
    """Of one request: the sum of its segments."""
    predicted_compute_ns: int
    predicted_load_ns: int
    """Throughput: of the stage, transfers included. Latency: as predicted_compute_ns."""
    utilisation: float
    """Share of the run in which it computed."""
    rss: int
    """Bytes at the end."""
    peak_rss: int


@dataclass(frozen=True)
class LocalResult(Result):
    """One run."""

    engine: str
    objective: str
    requests: int
    warm_up: int
    """Requests before those that count."""
    measured_ns: int
    """Throughput: the period, from completion to completion. Latency: of one request. The mean of the run."""
    predicted_ns: int
    latency_ns: int
    """Of one request, median; in a pipeline it includes waiting in queues."""
    latency_p95_ns: int
    devices: tuple[DeviceRun, ...]
    segments: tuple[SegmentRun, ...]
    max_output_difference: float
    """Relative, to the unsplit model in one session."""
    compared: int
    """Requests whose outputs were compared."""
    misplaced: tuple[str, ...]
    """What did not run where the plan says, in words."""
    baselines: dict[str, int]
    """Name -> ns, measured as `measured_ns`."""
    notes: tuple[str, ...] = ()

    def check(self, tolerance: float = TOLERANCE) -> None:
        """Raise `ExecutionMismatch` if outputs differ from the unsplit model's, or something ran elsewhere."""
        super().check(tolerance)
        if self.misplaced:
            raise ExecutionMismatch(f"what ran is not the plan: {'; '.join(self.misplaced[:3])}")

    def summary(self) -> str:
        """A few lines for a terminal."""
        word = "period" if self.objective == "throughput" else "latency"
        lines = [
            f"{word}: measured {format_time(self.measured_ns)}, predicted {format_time(self.predicted_ns)} "
            f"(mean of {self.requests} requests)",
            f"outputs differ from the unsplit model by at most {self.max_output_difference:.2e} (relative, "
            f"{self.compared} requests compared)",
        ]
        for run in self.devices:
            lines.append(
                f"{run.device} (cores {','.join(map(str, run.cores))}, speed {run.speed:g}): {run.ops} ops in "
                f"{run.segments} segment{'s' if run.segments > 1 else ''}, computes {format_time(run.compute_ns)}, "
                f"predicted {format_time(run.predicted_compute_ns)}; busy {run.utilisation:.0%}, "
                f"peak {run.peak_rss / 2**20:.0f} MiB"
            )
        for name, value in self.baselines.items():
            lines.append(f"{name}: {format_time(value)}, the plan takes {self.measured_ns / max(value, 1):.3f} of it")
        return "\n".join((*lines, *self.notes))
