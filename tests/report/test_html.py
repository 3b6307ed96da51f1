"""Tests of the page: every kind of answer, nothing but its own script and style, hostile names, size."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tests.report.page_samples import HOSTILE, KINDS, hostile_plan, parts, plan_sample, problem, run_of, sample

import weftline
from weftline.ask import make_plan
from weftline.ask.scheduling import make_schedule
from weftline.plans.schedule import Schedule
from weftline.plans.summary import guarantee
from weftline.problem.blocks import Block, Blocks, Lane
from weftline.report.html import MOST_BYTES, report_html
from weftline.report.html.pack import PageBudget, csp_hash
from weftline.report.html.page import plan_page
from weftline.report.html.plan import plan_data
from weftline.report.html.run import run_table
from weftline.units import format_time


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind(kind: str) -> None:
    """Tests that a page holds its value in words, its pictures' data, and stays below the limit."""
    answer = sample(kind)
    page = report_html(answer)
    assert len(page) < MOST_BYTES
    found = parts(page)
    assert found.data["value"] == (answer.value if isinstance(answer, Schedule) else answer.value_ns)
    if isinstance(answer, Schedule):
        assert f">{answer.makespan}<" in found.text
        assert set(found.data) >= {"timeline", "memory"}
    else:
        assert html.escape(guarantee(answer)) in found.text.replace("&#39;", "&#x27;")
        assert format_time(answer.value_ns) in found.text
        assert ("timeline" in found.data) == (answer.objective == "latency")
        assert len(found.data["ops"]["names"]) == len(answer.placement)


def test_places_of_the_page_are_those_of_the_script() -> None:
    """Tests that each picture that has data has a place, and the other way round."""
    for kind, there in (("latency", "timeline memory graph search curve"), ("throughput", "stages graph search curve")):
        text = parts(report_html(sample(kind))).text
        places = set(re.findall(r'id="(timeline|memory|graph|search|curve|stages)"', text))
        assert places == set(there.split())


def test_the_policy_allows_exactly_what_is_there() -> None:
    """Tests that the hashes are those of the script and style, and that no address and no handler is in the page."""
    found = parts(report_html(sample("latency")))
    assert html.unescape(found.policy) == (
        f"default-src 'none'; script-src {csp_hash(found.script)}; style-src {csp_hash(found.style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    outside = found.text.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|@import|url\((?!#)", outside)
    assert not re.search(r"\sstyle=|\son\w+=", outside)


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_hostile_names_stay_text(objective: str) -> None:
    """Tests that no text of a plan becomes markup, and that the names are still there to be read."""
    found = parts(report_html(hostile_plan(objective), run=run_table(run_of(hostile_plan(objective)))))
    assert "<img" not in found.text
    assert found.text.count("<script") == 2
    assert "<" not in found.raw_data
    assert found.data["ops"]["names"][3] == f"3{HOSTILE}"
    assert html.escape(f"model {HOSTILE}") in found.text


def test_hostile_schedules_stay_text() -> None:
    """Tests the same for blocks and devices of a schedule."""
    blocks = [Block("F", 1, (0,), (1,), f"a{HOSTILE}"), Block("B", 2, (0,), (-1,), f"b{HOSTILE}")]
    found = make_schedule(Blocks.of(HOSTILE, [Lane("d", 4)], blocks, [(0, 1)]), 4, solver="list", work_limit=3)
    page = parts(report_html(msgspec.structs.replace(found, bound_by=HOSTILE)))
    assert "<img" not in page.text
    assert page.data["timeline"]["blocks"] == [f"a{HOSTILE}", f"b{HOSTILE}"]


def test_control_characters_are_shown() -> None:
    """Tests that a name cannot turn the text around it."""
    clean = problem("chain", 3, "two-gpus", "latency")
    ops = tuple(msgspec.structs.replace(op, name=f"{i}\u202e\x07\u2028") for i, op in enumerate(clean.graph.ops))
    dirty = replace(clean, graph=msgspec.structs.replace(clean.graph, ops=ops))
    found = parts(report_html(make_plan(dirty, solver="greedy", work_limit=1)))
    assert found.data["ops"]["names"][0] == "0\\u202e\\x07\\u2028"
    assert not set("\u202e\x07\u2028") & set(found.text)


def test_a_large_graph_with_long_names_stays_below_the_limit() -> None:
    """Tests 20,000 ops whose names alone would be 20 MB."""
    plan = plan_sample("large")
    graph = plan.problem.graph
    ops = tuple(msgspec.structs.replace(op, name=f"{i}" + "<" * 900) for i, op in enumerate(graph.ops))
    placement = dict(zip((op.name for op in ops), plan.placement.values(), strict=True))
    question = msgspec.structs.replace(plan.problem, graph=msgspec.structs.replace(graph, ops=ops))
    page = report_html(msgspec.structs.replace(plan, problem=question, placement=placement))
    assert len(page) < MOST_BYTES
    assert len(parts(page).data["ops"]["names"]) == 20_000


def test_a_page_that_is_too_large_gets_less_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that names and spans are cut until the page fits."""
    from weftline.report import html as module

    full = len(report_html(sample("large")))
    monkeypatch.setattr(module, "MOST_BYTES", full - 200_000)
    assert len(report_html(sample("large"))) < full - 200_000


def test_room_halves() -> None:
    """Tests that every part of the room becomes smaller."""
    assert PageBudget(8, 6, 4).half() == PageBudget(4, 3, 2)


def test_a_baseline_that_wins_is_a_warning() -> None:
    """Tests that the page says it when a baseline is better, and only then."""
    plan = plan_sample("throughput")
    better = msgspec.structs.replace(plan, baselines={"replicas": plan.value_ns - 1, "broken": None})
    worse = msgspec.structs.replace(plan, baselines={"replicas": plan.value_ns + 1})
    assert "Whole copies would give more, an input every" in report_html(better).decode()
    assert "breaks a limit" in report_html(better).decode()
    assert "A baseline is better" not in report_html(worse).decode()


def test_the_curve_needs_progress() -> None:
    """Tests that a plan under a work limit has no curve, and one under a time limit has its rows."""
    assert 'id="curve"' not in report_html(sample("run")).decode()
    plan = plan_sample("latency")
    assert plan.progress
    assert [tuple(row) for row in parts(report_html(plan)).data["progress"]] == list(plan.progress)


def test_the_facade_writes_the_page(tmp_path: Path) -> None:
    """Tests plan, schedule and file, with a run, through `weftline.report`."""
    plan = plan_sample("run")
    plan.save(tmp_path / "plan.json")
    page = weftline.report(tmp_path / "plan.json", tmp_path / "report.html", run=run_of(plan))
    assert (tmp_path / "report.html").read_bytes() == page == weftline.report(plan, run=run_of(plan))
    assert "Measured against predicted" in page.decode()
    assert b"Schedule" in weftline.report(sample("schedule"))
    with pytest.raises(weftline.UsageError, match="seconds"):
        weftline.report(sample("schedule"), sensitivity=5)
    with pytest.raises(weftline.UsageError, match="seconds"):
        weftline.report(plan, sensitivity=0)
    with pytest.raises(weftline.InputError, match="is also what is read"):
        weftline.report(tmp_path / "plan.json", tmp_path / "plan.json")


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_simple_plans_are_explained(objective: str) -> None:
    """Tests that every plan in the comparison says under the pointer what it is."""
    plan = make_plan(problem("series_parallel", 12, "four-unequal", objective), work_limit=5)
    rows = {row["name"]: row["title"] for row in plan_page(plan, plan_data(plan, PageBudget()), None, [])["comparison"]}
    assert plan.baselines.keys() >= {"single-device", "greedy", "even-split"}
    assert all(rows[name] for name in plan.baselines)
    assert ("device that runs it fastest" in rows["greedy"]) == (objective == "latency")
