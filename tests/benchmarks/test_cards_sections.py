"""Tests of the sections on language models: plans for boxes of cards, and estimates against published numbers."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from benchmarks.llm.choices import Choice, Split
from benchmarks.llm.regression import bounded_fit
from benchmarks.llm.rows import measured_rows
from benchmarks.llm.write import TABLE, all_constants, as_csv
from benchmarks.render import text_of
from benchmarks.results import Collector, Row
from benchmarks.section import Run
from benchmarks.sections import SECTIONS
from tests.data import present


def shown(name: str, rows: list[Row]) -> str:
    """All that a section says of rows."""
    section = SECTIONS[name]
    run = Run(rows, section.sizes["full"])
    return "\n".join([*text_of((*section.screen, *section.blocks), run), *section.losses(run)])


def measured(name: str, size: str, folder: Path) -> list[Row]:
    """The rows of a run of a section."""
    settings = SECTIONS[name].sizes[size]
    collect = Collector(folder / "partial.json", settings, resume=False)
    SECTIONS[name].measure(settings, collect)
    return collect.rows


def plan_row(model: str, rate: float, even: float | None, gap: float = 0.0, seconds: float = 0.1) -> Row:
    """A plan on a box."""
    others = {"one-card": rate / 2, "even": even, "free-memory": rate, "llamacpp-fit": rate}
    about = {"low": rate * 0.8, "high": rate * 1.3, "proved_gap": gap, "layers": "gpu0 9", "seconds": seconds}
    return {"box": "b", "model": model, "rate": rate, **about, **others}


def test_gains_and_misses_of_plans() -> None:
    """Tests that gains are means over what fits, and that every miss of a goal is named."""
    text = shown("cards", [plan_row("good", 20.0, 10.0), plan_row("other", 10.0, None)])
    assert "2.00 (1 do not fit)" in text
    assert "2 plans, 2 of them proved" in text
    assert "**" not in text
    text = shown("cards", [plan_row("slow", 10.0, 11.0, seconds=4.0), plan_row("far", 10.0, 5.0, gap=0.02)])
    assert "A simple split is better:** slow on b" in text
    assert "Not proved within 1 %:** far on b" in text
    assert "Longer than 3 s:** slow on b" in text


def test_plans_of_a_box(tmp_path: Path) -> None:
    """Tests a tiny run: one model is best on one card, one has no place."""
    small, large = measured("cards", "tiny", tmp_path)
    assert small["rate"] == small["one-card"] > small["even"]
    assert small["proved_gap"] == 0
    assert small["layers"] == "gpu0 33"
    assert large["rate"] is None
    assert "does not fit" in shown("cards", [small, large])


def test_misses_of_estimates() -> None:
    """Tests that errors above the goals, thin intervals, other parameters and slower splits are named."""
    about = {"class": "cards of some kind", "family": "float", "grade": "A", "rows": 9, "devices": 2}
    errors = {"median": 0.13, "ninety": 0.3, "covered": 0.8, "covered_held_out": None}
    splits = [{"name": "A", "measured": 4.0, "estimated": 5.0}, {"name": "B", "measured": 5.0, "estimated": None}]
    text = shown(
        "estimates",
        [
            {"what": "parameters", "model": "m", "counted": 1000, "published": 1010},
            {"what": "decode", **about, **errors},
            {"what": "prefill", **about, **errors},
            {"what": "choice", "group": "g", "of": "m", "splits": splits, "chosen": "A", "share": 0.8},
        ],
    )
    assert "Other parameters:** m -10" in text
    assert "Decode: median above 12%:** cards of some kind float 13%" in text
    assert "Decode: 90 % above 26 %" in text
    assert "Prefill: fewer than 85 %" in text
    assert "Prefill: median" not in text
    assert "Chosen a slower split:** g 80%" in text
    assert "B: 5.00 (-)" in text


def test_what_has_no_plan_is_never_chosen() -> None:
    """Tests that the least estimate is chosen, and its measured rate compared with the best."""
    choice = Choice("g", "m", (Split("a", 10.0, 7), Split("b", 9.6, 5), Split("c", 8.0, None)))
    assert choice.chosen.name == "b"
    assert choice.share == pytest.approx(0.96)
    assert choice.is_good


def test_estimates_against_published_numbers(tmp_path: Path) -> None:
    """Tests what the estimates promise: exact parameters, memory, errors of decode and prefill, and
    that the costs choose a split within 5 % of the best in three of four comparisons."""
    present("llm/measured.csv")
    rows = measured("estimates", "full", tmp_path)
    run = Run(rows)
    assert sum(row["counted"] == row["published"] for row in run.of(what="parameters")) >= 18
    assert all(row["near"] == row["lines"] for row in run.of(what="memory"))
    decode, prefill = run.of(what="decode", grade="A"), run.of(what="prefill", grade="A")
    assert max(row["median"] for row in decode) <= 0.12
    assert max(row["median"] for row in prefill) <= 0.25
    assert min(row["covered_held_out"] for row in decode) >= 0.85
    chosen = run.of(what="choice")
    assert sum(row["share"] >= 0.95 for row in chosen) >= 0.75 * len(chosen)
    assert "58 of 58 lines" in shown("estimates", rows)


def test_the_table_of_constants_is_what_the_script_writes() -> None:
    """Tests that the constants of the product follow from the published measurements and the catalogues as they are."""
    present("llm/measured.csv")
    made, kept = (
        list(csv.reader(text.splitlines()))
        for text in (as_csv(all_constants(measured_rows())), TABLE.read_text(encoding="utf-8"))
    )
    assert [row[:2] for row in made] == [row[:2] for row in kept]
    for ours, theirs in zip(made[1:], kept[1:], strict=True):
        assert [float(cell) for cell in ours[2:]] == pytest.approx([float(cell) for cell in theirs[2:]], rel=1e-3)


def test_columns_that_rows_say_nothing_of_keep_their_limit() -> None:
    """Tests that a fixed column stays at its limit, though another value would fit better."""
    terms = np.array([[1.0, 1.0], [2.0, 1.0], [3.0, 1.0]])
    times = terms @ np.array([2.0, 5.0])
    ones = np.ones(3)
    assert bounded_fit(terms, times, [1.0, 1.0], ones) == pytest.approx([2.0, 5.0])
    assert bounded_fit(terms, times, [1.0, 1.0], ones, (1,))[1] == 1.0
