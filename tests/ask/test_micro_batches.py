"""Where memory binds a training schedule, recompute is tried, and named only if it is really shorter."""

from __future__ import annotations

import json
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from typer.testing import CliRunner

import weftline as wl
from weftline.ask import micro_batches as room
from weftline.ask import scheduling
from weftline.ask.planning import make_plan
from weftline.ask.request import ScheduleRequest
from weftline.ask.scheduling import make_schedule
from weftline.cli.main import app
from weftline.errors import InfeasibleError
from weftline.plans import save_plan
from weftline.plans.schedule import schedule_to_json
from weftline.plans.schedule_story import binds_by_memory
from weftline.testing.generate import Feed, problem_of


def pipeline(capacity: int | None) -> wl.Plan:
    """Two stages of two ops each, which hold 101 bytes of every micro-batch; 0 and 1 of them enter."""
    wires = [Feed(0, (1,), 0, 100), Feed(1, (2,), 0, 1), Feed(2, (3,), 0, 100)]
    limits = [capacity, capacity]
    return make_plan(problem_of([[10, 10]] * 4, wires, capacity=limits, objective="throughput"), work_limit=100)


def asked(plan: wl.Plan, **changes: object) -> wl.Schedule:
    return wl.answer(ScheduleRequest(plan=plan, micro_batches=8, **{"work_limit": 300, **changes}))  # type: ignore[arg-type]


def test_memory_that_binds_is_said_first(tmp_path: Path) -> None:
    """Tests that the number in the advice is one that a schedule with recompute reaches: text, JSON, file, report."""
    save_plan(pipeline(150), tmp_path / "p.json")
    words = ["schedule", "--plan", str(tmp_path / "p.json"), "-n", "8", "--work", "300", "-o", str(tmp_path / "s.json")]
    text = CliRunner().invoke(app, words).stdout
    told = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    shorter = asked(pipeline(150), recompute=True)
    assert told["makespan"] == 960
    assert told["advice"] == f"Memory binds: --recompute would give {shorter.makespan} ns instead of 960 ns."
    assert text.startswith(told["advice"])
    wl.verify(tmp_path / "s.json")
    (tmp_path / "odd.json").write_text(json.dumps({**told, "advice": 5}))
    with pytest.raises(wl.VerificationError, match="advice must be text"):
        wl.verify(tmp_path / "odd.json")
    assert CliRunner().invoke(app, ["explain", str(tmp_path / "s.json")]).stdout.startswith(told["advice"])
    assert told["advice"].encode() in wl.report(tmp_path / "s.json")


@pytest.mark.parametrize(
    ("capacity", "changes"), [(None, {}), (1000, {}), (150, {"train": False}), (150, {"recompute": True})]
)
def test_nothing_is_tried_where_memory_is_not_in_the_way(
    capacity: int | None, changes: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that there is no second search, and no advice, where memory suffices or recompute is no question."""
    monkeypatch.setattr(room, "_recomputed", lambda *_: pytest.fail("a second search"))
    assert "advice" not in json.loads(schedule_to_json(asked(pipeline(capacity), **changes)))


def test_a_time_limit_is_for_both_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that a tenth of the time is kept from the first search for the second; the file names what was asked."""
    calls = []

    def spied(*given: Any, begun: float | None, **options: Any) -> wl.Schedule:
        calls.append((options["time_limit"], begun is not None and monotonic() - begun >= 0.1))
        return make_schedule(*given, begun=begun, **options)

    monkeypatch.setattr(scheduling, "make_schedule", spied)
    found = asked(pipeline(150), work_limit=None, time_limit=1)
    assert calls == [(1, True), (0.1, False)]
    assert found.provenance.time_limit == 1
    assert isinstance(found.advice, str)


def test_limits_in_bytes(tmp_path: Path) -> None:
    """Tests that a sweep over memory of a plan takes and shows sizes and times with units, and says what lacks."""
    save_plan(pipeline(None), tmp_path / "p.json")
    words = ["schedule", "--plan", str(tmp_path / "p.json"), "-n", "4", "--work", "40", "--sweep-memory"]
    shown = CliRunner(env={"COLUMNS": "200"}).invoke(app, [*words, "50B,1KiB"])
    assert shown.exit_code == 0, shown.output
    for text in ("50 B", "does not fit", "1 KiB", " ns", "memory 1 KiB reaches the least period found"):
        assert text in shown.stdout
    little = CliRunner().invoke(app, [*words, "40,50"])
    assert isinstance(little.exception, InfeasibleError)
    assert "needs 101 B memory" in str(little.exception)


def test_what_to_try_where_a_plan_cannot_train() -> None:
    """Tests the hint where weights or activations do not fit for training, and none with limits of the caller's own."""
    for weight, size, capacity, words in ((10, 0, 59, "optimizer state"), (0, 50, 120, "needs 200 memory")):
        wires = [Feed(i, (i + 1,), 0, size) for i in range(7)]
        limits = [capacity] * 2
        problem = problem_of([[10, 10]] * 8, wires, weights=[weight] * 8, capacity=limits, objective="throughput")
        plan = make_plan(problem, solver="even-split", work_limit=1)
        with pytest.raises(InfeasibleError, match=words) as refused:
            asked(plan)
        assert refused.value.conflicts[-1] == room.PLAN_AGAIN
    with pytest.raises(InfeasibleError) as refused:
        asked(pipeline(None), memory=5)
    assert room.PLAN_AGAIN not in refused.value.conflicts


@pytest.mark.parametrize("option", ["recompute", "split_backward"])
def test_what_only_plans_can_follow_is_refused(option: str) -> None:
    """Tests that blocks of one's own, and inference, do not ignore what is for training by a plan."""
    asks: tuple[dict[str, Any], ...] = ({"blocks": wl.shape("vshape", 2)}, {"plan": pipeline(None), "train": False})
    for asked_for in asks:
        request: dict[str, Any] = {**asked_for, option: True}
        with pytest.raises(wl.UsageError, match="for training by a plan"):
            wl.answer(ScheduleRequest(work_limit=10, **request))


def test_recompute_that_is_not_shorter_is_not_advised() -> None:
    """Tests memory for all but one micro-batch: it is full, but computing again takes longer than waiting."""
    found = asked(pipeline(210))
    assert binds_by_memory(found)
    assert found.value <= asked(pipeline(210), recompute=True).value
    assert not isinstance(found.advice, str)


def test_what_fits_not_at_all(tmp_path: Path) -> None:
    """Tests that one micro-batch alone needs as much with recompute as without: it is no way out, and not named."""
    for memory in (100, 0):
        for again in (False, True):
            with pytest.raises(InfeasibleError) as refused:
                asked(pipeline(150), memory=memory, recompute=again)
            assert refused.value.proved
            assert "--recompute" not in str(refused.value)
    save_plan(pipeline(150), tmp_path / "p.json")
    with pytest.raises(InfeasibleError, match=r"needs 101 B memory .*, which has 9 B\n  - .*needs 101 B") as refused:
        wl.answer(ScheduleRequest(plan=tmp_path / "p.json", memory=9))
    assert len(refused.value.conflicts) == 1
    for again in (False, True):
        assert max(asked(pipeline(150), memory=101, recompute=again).peak_memory) == 101
