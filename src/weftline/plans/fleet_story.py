"""Why the rate of a fleet is what it is: devices that work all the time, what more of them would bring, simple plans.

In: a fleet plan of any kind. Out: a `FleetStory`, in sentences and as plain values. Simplified: what a second of a
device is worth is its price in the plan's bound, where that is one of prices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from weftline.plans.bound_words import explain_bound, told_bound
from weftline.plans.fleet import AnyFleet, FleetPlan
from weftline.plans.fleet_result import FleetResult, FleetUse, rate_words, simulate_fleet
from weftline.plans.summary import gap_words
from weftline.units import format_bytes, format_time

__all__ = ["FleetStory", "explain_fleet", "fleet_guarantee"]

FULL_SHARE = 0.9
"""Memory of which more is used is nearly full."""
MOST_NAMES_SHOWN = 8


def fleet_guarantee(answer: AnyFleet) -> str:
    """The sentence a manager understands."""
    if answer.rate <= 0:
        return "This plan gives nothing, so any other is better."
    if answer.rate_bound is None:
        return "Nothing is known about how much faster another deployment could be."
    more = "No deployment of this model on these devices is faster"
    if answer.bound_ns < answer.value_ns:
        gain = gap_words(answer.rate_bound / answer.rate - 1)
        more = f"No deployment of this model on these devices gives more than {gain} more"
    guessed = isinstance(answer, FleetPlan) and answer.problem.graph.guessed
    guess = " for these guessed costs" if guessed else ""
    how = f"proved{guess}" if answer.proof == "proved" else f"claimed{guess} by weftline's own search, not checked"
    return f"{more}: {how} ({told_bound(answer.bound_by, explain_bound(answer.bound_by))})."


def _several(ids: Sequence[str]) -> str:
    """Some names, and how many more."""
    left = len(ids) - MOST_NAMES_SHOWN
    return ", ".join(ids[:MOST_NAMES_SHOWN]) + (f" and {left} more" if left > 0 else "")


@dataclass(frozen=True, eq=False)
class FleetStory:
    """Why the rate of a fleet is what it is."""

    result: FleetResult
    guarantee: str
    rate_bound: float | None
    baselines: dict[str, float | None]
    """Name -> inputs per second."""

    @property
    def saturated(self) -> tuple[FleetUse, ...]:
        """Devices that work all the time."""
        return tuple(use for use in self.result.devices if use.saturated)

    def gain(self, name: str) -> float | None:
        """How much more the fleet gives than a baseline, as a share."""
        rate = self.baselines[name]
        return None if not rate else self.result.rate / rate - 1

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        told = {"guarantee": self.guarantee, "rate_bound": self.rate_bound}
        compared = {name: {"rate": rate, "gain": self.gain(name)} for name, rate in self.baselines.items()}
        saturated = [use.id for use in self.saturated]
        return {**told, "saturated": saturated, "baselines": compared, "binding": self.lines(), **self.result.to_json()}

    def lines(self) -> list[str]:
        """What binds, in sentences."""
        found, lines = self.result, []
        if self.saturated:
            names = _several([use.id for use in self.saturated])
            lines.append(f"{names}: busy all the time, so more inputs need less work there, or another way")
        else:
            most = max(found.devices, key=lambda use: use.busy)
            lines.append(f"no device is busy all the time; {most.id} is for {most.busy:.1%} of it")
        idle = [use.id for use in found.devices if use.busy == 0.0]
        if idle:
            lines.append(f"{_several(idle)}: does nothing in this plan")
        for (size, limit), ids in self._full().items():
            lines.append(f"{_several(ids)}: memory is nearly full, {size} of {limit}")
        for worth, ids in self._worth().items():
            more = f"raises the bound by {worth:,.6g} {found.unit} per second" if worth else "does not raise the bound"
            each = "each of them" if len(ids) > 1 else "it"
            lines.append(f"{_several(ids)}: one more second of {each} in every second {more}")
        return lines

    def _full(self) -> dict[tuple[str, str], list[str]]:
        """Memory and its limit -> devices that are nearly full."""
        found: dict[tuple[str, str], list[str]] = {}
        for use in self.result.devices:
            if use.memory_limit and use.memory_bytes is not None and use.memory_bytes > FULL_SHARE * use.memory_limit:
                key = (format_bytes(use.memory_bytes), format_bytes(use.memory_limit))
                found.setdefault(key, []).append(use.id)
        return found

    def _worth(self) -> dict[float, list[str]]:
        """What a second is worth -> devices of which it is, the dearest first."""
        found: dict[float, list[str]] = {}
        for use in sorted(self.result.devices, key=lambda use: -(use.worth or 0.0)):
            if use.worth is not None:
                found.setdefault(float(f"{use.worth:.6g}"), []).append(use.id)
        return found

    def __str__(self) -> str:
        head = f"{rate_words(self.result.rate, self.result.unit)}, {format_time(self.result.value)} per input"
        return "\n".join([head, self.guarantee, *self.lines()])


def explain_fleet(answer: AnyFleet) -> FleetStory:
    """Why the rate is what it is; the lanes are simulated again."""
    return FleetStory(simulate_fleet(answer), fleet_guarantee(answer), answer.rate_bound, dict(answer.baselines))
