"""Tests of what is left of a time limit for the search."""

from __future__ import annotations

from time import monotonic

import pytest

from weftline.ask import clock as certificate
from weftline.ask.clock import Clock, searching_time


def test_time_for_the_search() -> None:
    """Tests that what is over and what the certificate needs are taken off, but never more than half."""
    assert searching_time(None, 10**6, 5.0) is None
    assert searching_time(60.0, 0) == 60.0
    assert searching_time(60.0, 100_000, 2.0) == pytest.approx(60.0 - 2.0 - 100_000 * certificate.PER_OP)
    assert searching_time(2.0, 100_000, 50.0) == 1.0


def test_loading_counts_and_compiling_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests both sides of the border between them."""
    clock = Clock(monotonic() - 100.0, None)
    with clock.preparing():
        pass
    assert clock.spent >= 100.0
    monkeypatch.setattr(certificate, "LOADING_SECONDS", -1.0)
    begun = clock.begun
    with clock.preparing():
        pass
    assert clock.begun > begun
