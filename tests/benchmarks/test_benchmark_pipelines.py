"""The pipeline sections: which instances they ask, and what the page says about rows written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from benchmarks.instances import flat_cluster
from benchmarks.measure import plan_row
from benchmarks.render import text_of
from benchmarks.results import BestKnown, Row
from benchmarks.section import Run
from benchmarks.sections import SECTIONS
from benchmarks.sections.paper import closed_factor, paper_instances
from benchmarks.sections.regal import regal_draws, regal_problem
from benchmarks.stats import is_closed, is_late, misses, not_closed, ratio, simple_ratio

ROW = {
    "instance": "net",
    "ops": 10,
    "time_limit": 60.0,
    "seconds": 3.0,
    "value_ns": 100,
    "simple_ns": 50,
    "bound_ns": 98,
    "bound_by": "exact",
    "proof": "claimed",
    "stopped_by": "time",
    "stages_used": 2,
    "note": "",
    "baselines": {"even-split": 200, "greedy": 100, "single-device": 150, "replicas": 80},
    "problem": "p",
}


def row(**more: Any) -> dict[str, Any]:
    return {**ROW, **more}


def page(name: str, rows: list[Row], settings: Row, best: BestKnown | None = None) -> str:
    return "\n\n".join(text_of(SECTIONS[name].blocks, Run(rows, settings, best=best or BestKnown())))


def test_flat_cluster() -> None:
    """Tests that all devices and all links are alike and memory has no limit."""
    cluster = flat_cluster(3)
    assert len({(device.kind, device.rate, device.memory) for device in cluster.devices}) == 1
    assert cluster.devices[0].capacity is None
    assert len(cluster.links) == 6
    assert len({(link.bandwidth, link.latency, link.shared) for link in cluster.links}) == 1


def test_plan_row() -> None:
    """Tests that a row holds value and bounds in their order, and that a plan that cannot be leaves its reason."""
    found = plan_row(regal_problem("erdos_renyi", 12, 0, 2), time_limit=1.0)
    assert found["simple_ns"] <= found["bound_ns"] <= found["value_ns"]
    assert 0 < (simple_ratio(found) or 0) <= (ratio(found) or 0) <= 1
    assert set(found["baselines"]) >= {"even-split", "greedy", "replicas"}
    assert len(found["problem"]) == 16
    assert ratio(row(value_ns=None)) is None


def test_closed_and_late() -> None:
    """Tests the two judgements on a row at their edges."""
    assert is_closed(row(value_ns=100_000, bound_ns=99_990))
    assert not is_closed(row(value_ns=100_000, bound_ns=99_980))
    assert not is_closed(row(value_ns=None))
    assert is_late(row(seconds=62.1))
    assert not is_late(row(seconds=61.9))


def test_instances_of_the_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that the zoo and the light models are always there, and published files only where they are."""
    monkeypatch.setenv("WEFTLINE_DATA", str(tmp_path))
    found = paper_instances()
    assert {group for group, _ in found.values()} == {"zoo", "light"}
    group, make = found["light bvlc_alexnet"]
    assert len(make(4).devices) == 4
    assert group == "light"


def test_draws_of_random_graphs() -> None:
    """Tests that 20 graphs cover every family at every size, none twice."""
    draws = regal_draws(20)
    assert len({(family, ops) for family, ops, _ in draws}) == 20
    assert {ops for _, ops, _ in draws} == {50, 80, 120, 160, 200}


def test_closed_factor() -> None:
    """Tests the factor with the numbers of the paper, and where no gap is left."""
    assert closed_factor(0.4598, 0.9452) == pytest.approx(9.858, abs=0.01)
    assert closed_factor(0.5, 1.0) is None
    assert closed_factor(0.5, 0.99995) is None


def test_page_of_the_paper() -> None:
    """Tests means, factor, worst case and the mark of a missed goal."""
    rows = [
        row(group="zoo", stages=16),
        row(group="zoo", instance="wide", stages=16, bound_ns=50, baselines={"greedy": 90, "replicas": 1}),
    ]
    text = page("paper", rows, {"time_limit": 60.0})
    assert "| 16 | 2 | 0.5000 | 0.70000 | 1.7x | 0.5000 (wide) | >= 0.99: missed, 2 of 2 below | 0 (0 proved) |" in text
    assert "| wide (10 ops) | **0.5000** 3.0 s |" in text
    assert "**A baseline is better:** wide, k = 16: greedy." in text


def test_misses() -> None:
    """Tests that lateness and missing plans are said, and that all is silent otherwise."""
    assert list(misses([row()])) == []
    late, none = misses([row(stages=4, seconds=70.0), row(value_ns=None, note="too large")])
    assert late == "**More than 2 s over the time limit:** net, k = 4 (70.0 s)."
    assert none == "**No plan:** net: too large."


def test_page_of_references() -> None:
    """Tests that a reference counts as reached to 0.01 %, with its gap and its time."""
    plain = {"table": "plain", "stages": 4, "reference_ns": 10_000, "their_seconds": None}
    own = {**plain, "table": "own", "stages": 0, "their_seconds": 2.0}
    close = {"value_ns": 10_001, "bound_ns": 10_000}
    rows = [
        row(**{**plain, **close}),
        row(**{**plain, "value_ns": 10_001, "bound_ns": 9_000}),
        row(**{**plain, "value_ns": 10_002, "bound_ns": 10_000}),
        row(**{**own, **close}),
        row(**{**own, **close, "seconds": 1.0}),
    ]
    text = page("fiddle", rows, {"plain_limit": 20.0, "own_limit": 60.0})
    assert "ok on 1 of 3." in text
    assert "ok on 1 of 2." in text
    assert text.count("| **no**, value reached |") == 2
    assert text.count("| **no** |") == 1


def test_page_of_random_graphs(tmp_path: Path) -> None:
    """Tests the work bound beside the best one, and the count of values near the best known."""
    best = BestKnown(tmp_path)
    best.learn([row(value_ns=90), row(), row(problem="q")], "c")
    rows = [row(family="f", stages=8, load_ns=49), row(family="f", stages=8, load_ns=49, problem="q")]
    text = page("regal", rows, {}, best)
    assert "| 8 | 2 | 0.4900 | 0.9800 | >= 0.94: reached | 0.9800 (net) | 0/1 | 3.0 |" in text
    assert "| f | 0.490 -> 0.980 |" in text
    assert "| nothing to compare |" in page("regal", rows[1:], {}, best)
    assert list(not_closed(Run(rows, best=best))) == [
        "Not closed to 0.01 %: 2 of 2; least bound / value 0.980 (net, k = 8). "
        "Behind the best known value: 1 of 2, at most by 11.11% (net, k = 8).",
    ]


def test_page_of_unequal_devices() -> None:
    """Tests that the page says against whom the plan wins, and where replicas do."""
    rows = [
        row(model="net", cluster="two", devices=2),
        row(model="big", cluster="two", devices=2, value_ns=None, note="does not fit"),
    ]
    text = page("unequal", rows, {})
    assert "| even-split | 1 | 1 | 0 | 0 | 2.000 |" in text
    assert "| replicas | 1 | 0 | 0 | 1 | 0.800 |" in text
    assert "**Replicas are faster than one pipeline** on 1 of 1: net." in text
    assert "none: does not fit" in text


def test_page_of_large_graphs(tmp_path: Path) -> None:
    """Tests memory, the distance from the best known value, and the exponent of the slice solver."""
    shape = {"kind": "chain", "edges": 9, "peak_bytes": 2**30, "slice_ns": 110, "build_seconds": 0.1}
    rows = [row(**shape, slice_seconds=0.1), row(**shape, ops=100, slice_seconds=1.0)]
    text = page("scale", rows, {}, BestKnown(tmp_path))
    assert "| chain | 10 | 9 | 60 | 100 ns | 0.9800 | exact | only run | - | 3.0 | 1 GiB | 0.10 | 1.1000 |" in text
    assert "chain 1.00." in text
