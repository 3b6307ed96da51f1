"""Inputs that fuzzing found: each broke a reader once, or made it ask for far more than it needs."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from reliability.fuzz_seeds import seeds

from weftline.ask.fit_story import explain_fit
from weftline.certify import check, verify_file
from weftline.certify.check_schedule import read_schedule
from weftline.cost.table import check_table_size, expand_file_costs
from weftline.errors import InputError, VerificationError
from weftline.export.torch_csv import read_torch_csv
from weftline.files import read_limited
from weftline.importers import read_file
from weftline.plans import Plan, load_plan
from weftline.plans.fit import load_fit_plan
from weftline.plans.schedule import load_schedule
from weftline.problem import read_blocks
from weftline.problem.layers import read_layers


def _plan(folder: Path, **changes: object) -> Plan:
    data = json.loads(seeds("plan")[0])
    path = folder / "plan.json"
    path.write_text(json.dumps({**data, **changes}))
    return load_plan(path)


def test_a_limit_is_not_an_allocation(tmp_path: Path) -> None:
    """Tests that a small file costs little memory, however large its limit is: all readers together took 1 GiB."""
    path = tmp_path / "small"
    path.write_bytes(b"12345")
    tracemalloc.start()
    try:
        assert read_limited(path, 2**30) == b"12345"
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_files_that_have_no_size() -> None:
    """Tests that what the system says is empty is read to its end, up to the limit."""
    path = Path("/proc/self/status")
    assert path.stat().st_size == 0
    assert read_limited(path, 2**20).startswith(b"Name:")
    with pytest.raises(InputError, match="larger than 3 bytes"):
        read_limited(path, 3)


def test_messages_do_not_repeat_the_file(tmp_path: Path) -> None:
    """Tests that a file with an endless name in it gives a short message, from the reader and from the checkers."""
    path = tmp_path / "g.json"
    path.write_text(json.dumps({"format": "weftline-graph", "version": 1, "a" * 70_000: 1}))
    with pytest.raises(InputError, match="not a weftline graph") as caught:
        read_file(path)
    assert len(str(caught.value)) < 5_000
    assert len(str(check.Refusal("devices", "a" * 70_000))) < 3_000


@pytest.mark.parametrize("data", [b'{"na\xb5', b"\xff\xfe{}"])
def test_blocks_that_are_no_text(data: bytes, tmp_path: Path) -> None:
    """Tests bytes that are not UTF-8, inside a string and outside."""
    path = tmp_path / "b.json"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"b\.json: is not blocks"):
        read_blocks(path)


def test_nobody_waits_for_a_pipe(tmp_path: Path) -> None:
    """Tests that files of blocks, rows and schedules must be regular files."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="not a regular file"):
        read_blocks(pipe)
    with pytest.raises(InputError, match="not a regular file"):
        read_torch_csv(pipe)
    with pytest.raises(check.Unreadable, match="not a regular file"):
        read_schedule(str(pipe))
    for kind in ("plan", "schedule"):
        with pytest.raises(InputError, match="not a regular file"):
            verify_file(pipe)
        pipe = pipe.rename(tmp_path / f"{kind}.json")


def test_summary_of_a_plan_without_a_place(tmp_path: Path) -> None:
    """Tests a placement that lacks an op, which was a KeyError."""
    plan = _plan(tmp_path)
    lacking = dict(list(plan.placement.items())[1:])
    with pytest.raises(InputError, match="does not fit"):
        _plan(tmp_path, placement=lacking).summary()


@pytest.mark.parametrize("reader", [-1, 10**30])
def test_summary_of_a_plan_with_odd_readers(reader: int, tmp_path: Path) -> None:
    """Tests a tensor that an op reads which does not exist, which was an IndexError."""
    plan = _plan(tmp_path)
    problem = json.loads(msgspec.json.encode(plan.problem))
    problem["graph"]["tensors"][0]["consumers"] = [reader]
    with pytest.raises(InputError, match="does not exist"):
        _plan(tmp_path, problem=problem).summary()


def test_summary_with_a_baseline_of_no_time(tmp_path: Path) -> None:
    """Tests a baseline of 0 ns beside a plan that takes time, which was a division by zero."""
    assert "greedy" in _plan(tmp_path, value_ns=7, baselines={"greedy": 0}).summary()


def test_actions_that_end_after_all_times(tmp_path: Path) -> None:
    """Tests an end of 10^400, which no float can hold, and one before the start."""
    data = json.loads(seeds("schedule")[0])
    for end in (10**400, -1):
        data["actions"][0][0]["end"] = end
        path = tmp_path / "s.json"
        path.write_text(json.dumps(data))
        with pytest.raises(InputError, match="ends before it starts or after"):
            load_schedule(path).timetable()


def test_few_bytes_that_ask_for_a_large_table(tmp_path: Path) -> None:
    """Tests that the tables of times and transfers have one limit together, and that they are made only once."""
    check_table_size(2**12, 3, 2**12)
    with pytest.raises(InputError, match="need a table of"):
        check_table_size(2**12 + 1, 3, 2**12)
    file = json.loads(seeds("msr-fiddle")[0]) | {"maxFPGAs": 400}
    path = tmp_path / "m.json"
    path.write_text(json.dumps(file))
    costs = read_file(path).costs
    assert costs is not None
    tracemalloc.start()
    try:
        made = expand_file_costs(costs)
        assert tracemalloc.get_traced_memory()[1] < 1.5 * made.transfer.nbytes
    finally:
        tracemalloc.stop()


def _fit_plan(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    data = json.loads(seeds("fit-plan")[1])
    change(data)
    path = folder / "fit.json"
    path.write_text(json.dumps(data))
    return path


TAMPERED_FITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "a row of no kind": lambda plan: plan["problem"]["rows"].__setitem__(0, 99),
    "a unit that takes nothing": lambda plan: plan["problem"]["units"][0].update(takes=[]),
    "hops of no unit": lambda plan: plan["problem"].update(hop_ns=[]),
    "one layer of two": lambda plan: plan["devices"][0].update(layers=[3]),
}


@pytest.mark.parametrize("name", TAMPERED_FITS)
def test_plans_of_language_models_that_cannot_be(name: str, tmp_path: Path) -> None:
    """Tests that a broken problem inside a plan is one error when it is read (its tables were looked up)."""
    with pytest.raises(InputError, match=r"fit\.json"):
        load_fit_plan(_fit_plan(tmp_path, TAMPERED_FITS[name]))


def test_a_plan_of_a_language_model_with_odd_words(tmp_path: Path) -> None:
    """Tests engines without a name, bounds of nothing, and segments on no unit."""
    plan = load_fit_plan(_fit_plan(tmp_path, lambda plan: plan["terms"].update(engine="other")))
    assert "other" in plan.summary()
    plan = load_fit_plan(_fit_plan(tmp_path, lambda plan: plan.update(bound_ns=0, proof="claimed")))
    assert "nothing is known" in plan.summary()
    plan = load_fit_plan(_fit_plan(tmp_path, lambda plan: plan["segments"][0].update(unit=77)))
    with pytest.raises(VerificationError, match="a segment is on no unit"):
        explain_fit(plan)


def test_no_error_is_its_own_cause(tmp_path: Path) -> None:
    """Tests that whoever walks from an error to its causes comes to an end."""
    problem = json.loads(seeds("layers")[0])
    problem["units"][0]["pool"] = 7
    path = tmp_path / "layers.json"
    path.write_text(json.dumps(problem))
    with pytest.raises(InputError, match="of no pool") as caught:
        read_layers(path)
    assert caught.value.__cause__ is not caught.value
