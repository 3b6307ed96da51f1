"""Tests of the section that runs splits of language models by llama.cpp itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.render import text_of
from benchmarks.results import Collector, Row
from benchmarks.section import Run
from benchmarks.sections import SECTIONS
from tests.e2e.llamacpp import llamacpp

SETTINGS = SECTIONS["llamacpp"].sizes["tiny"]


def shown(rows: list[Row]) -> str:
    """All that the section says of rows."""
    section, run = SECTIONS["llamacpp"], Run(rows, SETTINGS)
    return "\n".join([*text_of((*section.screen, *section.blocks), run), *section.losses(run)])


def row(name: str, plan: float, even: float, fit: float) -> Row:
    """A model of 11 rows."""
    rates = {"plan": plan, "even split": even, "--fit": fit}
    layers = {"plan": [8, 3], "even split": [5, 6], "--fit": [6, 5]}
    return {"model": name, "alone": [40.0, 20.0], "layers": layers, "rates": rates, "predicted": 30.0}


def test_gains_and_defeats() -> None:
    """Tests the verdict, and that a split that lost and a wrong prediction are named."""
    text = shown([row("a", 30.0, 20.0, 25.0), row("b", 24.0, 26.0, 20.0)])
    assert "1.05 times as fast" in text
    assert "least 0.92" in text
    assert "Slower than another split:** b -7.7%" in text
    assert "15 % off:** b +25%" in text
    assert "30.0 (8, 3)" in text


@pytest.mark.slow
def test_tiny_run(tmp_path: Path) -> None:
    """Tests that layers are where the plan has them, that --fit has a split of its own, and that all make tokens."""
    llamacpp()
    collect = Collector(tmp_path / "partial.json", SETTINGS, resume=False)
    SECTIONS["llamacpp"].measure(SETTINGS, collect)
    (found,) = collect.rows
    assert found["layers"]["even split"] == [15, 16]
    assert [sum(counts) for counts in found["layers"].values()] == [31, 31, 31]
    assert min(found["rates"].values()) > 0
    assert "smollm2-135m q4_0" in shown([found])
