"""plan.json: written whole or not at all, read without trust."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.certify.base_plans import latency_plan, throughput_plan

from weftline.ask import make_plan
from weftline.errors import InfeasibleError, InputError, UsageError
from weftline.plans import Plan, explain_plan, load_plan, plan_result, save_plan
from weftline.plans.plan import plan_to_json
from weftline.testing import random_problem

BYTES = json.dumps(latency_plan()).encode()
PLANS = [msgspec.json.decode(json.dumps(base()).encode(), type=Plan) for base in (latency_plan, throughput_plan)]


@pytest.mark.parametrize("plan", PLANS)
def test_round_trip(tmp_path: Path, plan: Plan) -> None:
    """Tests that a saved plan is equal when it is loaded, and saves to the same bytes."""
    path = tmp_path / "plan.json"
    plan.save(path)
    again = Plan.load(path)
    assert again == plan
    assert plan_to_json(again) == path.read_bytes() == plan_to_json(plan)
    assert path.read_bytes().endswith(b"\n")


def test_random_plans_round_trip(tmp_path: Path) -> None:
    """Tests the same for plans under all rules."""
    path = tmp_path / "plan.json"
    for seed in range(40):
        try:
            problem = random_problem(seed, "latency" if seed % 2 else "throughput")
            plan = make_plan(problem, work_limit=5)
        except InfeasibleError:
            continue
        save_plan(plan, path)
        assert load_plan(path) == plan


def test_fields_stand_in_their_order() -> None:
    """Tests that the file begins with what a reader looks for; what was not measured is left out."""
    names = list(json.loads(plan_to_json(PLANS[0])))
    assert names == [
        name for name in Plan.__struct_fields__ if name not in ("measured", "progress", "guessed", "advice")
    ]
    assert names[:7] == ["format", "version", "objective", "value_ns", "bound_ns", "gap", "proof"]
    assert names[-1] == "problem"


def test_saving_leaves_nothing_behind(tmp_path: Path) -> None:
    """Tests that saving twice leaves one file, which can be read as new files can."""
    path = tmp_path / "plan.json"
    path.write_text("old", encoding="utf-8")
    PLANS[0].save(path)
    PLANS[0].save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["plan.json"]
    fresh = tmp_path / "fresh"
    fresh.touch()
    assert path.stat().st_mode == fresh.stat().st_mode


def test_failure_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that whatever fails while writing, the old plan stays and no temporary file is left."""
    path = tmp_path / "plan.json"
    path.write_text("old", encoding="utf-8")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"plan\.json: cannot be written: No space left"):
        PLANS[0].save(path)
    assert path.read_text(encoding="utf-8") == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["plan.json"]


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    """Tests that missing folders, folders and long names are told by name."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inside").touch()
    for path in (tmp_path / "nowhere" / "plan.json", tmp_path / "folder", tmp_path / ("x" * 300)):
        with pytest.raises(InputError, match=r"cannot be written|is a folder") as error:
            PLANS[0].save(path)
        assert str(path) in str(error.value)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["folder"]


def _with(**fields: object) -> bytes:
    return json.dumps({**latency_plan(), **fields}).encode()


BAD = {
    "empty": (b"", "truncated"),
    "truncated": (BYTES[:-9], "truncated"),
    "random": (bytes(range(255, 0, -1)), "malformed"),
    "bad UTF-8": (BYTES.replace(b'"gpu"', b'"\xff"', 1), "utf-8"),
    "half a character": (BYTES.replace(b'"gpu"', b'"\\udc00"', 1), "malformed"),
    "not an object": (b"[]", "Expected `object`"),
    "other format": (_with(format="weftline-stages"), "$.format"),
    "other version": (_with(version=2), "$.version"),
    "unknown field": (_with(colour=1), "colour"),
    "field missing": (json.dumps({k: v for k, v in latency_plan().items() if k != "gap"}).encode(), "gap"),
    "value as text": (_with(value_ns="1"), "$.value_ns"),
    "value as boolean": (_with(value_ns=True), "$.value_ns"),
    "value of 10,000 digits": (BYTES.replace(b'"value_ns": 65', b'"value_ns": 6' + b"5" * 10_000), "$.value_ns"),
    "gap NaN": (BYTES.replace(b'"gap": 0.0', b'"gap": NaN, "x": 0.0'), "malformed"),
    "gap beyond floats": (BYTES.replace(b'"gap": 0.0', b'"gap": 1e999, "x": 0.0'), "$.gap"),
    "unknown proof": (_with(proof="certain"), "$.proof"),
    "timeline row of two": (_with(timeline={"ops": [[0, 1]], "transfers": []}), "$.timeline.ops[0]"),
    "deep nesting": (BYTES.replace(b'"value_ns": 65', b'"value_ns": ' + b"[" * 100_000), "$.value_ns"),
    "deep nesting in a witness": (
        BYTES.replace(b'{"kind": "path"', b'{"x": ' + b"[" * 100_000 + b', "kind": "path"'),
        "recursion",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files(tmp_path: Path, name: str) -> None:
    """Tests that each kind of bad plan file is an `InputError` that names file and place."""
    data, place = BAD[name]
    assert data != BYTES
    path = tmp_path / "plan.json"
    path.write_bytes(data)
    with pytest.raises(InputError) as error:
        load_plan(path)
    assert str(error.value).startswith(f"{path}: not a weftline plan: ")
    assert place in str(error.value)


def test_missing_files(tmp_path: Path) -> None:
    """Tests that nothing, folders and pipes are refused by name."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "nothing.json", tmp_path, tmp_path / "pipe"):
        with pytest.raises(InputError) as error:
            load_plan(path)
        assert str(path) in str(error.value)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_bytes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Tests that flipped bits give a plan or an `InputError`, and that a damaged plan cannot break the simulator."""
    damaged = bytearray(BYTES)
    for _ in range(data.draw(st.integers(1, 2))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    path.write_bytes(damaged)
    try:
        explain_plan(load_plan(path))
    except InputError:
        return


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["ops", "transfers"]), st.integers(0, 5), st.integers(0, 5), st.integers(-(2**70), 2**70))
def test_hostile_timelines(part: str, row: int, column: int, value: int) -> None:
    """Tests that any number in a timeline is simulated or refused; kernels never read outside their arrays."""
    form = latency_plan()
    rows = form["timeline"][part]
    rows[row % len(rows)][column % len(rows[0])] = value
    plan = msgspec.json.decode(json.dumps(form).encode(), type=Plan)
    try:
        _, result = plan_result(plan)
    except InputError:
        return
    assert result.value <= plan.value_ns + 100


@pytest.mark.parametrize(
    "edit",
    [
        {"placement": {}},
        {"placement": {**latency_plan()["placement"], "a": "d9"}},
        {"timeline": {"ops": [], "transfers": []}},
        {"timeline": None},
        {"timeline": {"ops": latency_plan()["timeline"]["ops"], "transfers": [[0, 0, 0, 0, 0, 0]] * 99}},
        {"objective": "throughput"},
    ],
)
def test_plans_that_make_no_sense(edit: dict[str, object]) -> None:
    """Tests that a well-formed plan full of nonsense is an `InputError` that points to `verify`."""
    plan = msgspec.json.decode(_with(**edit), type=Plan)
    with pytest.raises(InputError) as error:
        plan_result(plan)
    assert not isinstance(error.value, UsageError)
    assert "weftline verify" in error.value.hint
