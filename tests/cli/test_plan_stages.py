"""Tests of the words for stages: one number, or several to compare."""

from __future__ import annotations

import pytest

from weftline.cli.plan import read_stages
from weftline.errors import UsageError


def test_one_or_several() -> None:
    """Tests a number, auto, a sweep, and nothing."""
    assert read_stages(None, None) == (None, "")
    assert read_stages("4", None) == (4, "")
    assert read_stages("auto", None) == (None, "auto")
    assert read_stages(None, "1..8") == (None, "1..8")


@pytest.mark.parametrize(
    ("stages", "sweep"),
    [
        ("some", None),
        ("0", None),
        ("-1", None),
        ("1..3", None),
        ("", None),
        ("\u0664", None),
        ("2", "1..2"),
        ("auto", "1"),
    ],
)
def test_what_makes_no_sense(stages: str, sweep: str | None) -> None:
    """Tests that anything else is a usage error."""
    with pytest.raises(UsageError, match="--stages"):
        read_stages(stages, sweep)


def test_an_empty_sweep() -> None:
    """Tests that a sweep over nothing is not taken for no sweep."""
    with pytest.raises(UsageError, match="--sweep-stages"):
        read_stages(None, "")
