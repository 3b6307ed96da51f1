"""Why a language model is as fast as it is on its cards: where the time goes, what is full, what more room would give.

In: a FitPlan. Out: a `FitStory`: shares of the time, sentences, and the rate with a GiB more on each kind of device,
solved again. Simplified: one thing changes at a time; what a device computes is not made faster.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from weftline.errors import VerificationError
from weftline.fleet.fit import cost_segments, fit_violations, solve_fit
from weftline.plans.fit import FitPlan
from weftline.plans.fit_words import bound_sentence, moved_words, rate_words, rules_sentence
from weftline.problem.fit import FitProblem

__all__ = ["FitHelp", "FitStory", "explain_fit"]

MORE_BYTES = 2**30
LEAST_GAIN = 0.002
SHORT_SECONDS = 1.0
FULL_SHARE = 0.97


@dataclass(frozen=True)
class FitHelp:
    """One thing better, solved again."""

    what: str
    rate: float
    """Tokens per second."""


@dataclass(frozen=True)
class FitStory:
    """What decides the rate."""

    rate: float
    guarantee: str
    lines: tuple[str, ...]
    helps: tuple[FitHelp, ...]

    def to_json(self) -> dict[str, Any]:
        """As `explain --json` prints it."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join((self.guarantee, *self.lines, *(f"{one.what}: {rate_words(one.rate)}" for one in self.helps)))


def explain_fit(plan: FitPlan) -> FitStory:
    """The story; `VerificationError` for a plan that is not what its costs say."""
    problem = plan.problem
    if wrong := fit_violations(problem, plan.segments):
        raise VerificationError(f"the plan does not hold: {wrong[0]}; weftline verify says more")
    cost = cost_segments(problem, plan.segments)
    if cost.value_ns != plan.value_ns:
        raise VerificationError("the plan's time is not that of its costs; weftline verify says more")
    factor = plan.rate / problem.tokens_per_second(cost.value_ns)
    total = max(1, sum(cost.unit_ns))
    lines = []
    for segment, time in zip(plan.segments, cost.unit_ns, strict=True):
        names = ", ".join(problem.devices[device].id for device in segment.devices)
        rows = min(segment.last, problem.blocks) - segment.first
        lines.append(f"{names}: {time / total:.1%} of the time for {rows} of {problem.blocks} layers")
    full = [one for one in cost.uses if one.bytes > FULL_SHARE * one.limit_bytes]
    if full:
        lines.append(f"full: {', '.join(problem.devices[one.device].id for one in full)}")
    lines += [moved_words(move) for move in plan.moved]
    if sentence := rules_sentence(plan):
        lines.append(sentence)
    helps = _helps(problem, factor, plan.rate)
    if not helps:
        lines.append("a GiB more on any device changes nothing: what is left is speed, not room")
    return FitStory(plan.rate, bound_sentence(plan), tuple(lines), tuple(helps))


def _helps(problem: FitProblem, factor: float, rate: float) -> list[FitHelp]:
    """The rate with a GiB more on each pool of equal devices."""
    found = []
    for pool in problem.pools:
        devices = tuple(
            msgspec.structs.replace(device, limit_bytes=device.limit_bytes + MORE_BYTES * (number in pool.devices))
            for number, device in enumerate(problem.devices)
        )
        changed = msgspec.structs.replace(problem, devices=devices)
        answer = solve_fit(changed, seconds=SHORT_SECONDS, baselines=False)
        better = factor * problem.tokens_per_second(answer.value_ns)
        if better > rate * (1 + LEAST_GAIN):
            names = ", ".join(problem.devices[number].id for number in pool.devices)
            found.append(FitHelp(f"with a GiB more on {names}", better))
    return found
