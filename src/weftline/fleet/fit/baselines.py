"""What simple splits and engines' own defaults would do, on the same costs.

In: a FitProblem. Out: name -> segments, or None where the rule gives none. Simplified: rules that look at memory see
the limits of this problem, not an engine's own estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate

from weftline.errors import InputError
from weftline.fleet.fit.evaluate import cost_segments, fit_violations, split_segments
from weftline.problem.fit import FitProblem, FitSegment, HostRows

__all__ = ["baseline_segments", "shares_split"]

Plan = tuple[FitSegment, ...]


def baseline_segments(problem: FitProblem) -> tuple[tuple[str, Plan | None], ...]:
    """All of them."""
    cards = [device for device in problem.devices if not device.host]
    return (
        ("one-card", _one_card(problem)),
        ("even", _by_shares(problem, [1] * len(cards))),
        ("free-memory", _by_shares(problem, [device.limit_bytes for device in cards])),
    )


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


def _fits(problem: FitProblem, counts: Sequence[int]) -> Plan | None:
    try:
        segments = split_segments(problem, counts)
    except InputError:
        return None
    return None if fit_violations(problem, segments) else segments


def _by_shares(problem: FitProblem, shares: Sequence[int]) -> Plan | None:
    """With as many layers on the cards as fit; the first ones stay on the host where the engine can do that."""
    rows = len(problem.rows)
    least = 2 if problem.rules.host_rows is not HostRows.NONE and problem.host_unit is not None else rows
    for offloaded in range(rows, least - 1, -1):
        if (found := _fits(problem, shares_split(shares, offloaded))) is not None:
            return found
    return None


def _one_card(problem: FitProblem) -> Plan | None:
    """The best single card."""
    cards = sum(not device.host for device in problem.devices)
    found = [_by_shares(problem, [int(number == card) for number in range(cards)]) for card in range(cards)]
    fitting = [one for one in found if one is not None]
    return min(fitting, key=lambda one: cost_segments(problem, one).value_ns, default=None)
