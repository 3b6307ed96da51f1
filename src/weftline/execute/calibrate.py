"""Calibrate a pipeline: measure the stages of a plan, correct the times of their kernels, plan again.

In: a profile, the model file, and how a plan is made from a profile. Out: the plan with the best measured stages, made
from times that agree with them. A stage is more or less than the sum of its kernels: what crosses a cut is not fused,
and caches hold a smaller model better. The stages of a plan run at the same time, each over and over on its own device,
without transfers, as those of a full pipeline do. Simplified: all kernels of a stage are corrected by one ratio; the
neighbours of a plan are measured only if the corrected times lead there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import mean
from typing import Protocol

import msgspec
import numpy as np

from weftline.cost.profile_file import DeviceProfile, Profile
from weftline.errors import InputError, UsageError, WeftlineError
from weftline.execute.local_folder import run_folder
from weftline.execute.ort_devices import ort_devices
from weftline.execute.plan_segments import parts_of_plan
from weftline.execute.profile import LEAST_SECONDS, MOST_SECONDS, settling
from weftline.execute.profile_job import Measure, Prepare
from weftline.execute.profile_processes import Workers
from weftline.execute.split import split_model
from weftline.graph.arrays import Indices
from weftline.plan.model import Plan, Stage

__all__ = ["ROUNDS", "calibrated_plan", "corrected", "measure_stages", "measured_period"]

ROUNDS = 3
FARTHEST = 5.0
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
    rounds: int = ROUNDS,
    tell: Callable[[str], None] | None = None,
) -> Plan:
    """Plan, measure, correct, at most `rounds` times; the best by measured stages."""
    say = tell or (lambda _: None)
    plan = planner(profile, None, False)
    if plan.objective != "throughput":
        raise UsageError("only pipelines can be calibrated: ask for --objective throughput")
    tried: dict[tuple[str, ...], tuple[int, Plan, Profile]] = {}
    for number in range(1, rounds + 1):
        try:
            measured = measure_stages(plan, model, profile)
        except InputError:
            raise
        except WeftlineError as error:  # stages run with random inputs, which not every model bears
            say(f"the stages cannot be measured, so the plan is not calibrated: {error}")
            break
        value = measured_period(plan, measured)
        say(f"round {number}: predicted {plan.value_ns / 1e6:.3f} ms, by measured stages {value / 1e6:.3f} ms")
        note = f"calibrated by the measured stages of {number} {'plan' if number == 1 else 'plans'}"
        profile = msgspec.structs.replace(corrected(profile, plan, measured), note=note)
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
        return plan  # made from times that were corrected by its own stages
    return planner(last, _placement(best), True)


def measure_stages(plan: Plan, model: Path | str, profile: Profile, repeats: int = 0) -> dict[str, int]:
    """Device -> ns of one run of its stage (mean), while all stages run; slowed down by the device's speed."""
    problem = plan.load_problem()
    if problem.host.any():
        raise UsageError("pipelines with a host device cannot be calibrated: its ops are no stage of their own")
    known = {device.id: profile.device(device.id).runtime for device in problem.devices}
    every = ort_devices(problem.devices, known)
    ask = Measure(repeats or profile.repeats, LEAST_SECONDS, MOST_SECONDS)
    with run_folder() as folder:
        ids = [device.id for device in problem.devices]
        manifest = split_model(model, problem.graph, parts_of_plan(plan), ids, folder)
        used = [segment.device for segment in manifest.segments]
        with Workers(model, {}, {id: every[id] for id in used}) as workers:
            for segment in manifest.segments:
                workers.prepare(segment.device, Prepare("ALL", kernels=False, model=str(folder / segment.file)))
            settle = settling(ask.runs)
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
    ratio = {
        stage.device: min(max(measured[stage.device] / max(stage.compute_ns, 1), 1 / FARTHEST), FARTHEST)
        for stage in plan.stages
    }
    devices = tuple(_corrected(device, plan, ratio.get(device.id, 1.0)) for device in profile.devices)
    return msgspec.structs.replace(profile, devices=devices)


def _corrected(device: DeviceProfile, plan: Plan, ratio: float) -> DeviceProfile:
    kernels = tuple(
        msgspec.structs.replace(kernel, busy_ns=round(kernel.busy_ns * ratio))
        if plan.placement[kernel.ops[0]] == device.id
        else kernel
        for kernel in device.kernels
    )
    return msgspec.structs.replace(device, kernels=kernels, busy_ns=sum(kernel.busy_ns for kernel in kernels))


def _placement(plan: Plan) -> Indices:
    problem = plan.load_problem()
    return np.array([problem.device_index[plan.placement[op.name]] for op in problem.graph.ops], np.int32)
