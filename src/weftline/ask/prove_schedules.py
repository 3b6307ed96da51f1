"""After the search for a schedule: witnesses that let the checker repeat its bounds.

In: a schedule with what was claimed, its blocks, seconds. Out: the schedule with the witnesses that the checker has
accepted in this process. Simplified: what is proved is what the search claimed, or less; only a least period that
nobody had claimed may be added.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from time import monotonic
from typing import Any

import msgspec

from weftline.certify.allowance import Allowance
from weftline.certify.check import Refusal
from weftline.certify.check_schedule import bound_of, check_schedule, has_least_period, period_bound_of
from weftline.errors import VerificationError
from weftline.plans.schedule import Schedule
from weftline.problem import Blocks
from weftline.schedule.bounds.makespan import bound_witnesses
from weftline.schedule.bounds.period import period_witness
from weftline.search import Event

__all__ = ["certified", "with_witnesses"]

SELF_CHECKED = 200_000
"""Operations up to which a schedule is checked before it is handed out."""

_Say = Callable[[str], None]
Form = dict[str, Any]


def with_witnesses(
    made: Schedule, blocks: Blocks, seconds: float, on_event: Callable[[Event], None] | None = None
) -> Schedule:
    """The same with witnesses, as far as the seconds go."""
    if seconds <= 0:
        return made
    begun = monotonic()

    def say(text: str) -> None:
        if on_event is not None:
            on_event(Event(monotonic() - begun, "proof", None, None, text))

    until = begun + seconds
    parts = msgspec.structs.replace(made, actions=())
    form: Form = {name: msgspec.to_builtins(getattr(parts, name)) for name in ("blocks", "repetend")}
    form |= {"objective": made.objective, "micro_batches": made.micro_batches, "period_exact": made.period_exact}
    found: Form = {}
    for prove in (_prove_bound, _prove_period_bound, _prove_period):
        if monotonic() < until:
            try:
                found |= prove(made, blocks, {**form, "witnesses": found}, Allowance(until - monotonic()), say)
            except Refusal:  # too much work for the checker: it stays a claim
                continue
    if not found:
        return made
    if "period" in found and not made.period_proved:
        size = form["repetend"]["micro_batches"]
        made = msgspec.structs.replace(made, period_proved=True, period_proof=_LEAST.format(size=size))
    return msgspec.structs.replace(made, witnesses=found)


_LEAST = "the least of all repetends of {size} micro-batches: no cycle has a ratio between it and the bound"


def _prove_bound(made: Schedule, blocks: Blocks, form: Form, allowance: Allowance, say: _Say) -> Form:
    """The bound of makespan or device span, where loads alone say less."""
    simple = bound_of(form)
    if made.objective == "latency" or simple >= made.bound:
        return {}
    say("proving the bound of all micro-batches")
    for value, witness in bound_witnesses(blocks, made.micro_batches, device_span=made.objective == "device-span"):
        if value > simple and bound_of({**form, "witnesses": {"bound": witness}}, allowance) > simple:
            return {"bound": witness}
    return {}


def _prove_period_bound(made: Schedule, blocks: Blocks, form: Form, allowance: Allowance, say: _Say) -> Form:
    """The bound of the period, where it is not the largest load."""
    load, claimed = period_bound_of(form), Fraction(made.period_bound_exact)
    if load >= claimed:
        return {}
    say("proving the bound of the period")
    witness = period_witness(blocks)
    proved = load if witness is None else period_bound_of({**form, "witnesses": {"period_bound": witness}}, allowance)
    return {"period_bound": witness} if proved > load else {}


def _prove_period(made: Schedule, blocks: Blocks, form: Form, allowance: Allowance, say: _Say) -> Form:
    """That no pattern as large as the repetend is faster, where no bound says so."""
    if made.repetend is None or has_least_period(form, allowance):
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
    proved = bound_of(msgspec.to_builtins(made)) >= made.bound
    made = msgspec.structs.replace(made, proof="proved" if proved else "claimed")
    if made.micro_batches * len(made.blocks.blocks) > SELF_CHECKED:
        return made
    try:
        check_schedule(msgspec.to_builtins(made))  # what its own checker refuses never leaves this room
    except Refusal as refusal:
        raise VerificationError(f"the answer of {made.solver} does not hold: {refusal}") from refusal
    return made
