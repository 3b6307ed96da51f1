"""What notebooks show: small, escaped, without scripts; and tables as lists of dicts."""

from __future__ import annotations

from html.parser import HTMLParser

import msgspec
import pytest

import weftline as wl
from weftline.plans.records import PLAN_TABLES, SCHEDULE_TABLES
from weftline.plans.score import Score
from weftline.zoo import zoo_graph

EVIL = "<script>alert(1)</script>"


class Tags(HTMLParser):
    """Every tag and attribute of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}


def values() -> dict[str, object]:
    graph = msgspec.structs.replace(zoo_graph("resnet50", size="small"), name=EVIL)
    plan = wl.plan(graph, "two-gpus", solver="heft", work_limit=1)
    return {
        "graph": graph,
        "cluster": msgspec.structs.replace(wl.Cluster.preset("two-gpus"), name=EVIL),
        "problem": plan.load_problem(),
        "plan": plan,
        "pipeline": wl.plan(graph, "two-gpus", objective="throughput", solver="even-split", work_limit=1),
        "score": wl.simulate(plan.load_problem(), plan),
        "schedule": wl.schedule(wl.shape("vshape", 2), micro_batches=3, solver="1f1b", work_limit=1),
    }


def test_html_is_small_and_harmless() -> None:
    """Tests that no name becomes a tag, nothing runs or is fetched, and the essential number is there."""
    for name, value in values().items():
        text = value._repr_html_()  # type: ignore[attr-defined]
        tags = Tags(text)
        assert len(text) < 200_000, name
        assert not tags.seen & {"script", "iframe", "img", "link", "style", "a", "object"}, name
        assert not {found for found in tags.attributes if found.startswith("on") or found in ("href", "src")}, name
        assert tags.seen >= {"b", "table"} or name == "schedule"
        assert ("svg" in tags.seen) == (name in ("plan", "pipeline", "score", "schedule"))


def test_tables_are_lists_of_dicts() -> None:
    """Tests that every table has rows of the same keys, and that they say what the plan says."""
    found = values()
    plan, schedule, score = found["plan"], found["schedule"], found["score"]
    assert isinstance(plan, wl.Plan)
    assert isinstance(schedule, wl.Schedule)
    assert isinstance(score, Score)
    for name in PLAN_TABLES:
        rows = plan.table(name)
        assert len({tuple(row) for row in rows}) <= 1
        assert rows or name in ("stages", "transfers")
    assert max(row["end_ns"] for row in plan.table("timeline")) == plan.value_ns
    assert {row["op"]: row["device"] for row in plan.table("placement")} == plan.placement
    assert {row["name"]: row["value_ns"] for row in plan.table("baselines")} == {
        "plan": plan.value_ns, **plan.baselines
    }  # fmt: skip
    assert score.table("timeline") == plan.table("timeline")
    for name in SCHEDULE_TABLES:
        assert all(set(row) == set(schedule.table(name)[0]) for row in schedule.table(name))
    assert max(row["end"] for row in schedule.table("timeline")) == schedule.makespan
    with pytest.raises(wl.UsageError, match="a table is one of"):
        plan.table("colours")
