"""Tests of what is left of a time limit for the search."""

from __future__ import annotations

import re
from time import monotonic, sleep

import pytest
from numba.core.event import trigger_event

from weftline.ask import clock as certificate
from weftline.ask.clock import Clock, searching_time
from weftline.search import Event
from weftline.simulate.kernels.jit import Compilation


def test_time_for_the_search() -> None:
    """Tests that what is over and what the certificate needs are taken off, but never more than half."""
    assert searching_time(None, 10**6, 5.0) is None
    assert searching_time(60.0, 0) == 60.0
    assert searching_time(60.0, 100_000, 2.0) == pytest.approx(60.0 - 2.0 - 100_000 * certificate.PER_OP)
    assert searching_time(2.0, 100_000, 50.0) == 1.0


def test_loading_counts_and_compiling_does_not() -> None:
    """Tests that the time of compiling alone is taken off, and that it is announced, but not at every kernel."""
    said: list[Event] = []
    clock = Clock(monotonic() - 100.0, said.append)
    with clock.preparing():
        pass
    assert clock.spent >= 100.0
    assert said == []
    begun = clock.begun
    with clock.preparing(), trigger_event("numba:compile"):
        for _ in range(3):
            with trigger_event("numba:compile"):
                sleep(0.01)
    assert clock.begun - begun >= 0.03
    assert len(said) == 1
    assert "compiling kernels" in said[0].message


def test_how_much_is_compiled() -> None:
    """Tests that every kernel counts once, and that words name how many and how long."""
    said: list[str] = []
    with Compilation(said.append) as compiled, trigger_event("numba:compile"), trigger_event("numba:compile"):
        pass
    assert compiled.count == 2
    assert compiled.seconds > 0
    assert re.search(r"2 of about \d+, about \d+ s left", said[-1])
    with trigger_event("numba:compile"):
        pass
    assert compiled.count == 2
