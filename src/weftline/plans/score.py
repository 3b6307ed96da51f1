"""A placement that somebody else made, scored by the one simulator: value, devices, stages or timeline.

In: a Problem, a device for each op by name (a mapping, a plan, or a JSON file) or by number, for latency perhaps an
order of ops. Out: a `Score`; `InfeasibleError` says which limits a placement breaks. And the parts of a plan's file
that follow from a simulation: devices, stages, timeline. Simplified: no bound and no search; `wl.plan` has those.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from weftline.arguments import shown
from weftline.errors import InfeasibleError, InputError, UsageError, near
from weftline.files import read_limited
from weftline.graph.arrays import Indices
from weftline.lazy import notebook_html
from weftline.plans.plan import DeviceUse, Plan, Stage, TimelineFile
from weftline.plans.result import plan_result
from weftline.problem import Problem
from weftline.simulate import Loads, Timeline, replay, simulate_latency, simulate_throughput, violations
from weftline.simulate.timeline import ACTION_CONSUMER, ACTION_TARGET, ACTION_WHAT
from weftline.units import format_name, format_names, format_time

__all__ = [
    "Score",
    "device_uses",
    "numbered_placement",
    "placement_names",
    "read_placement",
    "score_placement",
    "stage_list",
    "timeline_file",
]

MOST_BYTES = 2**28
PLAN_FORMAT = "weftline-plan"
MOST_NAMED = 4
"""Names in one sentence."""


@dataclass(frozen=True, eq=False)
class Score:
    """What a placement costs."""

    problem: Problem
    result: Timeline | Loads
    """What the simulator says, by numbers of ops and devices."""
    order: Literal["", "given", "plan", "rank"] = ""
    """Latency: in which order ops and transfers were booked: one that was given, that of the plan, or by rank."""
    note: str = ""
    """Why the order of a plan is not taken, where it is not."""

    @property
    def objective(self) -> str:
        """latency or throughput."""
        return self.problem.rules.objective

    @property
    def value_ns(self) -> int:
        """The latency, or the period of the pipeline."""
        return self.result.value

    @property
    def placement(self) -> dict[str, str]:
        """Op -> device."""
        return placement_names(self.problem, self.result.placement)

    @property
    def devices(self) -> dict[str, DeviceUse]:
        """Device -> how long it is busy, and what it holds at most."""
        return device_uses(self.problem, self.result)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Throughput: in pipeline order."""
        return stage_list(self.problem, self.result) if isinstance(self.result, Loads) else ()

    @property
    def timeline(self) -> TimelineFile | None:
        """Latency: when everything happens."""
        return timeline_file(self.result) if isinstance(self.result, Timeline) else None

    def to_json(self) -> bytes:
        """One object, its fields named as in a plan."""
        return msgspec.json.encode(
            {
                "objective": self.objective,
                "value_ns": self.value_ns,
                "order": self.order,
                "note": self.note,
                "devices": self.devices,
                "placement": self.placement,
                "stages": self.stages,
                "timeline": self.timeline,
            }
        )

    def table(self, name: str) -> list[dict[str, Any]]:
        """timeline, transfers, placement, devices or stages, as a list of dicts."""
        from weftline.plans.records import plan_records

        return plan_records(self, name)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return notebook_html(self)

    def __repr__(self) -> str:
        return f"Score({self.objective}, {format_time(self.value_ns)}, {len(self.devices)} devices)"


def score_placement(problem: Problem, placement: Mapping[str, str] | Plan, order: Sequence[str] | None = None) -> Score:
    """Simulate a placement; `InfeasibleError` where it breaks a limit, with every limit that it breaks.

    `order` (latency) names ops in the order in which they are booked; without it, that of the plan, if it is one of the
    same ops, devices and rules, else by descending upward rank.
    """
    given = placement.placement if isinstance(placement, Plan) else placement
    if not isinstance(given, Mapping):
        raise UsageError("a placement is a mapping from names of ops to ids of devices, a plan, or a file of one")
    devices = _devices_of(problem, given)
    if order is not None and problem.rules.objective == "throughput":
        raise UsageError("an order of ops is for latency; the stages of a pipeline have none")
    _check_runs(problem, devices)
    found = _simulated(problem, devices, placement if isinstance(placement, Plan) else None, order)
    broken = violations(problem, found.result)
    if broken:
        raise InfeasibleError("the placement breaks limits", conflicts=broken)
    return found


def _simulated(problem: Problem, devices: Indices, plan: Plan | None, order: Sequence[str] | None) -> Score:
    if problem.rules.objective == "throughput":
        return Score(problem, _pipeline(problem, devices))
    if order is not None:
        return Score(problem, simulate_latency(problem, devices, _order(problem, order)), "given")
    note = ""
    if plan is not None:
        try:
            return Score(problem, _as_planned(problem, devices, plan), "plan")
        except (InputError, InfeasibleError, UsageError) as error:
            note = f"only the placement of the plan is taken, not its order: {error}"
    return Score(problem, simulate_latency(problem, devices), "rank", note)


def _as_planned(problem: Problem, devices: Indices, plan: Plan) -> Timeline:
    """The plan's ops and transfers one after another as they stand in its timeline; or an error that says why not."""
    theirs, result = plan_result(plan)
    if not isinstance(result, Timeline):
        raise UsageError("it is a plan for throughput")
    for rule in ("runtime", "transfers"):
        mine, other = getattr(problem.rules, rule), getattr(theirs.rules, rule)
        if mine != other:
            raise UsageError(f"its {rule} is {other}, and {mine} is asked for")
    tensors = {tensor.name: number for number, tensor in enumerate(problem.graph.tensors)}
    op = np.array([problem.graph.index[op.name] for op in theirs.graph.ops], np.int64)
    tensor = np.array([tensors.get(tensor.name, -1) for tensor in theirs.graph.tensors], np.int64)
    device = np.array([problem.device_index.get(device.id, -1) for device in theirs.devices], np.int64)
    rows = result.actions(theirs.graph.arrays.producer)
    sends = rows[:, ACTION_TARGET] >= 0
    for_one = sends & (rows[:, ACTION_CONSUMER] >= 0)
    rows[~sends, ACTION_WHAT] = op[rows[~sends, ACTION_WHAT]]
    rows[sends, ACTION_WHAT] = tensor[rows[sends, ACTION_WHAT]]
    rows[sends, ACTION_TARGET] = device[rows[sends, ACTION_TARGET]]
    rows[for_one, ACTION_CONSUMER] = op[rows[for_one, ACTION_CONSUMER]]
    if rows[sends].size and rows[sends, :ACTION_CONSUMER].min() < 0:
        raise UsageError("it is a plan of another graph")
    return replay(problem, devices, rows)


def read_placement(path: Path | str) -> tuple[dict[str, str] | Plan, list[str] | None]:
    """A file of `{"op": "device"}`, or of an object with them under `placement` -> it, and its `order`; or a plan.

    `order`, a list of names of ops, is optional; a plan that somebody gave an `order` is taken for that.
    """
    path = Path(path)
    try:
        found = json.loads(read_limited(path, MOST_BYTES), object_pairs_hook=_no_name_twice)
    except InputError as error:
        raise error if error.where else error.at(str(path)) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not JSON: {str(error)[:200]}", where=str(path)) from error
    if not isinstance(found, dict):
        raise InputError("is not a placement", where=str(path), hint='write it like {"op": "device", ...}')
    inner = isinstance(found.get("placement"), dict)
    placement = found["placement"] if inner else found
    wrong = next((name for name, device in placement.items() if not isinstance(device, str)), None)
    if wrong is not None:
        raise InputError(
            f"the device of op {wrong[:80]!r} is not text", where=str(path), hint='write it like {"op": "device", ...}'
        )
    if inner and found.get("format") == PLAN_FORMAT:
        try:
            return msgspec.convert(found, Plan), None
        except msgspec.ValidationError as error:
            if "order" not in found:
                raise InputError(f"not a weftline plan: {error}", where=str(path)) from error
    order = found.get("order") if inner else None
    if order is not None and not (isinstance(order, list) and all(isinstance(name, str) for name in order)):
        raise InputError("is not a list of names of ops", where=f"{path}: order")
    return placement, order


def _no_name_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{twice[:80]!r} stands twice in one object")
    return found


def numbered_placement(problem: Problem, numbers: Any) -> dict[str, str]:
    """A number of a device for each op, in the order of the graph -> names."""
    try:
        given = np.asarray(numbers)
    except (TypeError, ValueError):  # lists of unequal length, for example
        given = np.empty(0, np.object_)
    if given.shape != (len(problem.graph.ops),) or given.dtype.kind not in "iu":
        raise UsageError(
            "a placement is a mapping from names of ops to ids of devices, a plan, a file of one, or the number of a "
            f"device for each of the {len(problem.graph.ops)} ops, not {shown(numbers)}"
        )
    wrong = given[(given < 0) | (given >= len(problem.devices))]
    if len(wrong):
        raise UsageError(
            f"there is no device number {wrong[0]}: they are numbered from 0 to {len(problem.devices) - 1}"
        )
    return placement_names(problem, given.astype(np.int32))


def placement_names(problem: Problem, placement: Indices) -> dict[str, str]:
    """Op -> device."""
    ids = [device.id for device in problem.devices]
    return dict(zip((op.name for op in problem.graph.ops), (ids[d] for d in placement.tolist()), strict=True))


def _devices_of(problem: Problem, placement: Mapping[str, str]) -> Indices:
    graph, index = problem.graph, problem.device_index
    missing = [op.name for op in graph.ops if op.name not in placement]
    if missing:
        more = "have no device" if len(missing) > 1 else "has no device"
        raise InputError(f"{len(missing)} of {len(graph.ops)} ops {more}: {format_names(missing, MOST_NAMED)}")
    if len(placement) > len(graph.ops):
        extra = next(str(name) for name in placement if name not in graph.index)
        raise InputError(f"the model has no op {extra[:80]!r}{near(extra, graph.index)}", where="placement")
    for name, device in placement.items():
        if not isinstance(device, str) or device not in index:
            hint = f"the devices are {', '.join(list(index)[:16])}"
            raise InputError(f"op {str(name)[:80]!r} is on an unknown device {device!r:.80}", hint=hint)
    return np.array([index[placement[op.name]] for op in graph.ops], np.int32)


def _order(problem: Problem, order: Sequence[str]) -> Indices:
    index = problem.graph.index
    if isinstance(order, str) or not isinstance(order, Sequence) or not all(isinstance(name, str) for name in order):
        raise UsageError("an order is a list of names of ops")
    unknown = next((name for name in order if name not in index), None)
    if unknown is not None:
        raise InputError(f"the model has no op {unknown[:80]!r}{near(unknown, index)}", where="order")
    if len(set(order)) < len(order) or len(order) < len(index):
        raise InputError(f"holds {len(set(order))} of {len(index)} ops; name each of them once", where="order")
    return np.array([index[name] for name in order], np.int32)


def _check_runs(problem: Problem, placement: Indices) -> None:
    """Every op can run where it stands, and every tensor can come to its readers."""
    time = problem.cost.time[np.arange(len(placement)), placement]
    found = [
        f"device {problem.devices[int(placement[op])].id} cannot run op {format_name(problem.graph.ops[op].name)!r}"
        for op in np.flatnonzero(time < 0).tolist()
    ]
    source, target, tensor = problem.graph.arrays.edges()
    length = problem.cost.transfer[problem.cost.transfer_row[tensor], placement[source], placement[target]]
    cut = np.flatnonzero((length < 0) & (placement[source] != placement[target])).tolist()
    pairs: dict[tuple[int, int], int] = {}
    for edge in cut:
        pairs.setdefault((int(placement[source[edge]]), int(placement[target[edge]])), int(tensor[edge]))
    found += [
        f"no link from {problem.devices[a].id} to {problem.devices[b].id} for tensor "
        f"{format_name(problem.graph.tensors[t].name)!r}"
        for (a, b), t in pairs.items()
    ]
    if found:
        more = [f"and {len(found) - MOST_NAMED} more"] if len(found) > MOST_NAMED else []
        raise InfeasibleError("the placement cannot run", conflicts=(*found[:MOST_NAMED], *more))


def _pipeline(problem: Problem, placement: Indices) -> Loads:
    used = np.unique(placement)
    if len(used) > problem.stage_limit:
        raise InfeasibleError(
            f"the placement uses {len(used)} devices, and a pipeline of {problem.stage_limit} stages is asked for"
        )
    try:
        return simulate_throughput(problem, placement)
    except InfeasibleError as error:
        cycle = _cycle(problem, placement)
        raise InfeasibleError("the placement is no pipeline", conflicts=(cycle or str(error),)) from error


def _cycle(problem: Problem, placement: Indices) -> str:
    """Stages that wait for each other: a -> b -> a."""
    hosts, backward = problem.host, problem.graph.arrays.backward
    after: dict[int, dict[int, int]] = {}
    source, target, tensor = (column.tolist() for column in problem.graph.arrays.edges())
    node = [len(hosts) + op if hosts[d] else d for op, d in enumerate(placement.tolist())]
    for a, b, t in zip(source, target, tensor, strict=True):
        if not backward[a] and not backward[b] and node[a] != node[b]:
            after.setdefault(node[a], {}).setdefault(node[b], t)
    for first in sorted(after):
        before: dict[int, int] = {}
        waiting = [first]
        while waiting:
            here = waiting.pop(0)
            for there in after.get(here, {}):
                if there == first:
                    return _cycle_words(problem, placement, first, here, before)
                if there not in before:
                    before[there] = here
                    waiting.append(there)
    return ""


def _cycle_words(problem: Problem, placement: Indices, first: int, last: int, before: Mapping[int, int]) -> str:
    way = [first, last]
    while way[-1] != first:
        way.append(before[way[-1]])
    known = len(problem.devices)
    ids = [problem.devices[n if n < known else int(placement[n - known])].id for n in way]
    return f"stages depend on each other in a cycle: {' -> '.join(reversed(ids))}"


def device_uses(problem: Problem, result: Timeline | Loads) -> dict[str, DeviceUse]:
    """Device -> time, memory, limit of memory."""
    if isinstance(result, Loads):
        load = result.load.tolist()
    else:
        load = [int((result.end - result.start)[result.placement == d].sum()) for d in range(len(problem.devices))]
    return {
        device.id: DeviceUse(load[d], int(result.peak[d]), device.capacity) for d, device in enumerate(problem.devices)
    }


def stage_list(problem: Problem, loads: Loads) -> tuple[Stage, ...]:
    """The stages, in pipeline order."""
    return tuple(
        Stage(
            device=problem.devices[d].id,
            ops=int((loads.placement == d).sum()),
            compute_ns=int(loads.compute[d]),
            in_ns=int(loads.entering[d]),
            out_ns=int(loads.leaving[d]),
            load_ns=int(loads.load[d]),
        )
        for d in loads.stages
    )


def timeline_file(timeline: Timeline) -> TimelineFile:
    """When everything happens, by start."""
    ops = sorted(
        zip(range(len(timeline.start)), timeline.start.tolist(), timeline.end.tolist(), strict=True),
        key=lambda r: (r[1], r[0]),
    )
    transfers = sorted((tuple(row) for row in timeline.transfers.tolist()), key=lambda r: (r[4], r))
    return TimelineFile(tuple(ops), tuple(transfers))
