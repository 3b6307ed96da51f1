"""After the search for a schedule: witnesses that let the checker repeat its bounds.

In: a schedule with what was claimed, its blocks, seconds. Out: the schedule with the witnesses that the checker has
accepted in this process. Simplified: what is proved is what the search claimed, or less; only a least period that
nobody had claimed may be added.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from time import monotonic
from typing import Any

import msgspec

from weftline.ask.prove_orders import MOST_ORDERED, order_tree
from weftline.certify.allowance import Allowance
from weftline.certify.check import Refusal
from weftline.certify.check_schedule import bound_of, check_schedule, has_least_period, period_bound_of
from weftline.certify.schedule_blocks import ScheduleBlocks
from weftline.errors import VerificationError
from weftline.plans.schedule import Schedule
from weftline.problem import Blocks
from weftline.problem.blocks import BlocksFile, blocks_to_file
from weftline.schedule.bounds.makespan import bound_witnesses
from weftline.schedule.bounds.period import period_witness
from weftline.search import Event

__all__ = ["ScheduleClaims", "certified", "claims_of", "prove_bounds", "with_witnesses"]

MAKER_SHARE = 0.4
"""Of the time for proofs, for trees over orders; the checker needs as long again."""
SELF_CHECKED = 200_000
"""Operations up to which a schedule is checked before it is handed out."""

_Say = Callable[[str], None]
Form = dict[str, Any]


@dataclass(frozen=True)
class ScheduleClaims:
    """What a search says: no schedule has a value below `bound`, no pattern a period below `period_bound`."""

    blocks: Blocks
    form: Form
    """The fields of sched.json that bounds are about: blocks, objective, micro_batches, repetend, period_exact."""
    value: int
    """Of the schedule that was found."""
    bound: int
    period_bound: Fraction


def claims_of(
    blocks: Blocks,
    objective: str,
    micro_batches: int,
    repetend: tuple[int, Fraction] | None,
    value: int,
    bounds: tuple[int, Fraction],
) -> ScheduleClaims:
    """The same of blocks; `repetend` is its number of micro-batches and its period, `bounds` of value and period."""
    size, period = (0, Fraction(0)) if repetend is None else repetend
    form = {
        "blocks": msgspec.to_builtins(msgspec.convert(blocks_to_file(blocks), BlocksFile)),
        "objective": objective,
        "micro_batches": micro_batches,
        "repetend": None if repetend is None else {"micro_batches": size},
        "period_exact": str(period),
    }
    return ScheduleClaims(blocks, form, value, *bounds)


def prove_bounds(claims: ScheduleClaims, seconds: float, say: _Say = lambda _: None) -> Form:
    """Witnesses that the checker has accepted, as far as the seconds go."""
    until, found = monotonic() + seconds, Form()
    for prove in (_prove_bound, _prove_period_bound, _prove_period):
        if monotonic() < until:
            form = {**claims.form, "witnesses": found}
            try:
                found |= prove(claims, form, Allowance(until - monotonic()), say)
            except Refusal:  # too much work for the checker: it stays a claim
                continue
    return found


def with_witnesses(
    made: Schedule, blocks: Blocks, seconds: float, on_event: Callable[[Event], None] | None = None
) -> Schedule:
    """A schedule with witnesses for what it claims."""
    if seconds <= 0:
        return made
    begun = monotonic()

    def say(text: str) -> None:
        if on_event is not None:
            on_event(Event(monotonic() - begun, "proof", None, None, text))

    size = 0 if made.repetend is None else made.repetend.micro_batches
    repetend = (size, Fraction(made.period_exact)) if size else None
    bounds = made.bound, Fraction(made.period_bound_exact)
    claims = claims_of(blocks, made.objective, made.micro_batches, repetend, made.value, bounds)
    found = prove_bounds(claims, seconds, say)
    if not found:
        return made
    target = found.get("bound", {}).get("target", 0)
    if target > made.bound:
        gap = (made.value - target) / made.value
        made = msgspec.structs.replace(made, bound=target, bound_by="orders", gap=gap)
    if "period" in found and not made.period_proved:
        made = msgspec.structs.replace(made, period_proved=True, period_proof=_LEAST.format(size=size))
    return msgspec.structs.replace(made, witnesses=found)


_LEAST = "the least of all repetends of {size} micro-batches: no cycle has a ratio between it and the bound"


def _prove_bound(claims: ScheduleClaims, form: Form, allowance: Allowance, say: _Say) -> Form:
    """The bound of makespan or device span, where loads alone say less; and more by a tree over orders."""
    proved, found = bound_of(form), Form()
    spans, count = form["objective"] == "device-span", form["micro_batches"]
    if form["objective"] == "latency":
        return {}
    if proved < claims.bound:
        say("proving the bound of all micro-batches")
        for value, witness in bound_witnesses(claims.blocks, count, device_span=spans):
            again = bound_of({**form, "witnesses": {"bound": witness}}, allowance) if value > proved else 0
            if again > proved:
                proved, found = again, {"bound": witness}
                break
    if proved >= claims.value or spans or count * claims.blocks.n > MOST_ORDERED:
        return found
    return _by_orders(claims, form, proved, allowance, say) or found


def _by_orders(claims: ScheduleClaims, form: Form, proved: int, allowance: Allowance, say: _Say) -> Form:
    """A tree that refutes everything below the value; else what is claimed, else the most that can be refuted."""
    blocks, count = ScheduleBlocks(form["blocks"]), form["micro_batches"]
    until, found = monotonic() + MAKER_SHARE * allowance.left, Form()
    low, high, target = proved, claims.value, claims.value
    while low < high and (left := until - monotonic()) > 0:
        say(f"proving that no order ends before {target}")
        tree = order_tree(blocks, count, target, left / 2)
        if tree is None:
            high = target - 1
            target = claims.bound if low < claims.bound < target else (low + high + 1) // 2
            continue
        low, found = target, {"bound": {"kind": "orders", "target": target, "tree": tree}}
        target = (low + high + 1) // 2
    if found:
        bound_of({**form, "witnesses": found}, allowance)  # refuses what does not hold
    return found


def _prove_period_bound(claims: ScheduleClaims, form: Form, allowance: Allowance, say: _Say) -> Form:
    """The bound of the period, where it is not the largest load."""
    load, claimed = period_bound_of(form), claims.period_bound
    if load >= claimed:
        return {}
    say("proving the bound of the period")
    witness = period_witness(claims.blocks)
    proved = load if witness is None else period_bound_of({**form, "witnesses": {"period_bound": witness}}, allowance)
    return {"period_bound": witness} if proved > load else {}


def _prove_period(claims: ScheduleClaims, form: Form, allowance: Allowance, say: _Say) -> Form:
    """That no pattern as large as the repetend is faster, where no bound says so."""
    if form["repetend"] is None or has_least_period(form, allowance):
        return {}
    for kind in ("between", "linear"):
        witness = {"kind": kind}
        try:
            if has_least_period({**form, "witnesses": {**form["witnesses"], "period": witness}}, allowance):
                return {"period": witness}
        except Refusal:
            continue
    return {}


def certified(made: Schedule) -> Schedule:
    """`proved` where the checker finds the same bound; and it must accept the whole."""
    form = msgspec.to_builtins(made)
    if made.micro_batches * len(made.blocks.blocks) > SELF_CHECKED:
        proved = bound_of(form)
    else:
        try:
            proved = check_schedule(form).proved_bound  # what its own checker refuses never leaves this room
        except Refusal as refusal:
            raise VerificationError(f"the answer of {made.solver} does not hold: {refusal}") from refusal
    return msgspec.structs.replace(made, proof="proved" if proved >= made.bound else "claimed")
