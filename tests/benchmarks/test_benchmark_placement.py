"""The sections on placement: which instances they ask, how plans are costed again, and what the page says."""

from __future__ import annotations

from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.measure import searched
from benchmarks.render import text_of
from benchmarks.results import BestKnown, Collector, Row
from benchmarks.section import Run
from benchmarks.sections import SECTIONS, placement
from benchmarks.sections.fusion import cost_again, kernels_cut
from benchmarks.sections.placement import FILES, measure, questions
from benchmarks.sections.placement_verdicts import (
    against,
    better_bounds,
    compared_again,
    contradictions,
    defeats,
    first_runs,
    mean_ratio,
    winner,
    wins,
)

from weftline.ask.questions import lower_bounds
from weftline.latency import solvers
from weftline.reduce import Fusion
from weftline.search import Search, Solver
from weftline.simulate import Timeline, simulate_latency
from weftline.testing import random_problem
from weftline.zoo import architectures


def row(model: str, solver: str, value: int | None, **more: Any) -> dict[str, Any]:
    return {
        "preset": "laptop",
        "model": model,
        "instance": f"{model} on laptop",
        "solver": solver,
        "baseline": solver in ("heft", "single-device"),
        "ops": 10,
        "devices": 2,
        "time_limit": 1.0,
        "seconds": 0.5,
        "value_ns": value,
        "bound_ns": 90_000,
        "bound_by": "load",
        "proof": "proved",
        "stopped_by": "time",
        "note": "" if value is not None else "too large",
        "problem": model,
        "reference_ns": None,
        **more,
    }


def settings(name: str, size: str, time_limit: float | None = None) -> Row:
    return SECTIONS[name].settings(size, Namespace(time_limit=time_limit))


def page(name: str, rows: list[Row], best: BestKnown | None = None) -> list[str]:
    return text_of(SECTIONS[name].blocks, Run(rows, {"size": "full"}, best=best or BestKnown()))


ROWS = [
    row("a", "auto", 100_000),
    row("a", "single-device", 400_000),
    row("a", "heft", 200_000),
    row("b", "auto", 110_000),
    row("b", "single-device", 110_000),
    row("b", "heft", 100_000),
    row("c", "auto", 100_000),
    row("c", "single-device", None),
    row("c", "heft", 99_999),
]


def test_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that every model meets every preset once, and that files of others are optional."""
    monkeypatch.setenv("WEFTLINE_DATA", str(tmp_path))
    found = questions(settings("placement", "full"))
    assert len({question.instance for question in found}) == len(found) == 4 * len(architectures())
    (tmp_path / "moirai").mkdir()
    (tmp_path / "moirai" / "example-1.json").write_text("{}")
    first = questions(settings("placement", "full"))[0]
    assert (first.preset, first.instance, first.reference_ns) == (FILES, "example-1", 30 * 10**9)


def test_settings() -> None:
    """Tests that a time limit that is asked for holds everywhere."""
    assert settings("placement", "quick", 2.0)["time_limit"] == 2.0
    assert settings("fusion", "full", 2.0)["time_limit"] == 2.0
    assert set(settings("placement-scale", "full", 2.0)["sizes"].values()) == {2.0}
    assert settings("scale", "full")["sizes"]["100000"] == 120.0


def test_a_broken_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that rows are kept by instance and solver: what was measured is not measured again."""
    asked: list[str] = []

    def solve(name: str, search: Search) -> None:
        asked.append(name)
        search.offer(np.zeros(len(search.problem.graph.ops), np.int32))

    monkeypatch.setattr(placement, "prepare", lambda: None)
    known = {name: Solver(name, "", partial(solve, name)) for name in ("one", "two")}
    asked_for = {**settings("placement", "tiny"), "files": []}
    for names in (("one",), ("one", "two")):
        monkeypatch.setattr(placement, "solvers", lambda names=names: {name: known[name] for name in names})
        collect = Collector(tmp_path / "partial.json", asked_for, resume=True)
        measure(asked_for, collect)
    assert asked == ["one", "two"]
    assert [(one["solver"], one["instance"], one["note"]) for one in collect.rows] == [
        ("one", "unet on laptop", ""),
        ("two", "unet on laptop", ""),
    ]
    assert collect.rows[0]["bound_ns"] <= collect.rows[0]["value_ns"]


def test_defeats_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that `auto` and the best run again, in turn, where `auto` was behind, and only there."""
    asked: list[str] = []

    def solve(name: str, device: int, search: Search) -> None:
        asked.append(name)
        search.offer(np.full(len(search.problem.graph.ops), device, np.int32))

    monkeypatch.setattr(placement, "prepare", lambda: None)
    asked_for = {**settings("placement", "tiny"), "files": []}
    values = []
    for mine, other in ((1, 0), (0, 1)):
        known = {"auto": partial(solve, "auto", mine), "other": partial(solve, "other", other)}
        fakes = {name: Solver(name, "", each) for name, each in known.items()}
        monkeypatch.setattr(placement, "solvers", lambda fakes=fakes: fakes)
        collect = Collector(tmp_path / f"{mine}.json", asked_for, resume=False)
        measure(asked_for, collect)
        values.append([row["value_ns"] for row in collect.rows])
        assert [row["solver"] for row in first_runs(collect.rows)] == ["auto", "other"]
        if mine == 0:
            assert compared_again(collect.rows) == []
        else:
            (text,) = compared_again(collect.rows)
            assert text.startswith("unet on laptop: `auto` ")
            assert text.endswith("% worse than other (behind in 3 of 3 runs)")
    assert asked == ["auto", "other", *["other", "auto"] * 3, "auto", "other"]
    assert values[0] == [values[0][0], values[0][1], *[values[0][1], values[0][0]] * 3]
    assert values[1] == [values[0][1], values[0][0]]


def test_what_the_page_says_of_runs_again() -> None:
    """Tests medians, and that these rows count nowhere else."""
    again = [
        row("b", name, value, again=turn)
        for turn, (mine, theirs) in enumerate(((90_000, 100_000), (99_000, 100_000), (200_000, 1)), 1)
        for name, value in (("heft", theirs), ("auto", mine))
    ]
    assert compared_again([*ROWS, *again]) == ["b on laptop: `auto` 1.000% better than heft (behind in 1 of 3 runs)"]
    assert winner(ROWS[3:6]) == "heft"
    assert winner(ROWS[:3]) is None
    assert winner(ROWS[6:]) is None  # by less than the gap at which a search stops
    with_them, without = (page("placement", rows) for rows in ([*ROWS, *again], ROWS))
    (more,) = [part for part in with_them if part not in without]
    assert more.endswith("alone: b on laptop: `auto` 1.000% better than heft (behind in 1 of 3 runs).")
    assert len(with_them) == len(without) + 1


def test_searched() -> None:
    """Tests that values are noted with their time, and that a crash or an empty answer costs nothing but a note."""
    problem = random_problem(3, "latency", max_ops=5)

    def crash(search: Search) -> None:
        raise ZeroDivisionError

    ask = partial(searched, problem, time_limit=1.0, bound=lower_bounds(problem)[0])
    done = ask(solvers()["heft"])
    assert done.search.best is not None
    assert done.found[-1][1] == done.search.best.value
    assert done.seconds_within(0.0) == done.found[-1][0]
    assert ask(Solver("broken", "", crash)).note == "crashed: ZeroDivisionError"
    nothing = ask(Solver("idle", "", lambda search: None))
    assert (nothing.note, nothing.seconds_within(0.1)) == ("no plan", None)


def test_cost_again() -> None:
    """Tests that a plan under its own times is never worse than it was, and that cut kernels are counted."""
    problem = random_problem(3, "latency", max_ops=5)
    done = searched(problem, solvers()["heft"], time_limit=1.0, bound=lower_bounds(problem)[0])
    assert isinstance(done.search.best, Timeline)
    again = cost_again(problem, done.search.best)
    assert again is not None
    assert again <= done.search.best.value
    assert again <= simulate_latency(problem, done.search.best.placement).value
    fusion = Fusion(np.array([0, 0, 1], np.int32), np.zeros((3, 2), np.int32), "hand")
    assert kernels_cut(fusion, np.array([0, 1, 1], np.int32)) == 1
    assert kernels_cut(fusion, np.array([1, 1, 0], np.int32)) == 0


def test_summary() -> None:
    """Tests means, wins and speed-ups, over the instances on which both have a plan."""
    assert mean_ratio(ROWS, "single-device") == pytest.approx(2.0)
    assert mean_ratio(ROWS, "nobody") is None
    assert [wins(ROWS, solver) for solver in ("auto", "heft", "single-device")] == [1, 2, 0]
    found = against(ROWS, "single-device")
    assert found is not None
    assert (found["count"], found["most"], found["most_where"], found["alone"]) == (2, 4.0, "a on laptop", 1)
    assert against(ROWS, "nobody") is None


def test_defeats() -> None:
    """Tests that every strict defeat is said, a slight one apart, and no plan is the worst defeat."""
    clear, slight = defeats(ROWS, lambda one: True)
    assert clear == ["b on laptop: heft by 10.000%"]
    assert slight == ["c on laptop: heft by 0.001%"]
    assert defeats(ROWS, lambda one: one["solver"] == "single-device") == ([], [])
    clear, _ = defeats([row("a", "auto", None), row("a", "heft", 1)], lambda one: True)
    assert clear == ["a on laptop: heft finds a plan, `auto` finds none"]


def test_better_bounds() -> None:
    """Tests that a solver that proves more than `auto` is named, unless it is hardly more."""
    assert better_bounds([*ROWS, row("a", "near", 100_000, bound_ns=90_009)]) == []
    assert better_bounds([*ROWS, row("a", "sharp", None, bound_ns=99_000)]) == ["a on laptop: sharp by 10.00%"]


def test_contradictions() -> None:
    """Tests that a bound above somebody's value is found."""
    assert contradictions(ROWS) == []
    (text,) = contradictions([*ROWS, row("b", "liar", 200_000, bound_ns=150_000)])
    assert text == "b on laptop: liar says at least 150000 ns (load), heft has 100000 ns"


def test_page_of_placement(tmp_path: Path) -> None:
    """Tests that defeats, speed-ups, bounds and every solver's row stand on the page."""
    best = BestKnown(tmp_path)
    best.learn(ROWS, "c")
    text = "\n\n".join(page("placement", ROWS, best))
    assert "`auto` is worse than the best single device on none of 3 instances." in text
    assert (
        "**`auto` is worse than the best of all other solvers on 2 of 3 instances** (1 of them by no more than the "
        "0.01 % at which a search may stop): b on laptop: heft by 10.000%; c on laptop: heft by 0.001%."
    ) in text
    assert "| best single device | 2 | 2.000x | 4.00x (a on laptop) | 1.000x (b on laptop) | 1 |" in text
    assert "| single-device | 2.000 (2/3) | 2.000 (2/3) | 0 | 0.50 |" in text
    assert "| b | 0.8182 load 0.5 s |" in text
    assert "| worst | 0.8182 |" in text
    assert "No plan, by solver and number of instances: single-device 1." in text
    assert "Behind the best value that any kept run of any solver has found: b on laptop 10.00%." in text
    assert "| heft | 200 us / 90 us / 0.5 | **100 us / 90 us / 0.5** |" in text


def test_page_of_known_optima(tmp_path: Path) -> None:
    """Tests that a published file stands beside its optimum, also without any model of the zoo."""
    rows = [row("file", "auto", 100_000, preset=FILES, instance="file", reference_ns=80_000)]
    text = "\n\n".join(page("placement", rows, BestKnown(tmp_path)))
    assert "| file | 80 us | 100 us | 1.25000 | 0.90000 | 0.5 |" in text


def way(name: str, value: int | None, **more: Any) -> dict[str, Any]:
    return {
        "model": "a",
        "preset": "laptop",
        "instance": "a on laptop",
        "way": name,
        "ops": 10,
        "to_place": 5,
        "coarsen_seconds": 0.2,
        "coarsen_note": "",
        "time_limit": 1.0,
        "seconds": 1.0,
        "near_seconds": 0.5,
        "note": "",
        "value_ns": value,
        "bound_ns": 50,
        "fine_ns": value,
        "fused_ns": value,
        "cut": 1,
        "kernels": 3,
        **more,
    }


def test_page_of_fusion() -> None:
    """Tests that plans are compared as they run fused and unfused, and that a loss of the oracle is said."""
    rows = [
        way("none", 100, fused_ns=90, to_place=10, coarsen_seconds=0.0),
        way("oracle", 100, fine_ns=120, fused_ns=100, coarsen_note="fell back"),
        way("gcof", None, note="no plan"),
        way("single device", 200, fused_ns=150),
    ]
    text = "\n\n".join(page("fusion", rows))
    assert "| none | 1/1 | 1.00 | 0.9000 | 1 | 1.0000 | 0.5000 | 1 of 3 | 0.50 | 1.00 | 0.00 |" in text
    assert (
        "*oracle* against no coarsening: better by more than 0.01 % on 0 of 1, **worse on 1**: a on laptop 11.11%."
        in text
    )
    assert "*oracle* against the best single device: better by more than 0.01 % on 1 of 1, worse on none." in text
    assert "**No plan:** a on laptop, gcof: no plan." in text
    assert "**Of the oracle:** a on laptop: fell back." in text
    assert "| a on laptop | **0.9000** | 100 ns | - | 1.5000 |" in text
    assert "| a on laptop | 100 ns | 1.2000 | - | 2.0000 |" in text
    assert "| a on laptop (10 ops) | 10, 1 cut, 0.50 / 1.0 s | 5, 1 cut, 0.50 / 1.0 s (+ 0.20) | - |" in text


def test_page_of_large_placements(tmp_path: Path) -> None:
    """Tests the columns beside HEFT and single devices, and that a graph without a plan says why."""
    shape = {"kind": "layered", "edges": 9, "peak_bytes": 2**30, "search_seconds": 1.0, "baselines": {}}
    rows = [
        row("a", "auto", 100_000, **shape, heft_ns=120_000, heft_seconds=0.1, single_ns=None),
        row("b", "auto", 100_000, **shape, heft_ns=90_000, heft_seconds=0.1, single_ns=100_000),
        {**row("c", "auto", None), "kind": "layered"},
    ]
    text = "\n".join(page("placement-scale", rows, BestKnown(tmp_path)))
    assert "Against HEFT: better on 1 of 2, equal on 0, **worse on 1: b on laptop**." in text
    assert "equal on 1, worse on none, the best single device has no plan on 1 more." in text
    assert "| 0.9000 | load | only run | 90 us | proved | 1.200 | no plan | 1.0 | 0.5 | 1 GiB | 0.10 |" in text
    assert "none: too large" in text
