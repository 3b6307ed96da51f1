"""The portfolio: classic schedules and list scheduling at once, then the period and the order of all micro-batches.

Two members work side by side while there is time: one searches the least period (`cyclic`) and then orders from other
starts, one improves explicit orders (`sequence`) from the best that anyone found. Under a work limit they take turns,
so that the result does not depend on the machine.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Thread
from time import sleep

from weftline.errors import InfeasibleError
from weftline.schedule.classic.classic import classic_schedules
from weftline.schedule.cyclic.cyclic import least_period
from weftline.schedule.list.priority import SCHEDULER as LIST
from weftline.schedule.repetend import unroll
from weftline.schedule.search import Scheduler, ScheduleSearch
from weftline.schedule.sequence.sequence import SCHEDULER as SEQUENCE
from weftline.schedule.sequence.sequence import improve
from weftline.simulate import Orders

__all__ = ["SCHEDULER", "ScheduleAutoParameters"]


@dataclass(frozen=True)
class ScheduleAutoParameters:
    """How the portfolio shares its time."""

    first_seconds: float = 3.0
    """For the period alone, and then for list rules, at most."""
    first_share_of_time: float = 0.3
    """The same, as a share of the time that is left."""
    period_share_of_time: float = 0.5
    """Of the time, for the period at most."""
    first_slice_seconds: float = field(default=1.5, metadata={"least": 0.01})
    """Length of the first improvement of orders."""
    first_slice_share_of_time: float = 0.15
    """Its least part of a given time."""
    slice_growth_factor: float = field(default=2.0, metadata={"least": 1})
    """How much longer each next improvement is."""


def _solve(search: ScheduleSearch) -> None:
    search.wants_period = True
    parameters = search.parameters(ScheduleAutoParameters)
    in_turn = search.work_limit is not None and search.time_limit is None  # then no clock matters
    if not in_turn:  # the period alone for a moment, since it is often quick
        with suppress(InfeasibleError):
            _period(search, _part(search, parameters), None)
    if search.is_over:
        return
    _offer_classics(search)
    with suppress(InfeasibleError):  # others may fit into memory where list scheduling does not
        search.run(LIST, wants_period=False, seconds=None if in_turn else _part(search, parameters))
    if search.is_over:
        return
    if in_turn:
        _in_turn(search)
    else:
        _side_by_side(search, parameters)
    if search.best is None:
        raise InfeasibleError("no method found an order within memory", conflicts=search.refused)


def _offer_classics(search: ScheduleSearch) -> None:
    for name, orders in classic_schedules(search.blocks, search.micro_batches).items():
        if search.best is None or not search.is_over:
            search.reached[name] = search.offer(orders)


def _in_turn(search: ScheduleSearch) -> None:
    assert search.work_limit is not None
    left = search.work_limit - search.offered
    _period(search, None, max(1, left // 2))
    if not search.is_over:
        own = search.fork("sequence", work=max(1, search.work_limit - search.offered), seeded=True)
        for start in _starts(search):
            improve(own, start, None)
        _note(search, "sequence", own)


def _side_by_side(search: ScheduleSearch, parameters: ScheduleAutoParameters) -> None:
    """Members work in threads; their kernels release the interpreter."""
    crash: list[BaseException] = []

    def work(member: int) -> None:
        try:
            if member == 1:
                left = search.seconds_left
                _period(search, None if left is None else parameters.period_share_of_time * left, None, 1)
            _orders(search, parameters, member)
        except InfeasibleError:
            return
        except BaseException as error:
            crash.append(error)

    members = [Thread(target=work, args=(member,), daemon=True) for member in range(2)]
    for member in members:
        member.start()
    try:
        while any(member.is_alive() for member in members):
            sleep(0.02)
    except KeyboardInterrupt:
        search.time_limit = search.seconds  # the members see that time is over
        for member in members:
            member.join(2.0)
        raise
    if crash:
        raise crash[0]


def _part(search: ScheduleSearch, parameters: ScheduleAutoParameters) -> float:
    """Seconds of a first step."""
    left = search.seconds_left
    return min(parameters.first_seconds, math.inf if left is None else parameters.first_share_of_time * left)


def _period(search: ScheduleSearch, seconds: float | None, work: int | None, again: int = 0) -> None:
    if not search.blocks.balanced or search.period_at_bound:
        return
    own = search.fork("cyclic", seconds=seconds, work=work, wants_period=True)
    own.seed += again
    try:
        least_period(own)
    finally:
        _note(search, "cyclic", own)


def _orders(search: ScheduleSearch, parameters: ScheduleAutoParameters, member: int) -> None:
    """Improve orders in longer and longer slices: first with starts of its own, then from what anyone found."""
    seconds, left, turn = parameters.first_slice_seconds, search.seconds_left, 0
    if left is not None and not search.settle:
        seconds = max(seconds, parameters.first_slice_share_of_time * left)
    while not search.is_over:
        own = search.fork("sequence", seconds=seconds, seeded=True)
        own.seed = search.seed + 1_000 * member + turn
        starts = _starts(search)
        if not starts or turn == member:  # the member that searched the period begins with the repetend
            SEQUENCE.solve(own)
        else:
            improve(own, starts[-1] if turn < member else starts[0], seconds)
        _note(search, "sequence", own)
        seconds, turn = seconds * parameters.slice_growth_factor, turn + 1


def _starts(search: ScheduleSearch) -> list[Orders]:
    """The best order, then the repetend unrolled."""
    found = [] if search.best is None else [search.best.orders]
    if search.repetend is not None:
        found.append(unroll(search.blocks, search.repetend, search.micro_batches))
    return found


def _note(search: ScheduleSearch, name: str, own: ScheduleSearch) -> None:
    """What a member reached, all its turns together."""
    values = [own.value(own.best)] if own.best is not None else []
    before = search.reached.get(name)
    search.reached[name] = min([*values, *([] if before is None else [before])], default=None)


SCHEDULER = Scheduler(
    "auto",
    "classic schedules, list scheduling, least period and best order, side by side",
    _solve,
    ScheduleAutoParameters,
)
