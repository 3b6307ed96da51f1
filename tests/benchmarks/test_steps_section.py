"""Tests of the section on real training steps."""

from __future__ import annotations

from pathlib import Path

from benchmarks.render_steps import steps_sections
from benchmarks.results_file import Collector
from benchmarks.steps import measure_steps, steps_settings


def test_tiny_run(tmp_path: Path) -> None:
    """Tests that a searched order is trained for real and its row drawn, and that a failure is a row too."""
    collect = Collector(tmp_path / "a.json", {}, resume=False)
    measure_steps(steps_settings("tiny", None), collect)
    (row,) = collect.rows
    assert row["note"] == ""
    assert row["difference"] <= 1e-6
    assert min(row["measured"], row["simulated"], row["busy"]) > 0
    failed = {**{name: row[name] for name in ("shape", "devices", "memory", "engine")}, "note": "no such model"}
    text = "\n".join(steps_sections({"rows": [row, failed]}))
    assert "| linear 2, memory 4 | torch | 8 | 1 |" in text
    assert "no such model" in text
