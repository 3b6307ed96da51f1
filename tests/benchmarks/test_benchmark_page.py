"""From rows to sentences: summaries and the page, on results written by hand."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from benchmarks.render import render
from benchmarks.results_file import BestKnown
from benchmarks.summary import (
    better_than_baselines,
    geometric_mean,
    lost_to_baselines,
    overruns,
    replica_rows,
    solver_rows,
)
from benchmarks.table import table

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
    return {"quality": {"full": {"stamp": stamp(**more), "settings": settings, "rows": rows}}}


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
    assert render(given, best) == render(copy.deepcopy(given), best)
    assert given == before


def test_page_says_who_wins(best: BestKnown) -> None:
    """Tests that defeats by baselines and by replicas stand on the page in plain words."""
    page = render(sections(), best)
    assert "**A baseline wins:** on b the baseline greedy beats `auto` by a factor of 1.100" in page
    assert "**Replicas beat the best pipeline on 1 of 3 instances**" in page
    assert "`auto` is strictly better than every baseline on 1 of 3 instances." in page
    assert "| b | 200 ns | does not fit | - |" in page
    assert "| c | 3 | 2 | auto | 0 | none | 50 ns | - | load | proved | 0.500 | - | too large |" in page


def test_page_shows_the_known_optimum(best: BestKnown) -> None:
    """Tests that a reference value stands beside the best plan."""
    rows = [{**one, "reference_ns": 80} for one in ROWS[:3]]
    page = render(sections(rows), best)
    assert "| a | 80 ns | 100 ns | auto | 1.2500 |" in page
    assert "Left out, because the files are not on this machine" in page


def test_page_shows_the_commit_of_each_run(best: BestKnown) -> None:
    """Tests that every section says at which commit it was measured, and that a tiny run is marked as one."""
    page = render(sections(), best)
    assert "| quality | c0ffee | day one | `python -m benchmarks` | 1 | 0.0 |" in page
    assert "*Measured at commit c0ffee, day one.*" in page
    assert "A tiny run" not in page
    assert "A tiny run" in render(sections(size="tiny"), best)


def test_quick_run_stands_below_the_whole_one(best: BestKnown) -> None:
    """Tests that an older whole run of a section stays on the page beside a newer quick one."""
    settings = {"time_limit": 1.0}
    runs = {
        "full": {"stamp": stamp(commit="old"), "settings": settings, "rows": []},
        "quick": {"stamp": stamp(commit="new", size="quick"), "settings": settings, "rows": []},
    }
    page = render({"unequal": runs}, best)
    assert page.index("commit old") < page.index("### Quick subset") < page.index("commit new")
    assert "| unequal, quick subset | new |" in page


def test_table_escapes_bars() -> None:
    """Tests that a cell cannot break its table."""
    assert table(("x",), [("a|b\nc",)]).splitlines()[-1] == "| a\\|b c |"
