"""Run schedules: prepare jobs, launch processes, and say what was measured beside what was simulated.

In: timetables, an engine, a model. Out: a `TrainRunResult` for each. The simulated time is that of the one simulator
with the measured time of every block and the measured time of a small message. Simplified: times of a loaded machine
vary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from weftline.errors import MissingExtra, UsageError
from weftline.run.result import RunResult, whole_ns
from weftline.run.train.job import Report, TrainJob
from weftline.run.train.launch import launch
from weftline.run.train.model import model_reference

if TYPE_CHECKING:
    from weftline.plans.schedule import Schedule
    from weftline.problem.blocks import Block
    from weftline.simulate import Timetable

__all__ = ["RankResult", "TrainRunResult", "run_schedule", "run_schedules"]


@dataclass(frozen=True)
class RankResult:
    """What one process saw."""

    rank: int
    device: str
    busy_ns: int
    """Per step, by the mean time of every block."""
    step_ns: int
    """Median."""

    @property
    def busy_seconds(self) -> float:
        """The same as `busy_ns`."""
        return self.busy_ns / 1e9


@dataclass(frozen=True)
class TrainRunResult(RunResult):
    """What a real run did."""

    in_seconds: ClassVar[bool] = True
    json_names: ClassVar[Mapping[str, str]] = MappingProxyType({"predicted_ns": "simulated_ns"})
    compared_with: ClassVar[str] = "one process"
    tolerance: ClassVar[float] = 1e-6

    engine: str
    micro_batches: int
    seeds: tuple[int, ...]
    steps: int
    max_gradient_difference: float | None
    """To one process, over all seeds, steps and weights; None if it was not checked or nothing is trained."""
    max_output_difference: float | None
    """The same for what the last stages give (engine weftline)."""
    max_loss_difference: float | None
    losses: tuple[float, ...]
    """Seed by seed, step by step."""
    measured_ns: int
    """Of a step: the median without first steps."""
    predicted_ns: int
    """Of a step: the simulator with measured times of blocks and of a message."""
    planned_makespan: int
    """What the schedule says, in its own unit."""
    ranks: tuple[RankResult, ...]

    @property
    def simulated_seconds(self) -> float:
        """The same as `predicted_ns`."""
        return self.predicted_ns / 1e9

    def difference(self) -> tuple[str, float | None]:
        """Gradients where something is trained, else outputs."""
        if self.max_gradient_difference is None and self.max_output_difference is not None:
            return "outputs", self.max_output_difference
        return "gradients", self.max_gradient_difference

    def how_compared(self) -> str:
        """Absolute."""
        return ""

    def opening(self) -> list[str]:
        """Processes."""
        return [f"{len(self.ranks)} processes, {self.micro_batches} micro-batches, engine {self.engine}"]

    def closing(self) -> list[str]:
        """Times."""
        ratio = self.measured_seconds / self.simulated_seconds if self.simulated_seconds else float("nan")
        return [
            f"step: measured {self.measured_seconds * 1e3:.2f} ms, "
            f"simulated {self.simulated_seconds * 1e3:.2f} ms ({ratio:.2f} x)"
        ]


def run_schedule(
    schedule: Timetable | Schedule,
    *,
    model: str | Callable[..., Any],
    engine: str = "weftline",
    steps: int = 3,
    seed: int = 0,
    seeds: int = 1,
    rate: float = 0.01,
    check: bool = True,
    time_limit: float = 600.0,
) -> TrainRunResult:
    """Train a model by a schedule in real processes.

    `model` is FILE:FUNCTION, module:function or a function at the top of a file; see `StageModel`. `seeds` models are
    trained one after another, from `seed` on. `check` compares every gradient with one process.
    """
    return run_schedules(
        [(schedule, engine)],
        model=model,
        steps=steps,
        seed=seed,
        seeds=seeds,
        rate=rate,
        check=check,
        time_limit=time_limit,
    )[0]


def run_schedules(
    schedules: Sequence[tuple[Timetable | Schedule, str]],
    *,
    model: str | Callable[..., Any],
    steps: int = 3,
    seed: int = 0,
    seeds: int = 1,
    rate: float = 0.01,
    check: bool = True,
    time_limit: float = 600.0,
) -> tuple[TrainRunResult, ...]:
    """Several pairs of schedule and engine, one after another in the same processes: to start them takes longest."""
    if find_spec("torch") is None:
        raise MissingExtra("torch", "torch")
    from weftline.run.train.prepare import make_job

    if not schedules:
        raise UsageError("there is no schedule to run")
    timetables = [_timetable(schedule) for schedule, _ in schedules]
    named = model_reference(model)
    jobs = [
        make_job(
            timetable,
            engine=engine,
            model=named,
            seeds=range(seed, seed + seeds),
            steps=steps,
            rate=rate,
            check=check,
            time_limit=time_limit,
        )
        for timetable, (_, engine) in zip(timetables, schedules, strict=True)
    ]
    reports = launch(jobs, time_limit=time_limit)
    return tuple(_result(t, job, found[: job.ranks]) for t, job, found in zip(timetables, jobs, reports, strict=True))


def _timetable(schedule: Timetable | Schedule) -> Timetable:
    from weftline.plans.schedule import Schedule

    return schedule.timetable() if isinstance(schedule, Schedule) else schedule


def _result(timetable: Timetable, job: TrainJob, reports: Sequence[Report]) -> TrainRunResult:
    lanes = [lane for lane in timetable.blocks.devices if not lane.link]
    trained = job.check and any(job.layout.trained)
    losses = [sum(found) for found in zip(*(r.losses for r in reports if r.losses), strict=True)]
    return TrainRunResult(
        engine=job.engine,
        micro_batches=job.layout.micro_batches,
        seeds=job.seeds,
        steps=job.steps,
        max_gradient_difference=reports[0].gradient_difference if trained else None,
        max_output_difference=reports[0].output_difference if job.check and job.engine == "weftline" else None,
        max_loss_difference=reports[0].loss_difference if job.check else None,
        losses=tuple(losses),
        measured_ns=whole_ns(max(_later(report.step_seconds, job.steps) for report in reports)),
        predicted_ns=_simulated(timetable, reports),
        planned_makespan=timetable.makespan,
        ranks=tuple(
            RankResult(
                rank,
                lane.id,
                whole_ns(job.layout.micro_batches * sum(report.block_seconds.values())),
                whole_ns(_later(report.step_seconds, job.steps)),
            )
            for rank, (lane, report) in enumerate(zip(lanes, reports, strict=True))
        ),
    )


def _later(seconds: Sequence[float], steps: int) -> float:
    """The median without the first step of each seed, which warms up."""
    return median([s for k, s in enumerate(seconds) if k % steps] or list(seconds))


def _simulated(timetable: Timetable, reports: Sequence[Report]) -> int:
    """What the simulator says with measured times; devices of one block wait for each other, so the quickest counts."""
    import numpy as np

    from weftline.simulate import simulate_schedule

    blocks = timetable.blocks
    links = {device for device, lane in enumerate(blocks.devices) if lane.link}
    message = max(1, round(reports[0].link_seconds * 1e9))
    spans = []
    for number in range(blocks.n):
        times = [report.block_seconds[number] for report in reports if number in report.block_seconds]
        spans.append(max(1, round(min(times) * 1e9)) if times else message)
    table = blocks.table
    lags = [
        _lag(blocks.blocks[source], blocks.blocks[target], links, message)
        for target in range(blocks.n)
        for source in table.before_of[table.before_ptr[target] : table.before_ptr[target + 1]].tolist()
    ]
    count = timetable.micro_batches
    found = simulate_schedule(
        blocks,
        count,
        timetable.orders,
        span=np.tile(np.array(spans, np.int64), count),
        lag=np.tile(np.array(lags, np.int64), count),
    )
    return int(found.makespan)


def _lag(source: Block, target: Block, links: set[int], message: int) -> int:
    """A message takes time unless the target's devices hold the data; a block on a link is the message itself."""
    if set(target.devices) <= set(source.devices) or links & {*source.devices, *target.devices}:
        return 0
    return message
