"""Tests of the checker of schedules: it accepts what holds, and refuses every change that matters."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from weftline.ask.scheduling import make_schedule
from weftline.certify import verify_file
from weftline.certify.check import Refusal
from weftline.certify.check_schedule import bound_of, check_schedule
from weftline.errors import InputError, VerificationError
from weftline.problem.blocks import Block, Blocks, Lane
from weftline.schedule.make_blocks import make_shape

Tamper = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def schedule() -> dict[str, Any]:
    """A small schedule with a repetend, as JSON."""
    made = make_schedule(make_shape("mshape", 4).with_memory(6), 5, work_limit=60)
    plain: dict[str, Any] = msgspec.to_builtins(made)
    assert plain["repetend"] is not None
    copied: dict[str, Any] = json.loads(json.dumps(plain))
    return copied


def test_what_was_made_holds(schedule: dict[str, Any], tmp_path: Path) -> None:
    """Tests that a schedule passes, in a process of its own, with the bounds that the standard library can see."""
    assert check_schedule(schedule).value == schedule["makespan"]
    (tmp_path / "s.json").write_text(json.dumps(schedule))
    verdict = verify_file(tmp_path / "s.json")
    assert verdict._asdict()["value"] == schedule["makespan"]
    assert verdict._asdict()["proved_period_bound"] == "6"


def test_devices_that_end_at_different_times() -> None:
    """Tests that the makespan is that of the last device, and the span of devices that of the longest."""
    blocks = Blocks.of("two", [Lane("0"), Lane("1")], [Block("F", 5, (0,), (0,)), Block("F", 1, (1,), (0,))], [(0, 1)])
    made = msgspec.to_builtins(make_schedule(blocks, 3, work_limit=60))
    ends = [row[-1]["end"] for row in made["actions"]]
    assert ends == [15, 16]
    assert check_schedule(made).value == made["makespan"] == 16


def _rehash(schedule: dict[str, Any]) -> None:
    """As somebody would who changes the blocks on purpose."""
    text = json.dumps(schedule["blocks"], separators=(",", ":"), ensure_ascii=False)
    schedule["provenance"]["blocks_sha256"] = sha256(text.encode()).hexdigest()


def _shift(plan: dict[str, Any]) -> None:
    plan["actions"][1][2]["start"] += 1
    plan["actions"][1][2]["end"] += 1


def _swap(plan: dict[str, Any]) -> None:
    row = plan["actions"][0]
    row[0], row[1] = row[1], row[0]


def _limit(plan: dict[str, Any]) -> None:
    plan["blocks"]["devices"][0]["memory"] = 1


def _period_of_all(schedule: dict[str, Any]) -> dict[str, Any]:
    period = Fraction(schedule["makespan"], schedule["micro_batches"])
    return {"period": float(period), "period_exact": str(period)}


def _idle(schedule: dict[str, Any], **lies: int) -> None:
    schedule["blocks"]["devices"].append({"id": "idle"})
    schedule["actions"].append([])
    schedule["peak_memory"].append(0)
    schedule["memory_limit"].append(None)
    schedule["repetend"]["orders"].append([])
    schedule["bubble"] = schedule["makespan"]
    schedule.update(lies)
    _rehash(schedule)


def _wait(schedule: dict[str, Any], late: int) -> None:
    """Everything but the first start is later; every sum says so."""
    for row in schedule["actions"]:
        for action in row:
            later = late if action["start"] else 0
            action.update(start=action["start"] + later, end=action["end"] + later)
    for name in ("makespan", "bubble", "latency", "device_span", "device_span_bubble"):
        schedule[name] += late
    schedule["gap"] = (schedule["makespan"] - schedule["bound"]) / schedule["makespan"]


def _grow(schedule: dict[str, Any]) -> None:
    """Nothing is given back; the few micro-batches of the schedule still fit."""
    for lane in schedule["blocks"]["devices"]:
        lane["memory"] = 1000
    schedule["memory_limit"] = [1000] * len(schedule["memory_limit"])
    memory = {}
    for block in schedule["blocks"]["blocks"]:
        block["memory"] = 1 if block["kind"] == "F" else 0
        memory[block["id"]] = block["memory"]
    schedule["peak_memory"] = [sum(memory[action["block"]] for action in row) for row in schedule["actions"]]
    _rehash(schedule)


TAMPERS: dict[str, Tamper] = {
    "a block later on one device": _shift,
    "two blocks in another order": _swap,
    "an action left out": lambda s: s["actions"][2].pop(),
    "an action twice": lambda s: s["actions"][2].append(s["actions"][2][0]),
    "a smaller makespan": lambda s: s.update(makespan=s["makespan"] - 1),
    "a smaller bubble": lambda s: s.update(bubble=s["bubble"] - 1),
    "a smaller device span bubble": lambda s: s.update(device_span_bubble=s["device_span_bubble"] - 1),
    "less memory": lambda s: s["peak_memory"].__setitem__(0, 0),
    "another limit": _limit,
    "a smaller latency": lambda s: s.update(latency=1),
    "another gap": lambda s: s.update(gap=0.5),
    "a bound above the value": lambda s: s.update(bound=s["makespan"] + 1),
    "a period of half": lambda s: s.update(period_exact="3"),
    "a shorter repetend": lambda s: s["repetend"].update(scaled_length=s["repetend"]["scaled_length"] - 1),
    "an earlier start in the repetend": lambda s: s["repetend"]["scaled_starts"].__setitem__(3, 0),
    "another lag": lambda s: s["repetend"]["lags"].__setitem__(5, s["repetend"]["lags"][5] + 1),
    "a repetend without a block": lambda s: s["repetend"]["orders"][0].pop(),
    "another number for the period": lambda s: s.update(period=0.001),
    "another number for its bound": lambda s: s.update(period_bound=5),
    "another number for the length": lambda s: s["repetend"].update(length=1),
    "a repetend for one device": lambda s: s["repetend"].update(orders=s["repetend"]["orders"][:1]),
    "other limits beside the blocks": lambda s: s.update(memory_limit=[999] * 4),
    "proved without a reason": lambda s: s.update(period_proved=True, period_proof=""),
    "too many devices": lambda s: s["blocks"].update(devices=10**9),
    "other spans": lambda s: s["blocks"]["blocks"][1].update(span=2),
    "another micro-batch": lambda s: s["actions"][0][0].update(micro_batch=4),
    "a proof of another kind": lambda s: s.update(proof="certain"),
    "a period that is no number": lambda s: s.update(period_exact="6.0"),
    "a period that is not in lowest terms": lambda s: s.update(period_exact="12/2"),
    "no pattern, and a period of one": lambda s: s.update(repetend=None, period=1, period_exact="1"),
    "no pattern, and a negative period": lambda s: s.update(repetend=None, period=-7, period_exact="-7"),
    "no pattern, but a proof": lambda s: s.update(repetend=None, **_period_of_all(s), period_proved=True),
    "endless lags": lambda s: s["repetend"].update(lags=[1e17] * len(s["repetend"]["lags"])),
    "endless starts": lambda s: s["repetend"].update(scaled_starts=[1e17] * len(s["repetend"]["scaled_starts"])),
    "a makespan that is no whole number": lambda s: s.update(makespan=float(s["makespan"])),
    "a makespan that is true": lambda s: s.update(micro_batches=True),
    "one more field": lambda s: s.update(note="x"),
    "an idle device, and a span of one": lambda s: _idle(s, device_span=1, device_span_bubble=0),
    "waiting on purpose": lambda s: _wait(s, 1000),
    "memory that grows for ever": _grow,
}


def test_what_is_reserved_counts(schedule: dict[str, Any]) -> None:
    """Tests that peaks and patterns hold what is reserved beside all changes, within the limit, and links have none."""
    changed = copy.deepcopy(schedule)
    lane = changed["blocks"]["devices"][0]
    room = lane["memory"] - changed["peak_memory"][0]
    lane.update(reserved=3, memory=lane["memory"] + 3)
    changed["memory_limit"][0] += 3
    _rehash(changed)
    with pytest.raises(Refusal, match="device 0 has a peak of"):
        check_schedule(changed)
    changed["peak_memory"][0] += 3
    assert check_schedule(changed).value == schedule["makespan"]
    lane["reserved"] += room + 1
    changed["peak_memory"][0] += room + 1
    _rehash(changed)
    with pytest.raises(Refusal, match="device 0 needs"):
        check_schedule(changed)
    wide = copy.deepcopy(schedule)
    wide["blocks"]["devices"][0].update(reserved=3, memory=100)
    wide["memory_limit"][0], wide["peak_memory"][0] = 100, wide["peak_memory"][0] + 3
    _rehash(wide)
    check_schedule(wide)
    for bad in (-1, 0.5, None):
        wide["blocks"]["devices"][0]["reserved"] = bad
        with pytest.raises(Refusal):
            check_schedule(wide)


def test_a_pattern_holds_what_is_reserved() -> None:
    """Tests that a pattern that would go above the limit for ever is refused, though a short schedule stays below."""
    blocks = make_shape("vshape", 4).with_memory(4)
    made: dict[str, Any] = msgspec.to_builtins(make_schedule(blocks, 2, work_limit=60))
    made = json.loads(json.dumps(made))
    check_schedule(made)
    for device, lane in enumerate(made["blocks"]["devices"]):
        lane["reserved"] = 2
        made["peak_memory"][device] += 2
    _rehash(made)
    with pytest.raises(Refusal, match="would need"):
        check_schedule(made)


def test_an_idle_device_is_fine(schedule: dict[str, Any]) -> None:
    """Tests that what the lies above are built on is accepted."""
    changed = copy.deepcopy(schedule)
    _idle(changed)
    assert check_schedule(changed).value == schedule["makespan"]


@pytest.mark.parametrize("name", TAMPERS)
def test_changes_are_refused(schedule: dict[str, Any], name: str) -> None:
    """Tests that each change of a field that matters is found."""
    changed = copy.deepcopy(schedule)
    TAMPERS[name](changed)
    with pytest.raises(Refusal):
        check_schedule(changed)


@pytest.mark.parametrize(("field", "value"), [("scale", 0), ("scale", -1), ("micro_batches", 0), ("scaled_length", -6)])
def test_a_repetend_has_a_length(schedule: dict[str, Any], field: str, value: int) -> None:
    """Tests that scales and lengths below one are refused before anything is divided by them."""
    changed = copy.deepcopy(schedule)
    changed["repetend"][field] = value
    with pytest.raises(Refusal, match="is not in 1"):
        check_schedule(changed)


def test_an_edge_has_two_or_three_numbers(schedule: dict[str, Any]) -> None:
    """Tests that a fourth number is refused, not left unread."""
    changed = copy.deepcopy(schedule)
    changed["blocks"]["edges"][0] = [*changed["blocks"]["edges"][0], 0, 0][:4]
    _rehash(changed)
    with pytest.raises(Refusal, match="two or three numbers"):
        check_schedule(changed)


def test_proof_needs_a_bound_that_can_be_seen(schedule: dict[str, Any]) -> None:
    """Tests that a bound above loads and paths may be claimed but not called proved."""
    changed = copy.deepcopy(schedule)
    changed.update(bound=changed["makespan"], gap=0.0, proof="proved")
    assert bound_of(changed) < changed["makespan"]
    with pytest.raises(Refusal, match="proof"):
        check_schedule(changed)
    changed["proof"] = "claimed"
    check_schedule(changed)


@pytest.mark.parametrize("field", ["blocks", "actions", "makespan", "provenance", "repetend", "gap"])
def test_missing_fields_are_refused(schedule: dict[str, Any], field: str) -> None:
    """Tests that a file without a field is refused with a sentence, not with a traceback."""
    changed = copy.deepcopy(schedule)
    del changed[field]
    with pytest.raises(Refusal):
        check_schedule(changed)


def test_files_that_are_no_schedules(tmp_path: Path) -> None:
    """Tests that nonsense and a refused schedule give different errors."""
    path = tmp_path / "s.json"
    path.write_text('{"format":"weftline-schedule","version":2}')
    with pytest.raises(InputError, match="version 2"):
        verify_file(path)
    path.write_text('{"format":"weftline-schedule","version":1}')
    with pytest.raises(VerificationError, match="wrong fields"):
        verify_file(path)
    path.write_text('{"format":"weftline-schedule","version":1,"version":1}')
    with pytest.raises(InputError, match="a key stands twice"):
        verify_file(path)
    path.write_text('{"format":"weftline-schedule","version":1,"gap":1e999}')
    with pytest.raises(InputError, match="not a number"):
        verify_file(path)
