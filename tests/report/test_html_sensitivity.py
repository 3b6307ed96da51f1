"""Tests of what would help: the changed problems, and that every answer is a value of the simulator."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from tests.report.page_samples import plan_sample, problem

from weftline.ask import make_plan
from weftline.plans import plan_result
from weftline.report.html import report_html
from weftline.report.html.sensitivity import ask, questions
from weftline.simulate import simulate_throughput


def test_questions_of_a_pipeline() -> None:
    """Tests that links and a twin are asked for, and the changed problems by hand."""
    plan = plan_sample("hetero")
    given, result = plan_result(plan)
    asked = questions(given, result)
    assert asked[0].problem is given
    links = [question for question in asked if "twice as fast" in question.name]
    assert 1 <= len(links) <= 2
    changed = links[0].problem.cost.transfer != given.cost.transfer
    pairs = {tuple(pair) for pair in np.argwhere(changed.any(axis=0)).tolist()}
    (a, b) = sorted(pairs)[0]
    assert pairs <= {(a, b), (b, a)}
    before, after = given.cost.transfer[:, a, b], links[0].problem.cost.transfer[:, a, b]
    assert np.array_equal(after[before > 0], (before[before > 0] + 1) // 2)
    twin = asked[-1].problem
    assert len(twin.devices) == len(given.devices) + 1
    original = next(d for d, device in enumerate(given.devices) if f"like {device.id}" in asked[-1].name)
    assert np.array_equal(twin.cost.time[:, -1], given.cost.time[:, original])
    assert np.array_equal(
        twin.cost.transfer[:, -1, :-1][:, original - 1], given.cost.transfer[:, original, original - 1]
    )


def test_memory_is_asked_where_it_binds() -> None:
    """Tests that a device that is nearly full gets a quarter more, and others are left alone."""
    given = problem("chain", 12, "two-gpus", "throughput")
    plan = make_plan(given, solver="even-split", work_limit=3)
    _, result = plan_result(plan)
    full = int(result.peak.argmax())
    devices = list(given.devices)
    devices[full] = msgspec.structs.replace(devices[full], memory=int(result.peak[full]) + 1, reserve=0)
    tight = replace(given, devices=tuple(devices))
    asked = [question for question in questions(tight, result) if "memory" in question.name]
    assert [question.name for question in asked] == [f"{devices[full].id} with 25 % more memory"]
    assert asked[0].problem.capacity[full] == (int(result.peak[full]) + 1) * 5 // 4


def test_answers_are_never_worse_than_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that the plan's own decisions are counted, that bounds stay below values, and what the page says."""
    plan = plan_sample("run")
    heard: list[str] = []
    found = ask(plan, 3.0, heard.append)
    assert heard == [one.name for one in found]
    given, result = plan_result(plan)
    for question, one in zip(questions(given, result), found, strict=True):
        kept = simulate_throughput(question.problem, result.placement).value
        assert one.bound_ns <= one.value_ns <= kept <= plan.value_ns
    page = report_html(plan, helps=found).decode()
    assert "What would help?" in page
    assert all(one.name in page for one in found)
    assert "What would help?" not in report_html(plan).decode()


def test_a_plan_that_takes_no_time_needs_no_help() -> None:
    """Tests that nothing is asked where nothing can be gained."""
    plan = plan_sample("run")
    broken = msgspec.structs.replace(plan, value_ns=0)
    assert ask(broken, 1.0) == []
