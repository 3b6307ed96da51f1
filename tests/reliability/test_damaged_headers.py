"""Tests that damaged headers of language models give an error and cost little: WEFTLINE_HEADERS=20000 reads many."""

from __future__ import annotations

import os

import pytest
from reliability.fuzz import read_inputs

HEADERS = int(os.environ.get("WEFTLINE_HEADERS", "150"))
MOST_SECONDS, MOST_BYTES = 2.0, 300 * 2**20
MANY = 1000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reader", "share"), [("GGUF", 1.0), ("model weights", 1.0), ("index of weights", 0.25), ("config.json", 0.5)]
)
def test_damaged_headers_are_refused(reader: str, share: float) -> None:
    """Tests that every input gives a model or an InputError, and none takes 300 MB; of many, none takes 2 s."""
    count = int(HEADERS * share)
    row = read_inputs(reader, 0, count)
    assert row["inputs"] == count == row["accepted"] + row["refused"], row["failures"]
    assert row["refused"] > count // 4
    assert row["peak"] < MOST_BYTES
    if count > MANY:
        assert row["slowest"] < MOST_SECONDS
