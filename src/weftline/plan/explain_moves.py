"""Why an op stands where it stands: what the plan would cost with the op on each other device, re-simulated.

In: a Plan and the name of an op. Out: one `Move` for each device: the value after it and the limits that it breaks.
Simplified: the op moves with its `together` set (a kernel is one) and, in a pipeline, with the ops that must go along
so that stages stay in a row; nothing else moves, and nothing is searched.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weftline.graph.arrays import Indices
from weftline.plan.what_if import Outcome, simulate_moved, with_followers
from weftline.problem import UNLIMITED, Problem
from weftline.simulate import Loads, Timeline
from weftline.units import format_time

__all__ = ["Move", "moves_of", "set_of", "try_move", "why_here"]


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
        outcome = Outcome(result.placement, result, ()) if d == home else try_move(problem, result, members, d)
        capacity = int(problem.capacity[d])
        found.append(
            Move(
                device=device.id,
                here=d == home,
                ops=int((outcome.placement != result.placement).sum()),
                time_ns=None if problem.cost.time[op, d] < 0 else int(problem.cost.time[op, d]),
                value_ns=outcome.value,
                memory_bytes=None if outcome.result is None else int(outcome.result.peak[d]),
                memory_limit=None if capacity >= UNLIMITED else capacity,
                breaks=outcome.breaks,
            )
        )
    return tuple(found)


def try_move(problem: Problem, result: Timeline | Loads, members: tuple[int, ...], device: int) -> Outcome:
    """These ops on that device; in a pipeline also with what must go along, whatever is best."""
    if (problem.cost.time[list(members), device] < 0).any():
        what = "cannot run it" if len(members) == 1 else "cannot run all ops of its set"
        return Outcome(result.placement, None, (f"{what} (pinned elsewhere, forbidden, or no time is known)",))
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
