"""Tests of what a search of schedules keeps, proves and passes on."""

from __future__ import annotations

from dataclasses import fields
from fractions import Fraction

import numpy as np
import pytest

from weftline.errors import InfeasibleError
from weftline.schedule import ScheduleSearch, schedulers
from weftline.schedule.list.priority import ListParameters
from weftline.schedule.make_blocks import make_shape
from weftline.schedule.repetend import repetend_of_starts

BLOCKS = make_shape("vshape", 2)
PATTERN = repetend_of_starts(BLOCKS, 1, Fraction(4), [Fraction(s) for s in (0, 1, 2, 5)])
SLOW = repetend_of_starts(BLOCKS, 1, Fraction(8), [Fraction(s) for s in (0, 1, 2, 5)])
ONE_BY_ONE = [np.array([0, 3, 4, 7]), np.array([1, 2, 5, 6])]


def test_the_best_order_within_memory_is_kept() -> None:
    """Tests that a better order replaces a worse one, and that one over the limit is refused with a reason."""
    search = ScheduleSearch(BLOCKS, 2)
    assert search.offer(ONE_BY_ONE) == 16
    assert search.offer_repetend(PATTERN) == 12
    assert search.offer(ONE_BY_ONE) == 16
    assert search.best is not None
    assert search.best.makespan == 12
    tight = ScheduleSearch(BLOCKS.with_memory(1), 2)
    assert tight.offer_repetend(PATTERN) is None
    assert "memory" in tight.refused[0]
    assert tight.repetend is None


def test_a_period_at_its_bound_is_proved() -> None:
    """Tests that proof follows from the bound, whichever comes first, and ends when a better pattern comes."""
    search = ScheduleSearch(BLOCKS, 2)
    search.offer_repetend(SLOW)
    search.prove_period("least of its class")
    assert search.period_proved
    search.offer_repetend(PATTERN)
    assert not search.period_proved
    search.offer_period_bound(Fraction(4), "load")
    assert search.period_proved
    assert "load" in search.proof


def test_forks_pass_everything_on() -> None:
    """Tests that what a member finds reaches the whole, counts as work, and that proofs follow the pattern."""
    whole = ScheduleSearch(BLOCKS, 2, work_limit=5)
    whole.offer_period_bound(Fraction(2), "none")
    own = whole.fork("member", wants_period=True)
    own.offer_repetend(SLOW)
    own.prove_period("exact")
    assert whole.repetend is SLOW
    assert whole.proof == "exact"
    assert whole.offered == own.offered == 1
    whole.offer_repetend(PATTERN)
    own.prove_period("again")
    assert not whole.period_proved


def test_a_gap_that_was_asked_for_ends_the_search() -> None:
    """Tests that whoever asks for a gap of the value does not wait for the period."""
    search = ScheduleSearch(BLOCKS, 2, wants_period=True, gap=0.1)
    search.offer_bound(11, "load")
    search.offer_period_bound(Fraction(3), "load")
    search.offer_repetend(PATTERN)
    assert search.stopped_by == "gap"


def test_it_is_over_when_value_and_period_are_known() -> None:
    """Tests that a search for the period goes on after the best order is found, and one for the order does not."""
    for wants in (False, True):
        search = ScheduleSearch(BLOCKS, 2, wants_period=wants)
        search.offer_bound(12, "load")
        search.offer_period_bound(Fraction(3), "load")
        search.offer_repetend(PATTERN)
        assert search.is_over is not wants
    search.prove_period("least of its class")
    assert not search.is_over
    search.offer_period_bound(Fraction(4), "memory")
    assert search.is_over
    assert search.stopped_by == "optimal"


def test_settings_reach_a_scheduler_and_not_its_members() -> None:
    """Tests that numbers which the user sets are read, and that forks keep the defaults of their own classes."""
    blocks = make_shape("linear", 3).with_memory(6)
    known = schedulers()
    few, many = (ScheduleSearch(blocks, 4, options=options) for options in ({"offered_orders": "1"}, {}))
    for search in (few, many):
        known["list"].solve(search)
    assert few.offered < many.offered
    assert few.fork("list").parameters(ListParameters) == ListParameters()
    impossible = ScheduleSearch(make_shape("linear", 3).with_memory(1), 4, options={"most_operations": "1"})
    with pytest.raises(InfeasibleError, match="at most 1 operations"):
        known["full"].solve(impossible)
    for name in ("auto", "cyclic", "sequence", "list", "full", "least-latency"):
        kind = known[name].parameters
        assert kind is not None
        assert kind() == ScheduleSearch(blocks, 4).parameters(kind), name
        assert set(known[name].takes) == {field.name for field in fields(kind)}, name
