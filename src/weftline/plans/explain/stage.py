"""Why a pipeline is as slow as it is: its slowest stage, the ops and tensors that cost most there, room next to it."""

from __future__ import annotations

from dataclasses import dataclass

from weftline.plans.plan import Plan
from weftline.plans.result import Crossing, PlacedOp, crossings, plan_result
from weftline.problem import Problem
from weftline.simulate import Loads
from weftline.units import format_name, format_time

__all__ = ["MovedTensor", "Neighbour", "SlowestStage", "explain_stage"]

DEAREST = 5
"""Ops and tensors that are named."""


@dataclass(frozen=True)
class MovedTensor:
    """A tensor that enters or leaves a stage."""

    tensor: str
    time_ns: int
    devices: tuple[str, ...]
    """Where it comes from, or goes to."""


@dataclass(frozen=True)
class Neighbour:
    """The stage before or after."""

    stage: int
    device: str
    load_ns: int
    room_ns: int
    """How much its load may grow before it is the slowest."""


@dataclass(frozen=True)
class SlowestStage:
    """The stage whose load is the period."""

    stage: int
    device: str
    load_ns: int
    compute_ns: int
    in_ns: int
    out_ns: int
    ops: tuple[PlacedOp, ...]
    """The dearest, most time first; so are the tensors."""
    enters: tuple[MovedTensor, ...]
    leaves: tuple[MovedTensor, ...]
    before: Neighbour | None
    after: Neighbour | None

    def lines(self) -> list[str]:
        """For a terminal."""
        parts = (("compute", self.compute_ns), ("tensors that enter", self.in_ns), ("that leave", self.out_ns))
        told = ", ".join(f"{what} {format_time(time)}{_share(time, self.load_ns)}" for what, time in parts)
        lines = [f"The slowest stage is {self.stage} on {self.device}, {format_time(self.load_ns)}: {told}."]
        lines.append("Its dearest ops:")
        lines += [f"{format_time(op.time_ns):>12}  {format_name(op.op)}" for op in self.ops]
        for title, word, tensors in (("enter", "from", self.enters), ("leave", "to", self.leaves)):
            if tensors:
                lines.append(f"The dearest tensors that {title} it:")
            for moved in tensors:
                ends = ", ".join(moved.devices)
                lines.append(f"{format_time(moved.time_ns):>12}  {format_name(moved.tensor)} ({word} {ends})")
        return [*lines, self._room()]

    def _room(self) -> str:
        sides = [(side, next_to) for side, next_to in (("before", self.before), ("after", self.after)) if next_to]
        if not sides:
            return "It is the only stage, so no other has room."
        told = [
            f"stage {n.stage} on {n.device} {side} it "
            + (f"has {format_time(n.room_ns)} of room" if n.room_ns else "has no room")
            for side, n in sides
        ]
        return f"Next to it: {'; '.join(told)}."


def explain_stage(plan: Plan) -> SlowestStage | None:
    """The slowest stage of a pipeline (the first of several); None for a latency plan."""
    problem, loads = plan_result(plan)
    if not isinstance(loads, Loads):
        return None
    order = loads.stages
    place = max(range(len(order)), key=lambda p: int(loads.load[order[p]]))
    device = order[place]
    crossing = [one for one in crossings(problem, loads.placement) if one.device == device]
    return SlowestStage(
        stage=place,
        device=problem.devices[device].id,
        load_ns=int(loads.load[device]),
        compute_ns=int(loads.compute[device]),
        in_ns=int(loads.entering[device]),
        out_ns=int(loads.leaving[device]),
        ops=_dearest_ops(problem, loads, device),
        enters=_dearest(problem, [one for one in crossing if one.enters]),
        leaves=_dearest(problem, [one for one in crossing if not one.enters]),
        before=_neighbour(problem, loads, place - 1),
        after=_neighbour(problem, loads, place + 1),
    )


def _dearest_ops(problem: Problem, loads: Loads, device: int) -> tuple[PlacedOp, ...]:
    time = problem.cost.time[:, device]
    here = [i for i, d in enumerate(loads.placement.tolist()) if d == device]
    first = sorted(here, key=lambda i: (-int(time[i]), i))[:DEAREST]
    return tuple(PlacedOp(problem.graph.ops[i].name, problem.devices[device].id, int(time[i])) for i in first)


def _dearest(problem: Problem, found: list[Crossing]) -> tuple[MovedTensor, ...]:
    first = sorted(found, key=lambda one: (-one.time_ns, one.tensor))[:DEAREST]
    ids = [device.id for device in problem.devices]
    return tuple(
        MovedTensor(problem.graph.tensors[one.tensor].name, one.time_ns, tuple(ids[d] for d in one.others))
        for one in first
    )


def _neighbour(problem: Problem, loads: Loads, place: int) -> Neighbour | None:
    if not 0 <= place < len(loads.stages):
        return None
    device = loads.stages[place]
    load = int(loads.load[device])
    return Neighbour(place, problem.devices[device].id, load, loads.value - load)


def _share(part: int, whole: int) -> str:
    return f" ({part / whole:.0%})" if whole else ""
