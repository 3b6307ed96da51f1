"""Tests of the section on measured rewards."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.render import text_of
from benchmarks.results import Collector, Row
from benchmarks.section import Run
from benchmarks.sections.measured import DUELS, METHODS, SECTION, SOLVERS, duel_interval


def test_tiny_run(tmp_path: Path) -> None:
    """Tests that every method searches for real, what was found is compared, and plans of three solvers run."""
    settings = {**SECTION.sizes["tiny"], "budget": 3}
    collect = Collector(tmp_path / "a.json", settings, resume=False)
    SECTION.measure(settings, collect)
    parts = [row["part"] for row in collect.rows]
    assert parts == ["search"] * len(METHODS) + ["duel"] * len(DUELS) + ["hetero"] * len(SOLVERS)
    for row in collect.rows:
        if row["part"] == "search":
            assert row["count"] == 3
            assert 0 < row["ratio"] < 1000
            assert row["parts"] > 1  # neither device can hold everything
        elif row["part"] == "duel":
            assert not row["note"]
            assert row["same"] or len(row["ratios"]) == settings["duel"]
        else:
            assert not row["note"]
            assert row["difference"] <= 1e-3
            assert min(row["ops"].values()) > 0
    text = "\n".join(text_of(SECTION.blocks, Run(collect.rows, settings)))
    assert "| resnet50, tight | policy-started | " in text


def test_intervals() -> None:
    """Tests that clear differences are told from noise, and that one seed's luck widens the interval."""
    ratio, low, high = duel_interval([[0.8, 0.82, 0.81, 0.79, 0.8]] * 3)
    assert low <= ratio <= high < 0.85
    assert ratio == pytest.approx(0.8)
    ratio, low, high = duel_interval([[0.8, 0.81, 0.8], [1.25, 1.24, 1.25]])
    assert low < 1 < high
    assert duel_interval([[1.0], [1.0]]) == (1.0, 1.0, 1.0)


def test_page() -> None:
    """Tests that verdicts follow from the intervals, and that failures and notes are shown."""
    search = {"part": "search", "model": "m", "case": "tight", "seed": 0, "count": 5, "failures": 1, "first": 2}
    rows: list[Row] = [
        {**search, "method": "policy-started", "ratio": 1.25, "parts": 2, "seconds": 3.0},
        {**search, "method": "random", "ratio": None, "parts": None, "seconds": 4.0},
    ]
    duel = {"part": "duel", "model": "m", "case": "tight", "seed": 0, "method": "policy-started", "same": False}
    rows += [
        {**duel, "other": "random", "ratios": [0.7, 0.71, 0.72]},
        {**duel, "other": "HEFT-started", "ratios": [0.9, 1.1, 1.0]},
        {"part": "hetero", "model": "m", "method": "hsdag", "note": "it broke"},
    ]
    settings = {"models": {"m": {"sequence": 32}}, "budget": 5, "rounds": 3, "duel": 3}
    text = "\n".join(text_of(SECTION.blocks, Run(rows, settings)))
    assert "m (sequence 32)" in text
    assert "| m, tight | policy-started | 1.250 | 2 | 2 | 1 of 5 | 3 |" in text
    assert "| m, tight | random | - | - | - | 1 of 5 | 4 |" in text
    assert "| policy-started / random | 0.710 | 0.700 to 0.720 | 0 of 1 | first is faster |" in text
    assert "policy-started against HEFT-started: 1 undecided." in text
    assert "it broke" in text
