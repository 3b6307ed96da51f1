"""Run a plan over torch.distributed: one process for every device, on this machine or on several by torchrun.

In: a plan or fleet plan, the file of its model, perhaps inputs. Out: `PlanTorchResult`: how far outputs are from the
unsplit model, measured period or latency beside the planned one. Under torchrun this process is one of them: rank =
position among the devices that the plan uses. Simplified: every host needs the same files; times of a loaded machine
vary.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from weftline.errors import InputError, MissingExtra, UsageError, WeftlineError
from weftline.files import run_folder
from weftline.importers.registry import file_sha256
from weftline.plans.fleet import FleetPlan
from weftline.run.compare import PRECISIONS, precision_of
from weftline.run.devices import ort_devices
from weftline.run.dist.messages import PlanAnswer, PlanJob, PlanReport, RankDevice, StartedRanks
from weftline.run.feeds import make_feeds
from weftline.run.inputs import check_planned_model
from weftline.run.local.slots import pack_value
from weftline.run.planned import lane_runs, placements_of, planned_compute, used_devices
from weftline.run.result import OUTPUT_TOLERANCE, LaneRun, RunResult
from weftline.run.split.manifest import Manifest, read_manifest
from weftline.run.split.segments import lanes_of_plan
from weftline.run.split.split import split_lanes
from weftline.run.train.launch import run_processes, under_torchrun
from weftline.run.turns import lane_turns

if TYPE_CHECKING:
    from weftline.cluster import Device
    from weftline.plans import Plan
    from weftline.problem import Problem

__all__ = ["PlanRank", "PlanTorchResult", "run_plan_torch"]

PEER_SECONDS = 120.0


@dataclass(frozen=True)
class PlanRank:
    """What one process did."""

    rank: int
    device: str
    segments: int
    ops: int
    compute_ns: int
    """Of one request: median; of a fleet, the mean of all requests, wherever they went."""
    planned_compute_ns: int
    share_busy: float
    """Of the measured time."""


@dataclass(frozen=True)
class PlanTorchResult(RunResult):
    """What a real run did."""

    in_seconds: ClassVar[bool] = True

    engine: str
    backend: str
    """gloo or nccl."""
    objective: str
    requests: int
    compared: int
    """Requests whose outputs were compared, the last ones."""
    max_output_difference: float | None
    """Relative, to the unsplit model; None if it was not checked."""
    measured_ns: int
    """Throughput: period, the mean of the counted requests. Latency: median."""
    predicted_ns: int
    """The plan's value."""
    overlapped_ns: int | None
    """Throughput: what is predicted if transfers hide behind compute, as they do here."""
    ranks: tuple[PlanRank, ...]
    output_tolerance: float = OUTPUT_TOLERANCE
    """What rounding can do in the model's arithmetic: larger differences fail."""
    lanes: tuple[LaneRun, ...] = ()
    """A fleet: the ways of its inputs."""

    @property
    def allowed(self) -> float:
        """By the model's arithmetic."""
        return self.output_tolerance

    def opening(self) -> list[str]:
        """Processes."""
        return [f"{len(self.ranks)} processes over {self.backend}, {self.requests} requests"]

    def closing(self) -> list[str]:
        """Times, then those of each process."""
        what, hidden = "period" if self.objective == "throughput" else "latency", ""
        if self.overlapped_ns is not None and self.overlapped_ns != self.predicted_ns:
            hidden = f", {self.overlapped_ns / 1e6:.2f} ms with transfers behind compute"
        return [
            f"{what}: measured {self.measured_seconds * 1e3:.2f} ms, "
            f"predicted {self.predicted_seconds * 1e3:.2f} ms{hidden}",
            *(lane.words() for lane in self.lanes),
            *(
                f"{rank.device}: {rank.ops} ops in {rank.segments} segments, "
                f"compute {rank.compute_ns / 1e6:.2f} ms, planned {rank.planned_compute_ns / 1e6:.2f} ms"
                for rank in self.ranks
            ),
        ]


def run_plan_torch(
    plan: Plan | FleetPlan,
    *,
    model: Path | str,
    inputs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    runtimes: Mapping[str, str] = MappingProxyType({}),
    requests: int = 100,
    seed: int = 0,
    check: bool = True,
    timeout: float = PEER_SECONDS,
) -> PlanTorchResult | None:
    """Run a plan; call `check` on the result to insist on equal outputs. None in ranks of torchrun other than 0.

    `runtimes` (device id -> `ort:...`) says what stands for a device of the plan; `timeout` is how many seconds a
    process waits for another.
    """
    if find_spec("torch") is None:
        raise MissingExtra("torch", "torch")
    if requests < 1 or not timeout > 0:
        raise UsageError("there is at least one request, and the timeout is more than 0 s")
    problem = plan.load_problem()
    used = used_devices(plan, problem)
    for id in runtimes:
        if id not in problem.device_index:
            raise UsageError(f"a runtime is given for {id[:64]!r}, which is no device of the plan")
    runtimes = {device.id: runtimes[device.id] for device in used if device.id in runtimes}
    check_planned_model(plan, model)
    job = PlanJob(
        digest=_digest(plan, file_sha256(Path(model)), inputs, (requests, seed, check)),
        model=str(Path(model).resolve()),
        pipeline=plan.objective == "throughput",
        devices=tuple(RankDevice(device.id, device.speed) for device in used),
        requests=requests,
        warm_up=(2 * len(used) + 2) * len(placements_of(plan)),
        check=check,
        timeout=timeout,
        precision=precision_of(problem.graph).name,
    )
    run = _join if under_torchrun() else _launch
    answer = run(_Asked(plan, problem, used, inputs, runtimes, seed), job)
    return None if answer is None else _result(plan, problem, job, answer)


@dataclass(frozen=True)
class _Asked:
    plan: Plan | FleetPlan
    problem: Problem
    used: Sequence[Device]
    inputs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None
    runtimes: Mapping[str, str]
    seed: int

    def split(self, model: str, folder: Path) -> Manifest:
        ids = [device.id for device in self.problem.devices]
        lanes, rates = lanes_of_plan(self.plan)
        return split_lanes(model, self.problem.graph, lanes, ids, folder, rates=rates, in_place=True)


def _launch(asked: _Asked, job: PlanJob) -> PlanAnswer:
    """Processes of this machine."""
    from weftline.run.dist.worker import write_started

    how = ort_devices(asked.used, asked.runtimes)
    with run_folder() as folder:
        feeds = make_feeds(asked.split(job.model, folder), asked.inputs, asked.seed)
        started = StartedRanks(job, tuple(how[device.id] for device in job.devices))
        write_started(folder, started, feeds)
        # Each of them takes less than the timeout, or the processes end on their own.
        longest = job.timeout * (job.requests + job.warm_up + 10)
        world = len(job.devices)
        answer = run_processes("weftline.run.dist.worker", folder, world, longest)
        return msgspec.json.decode(answer, type=PlanAnswer)


def _join(asked: _Asked, job: PlanJob) -> PlanAnswer | None:
    """This process is one of torchrun's."""
    import torch.distributed as dist

    from weftline.run.dist.messages import lost
    from weftline.run.dist.worker import serve

    world, need = int(os.environ["WORLD_SIZE"]), len(job.devices)
    if world != need:
        raise UsageError(f"the plan uses {need} devices, so it needs {need} processes; torchrun started {world}")
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    here = range(rank - local, rank - local + int(os.environ["LOCAL_WORLD_SIZE"]))
    devices = [asked.used[other] for other in here]
    how = ort_devices(devices, {d.id: asked.runtimes[d.id] for d in devices if d.id in asked.runtimes})
    try:
        store, _, _ = next(dist.rendezvous("env://", timeout=timedelta(seconds=job.timeout)))
    except (RuntimeError, ValueError) as error:
        raise lost("the processes did not meet", error, job.timeout) from error
    with ExitStack() as stack:
        folder = _folder(asked, job, dist.PrefixStore(f"host-{here.start}", store), local == 0, stack)
        feeds = make_feeds(read_manifest(folder), asked.inputs, asked.seed)
        answer = serve(job, how[asked.used[rank].id], folder, feeds, dist.PrefixStore("plan", store), rank)
    return answer if rank == 0 else None


def _folder(asked: _Asked, job: PlanJob, store: Any, first: bool, stack: ExitStack) -> Path:
    """The segments, which the first process of a host makes."""
    store.set_timeout(timedelta(seconds=job.timeout))
    if not first:
        try:
            found, told = bytes(store.get("folder")).decode().split(" ", 1)
        except RuntimeError as error:
            raise WeftlineError(
                f"the first process of this host did not split the model in {job.timeout:g} s"
            ) from error
        if found == "error":
            raise InputError(told)
        return Path(told)
    try:
        folder = stack.enter_context(run_folder())
        asked.split(job.model, folder)
    except Exception as error:
        store.set("folder", f"error {str(error)[:2000]}")
        raise
    store.set("folder", f"made {folder}")
    return folder


def _digest(
    plan: Plan | FleetPlan,
    model: str,
    inputs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
    options: tuple[int, int, bool],
) -> str:
    """Equal where plan, model file (by its hash), inputs and options are; weights beside the model do not count."""
    placed = placements_of(plan), [lane.rate for lane in getattr(plan, "lanes", ())]
    found = hashlib.sha256(msgspec.json.encode((placed, plan.provenance.problem_sha256, model, options)))
    for step in [inputs] if isinstance(inputs, Mapping) else inputs or ():
        for name, value in sorted(step.items()):
            found.update(name.encode())
            found.update(pack_value(value))
    return found.hexdigest()


def _result(plan: Plan | FleetPlan, problem: Problem, job: PlanJob, answer: PlanAnswer) -> PlanTorchResult:
    taken = _measured(job, answer.reports)
    stages = getattr(plan, "stages", ())
    overlapped = [max(stage.compute_ns, stage.in_ns, stage.out_ns) for stage in stages]
    turns = lane_turns([lane.rate for lane in getattr(plan, "lanes", ())], job.requests)
    rates = {lane: turns.count(lane) / job.requests * 1e9 / max(taken, 1) for lane in set(turns)}
    planned = planned_compute(plan, problem)
    return PlanTorchResult(
        engine="torch",
        backend=answer.backend,
        objective=plan.objective,
        requests=job.requests,
        compared=answer.compared,
        max_output_difference=answer.difference if job.check else None,
        measured_ns=round(taken),
        predicted_ns=plan.value_ns,
        overlapped_ns=max(overlapped) if overlapped else None,
        output_tolerance=PRECISIONS[job.precision].tolerance,
        lanes=lane_runs(plan, turns, rates),
        ranks=tuple(
            _rank(job, rank, report, planned[job.devices[rank].id], taken, isinstance(plan, FleetPlan))
            for rank, report in enumerate(answer.reports)
        ),
    )


def _rank(job: PlanJob, rank: int, report: PlanReport, planned: int, taken: float, fleet: bool) -> PlanRank:
    compute = sum(report.compute_ns) / job.requests if fleet else median(report.compute_ns)
    return PlanRank(rank, job.devices[rank].id, report.segments, report.ops, round(compute), planned, compute / taken)


def _measured(job: PlanJob, reports: Sequence[PlanReport]) -> float:
    """Nanoseconds. Clocks of hosts are not compared: each rank has its own period, or its own time since the start."""
    if job.pipeline:
        return max((report.ended_ns[-1] - report.begun_ns) / job.requests for report in reports if report.ended_ns)
    return float(median(max(taken) for taken in zip(*(report.taken_ns for report in reports), strict=True)))
