"""What simple splits and engines' own defaults would do, on the same costs.

In: a FitProblem. Out: name -> segments, or None where the rule gives none. Simplified: rules that look at memory see
the limits of this problem, not an engine's own estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import accumulate

import msgspec

from weftline.errors import InputError
from weftline.fleet.fit.evaluate import cost_segments, devices_for, fit_violations, rows_split
from weftline.problem.fit import FitProblem, FitSegment, HostRows

__all__ = ["baseline_segments", "before_the_last", "shares_split", "to_the_last"]

Plan = tuple[FitSegment, ...]
MARGIN_BYTES = 624 * 2**20
"""`--fit` leaves 1024 MiB of each card free; 400 of them are the driver's, which limits here do not hold."""


def baseline_segments(problem: FitProblem) -> tuple[tuple[str, Plan | None], ...]:
    """All of them that there are for the engine of the problem."""
    cards = [device for device in problem.devices if not device.host]
    found: list[tuple[str, Plan | None]] = [
        ("one-card", _one_card(problem)),
        ("even", _by_shares(problem, [1] * len(cards))),
        ("free-memory", _by_shares(problem, [device.limit_bytes for device in cards])),
    ]
    if problem.rules.engine in ("any", "llamacpp"):
        found.append(("llamacpp-fit", _by_fit_rule(problem)))
    if problem.rules.engine in ("any", "vllm"):
        found.append(("vllm-default", _blocks(problem, before_the_last)))
    if problem.rules.engine in ("any", "sglang"):
        found.append(("sglang-default", _blocks(problem, to_the_last)))
    if any(unit.size > 1 for unit in problem.units):
        found.append(("tensor-parallel", _one_group(problem, len(cards))))
    return tuple(found)


def _blocks(problem: FitProblem, rule: Callable[[int, int], list[int]]) -> Plan | None:
    """A rule that counts blocks: the output layer goes with the last one."""
    cards = sum(not device.host for device in problem.devices)
    if not 1 <= cards <= problem.blocks:
        return None
    *counts, last = rule(problem.blocks, cards)
    return _fits(problem, [*counts, last + 1])


def before_the_last(blocks: int, stages: int) -> list[int]:
    """vLLM's pipeline: equal stages, and one block more for those before the last, from the back."""
    counts = [blocks // stages] * stages
    for number in range(2, blocks % stages + 2):
        counts[-number] += 1
    return counts


def to_the_last(blocks: int, stages: int) -> list[int]:
    """SGLang's pipeline: equal stages, and one block more for the last ones."""
    more = blocks % stages
    return [blocks // stages] * (stages - more) + [blocks // stages + 1] * more


def shares_split(shares: Sequence[int], offloaded: int) -> list[int]:
    """How many of so many layers each device gets: llama.cpp's rule for `-ts`."""
    total = sum(shares)
    if total <= 0:
        return [0] * len(shares)
    ends = [Fraction(part, total) for part in accumulate(shares)]
    counts = [0] * len(shares)
    for layer in range(offloaded):
        at = Fraction(layer, offloaded)
        counts[next(number for number, end in enumerate(ends) if end > at)] += 1
    return counts


def _fits(problem: FitProblem, counts: Sequence[int], away: int | None = None) -> Plan | None:
    """A split of rows, the output layer among them; a part that is `away` lies on the host. None: it does not fit."""
    try:
        plan = rows_split(problem, counts)
    except InputError:
        return None
    if away is not None:
        plan = tuple(one if problem.is_host(one.unit) else _without(problem, one, away) for one in plan)
    return None if fit_violations(problem, plan) else plan


def _without(problem: FitProblem, segment: FitSegment, part: int) -> FitSegment:
    kinds = problem.units[segment.unit].bytes
    rows = [row for row in range(segment.first, segment.last) if kinds[problem.rows[row]][part]]
    return msgspec.structs.replace(segment, moved=tuple((row, part) for row in rows))


def _by_shares(problem: FitProblem, shares: Sequence[int]) -> Plan | None:
    """With as many layers on the cards as fit; the first ones stay on the host where the engine can do that."""
    rows = len(problem.rows)
    least = 1 if problem.rules.host_rows is not HostRows.NONE and problem.host_unit is not None else rows
    for offloaded in range(rows, least - 1, -1):  # llama.cpp counts the output layer, which is the last one
        if (found := _fits(problem, shares_split(shares, offloaded))) is not None:
            return found
    return None


def _one_card(problem: FitProblem) -> Plan | None:
    """The best single card."""
    cards = sum(not device.host for device in problem.devices)
    found = [_by_shares(problem, [int(number == card) for number in range(cards)]) for card in range(cards)]
    fitting = [one for one in found if one is not None]
    return min(fitting, key=lambda one: cost_segments(problem, one).value_ns, default=None)


def _one_group(problem: FitProblem, cards: int) -> Plan | None:
    """All cards share every matrix."""
    for number, unit in enumerate(problem.units):
        if unit.size == cards and not problem.is_host(number):
            plan = (FitSegment(number, devices_for(problem, [number])[0], 0, len(problem.rows)),)
            return None if fit_violations(problem, plan) else plan
    return None


def _by_fit_rule(problem: FitProblem) -> Plan | None:
    """llama.cpp's `--fit`: the default if it fits with a margin; else whole layers from the back, device by device,
    where experts stay on the host until everything else has found a card.
    """
    cards = [device for device in problem.devices if not device.host]
    tight = _with_margin(problem)
    default = shares_split([device.limit_bytes for device in cards], len(problem.rows))
    if (found := _fits(tight, default)) is not None:
        return found
    if problem.host_unit is None or not cards:
        return None
    experts = [part for part, name in enumerate(problem.parts) if name == "experts"]
    movable = [part for part in experts if problem.parts[part] in problem.rules.moves]
    if movable and any(unit.bytes[kind][movable[0]] for unit in problem.units for kind in problem.rows):
        return _experts_last(tight, movable[0])
    return _filled_from_the_back(tight, None)


def _with_margin(problem: FitProblem) -> FitProblem:
    devices = tuple(
        device
        if device.host
        else msgspec.structs.replace(device, limit_bytes=max(0, device.limit_bytes - MARGIN_BYTES))
        for device in problem.devices
    )
    return msgspec.structs.replace(problem, devices=devices)


def _filled_from_the_back(problem: FitProblem, away: int | None) -> Plan | None:
    """As many of the last rows as fit on the last card, then on the one before it; the first rows stay on the host.
    A part that is `away` lies there in any case.
    """
    cards = sum(not device.host for device in problem.devices)
    counts, rows = [0] * cards, len(problem.rows)
    best: Plan | None = None
    for card in reversed(range(cards)):
        left = rows - sum(counts)
        for number in range(left, 0, -1):
            counts[card] = number
            found = _fits(problem, counts, away)
            if found is not None:
                best = found
                break
            counts[card] = 0
    return best


def _experts_last(problem: FitProblem, experts: int) -> Plan | None:
    """Everything but experts from the back; then experts of whole layers move in from the front, card by card."""
    plan = _filled_from_the_back(problem, experts)
    if plan is None or problem.is_host(plan[0].unit):
        return plan
    for row in range(problem.blocks):
        trial = tuple(
            msgspec.structs.replace(segment, moved=tuple(one for one in segment.moved if one != (row, experts)))
            for segment in plan
        )
        if not fit_violations(problem, trial):
            plan = trial
    return plan
