"""Calibrate a plan: measure its parts as they will run, correct the times of their kernels, plan again.

In: a profile, the model file, and how a plan is made from a profile. Out: the plan with the best measured time, made
from times that agree with what was measured. A part is more or less than the sum of its kernels: what crosses a cut is
not fused, caches hold a smaller model better, or are full of others' data. The stages of a pipeline run at the same
time, each over and over on its own device, without transfers, as those of a full pipeline do; the segments of a latency
plan, and the lanes of a fleet with their shares, are run by the local engine. Simplified: all kernels of a part are
corrected by one ratio; the neighbours of a plan are measured only if the corrected times lead there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import mean
from typing import Protocol

import msgspec
import numpy as np

from weftline.cost.profile_file import DeviceProfile, Profile
from weftline.errors import InfeasibleError, InputError, UsageError, WeftlineError
from weftline.files import run_folder
from weftline.graph.arrays import Indices
from weftline.measure.processes import Measure, Prepare, Workers
from weftline.measure.profiling import MOST_SECONDS, settling
from weftline.plans.fleet import FleetPlan
from weftline.plans.plan import Plan, Stage
from weftline.run.devices import ort_devices
from weftline.run.local.engine import HANG_SECONDS
from weftline.run.local.start import Asked, start_plan
from weftline.run.split.segments import parts_of_plan
from weftline.run.split.split import split_model

__all__ = [
    "MOST_ROUNDS",
    "FleetPlanner",
    "Planner",
    "calibrated_fleet",
    "calibrated_plan",
    "corrected",
    "measure_lanes",
    "measure_stages",
    "measured_period",
]

MOST_ROUNDS = 3
LEAST_REQUESTS, MOST_REQUESTS = 5, 1000
"""Of a latency plan that is measured."""
FARTHEST_FACTOR = 5.0
"""No ratio corrects more than so many times: a machine that stumbled says nothing about kernels."""


class Planner(Protocol):
    """Makes a plan from a profile; `start` is a placement that it may improve, or, if `keep`, must keep."""

    def __call__(self, profile: Profile, start: Indices | None, keep: bool) -> Plan:
        """A plan for the question that is asked."""


def calibrated_plan(
    model: Path | str,
    profile: Profile,
    planner: Planner,
    *,
    rounds: int = MOST_ROUNDS,
    tell: Callable[[str], None] | None = None,
) -> Plan:
    """Plan, measure, correct, at most `rounds` times; the best by what was measured."""
    say = tell or (lambda _: None)
    plan = planner(profile, None, False)
    tried: dict[tuple[str, ...], tuple[int, Plan, Profile]] = {}
    for number in range(1, rounds + 1):
        try:
            value, profile = (_pipeline if plan.objective == "throughput" else _latency)(plan, model, profile)
        except InputError:
            raise
        except WeftlineError as error:  # parts run with random inputs, which not every model bears
            say(f"the parts cannot be measured, so the plan is not calibrated: {error}")
            break
        say(f"round {number}: predicted {plan.value_ns / 1e6:.3f} ms, by measured parts {value / 1e6:.3f} ms")
        note = f"calibrated by the measured parts of {number} {'plan' if number == 1 else 'plans'}"
        profile = msgspec.structs.replace(profile, note=note)
        tried[tuple(plan.placement.values())] = value, plan, profile
        if number == rounds:
            break
        plan = planner(profile, _placement(plan), False)
        if tuple(plan.placement.values()) in tried:
            break
    if not tried:
        return plan
    _, best, last = min(tried.values(), key=lambda entry: entry[0])
    if tuple(plan.placement.values()) == tuple(best.placement.values()) and plan is not best:
        return plan  # made from times that were corrected by its own parts
    return planner(last, _placement(best), True)


def _pipeline(plan: Plan, model: Path | str, profile: Profile) -> tuple[int, Profile]:
    measured = measure_stages(plan, model, profile)
    return measured_period(plan, measured), corrected(profile, plan, measured)


def _latency(plan: Plan, model: Path | str, profile: Profile) -> tuple[int, Profile]:
    """What one request takes, and the profile in which the kernels of every segment add up to what it took."""
    problem = plan.load_problem()
    known = {device.id: profile.device(device.id).runtime for device in problem.devices}
    seconds = 2 * settling(profile.repeats) / 3
    requests = max(LEAST_REQUESTS, min(round(seconds * 1e9 / max(plan.value_ns, 1)), MOST_REQUESTS))
    with start_plan(plan, problem, Asked(Path(model), None, known, 0, HANG_SECONDS, lambda _: None)) as ready:
        found = ready.engine.run([requests], ready.feeds)[0]
    layout = ready.layout
    taken = {
        number: ns
        for numbers, answer in zip(layout.segments, found.answers, strict=True)
        for number, ns in zip(numbers, answer.compute_ns, strict=True)
    }
    ratio: dict[str, float] = {}
    for segment in layout.manifest.segments:
        ops = [problem.graph.index[name] for name in segment.ops if name in problem.graph.index]
        planned = sum(int(problem.cost.time[op, problem.device_index[segment.device]]) for op in ops)
        ratio |= dict.fromkeys(segment.ops, _bounded(taken.get(segment.number, planned), planned))
    devices = tuple(_scaled(device, plan, ratio) for device in profile.devices)
    return round(found.taken(pipelined=False)), msgspec.structs.replace(profile, devices=devices)


class FleetPlanner(Protocol):
    """Makes a fleet plan from a profile."""

    def __call__(self, profile: Profile, copies: bool) -> FleetPlan:
        """The best lanes, or, if `copies`, the best of whole copies alone; `InfeasibleError` if there are none."""


def calibrated_fleet(
    model: Path | str,
    profile: Profile,
    planner: FleetPlanner,
    *,
    rounds: int = MOST_ROUNDS,
    tell: Callable[[str], None] | None = None,
) -> FleetPlan:
    """The same for a fleet; its shares are those of the times that its lanes were seen to take.

    Whole copies are measured first: they have no cuts, whose costs no profile knows. Lanes must be seen to be better.
    """
    say = tell or (lambda _: None)
    tried: list[tuple[int, bool, FleetPlan, Profile]] = []
    known: set[tuple[tuple[int, int, int], ...]] = set()
    for number in range(rounds):
        copies = number == 0
        try:
            plan = planner(profile, copies)
        except InfeasibleError:
            if not copies:
                raise
            continue
        if {lane.hops for lane in plan.lanes} <= known:
            break
        value, ratio = measure_lanes(plan, model, profile)
        say(f"predicted {plan.value_ns / 1e6:.3f} ms, measured {value / 1e6:.3f} ms")
        devices = tuple(_with_ratios(device, ratio) for device in profile.devices)
        profile = msgspec.structs.replace(profile, devices=devices, note="calibrated by measured lanes")
        tried.append((value, copies, plan, profile))
        known |= {lane.hops for lane in plan.lanes}
    if not tried:
        return planner(profile, False)
    _, copies, best, last = min(tried, key=lambda entry: entry[0])
    plan = planner(last, copies)
    return plan if {lane.hops for lane in plan.lanes} <= known else best


def measure_lanes(plan: FleetPlan, model: Path | str, profile: Profile) -> tuple[int, dict[tuple[str, str], float]]:
    """The measured period, and of every (device, op) measured over planned time of the segments that it is in."""
    problem = plan.load_problem()
    known = {device.id: profile.device(device.id).runtime for device in problem.devices}
    seconds = 2 * settling(profile.repeats)
    requests = max(LEAST_REQUESTS, min(round(seconds * 1e9 / max(plan.value_ns, 1)), MOST_REQUESTS))
    with start_plan(plan, problem, Asked(Path(model), None, known, 0, HANG_SECONDS, lambda _: None)) as ready:
        found = ready.engine.run([requests], ready.feeds)[0]
    index, column, time = problem.graph.index, problem.device_index, problem.cost.time
    measured, planned = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for id, numbers, answer in zip(ready.layout.devices, ready.layout.segments, found.answers, strict=True):
        for number, taken in zip(numbers, answer.compute_ns, strict=True):
            segment = ready.manifest.segments[number]
            count = found.turns.count(segment.lane)
            should = sum(int(time[index[op], column[id]]) for op in segment.ops)
            for op in segment.ops:
                measured[id, op] += count * taken
                planned[id, op] += count * should
    ratio = {key: _bounded(measured[key], should) for key, should in planned.items()}
    return round(found.taken(pipelined=True)), ratio


def _with_ratios(device: DeviceProfile, ratio: Mapping[tuple[str, str], float]) -> DeviceProfile:
    return _with_busy(device, lambda op: ratio.get((device.id, op), 1.0))


def _with_busy(device: DeviceProfile, ratio: Callable[[str], float]) -> DeviceProfile:
    """The time of every kernel times the ratio of its first op."""
    kernels = tuple(
        msgspec.structs.replace(kernel, busy_ns=round(kernel.busy_ns * ratio(kernel.ops[0])))
        for kernel in device.kernels
    )
    return msgspec.structs.replace(device, kernels=kernels, busy_ns=sum(kernel.busy_ns for kernel in kernels))


def _scaled(device: DeviceProfile, plan: Plan, ratio: Mapping[str, float]) -> DeviceProfile:
    kernels = tuple(
        msgspec.structs.replace(kernel, alone_ns=round(kernel.alone_ns * ratio.get(kernel.ops[0], 1.0)))
        if plan.placement[kernel.ops[0]] == device.id
        else kernel
        for kernel in device.kernels
    )
    return msgspec.structs.replace(device, kernels=kernels, alone_ns=sum(kernel.alone_ns for kernel in kernels))


def _bounded(measured: int, planned: int) -> float:
    return min(max(measured / max(planned, 1), 1 / FARTHEST_FACTOR), FARTHEST_FACTOR)


def measure_stages(plan: Plan, model: Path | str, profile: Profile, repeats: int = 0) -> dict[str, int]:
    """Device -> ns of one run of its stage (mean), while all stages run; slowed down by the device's speed."""
    problem = plan.load_problem()
    if problem.host.any():
        raise UsageError("pipelines with a host device cannot be calibrated: its ops are no stage of their own")
    known = {device.id: profile.device(device.id).runtime for device in problem.devices}
    every = ort_devices(problem.devices, known)
    settle = settling(repeats or profile.repeats)
    ask = Measure(repeats or profile.repeats, settle, MOST_SECONDS)
    with run_folder() as folder:
        ids = [device.id for device in problem.devices]
        manifest = split_model(model, problem.graph, parts_of_plan(plan), ids, folder)
        used = [segment.device for segment in manifest.segments]
        with Workers(model, {}, {id: every[id] for id in used}) as workers:
            for segment in manifest.segments:
                workers.prepare(segment.device, Prepare("ALL", kernels=False, model=str(folder / segment.file)))
            workers.measure_together(used, Measure(1, settle, settle))
            answers = workers.measure_together(used, ask)
    speed = {device.id: device.speed for device in problem.devices}
    return {id: round(mean(answer.ns) / speed[id]) for id, answer in answers.items()}


def measured_period(plan: Plan, measured: Mapping[str, int]) -> int:
    """The largest load, with measured computing and planned transfers."""
    overlapped = plan.load_problem().rules.communication == "overlapped"

    def load(stage: Stage) -> int:
        compute = measured[stage.device]
        return max(compute, stage.in_ns, stage.out_ns) if overlapped else compute + stage.in_ns + stage.out_ns

    return max(load(stage) for stage in plan.stages)


def corrected(profile: Profile, plan: Plan, measured: Mapping[str, int]) -> Profile:
    """The profile in which the kernels of every stage of the plan add up to what was measured."""
    ratio = {stage.device: _bounded(measured[stage.device], stage.compute_ns) for stage in plan.stages}
    devices = tuple(_corrected(device, plan, ratio.get(device.id, 1.0)) for device in profile.devices)
    return msgspec.structs.replace(profile, devices=devices)


def _corrected(device: DeviceProfile, plan: Plan, ratio: float) -> DeviceProfile:
    return _with_busy(device, lambda op: ratio if plan.placement[op] == device.id else 1.0)


def _placement(plan: Plan) -> Indices:
    problem = plan.load_problem()
    return np.array([problem.device_index[plan.placement[op.name]] for op in problem.graph.ops], np.int32)
