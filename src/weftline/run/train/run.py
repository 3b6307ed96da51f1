"""Run schedules: prepare jobs, launch processes, and say what was measured beside what was simulated.

In: timetables, an engine, the user's model and options. Out: a `TrainRunResult` for each. A job has stages, data on
edges, and action lists or torch's rows; links vanish and devices become ranks, in the order of devices. The simulated
time is that of the one simulator with the measured time of every block and the measured time of a small message.
Simplified: a communication block on devices hands on one result; times of a loaded machine vary.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from weftline.errors import InputError, MissingExtra, UsageError
from weftline.problem.blocks import Block, Blocks
from weftline.run.result import RunResult, whole_ns
from weftline.run.train.launch import launch
from weftline.run.train.model import (
    ACTIVATION,
    GRADIENT,
    TOKEN,
    Edge,
    Layout,
    RankBlock,
    Report,
    TrainJob,
    model_reference,
)
from weftline.schedule.lower.lower import DeviceAction, NetworkStage, data_edges, lower, stages_of
from weftline.schedule.lower.torch import torch_rows, torch_stages
from weftline.simulate import Timetable, simulate_schedule

if TYPE_CHECKING:
    from weftline.plans.schedule import Schedule

__all__ = ["ENGINES", "RankResult", "TrainRunResult", "make_job", "run_schedule", "run_schedules"]

ENGINES = ("torch", "weftline")


def make_job(
    timetable: Timetable,
    *,
    engine: str,
    model: str,
    seeds: Sequence[int],
    steps: int,
    rate: float,
    check: bool,
    time_limit: float,
) -> TrainJob:
    """Check that the engine can run the schedule, and write down what its processes need."""
    if engine not in ENGINES:
        raise UsageError(f"unknown engine {engine!r}; there are: {', '.join(ENGINES)}")
    if steps < 1 or not seeds:
        raise UsageError("a run has at least one step and one seed")
    blocks = timetable.blocks
    stages = stages_of(blocks)
    rank_of = {d: k for k, d in enumerate(d for d, lane in enumerate(blocks.devices) if not lane.link)}
    layout = Layout(
        timetable.micro_batches,
        tuple(stage.inputs for stage in stages),
        tuple(len(stage.devices) for stage in stages),
        tuple(stage.backward >= 0 for stage in stages),
    )
    rows: tuple[tuple[str, ...], ...] = ()
    chain: tuple[int, ...] = ()
    actions: list[tuple[tuple[str | int, ...], ...]] = []
    if engine == "torch":
        rows, chain = torch_rows(timetable), tuple(stage.number for stage in torch_stages(blocks))
    else:
        lists = lower(timetable).actions
        actions = [tuple(_row(action, rank_of) for action in lists[device]) for device in rank_of]
    return TrainJob(
        engine,
        model,
        layout,
        len(rank_of),
        _works(blocks, stages, rank_of),
        _edges(blocks, stages),
        tuple(actions),
        rows,
        chain,
        tuple(seeds),
        steps,
        rate,
        check,
        time_limit,
    )


def _row(action: DeviceAction, rank_of: dict[int, int]) -> tuple[str | int, ...]:
    row = action.row()
    return tuple(row) if len(row) == 3 else (*row[:4], rank_of[action.peer])


def _works(blocks: Blocks, stages: Sequence[NetworkStage], rank_of: dict[int, int]) -> tuple[RankBlock, ...]:
    stage_of = {block: s.number for s in stages for block in (s.forward, s.backward, s.weight) if block >= 0}
    found = []
    for number, block in enumerate(blocks.blocks):
        stage = stage_of.get(number, -1)
        ranks = tuple(rank_of[d] for d in block.devices if d in rank_of)
        found.append(RankBlock(block.kind, ranks, stage, stage >= 0 and stages[stage].weight >= 0))
    return tuple(found)


def _edges(blocks: Blocks, stages: Sequence[NetworkStage]) -> tuple[Edge, ...]:
    """What each edge carries: activations forward, gradients back, otherwise only that the source is done."""
    forward = {stage.forward: stage.number for stage in stages}
    backward = {stage.backward: stage.number for stage in stages if stage.backward >= 0}
    pairs = data_edges(blocks)
    before, after = defaultdict(list), defaultdict(list)
    for source, target in pairs:
        before[target].append(source)
        after[source].append(target)
    found = []
    for source, target in pairs:
        origin = _origin(blocks, source, before)
        ends = _ends(blocks, target, after)
        edge = Edge(source, target, TOKEN, -1, -1)
        if origin in forward and any(end in forward for end in ends):
            edge = Edge(source, target, ACTIVATION, forward[origin], -1)
        elif origin in backward:
            giver = backward[origin]
            takers = [backward[end] for end in ends if end in backward and backward[end] in stages[giver].inputs]
            if len(takers) > 1:
                raise InputError("carries gradients for several stages", where=f"blocks[{target}]", hint="split it")
            if takers:
                edge = Edge(source, target, GRADIENT, takers[0], giver)
        found.append(edge)
    return tuple(found)


def _origin(blocks: Blocks, block: int, before: dict[int, list[int]]) -> int:
    """The block whose result a chain of communication blocks carries."""
    while blocks.blocks[block].kind == "C":
        if len(before[block]) != 1:
            raise InputError("a communication block on devices has one input", where=f"blocks[{block}]")
        block = before[block][0]
    return block


def _ends(blocks: Blocks, block: int, after: dict[int, list[int]]) -> list[int]:
    """The blocks that a result is for, past communication."""
    if blocks.blocks[block].kind != "C":
        return [block]
    return sorted({end for target in after[block] for end in _ends(blocks, target, after)})


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
