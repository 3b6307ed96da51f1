"""Tests of the sections on learned placement."""

from __future__ import annotations

from pathlib import Path

from benchmarks.render import text_of
from benchmarks.results import Collector
from benchmarks.section import Run
from benchmarks.sections import policy
from benchmarks.sections.learned import ABLATION, METHODS, SECTION


def test_tiny_run(tmp_path: Path) -> None:
    """Tests that every method and every part of the ablation gives a row, and that the page says who is best."""
    settings = {**SECTION.sizes["tiny"], "limit": 0.5, "ablation": 0.3}
    collect = Collector(tmp_path / "a.json", {}, resume=False)
    SECTION.measure(settings, collect)
    assert [row["method"] for row in collect.rows] == [*METHODS, *ABLATION]
    assert {row["note"] for row in collect.rows} == {""}
    values = {row["method"]: row["value_ns"] for row in collect.rows if row["part"] == "comparison"}
    assert values["best single device"] <= values["CPU only"]
    assert max(values[name] for name in ("auto", "policy", "hsdag")) <= values["best single device"]
    text = "\n".join(text_of(SECTION.blocks, Run(collect.rows, settings)))
    assert "| auto | " in text
    assert "0.00%" in text
    assert "without grouping" in text


def test_policy_page() -> None:
    """Tests means, worst cases and counts of a page with two rows."""
    rows = [
        {
            "kind": kind,
            "instance": kind,
            "ops": 5,
            "devices": 2,
            "reference_ns": 100,
            "values": {"HEFT": value},
            "policy_seconds": {"one": 0.012, "policy": 0.1},
        }
        for kind, value in (("real", 100), ("held-out family", 400))
    ]
    text = "\n".join(text_of(policy.SECTION.blocks, Run(rows)))
    assert "| HEFT | 1.000 / 1.00 (1) | 4.000 / 4.00 (1) | - | 2.000 / 4.00 (2) |" in text
    assert "12 ms" in text
