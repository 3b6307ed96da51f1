"""The story of one op: where it stands and why, what it reads, what the plan would cost with it elsewhere.

In: a Plan and a name. Out: an `OpStory`. Simplified: as in `explain_moves`: nothing is searched.
"""

from __future__ import annotations

from dataclasses import dataclass

from weftline.errors import InputError
from weftline.plans.explain.moves import Move, moves_of, set_of, why_here
from weftline.plans.plan import Plan
from weftline.plans.result import plan_result
from weftline.problem import Problem
from weftline.simulate import Loads, Timeline
from weftline.units import format_bytes, format_name, format_names, format_time

__all__ = ["OpStory", "explain_op"]


@dataclass(frozen=True)
class OpStory:
    """One op of a plan."""

    op: str
    kind: str
    device: str
    span_ns: tuple[int, int] | None
    """Latency: when it runs."""
    together: tuple[str, ...]
    """Ops that must share its device, itself not among them."""
    reads: tuple[str, ...]
    """Its inputs, and where they come from, in words."""
    moves: tuple[Move, ...]
    """The op on every device, the one it has among them."""
    why: tuple[str, ...]
    """What the moves say, in sentences."""
    about: str

    def lines(self) -> list[str]:
        """For a terminal, without the moves."""
        lines = [f"{format_name(self.op)} ({self.about}) on {self.device}"]
        if self.span_ns is not None:
            lines.append(f"  runs {format_time(self.span_ns[0])} .. {format_time(self.span_ns[1])}")
        lines += [f"  reads {text}" for text in self.reads]
        if self.together:
            lines.append(f"  shares its device with {len(self.together)} more: {format_names(self.together, 4)}")
        return [*lines, *self.why]


def explain_op(plan: Plan, name: str) -> OpStory:
    """One op: its device, its inputs, and the plan with it on each other device, re-simulated."""
    problem, result = plan_result(plan)
    if name not in problem.graph.index:
        near = [op for op in problem.graph.index if name.lower() in op.lower()][:5]
        raise InputError(
            f"there is no op {name!r} in this plan",
            hint=f"did you mean {format_names(near)}?" if near else "weftline explain PLAN --placement lists them",
        )
    i = problem.graph.index[name]
    op = problem.graph.ops[i]
    moves = moves_of(problem, result, i)
    return OpStory(
        op=name,
        kind=op.kind,
        device=problem.devices[int(result.placement[i])].id,
        span_ns=(int(result.start[i]), int(result.end[i])) if isinstance(result, Timeline) else None,
        together=tuple(problem.graph.ops[other].name for other in set_of(problem, i) if other != i),
        reads=tuple(_reads(problem, result, i)),
        moves=moves,
        why=tuple(why_here(result.value, moves)),
        about=f"{op.kind or 'op'}, {op.flops:,} FLOP, weights {format_bytes(op.weight_bytes)}",
    )


def _reads(problem: Problem, result: Timeline | Loads, i: int) -> list[str]:
    arrays, device, told = problem.graph.arrays, int(result.placement[i]), []
    for t in arrays.input_of[arrays.input_ptr[i] : arrays.input_ptr[i + 1]].tolist():
        tensor = problem.graph.tensors[t]
        if tensor.producer < 0:
            told.append(f"{format_name(tensor.name)}: input of the model, present everywhere")
            continue
        home = int(result.placement[tensor.producer])
        cost = int(problem.cost.transfer[problem.cost.transfer_row[t], home, device])
        way = "on the same device" if home == device else f"from {problem.devices[home].id}, {format_time(cost)}"
        maker = format_name(problem.graph.ops[tensor.producer].name)
        told.append(f"{format_name(tensor.name)} ({format_bytes(tensor.bytes)}) of {maker}: {way}")
    return told
