"""Tests of the section on real training steps."""

from __future__ import annotations

from pathlib import Path

from benchmarks.render import text_of
from benchmarks.results import Collector
from benchmarks.section import Run
from benchmarks.sections.steps import SECTION


def test_tiny_run(tmp_path: Path) -> None:
    """Tests that a searched order is trained for real and its row drawn, and that a failure is a row too."""
    collect = Collector(tmp_path / "a.json", {}, resume=False)
    SECTION.measure(dict(SECTION.sizes["tiny"]), collect)
    (row,) = collect.rows
    assert row["note"] == ""
    assert row["difference"] <= 1e-6
    assert min(row["measured"], row["simulated"], row["busy"]) > 0
    failed = {**{name: row[name] for name in ("shape", "devices", "memory", "engine")}, "note": "no such model"}
    text = "\n".join(text_of(SECTION.blocks, Run([row, failed])))
    assert "| linear 2, memory 4 | torch | 8 | 1 |" in text
    assert "no such model" in text
