"""Tests of the section on proofs: what counts as closed and proved, goals that are missed, and one row for real."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.results import Row
from tests.benchmarks.test_fleet_sections import asked, shown


def proof(name: str, kind: str = "equal devices", **more: Any) -> Row:
    """A closed plan of 100 ns whose bound is proved."""
    row = {"kind": kind, "instance": name, "stages": 4, "value_ns": 100, "bound_ns": 100, "bound_by": "pipelines"}
    row |= {"proof": "proved", "proved_ns": 100, "proved_by": "pipelines", "witness": "pipeline", "witness_bytes": 40}
    row |= {"check_seconds": 0.5, "verified": True, "note": "", "seconds": 3.0, "search_seconds": 2.0, "ops": 9}
    return {**row, "time_limit": 15.0, **more}


def test_what_is_proved_is_counted_and_what_is_not_is_named() -> None:
    """Tests shares of closed and of all bounds, missed goals, slow and large witnesses, refusals, missing plans."""
    rows = [
        proof("a"),
        proof("b", proof="claimed", proved_ns=90),
        proof("c", bound_ns=80, proof="claimed", proved_ns=60, check_seconds=11.0),
        proof("d", kind="unequal devices", stages=0, witness_bytes=200_000),
        proof("e", kind="own limits", stages=0, verified=False),
        proof("f", value_ns=None, note="nothing fits"),
    ]
    text = shown("proofs", rows, {"time_limit": 15.0})
    assert "Of all 5 best bounds **60.0%** are proved at their value (goal 80%: missed)." in text
    assert "**Goal missed for equal devices:** 1 of 2 closed ones are proved." in text
    assert "**Closed, and not proved:** b, k = 4." in text
    assert "**More than 10 s to check:** c, k = 4 (11.0 s)." in text
    assert "**Witness too large:** d." in text
    assert "**Refused by the checker as a program:** e." in text
    assert "**No plan:** f, k = 4: nothing fits." in text
    assert "| equal devices | 4 | 3 | 2 | 1 | 1 | 40 B | 0.50 | 11.00 | 25.00% |" in text
    good = shown("proofs", [proof("a"), proof("b", stages=8)], {"time_limit": 15.0})
    assert "**100.0%** are proved at their value (goal 80%: reached)" in good
    assert "Goal missed" not in good
    assert "| equal devices, k = 8 | 1 | 1 | 1 | 1 | 1 |" in good


def test_a_row_is_checked_by_plain_python(tmp_path: Path) -> None:
    """Tests one model whose bound is proved: bytes and seconds of its witness, and the file before the checker."""
    rows, _ = asked("proofs", tmp_path)
    (row,) = rows
    assert (row["kind"], row["stages"], row["proof"], row["note"]) == ("equal devices", 2, "proved", "")
    assert row["proved_ns"] == row["bound_ns"] == row["value_ns"]
    assert row["witness_bytes"] < 100
    assert row["verified"]
