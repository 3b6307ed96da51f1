"""Why an op stands where it stands: what the plan would cost with some ops elsewhere, by the one simulator.

In: a Plan and the name of an op. Out: an `OpStory`: what it reads, and one `Move` for each device: the value after it
and the limits that it breaks. Simplified: the op moves with its `together` set (a kernel is one) and, in a pipeline,
with the ops that must go along so that stages stay in a row; nothing else moves, and nothing is searched. A latency
plan keeps the order of its list, and transfers that become necessary stand just before the op that needs them; the
default order is tried beside it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from weftline.errors import InfeasibleError, InputError
from weftline.graph.arrays import Indices, Ints
from weftline.plans.plan import Plan
from weftline.plans.result import plan_result
from weftline.problem import NO_LIMIT, Problem
from weftline.simulate import Loads, Timeline, replay, simulate_latency, simulate_throughput, violations
from weftline.units import format_bytes, format_name, format_names, format_time

__all__ = [
    "Move",
    "MoveOutcome",
    "OpStory",
    "explain_op",
    "moves_of",
    "set_of",
    "simulate_moved",
    "try_move",
    "why_here",
    "with_followers",
]


@dataclass(frozen=True, eq=False)
class MoveOutcome:
    """What the simulator says of a placement."""

    placement: Indices
    result: Timeline | Loads | None
    """None where the placement cannot be carried out at all."""
    breaks: tuple[str, ...]
    """Limits that it breaks, or the reason that there is no result."""

    @property
    def value(self) -> int | None:
        """Its latency or period, limits or not."""
        return None if self.result is None else self.result.value

    @property
    def rank(self) -> tuple[bool, bool, int]:
        """The smaller the better: carried out, without broken limits, fast."""
        return self.result is None, bool(self.breaks), self.value or 0


def simulate_moved(problem: Problem, before: Timeline | Loads, placement: Indices) -> MoveOutcome:
    """Cost another placement, with the order of the plan before it where there is one."""
    ways: list[Callable[[], Timeline | Loads]] = [lambda: simulate_throughput(problem, placement)]
    if isinstance(before, Timeline):
        ways = [
            lambda: replay(problem, placement, _moved_actions(problem, before, placement)),
            lambda: simulate_latency(problem, placement),
        ]
    return min((_outcome(problem, placement, way) for way in ways), key=lambda outcome: outcome.rank)


def _outcome(problem: Problem, placement: Indices, simulate: Callable[[], Timeline | Loads]) -> MoveOutcome:
    try:
        result = simulate()
    except InfeasibleError as error:
        return MoveOutcome(placement, None, (str(error),))
    return MoveOutcome(placement, result, violations(problem, result))


def _moved_actions(problem: Problem, before: Timeline, placement: Indices) -> Ints:
    """The plan's list of actions: ops in their places, transfers that nobody needs gone, missing ones just before."""
    arrays, per_edge = problem.graph.arrays, problem.rules.transfers == "per-edge"
    home, rows, sent = placement.tolist(), [], set()
    length, row_of, producer = problem.cost.transfer, problem.cost.transfer_row.tolist(), arrays.producer.tolist()

    def needed(tensor: int, device: int) -> bool:
        maker = producer[tensor]
        return maker >= 0 and home[maker] != device and int(length[row_of[tensor], home[maker], device]) != 0

    for what, target, consumer in before.actions(arrays.producer).tolist():
        if target < 0:
            for tensor in arrays.input_of[arrays.input_ptr[what] : arrays.input_ptr[what + 1]].tolist():
                send = (tensor, home[what], what if per_edge else -1)
                if needed(tensor, home[what]) and send not in sent:
                    sent.add(send)
                    rows.append(send)
            rows.append((what, -1, -1))
            continue
        readers = [consumer] if per_edge else arrays.consumer_of[slice(*arrays.consumer_ptr[what : what + 2])].tolist()
        wanted = needed(what, target) and any(home[op] == target for op in readers)
        if wanted and (what, target, consumer) not in sent:
            sent.add((what, target, consumer))
            rows.append((what, target, consumer))
    return np.array(rows, np.int64).reshape(-1, 3)


def with_followers(
    problem: Problem, loads: Loads, ops: tuple[int, ...], device: int, *, later: bool
) -> tuple[int, ...]:
    """The ops that must go along so that the stages stay in a row: all that follow in between (or that come before)."""
    rank = {d: place for place, d in enumerate(loads.stages)}
    away = rank.get(device)
    source, target, _ = problem.graph.arrays.edges()
    backward = problem.graph.arrays.backward
    forward = ~(backward[source] | backward[target])
    neighbours = defaultdict(list)
    for a, b in zip(source[forward].tolist(), target[forward].tolist(), strict=True):
        neighbours[a if later else b].append(b if later else a)
    sets = {op: members for members in problem.together for op in members}
    found, queue = set(ops), list(ops)
    while queue:
        op = queue.pop()
        here = rank[int(loads.placement[op])]
        near = list(sets.get(op, ()))
        for other in neighbours[op]:
            place = rank[int(loads.placement[other])]
            between = place == here if away is None else (place < away if later else place > away)
            near += [other] if between else []
        for other in near:
            if other not in found:
                found.add(other)
                queue.append(other)
    return tuple(sorted(found))


@dataclass(frozen=True)
class Move:
    """One op (and what goes with it) on one device."""

    device: str
    here: bool
    """True for the device that the plan chose."""
    ops: int
    """How many ops move."""
    time_ns: int | None
    """The op's own time there; None where it cannot run."""
    value_ns: int | None
    """Of the whole plan afterwards; None where it cannot be carried out."""
    memory_bytes: int | None
    """Peak of that device afterwards."""
    memory_limit: int | None
    breaks: tuple[str, ...]
    """Limits that the move breaks, or why it cannot be carried out."""

    @property
    def allowed(self) -> bool:
        """It could be done."""
        return self.value_ns is not None and not self.breaks


def set_of(problem: Problem, op: int) -> tuple[int, ...]:
    """The ops that must share a device with this one, itself among them."""
    return next((members for members in problem.together if op in members), (op,))


def moves_of(problem: Problem, result: Timeline | Loads, op: int) -> tuple[Move, ...]:
    """The op on each device, in the problem's order."""
    home, members = int(result.placement[op]), set_of(problem, op)
    found = []
    for d, device in enumerate(problem.devices):
        outcome = MoveOutcome(result.placement, result, ()) if d == home else try_move(problem, result, members, d)
        capacity = int(problem.capacity[d])
        found.append(
            Move(
                device=device.id,
                here=d == home,
                ops=int((outcome.placement != result.placement).sum()),
                time_ns=None if problem.cost.time[op, d] < 0 else int(problem.cost.time[op, d]),
                value_ns=outcome.value,
                memory_bytes=None if outcome.result is None else int(outcome.result.peak[d]),
                memory_limit=None if capacity >= NO_LIMIT else capacity,
                breaks=outcome.breaks,
            )
        )
    return tuple(found)


def try_move(problem: Problem, result: Timeline | Loads, members: tuple[int, ...], device: int) -> MoveOutcome:
    """These ops on that device; in a pipeline also with what must go along, whatever is best."""
    if (problem.cost.time[list(members), device] < 0).any():
        what = "cannot run it" if len(members) == 1 else "cannot run all ops of its set"
        return MoveOutcome(result.placement, None, (f"{what} (pinned elsewhere, forbidden, or no time is known)",))
    outcomes = [simulate_moved(problem, result, _moved(result.placement, members, device))]
    if isinstance(result, Loads) and outcomes[0].result is None:
        for later in (False, True):
            more = with_followers(problem, result, members, device, later=later)
            if len(more) > len(members) and (problem.cost.time[list(more), device] >= 0).all():
                outcomes.append(simulate_moved(problem, result, _moved(result.placement, more, device)))
    return min(outcomes, key=lambda outcome: outcome.rank)


def _moved(placement: Indices, members: tuple[int, ...], device: int) -> Indices:
    placement = placement.copy()
    placement[np.array(members)] = device
    return placement


def why_here(value: int, moves: tuple[Move, ...]) -> list[str]:
    """One or two sentences: what every other device would cost, and which limit stands in the way."""
    others = [move for move in moves if not move.here]
    if not others:
        return ["There is no other device."]
    lines, allowed = [], [move for move in others if move.allowed and move.value_ns is not None]
    if allowed:
        best = min(allowed, key=lambda move: move.value_ns or 0)
        change = (best.value_ns or 0) - value
        along = f" with {best.ops - 1} more" if best.ops > 1 else ""
        percent = f" ({change / value:+.2%})" if value else ""
        if change > 0:
            least = "The cheapest move" if len(allowed) > 1 else "The only possible move"
            lines.append(f"{least}, to {best.device}{along}, would cost {format_time(change)}{percent}.")
        elif change == 0:
            lines.append(f"On {best.device}{along} the value would be the same: something else decides it.")
        else:
            gain = f"On {best.device}{along} the plan would be better by {format_time(-change)}{percent}"
            lines.append(f"{gain}: its search did not come to this, or it was chosen by measurement.")
    elif all(move.value_ns is None for move in others):
        lines.append("No other device can take it.")
    else:
        lines.append("No other device can take it within the limits.")
    for move in others:
        if move.value_ns is not None and move.breaks and move.value_ns < value:
            gain = format_time(value - move.value_ns)
            lines.append(f"On {move.device} the plan would be better by {gain}, but a limit binds: {move.breaks[0]}.")
    return lines


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
