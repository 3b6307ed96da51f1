"""A page shows only what holds: the independent checker first, then the pictures.

In: a Plan or Schedule. Out: whether everything was re-computed; `VerificationError` if something does not hold.
Simplified: very large answers are only compared with the simulator, which is quick; `weftline verify` checks all.
"""

from __future__ import annotations

import msgspec

from weftline.certify import check, check_schedule
from weftline.errors import VerificationError
from weftline.plan import Plan, plan_result
from weftline.plan.schedule_file import Schedule

__all__ = ["holds"]

WHOLE_OPS = 5_000
WHOLE_OPERATIONS = 50_000


def holds(answer: Plan | Schedule) -> bool:
    """True: checked whole. False: value and devices are the simulator's, the rest is as the file says."""
    if isinstance(answer, Schedule):
        return _schedule_holds(answer)
    problem, result = plan_result(answer)
    used = {problem.devices[d].id for d in set(result.placement.tolist())}
    stages = {stage.device for stage in answer.stages}
    if result.value != answer.value_ns or list(answer.devices) != [device.id for device in problem.devices]:
        raise VerificationError("the plan's value or devices are not the simulator's; weftline verify says more")
    if stages != (used if answer.objective == "throughput" else set()):
        raise VerificationError("the plan's stages are not those of its placement; weftline verify says more")
    if len(problem.graph.ops) > WHOLE_OPS:
        return False
    try:
        check.check_plan(msgspec.to_builtins(answer))
    except check.Refusal as refusal:
        raise VerificationError(f"the plan does not hold: {refusal}") from refusal
    return True


def _schedule_holds(schedule: Schedule) -> bool:
    found = schedule.timetable()
    if (found.makespan, found.peak_memory) != (schedule.makespan, schedule.peak_memory):
        raise VerificationError("the schedule's makespan or memory is not the simulator's; weftline verify says more")
    if len(schedule.memory_limit) != len(schedule.peak_memory):
        raise VerificationError("the schedule's limits do not fit its devices; weftline verify says more")
    if len(found.start) > WHOLE_OPERATIONS:
        return False
    try:
        check_schedule.check(msgspec.to_builtins(schedule))
    except check_schedule.Refusal as refusal:
        raise VerificationError(f"the schedule does not hold: {refusal}") from refusal
    return True
