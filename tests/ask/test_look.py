"""The verbs that look at an answer take plans and schedules alike."""

from __future__ import annotations

from pathlib import Path

import pytest

import weftline as wl
from weftline.ask.planning import make_plan
from weftline.errors import InputError, UsageError
from weftline.plans.schedule_story import ScheduleStory
from weftline.testing.generate import problem_of


def test_schedules_are_explained_and_compared(tmp_path: Path) -> None:
    """Tests objects and files, and that a plan beside a schedule, or an op of one, is refused in words."""
    slow, fast = (wl.schedule(wl.shape("vshape", 2), micro_batches=4, memory=m, work_limit=20) for m in (1, 2))
    slow.save(tmp_path / "slow.json")
    story = wl.explain(tmp_path / "slow.json")
    assert isinstance(story, ScheduleStory)
    assert story == wl.explain(slow)
    assert story.value == slow.makespan
    found = wl.diff(tmp_path / "slow.json", fast)
    assert not found.identical
    assert ("makespan", str(slow.makespan), str(fast.makespan)) in found.rows  # type: ignore[union-attr]
    assert wl.diff(slow, tmp_path / "slow.json").identical
    plan = make_plan(problem_of([[1, 2]]), work_limit=1)
    for a, b in ((plan, slow), (slow, plan), (tmp_path / "slow.json", plan)):
        with pytest.raises(UsageError, match="a plan and a schedule cannot be compared"):
            wl.diff(a, b)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="op is for plans"):
        wl.explain(tmp_path / "slow.json", "F0")
    with pytest.raises(InputError, match="no such file"):
        wl.diff(slow, tmp_path / "nothing.json")
