"""What a run of the local engine found: measured beside predicted, the plan beside its baselines."""

from __future__ import annotations

from dataclasses import dataclass

from weftline.run.result import RunResult, misplaced_ops
from weftline.units import format_time

__all__ = ["DeviceRun", "LocalResult", "SegmentRun"]


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
class LocalResult(RunResult):
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

    def mistakes(self) -> list[str]:
        """Something ran elsewhere."""
        return misplaced_ops(self.misplaced)

    def opening(self) -> list[str]:
        """Times."""
        word = "period" if self.objective == "throughput" else "latency"
        measured, predicted = format_time(self.measured_ns), format_time(self.predicted_ns)
        return [f"{word}: measured {measured}, predicted {predicted} (mean of {self.requests} requests)"]

    def how_compared(self) -> str:
        """With their number."""
        return f" (relative, {self.compared} requests compared)"

    def closing(self) -> list[str]:
        """Devices, baselines, notes."""
        lines = [
            f"{run.device} (cores {','.join(map(str, run.cores))}, speed {run.speed:g}): {run.ops} ops in "
            f"{run.segments} segment{'s' if run.segments > 1 else ''}, computes {format_time(run.compute_ns)}, "
            f"predicted {format_time(run.predicted_compute_ns)}; busy {run.utilisation:.0%}, "
            f"peak {run.peak_rss / 2**20:.0f} MiB"
            for run in self.devices
        ]
        for name, value in self.baselines.items():
            lines.append(f"{name}: {format_time(value)}, the plan takes {self.measured_ns / max(value, 1):.3f} of it")
        return [*lines, *self.notes]
