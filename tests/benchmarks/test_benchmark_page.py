"""From rows to sentences: summaries and the page, on results written by hand."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from benchmarks.render import CHAPTERS, all_pages, pivot, table, text_of
from benchmarks.results import BestKnown, ResultsFile, Row
from benchmarks.section import Column, Run, Table, fields, verdict
from benchmarks.sections import SECTIONS
from benchmarks.sections.quality import (
    better_than_baselines,
    lost_to_baselines,
    overruns,
    replica_rows,
    solver_rows,
)
from benchmarks.stats import geometric_mean

MACHINE = {
    "cpu": "abacus",
    "cores": 1,
    "memory_bytes": 2**30,
    "system": "none",
    "load_before": 0.0,
    "versions": {"weftline": "0"},
}


def row(
    instance: str, solver: str, value: int | None, best: int, *, baseline: bool = False, **more: Any
) -> dict[str, Any]:
    ratio = None if value is None or solver == "replicas" else value / best
    return {
        "family": "zoo-throughput",
        "instance": instance,
        "objective": "throughput",
        "ops": 3,
        "devices": 2,
        "reference_ns": None,
        "solver": solver,
        "baseline": baseline,
        "seed": 0,
        "seconds": None if solver == "replicas" else 0.5,
        "value_ns": value,
        "bound_ns": None if solver == "replicas" else 50,
        "bound_by": "load",
        "proof": "proved",
        "time_limit": 1.0,
        "gap": None if value is None or solver == "replicas" else (value - 50) / value,
        "stopped_by": "done",
        "note": "" if value is not None else "too large",
        "ratio": ratio,
        **more,
    }


ROWS = [
    row("a", "auto", 100, 100),
    row("a", "greedy", 400, 100, baseline=True),
    row("a", "replicas", 80, 100, baseline=True),
    row("b", "auto", 220, 200),
    row("b", "greedy", 200, 200, baseline=True),
    row("b", "replicas", None, 200, baseline=True),
    row("c", "auto", None, 60),
    row("c", "greedy", 60, 60, baseline=True),
    row("c", "replicas", 120, 60, baseline=True),
]


def stamp(**more: Any) -> dict[str, Any]:
    told = {"commit": "c0ffee", "date": "day one", "command": "python -m benchmarks", "size": "full"}
    return {**told, "seconds": 1.0, "environment": MACHINE, **more}


def sections(rows: list[dict[str, Any]] = ROWS, **more: Any) -> dict[str, Any]:
    settings = {"time_limit": 1.0, "auto_limit": 6.0, "seeds": 1}
    return {"quality": {"stamp": stamp(**more), "settings": settings, "rows": rows, "more": {}}}


def pages(given: dict[str, Any], best: BestKnown) -> str:
    """The summary and the section's own page, one after the other."""
    return "".join(all_pages(SECTIONS, given, best).values())


@pytest.fixture
def best(tmp_path: Path) -> BestKnown:
    return BestKnown(tmp_path)


def test_geometric_mean() -> None:
    """Tests that halves and doubles cancel."""
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)


def test_solver_rows() -> None:
    """Tests mean, worst case, wins and solved instances by solver, the one that solved most first."""
    greedy, auto = solver_rows(ROWS)
    assert (greedy["solver"], greedy["solved"], greedy["wins"]) == ("greedy", 3, 2)
    assert greedy["geometric_mean"] == pytest.approx(4 ** (1 / 3))
    assert (greedy["worst"], greedy["worst_instance"]) == (4.0, "a")
    assert (auto["solver"], auto["solved"], auto["instances"], auto["wins"]) == ("auto", 2, 3, 1)
    assert auto["median_gap"] == pytest.approx((0.5 + 170 / 220) / 2)


def test_lost_to_baselines() -> None:
    """Tests that each defeat by a baseline is said, and a victory is not."""
    first, second = lost_to_baselines(ROWS)
    assert first == "on b the baseline greedy beats `auto` by a factor of 1.100"
    assert "on c" in second
    assert "finds none" in second
    assert better_than_baselines(ROWS) == (1, 3)


def test_replica_rows() -> None:
    """Tests that replicas are compared with the best pipeline, also where they do not fit."""
    assert [(line["best_ns"], line["replicas_ns"], line["ratio"]) for line in replica_rows(ROWS)] == [
        (100, 80, 0.8),
        (200, None, None),
        (60, 120, 2.0),
    ]


def test_overruns() -> None:
    """Tests that two seconds over the limit are forgiven and more is not."""
    late = [row("a", "auto", 1, 1, seconds=seconds) for seconds in (1.0, 2.9, 3.5, 7.0)]
    assert overruns(late[:2]) == []
    assert overruns(late) == ["auto (throughput): 7.0 s"]


def test_page_is_deterministic(best: BestKnown) -> None:
    """Tests that the same results give the same bytes, and that rendering leaves the results alone."""
    given = sections()
    before = copy.deepcopy(given)
    assert pages(given, best) == pages(copy.deepcopy(given), best)
    assert given == before


def test_page_says_who_wins(best: BestKnown) -> None:
    """Tests that defeats by baselines and by replicas stand on the page in plain words."""
    page = pages(sections(), best)
    assert "**A baseline wins:** on b the baseline greedy beats `auto` by a factor of 1.100" in page
    assert "**Replicas beat the best pipeline on 1 of 3 instances**" in page
    assert "`auto` is strictly better than every baseline on 1 of 3 instances." in page
    assert "| b | 200 ns | does not fit | - |" in page
    assert "| c | 3 | 2 | auto | 0 | none | 50 ns | - | load | proved | 0.500 | - | too large |" in page


def test_page_shows_the_known_optimum(best: BestKnown) -> None:
    """Tests that a reference value stands beside the best plan."""
    rows = [{**one, "reference_ns": 80} for one in ROWS[:3]]
    page = pages(sections(rows), best)
    assert "| a | 80 ns | 100 ns | auto | 1.2500 |" in page
    assert "Left out, because the files are not on this machine" in page


def test_page_shows_the_commit_of_each_run(best: BestKnown) -> None:
    """Tests that every section says at which commit it was measured, and that a small run is marked as one."""
    page = pages(sections(), best)
    assert page.count("*Commit c0ffee, day one, `python -m benchmarks`, 1 s.*") == 2
    assert "A tiny run" not in page
    assert "**A tiny run" in pages(sections(size="tiny"), best)
    assert "**A quick subset.**" in pages(sections(size="quick"), best)
    assert "Nothing was measured." in pages(sections([]), best)
    assert "WEFTLINE_DATA" in pages({"fiddle": sections([])["quality"]}, best)


def test_table_escapes_bars() -> None:
    """Tests that a cell cannot break its table."""
    assert table(("x",), [("a|b\nc",)]).splitlines()[-1] == "| a\\|b c |"


def test_columns() -> None:
    """Tests fields and functions, formats of both kinds, and that what is missing is a dash."""
    columns: list[Column[Row]] = [
        Column("name", "name"),
        Column("share", lambda row: row.get("share"), ".1%"),
        Column("loud", "name", str.upper),
    ]
    block = Table(columns, text="At most {limit:g} s.", heading="Heading")
    found = text_of(
        ["In {limit:g} s:", block, lambda run: [f"{len(run.rows)} rows"]], Run([{"name": "a"}], {"limit": 2.0})
    )
    assert found[:3] == ["In 2 s:", "## Heading", "At most 2 s."]
    assert found[3].splitlines()[-1] == "| a | - | A |"
    assert found[4] == "1 rows"
    assert text_of([block], Run([], {"limit": 1.0})) == []


def test_fields() -> None:
    """Tests that a header in words gives titles, fields and formats."""
    row = {"instance": "a", "value_ns": 2_000, "seconds": 1.25, "bytes": 2**30}
    columns = fields("instance | plan=value_ns:time | max s=seconds:.1f | bytes:bytes | note")
    assert [column.title for column in columns] == ["instance", "plan", "max s", "bytes", "note"]
    assert [column.text(row) for column in columns] == ["a", "2 us", "1.2", "1 GiB", "-"]


def test_pivot() -> None:
    """Tests that each cell sees its row and its line, and that holes are dashes."""
    rows = [{"who": "a", "k": 1, "v": 2}, {"who": "a", "k": 2, "v": 4}, {"who": "b", "k": 2, "v": 3}]
    text = pivot(
        "who", rows, "who", {1: "one", 2: "two"}, lambda row: row["k"], lambda row, line: f"{row['v']}/{len(line)}"
    )
    assert text.splitlines()[2:] == ["| a | 2/2 | 4/2 |", "| b | - | 3/1 |"]


def test_verdict() -> None:
    """Tests that long lists are cut with a count, and that nothing is said about nothing."""
    assert verdict("Late", []) == []
    assert verdict("Late", ["a", "b", "c"]) == ["**Late:** a; b; c."]
    assert verdict("Late", ["a", "b", "c"], most=1) == ["**Late:** a; 2 more."]


ROOT = Path(__file__).resolve().parents[2]


def test_pages_are_what_the_results_give() -> None:
    """Tests that the summary and the page of every section in the repository are made from the results beside them."""
    file = ResultsFile(ROOT / "benchmarks" / "results")
    made = all_pages(SECTIONS, file.read(), BestKnown(file.folder))
    stale = [path for path, text in made.items() if (ROOT / "docs" / path).read_text(encoding="utf-8") != text]
    assert not stale, "run `python -m benchmarks --render`"
    there = {f"benchmarks/{path.name}" for path in (ROOT / "docs" / "benchmarks").iterdir()}
    assert there == set(made) - {"benchmarks.md"}


def test_the_summary_can_be_read() -> None:
    """Tests that the summary has at most 400 lines, a screen for every section, and a page of it in the site."""
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for section in SECTIONS.values():
        assert section.chapter in CHAPTERS
        assert f"\n### {section.title}\n" in text
        assert f"benchmarks/{section.name}.md" in site
