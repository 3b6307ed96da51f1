"""Run a plan on this machine: split the model, run the workers, measure, compare with the unsplit model.

In: a plan or fleet plan and its ONNX file, perhaps inputs. Out: a `LocalResult`: measured beside predicted time, how
far outputs are from one session with the whole model, and baselines of the same run: that session with all cores of the
workers and their mean speed, and a whole-model replica on every worker, where requests are shared out by how fast each
is. Simplified: times of a loaded machine vary; memory limits of the plan do not keep replicas from running.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from weftline.errors import UsageError
from weftline.plans.fleet import FleetDevice
from weftline.run.devices import OrtDevice
from weftline.run.feeds import as_planned
from weftline.run.inputs import check_planned_model
from weftline.run.local.engine import HANG_SECONDS, Engine, Seat
from weftline.run.local.lanes import LanePass
from weftline.run.local.layout import WorkerLayout, lay_out
from weftline.run.local.start import Asked, Feeds, StartedPlan, start_plan, whole_model
from weftline.run.planned import lane_runs, planned_compute
from weftline.run.result import OUTPUT_TOLERANCE, LaneRun, RunResult, misplaced_ops
from weftline.run.split.manifest import Manifest
from weftline.units import format_time

if TYPE_CHECKING:
    from weftline.plans import FleetPlan, Plan
    from weftline.problem import Problem

__all__ = [
    "RUN_REQUESTS",
    "Baselines",
    "DeviceRun",
    "LocalResult",
    "SegmentRun",
    "check_runtimes",
    "run_local",
]


@dataclass(frozen=True)
class SegmentRun:
    """One segment."""

    number: int
    device: str
    ops: int
    compute_ns: int
    """Of one request, the mean, at the speed of the device."""
    lane: int = 0


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
    """Of one request: the sum of its segments; of a fleet, the mean of all requests, wherever they went."""
    predicted_compute_ns: int
    predicted_load_ns: int
    """Throughput: of the stage, transfers included. Latency: as predicted_compute_ns."""
    utilisation: float
    """Share of the run in which it computed."""
    rss: int
    """Bytes at the end."""
    peak_rss: int
    predicted_busy: float | None = None
    """A fleet: share of the time that the plan asks of it, transfers included."""


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
    precision: str = "float32"
    """The coarsest arithmetic of the model."""
    output_tolerance: float = OUTPUT_TOLERANCE
    """What rounding can do in this precision: larger differences fail."""

    lanes: tuple[LaneRun, ...] = ()
    """A fleet: the ways of its inputs."""
    plain_difference: float | None = None
    """Where outputs differed more: the difference without ONNX Runtime's optimisations, which then counts."""

    @property
    def allowed(self) -> float:
        """By the model's arithmetic."""
        return self.output_tolerance

    def difference(self) -> tuple[str, float | None]:
        """Of outputs; without optimisations, if with them rounding alone may have made it."""
        found = self.max_output_difference
        return "outputs", found if self.plain_difference is None else min(found, self.plain_difference)

    def mistakes(self) -> list[str]:
        """Something ran elsewhere."""
        return misplaced_ops(self.misplaced)

    def opening(self) -> list[str]:
        """Times."""
        word = "period" if self.objective == "throughput" else "latency"
        measured, predicted = format_time(self.measured_ns), format_time(self.predicted_ns)
        rates = f"; {1e9 / max(self.measured_ns, 1):.4g} per second" if self.lanes else ""
        times = f"{word}: measured {measured}, predicted {predicted} (mean of {self.requests} requests{rates})"
        return [times, *(lane.words() for lane in self.lanes)]

    def how_compared(self) -> str:
        """With their number."""
        known = "" if self.precision == "float32" else f", rounding of {self.precision}: {self.output_tolerance:.0e}"
        if self.plain_difference is not None:
            known += (
                f"; without optimisations; with them by {self.max_output_difference:.2e}, as kernels round otherwise"
            )
        return f" (relative, {self.compared} requests compared{known})"

    def closing(self) -> list[str]:
        """Devices, baselines, notes."""
        lines = [
            f"{run.device} (cores {','.join(map(str, run.cores))}, speed {run.speed:g}): {run.ops} ops in "
            f"{run.segments} segment{'s' if run.segments > 1 else ''}, computes {format_time(run.compute_ns)}, "
            f"predicted {format_time(run.predicted_compute_ns)}; busy {run.utilisation:.0%}"
            f"{'' if run.predicted_busy is None else f' (planned {run.predicted_busy:.0%})'}, "
            f"peak {run.peak_rss / 2**20:.0f} MiB"
            for run in self.devices
        ]
        for name, value in self.baselines.items():
            lines.append(f"{name}: {format_time(value)}, the plan takes {self.measured_ns / max(value, 1):.3f} of it")
        return [*lines, *self.notes]


WARM_UP_REQUESTS = 8


class Baselines:
    """Runs them one after another; `found` has those that were measured."""

    def __init__(
        self,
        plan: Plan | FleetPlan,
        model: Path,
        manifest: Manifest,
        seats: Mapping[str, Seat],
        feeds: Feeds,
        timeout: float,
        requests: int,
    ) -> None:
        model = model.parent.resolve() / model.name  # weights lie beside this name, even if it is a link
        self._model, self._manifest, self._seats, self._feeds = model, manifest, seats, feeds
        self._pipelined, self._timeout, self._requests = plan.objective == "throughput", timeout, requests
        self.found: dict[str, int] = {}

    def whole(self, *, measured: bool) -> Feeds:
        """The unsplit model in one session with all cores: its outputs for each feed; its time if that is asked."""
        cores = tuple(sorted({core for seat in self._seats.values() for core in seat.runtime.cores}))
        speed = mean(seat.speed for seat in self._seats.values())
        plain = any(seat.runtime.plain for seat in self._seats.values())
        threads = 1 if plain else len(cores)
        runtime = OrtDevice("ort:CPUExecutionProvider", "CPUExecutionProvider", {}, cores, threads, True, plain)
        count = len(self._feeds)
        with Engine([(self._lane("one process"), {"one process": Seat(runtime, speed)})], timeout=self._timeout) as one:
            warm = one.run([max(WARM_UP_REQUESTS, count)], self._feeds, keep=[frozenset(range(count))])[0]
            if measured:
                timed = one.run([self._requests], self._feeds)[0]
                self.found[f"one process, {len(cores)} threads"] = round(timed.taken(pipelined=self._pipelined))
        return [warm.kept[number] for number in range(count)]

    def replicas(self) -> None:
        """The whole model on every worker."""
        lanes = [(self._lane(id), {id: seat}) for id, seat in self._seats.items()]
        with Engine(lanes, timeout=self._timeout) as engine:
            warm = engine.run([WARM_UP_REQUESTS] * len(lanes), self._feeds)
            rates = [1 / max(found.answers[0].compute_ns[0], 1) for found in warm]
            counts = [max(3, round(self._requests * rate / sum(rates))) for rate in rates]
            timed = engine.run(counts, self._feeds)
        together = sum(1 / max(found.taken(pipelined=True), 1.0) for found in timed)
        self.found[f"{len(lanes)} whole-model replicas"] = round(1 / together)

    def _lane(self, device: str) -> WorkerLayout:
        manifest = whole_model(self._manifest, self._model.name, device)
        planned = as_planned(self._manifest, self._feeds)
        return lay_out(manifest, str(self._model.parent), pipelined=self._pipelined, as_planned=planned)


RUN_REQUESTS = 100


def run_local(
    plan: Plan | FleetPlan,
    *,
    model: Path | str,
    inputs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    runtimes: Mapping[str, str] = MappingProxyType({}),
    requests: int = RUN_REQUESTS,
    seed: int = 0,
    timeout: float = HANG_SECONDS,
    baselines: bool = True,
    on_event: Callable[[str], None] | None = None,
) -> LocalResult:
    """Run a plan; call `check` on the result to insist on equal outputs and on the plan's assignment.

    `inputs` by name, or a list of such, which requests take in turns: where the model leaves sizes open, each may have
    its own shapes. `runtimes` (device id -> `ort:...`) says what stands for a device of the plan on this machine;
    `timeout`: so many seconds without any sign of life are a hang.
    """
    if requests < 1 or timeout <= 0:
        raise UsageError("a run needs at least one request, and a timeout above 0")
    tell = on_event or (lambda _: None)
    problem = plan.load_problem()
    check_runtimes(problem, runtimes)
    check_planned_model(plan, model)
    asked = Asked(Path(model), inputs, runtimes, seed, timeout, tell)
    with start_plan(plan, problem, asked) as ready:
        warm_up = len(ready.warm_up.done_ns)
        tell(f"running {requests} requests")
        last = frozenset(range(max(0, requests - len(ready.warm_up.kept)), requests))
        timed = ready.engine.run([requests], ready.feeds, keep=[last])[0]
    others = Baselines(plan, Path(model), ready.manifest, ready.seats, ready.feeds, timeout, requests)
    tell("running the unsplit model")
    expected = others.whole(measured=baselines)
    if baselines and plan.objective == "throughput" and len(ready.seats) > 1:
        tell("running whole-model replicas")
        others.replicas()
    worst = max(ready.worst(found, expected) for found in (ready.warm_up, timed))
    plainly = None
    if not worst <= ready.precision.tolerance:
        tell("outputs differ: comparing again without optimisations")
        plainly = min(_plain_difference(plan, problem, asked), 1e300)
    made = _result(plan, problem, ready, timed, (warm_up, worst))
    return replace(made, baselines=others.found, plain_difference=plainly)


def _plain_difference(plan: Plan | FleetPlan, problem: Problem, asked: Asked) -> float:
    """How far outputs are from the unsplit model where both run node by node, as the file has them.

    ONNX Runtime's optimisations merge kernels, and a cut keeps some apart: they round otherwise. Where outputs are
    chosen by comparing numbers (boxes of a detector), the least of that can change all of them.
    """
    with start_plan(plan, problem, replace(asked, plain=True)) as ready:
        pass
    others = Baselines(plan, asked.model, ready.manifest, ready.seats, ready.feeds, asked.timeout, 1)
    return ready.worst(ready.warm_up, others.whole(measured=False))


def check_runtimes(problem: Problem, runtimes: Mapping[str, str]) -> None:
    """Refuse a runtime for a device that the plan does not know."""
    for id in runtimes:
        if id not in problem.device_index:
            known = ", ".join(list(problem.device_index)[:16])
            raise UsageError(f"a runtime is given for {id[:64]!r}; the devices are {known}")


def _result(
    plan: Plan | FleetPlan, problem: Problem, ready: StartedPlan, timed: LanePass, checked: tuple[int, float]
) -> LocalResult:
    layout, count = ready.layout, len(timed.done_ns)
    pipelined = plan.objective == "throughput"
    manifest, (warm_up, worst) = layout.manifest, checked
    segments = tuple(
        SegmentRun(number, device, len(manifest.segments[number].ops), taken, manifest.segments[number].lane)
        for device, numbers, answer in zip(layout.devices, layout.segments, timed.answers, strict=True)
        for number, taken in zip(numbers, answer.compute_ns, strict=True)
    )
    compute = planned_compute(plan, problem)
    return LocalResult(
        engine="local",
        objective=plan.objective,
        requests=count,
        warm_up=warm_up,
        measured_ns=round(timed.taken(pipelined=pipelined)),
        predicted_ns=plan.value_ns,
        latency_ns=round(median(timed.latencies)),
        latency_p95_ns=round(float(np.quantile(timed.latencies, 0.95))),
        devices=tuple(_device(plan, compute, ready, timed, worker) for worker in range(len(layout.devices))),
        segments=tuple(sorted(segments, key=lambda segment: segment.number)),
        max_output_difference=min(worst, 1e300),
        compared=len(ready.warm_up.kept) + len(timed.kept),
        misplaced=ready.wrong,
        baselines={},
        notes=_notes(ready),
        precision=ready.precision.name,
        output_tolerance=ready.precision.tolerance,
        lanes=lane_runs(plan, timed.turns, timed.lane_rates()),
    )


def _device(
    plan: Plan | FleetPlan, compute: Mapping[str, int], ready: StartedPlan, timed: LanePass, worker: int
) -> DeviceRun:
    layout, seats = ready.layout, ready.seats
    id, answer = layout.devices[worker], timed.answers[worker]
    planned = plan.devices[id]
    load, busy = (
        (round(planned.busy * plan.value_ns), planned.busy)
        if isinstance(planned, FleetDevice)
        else (planned.load_ns, None)
    )
    span = max(max(timed.done_ns) - timed.sent_ns[0], 1)
    return DeviceRun(
        device=id,
        runtime=seats[id].runtime.runtime,
        cores=seats[id].runtime.cores,
        speed=seats[id].speed,
        ops=len({op for number in layout.segments[worker] for op in layout.manifest.segments[number].ops}),
        segments=len(layout.segments[worker]),
        compute_ns=sum(answer.compute_ns) if busy is None else round(answer.busy_ns / len(timed.done_ns)),
        predicted_compute_ns=compute[id],
        predicted_load_ns=load,
        utilisation=min(answer.busy_ns / span, 1.0),
        rss=answer.rss,
        peak_rss=answer.peak_rss,
        predicted_busy=busy,
    )


def _notes(ready: StartedPlan) -> tuple[str, ...]:
    cores = [core for seat in ready.seats.values() for core in seat.runtime.cores]
    notes = []
    if not as_planned(ready.manifest, ready.feeds):
        notes.append("inputs have other shapes than those that the plan was made for: so have predicted times")
    if len(cores) > len(set(cores)):
        notes.append("some devices share a core, so they take time from each other")
    if (
        ready.layout.pipelined
        and not ready.manifest.rates
        and any(len(numbers) > 1 for numbers in ready.layout.segments)
    ):
        notes.append("a device runs several segments of the pipeline, request by request: requests overlap less")
    return tuple(notes)
