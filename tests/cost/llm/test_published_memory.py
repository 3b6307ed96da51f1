"""Tests that memory per device is what llama.cpp prints for the same model, split and context."""

from __future__ import annotations

import pytest
from benchmarks.llm.printed import MIB, printed_devices
from tests.cost.llm.models import MODELS
from tests.data import present


def test_every_printed_row() -> None:
    """Tests all rows of fit_print.csv: within 1 % or 16 MiB, weights, cache and compute apart."""
    present("llm/fit_print.csv")
    rows = list(printed_devices(MODELS))
    assert len(rows) > 50
    for row in rows:
        assert row.is_near, row
        for ours, theirs in zip(row.counted, row.printed, strict=True):
            assert ours / MIB == pytest.approx(theirs, abs=max(2, theirs / 200)), row
