"""The problem's JSON: canonical, hashed, and read without trust."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weftline.cluster import Device
from weftline.cost import CostTable
from weftline.errors import InfeasibleError, InputError
from weftline.graph import Op, Tensor, assemble
from weftline.problem import Problem, load_problem, problem_from_json, problem_hash, problem_to_json
from weftline.problem.model import ProblemFile, problem_to_file
from weftline.testing import random_problem

SMALL = Problem(
    assemble("g", [Op("a"), Op("b"), Op("c")], [Tensor("t", 0, (1,)), Tensor("u", 1, (2,))]),
    (Device("gpu", "gpu", 100, reserve=30, runtime="ort:CPU"), Device("cpu", "cpu", None, host=True)),
    CostTable(
        np.array([[1, 2], [3, -1], [1, 2]], np.int64),
        np.array([[[0, 9], [9, 0]], [[0, 5], [-1, 0]], [[0, 5], [-1, 0]]], np.int64),
        np.array([2, 1], np.int32),
        "by hand",
    ),
    together=((0, 2),),
    buses=((0, 1, "usb"),),
)
BYTES = problem_to_json(SMALL)
FORM: dict[str, Any] = json.loads(BYTES)
HASH = "c97b61014db52d337c4ffdde1e3c05471b3adb60c3faed20666274694e9d03e7"


def test_canonical_form() -> None:
    """Tests that equal rows are stored once, unused ones not at all, in order of first use."""
    assert FORM["time_rows"] == [[1, 2], [3, -1]]
    assert FORM["time_row"] == [0, 1, 0]
    assert FORM["transfer_rows"] == [[0, 5, -1, 0]]
    assert FORM["transfer_row"] == [0, 0]
    assert FORM["devices"] == [
        {"id": "gpu", "kind": "gpu", "capacity": 70, "runtime": "ort:CPU"},
        {"id": "cpu", "kind": "cpu", "host": True},
    ]
    assert list(FORM) == list(ProblemFile.__struct_fields__)


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_round_trip(objective: str) -> None:
    """Tests that reading and writing again gives the same bytes and the same hash."""
    for seed in range(80):
        problem = random_problem(seed, objective)  # type: ignore[arg-type]
        data = problem_to_json(problem)
        again = problem_from_json(data)
        assert problem_to_json(again) == data
        assert problem_hash(problem_to_file(again)) == problem_hash(problem_to_file(problem))
        assert again.graph == problem.graph
        assert np.array_equal(again.cost.time, problem.cost.time)
        used = problem.cost.transfer[problem.cost.transfer_row]
        assert np.array_equal(again.cost.transfer[again.cost.transfer_row], used)
        assert (again.together, again.buses, again.rules) == (problem.together, problem.buses, problem.rules)
        assert again.capacity.tolist() == problem.capacity.tolist()


def test_hash_is_stable() -> None:
    """Tests that the hash of a fixed problem never changes unnoticed, and does not depend on how a file is laid out."""
    file = problem_to_file(SMALL)
    pretty = json.dumps(FORM, indent=2, sort_keys=True).encode()
    assert problem_hash(msgspec.json.decode(pretty, type=ProblemFile)) == problem_hash(file)
    assert problem_hash(file) == HASH


@pytest.mark.parametrize(
    "other",
    [
        replace(SMALL, together=()),
        replace(SMALL, buses=()),
        replace(SMALL, cost=SMALL.cost.with_time(SMALL.cost.time + 1)),
        replace(SMALL, rules=msgspec.structs.replace(SMALL.rules, memory="static")),
        replace(SMALL, devices=(SMALL.devices[0], Device("cpu", "cpu", 5, host=True))),
    ],
)
def test_hash_sees_every_part(other: Problem) -> None:
    """Tests that another question has another hash."""
    assert problem_hash(problem_to_file(other)) != problem_hash(problem_to_file(SMALL))


def test_no_tensors() -> None:
    """Tests that a problem without a single tensor can be written and read."""
    problem = Problem(
        assemble("dot", [Op("a")], []),
        SMALL.devices[:1],
        CostTable(np.ones((1, 1), np.int64), np.zeros((0, 1, 1), np.int64), np.zeros(0, np.int32)),
    )
    assert problem_to_json(problem_from_json(problem_to_json(problem))) == problem_to_json(problem)


Edit = Callable[[dict[str, Any]], object]


def _set(*path: object, to: object) -> Edit:
    def edit(form: Any) -> None:
        for key in path[:-1]:
            form = form[key]
        form[path[-1]] = to

    return edit


BAD: dict[str, tuple[Edit, str]] = {
    "other version": (_set("version", to=2), "$.version"),
    "field missing": (lambda f: f.pop("rules"), "rules"),
    "unknown field": (_set("colour", to=1), "colour"),
    "unknown rule": (_set("rules", "runtime", to="magic"), "$.rules.runtime"),
    "unknown field of a device": (_set("devices", 0, "colour", to=1), "$.devices[0]"),
    "no device": (_set("devices", to=[]), "devices: a problem has at least one device"),
    "device id with spaces": (_set("devices", 0, "id", to="my gpu"), "devices[0].id"),
    "device id empty": (_set("devices", 0, "id", to=""), "devices[0].id"),
    "device id with markup": (_set("devices", 0, "id", to="<b>"), "devices[0].id"),
    "device id with a newline": (_set("devices", 0, "id", to="gpu\n"), "devices[0].id"),
    "device id twice": (_set("devices", 1, "id", to="gpu"), "two devices have the same id"),
    "kind with an escape": (_set("devices", 0, "kind", to="\x1b[31m"), "devices[0]"),
    "capacity negative": (_set("devices", 0, "capacity", to=-1), "devices[0].capacity"),
    "capacity absurd": (_set("devices", 0, "capacity", to=10**30), "devices[0].capacity"),
    "time rows ragged": (_set("time_rows", 0, to=[1]), "time_rows"),
    "time absurd": (_set("time_rows", 0, 0, to=10**30), "time_rows"),
    "time too large": (_set("time_rows", 0, 0, to=2**61), "time lies outside"),
    "time very negative": (_set("time_rows", 0, 0, to=-2), "time lies outside"),
    "time as boolean": (_set("time_rows", 0, 0, to=True), "$.time_rows[0][0]"),
    "time as fraction": (_set("time_rows", 0, 0, to=1.5), "$.time_rows[0][0]"),
    "time row nowhere": (_set("time_row", 0, to=7), "time_row: refers to a row"),
    "time row negative": (_set("time_row", 0, to=-1), "time_row: refers to a row"),
    "time row absurd": (_set("time_row", 0, to=10**30), "time_row: refers to a row"),
    "too few times": (_set("time_row", to=[0]), "do not fit 3 ops"),
    "no time rows": (lambda f: f.update(time_rows=[], time_row=[]), "do not fit 3 ops"),
    "transfer rows ragged": (_set("transfer_rows", 0, to=[0, 1]), "transfer_rows"),
    "transfer absurd": (_set("transfer_rows", 0, 1, to=10**30), "transfer_rows"),
    "transfer to itself": (_set("transfer_rows", 0, 0, to=1), "from a device to itself"),
    "transfer row nowhere": (_set("transfer_row", 0, to=1), "transfer_row: refers to a row"),
    "too few transfers": (_set("transfer_row", to=[0]), "do not fit"),
    "together nowhere": (_set("together", to=[[0, 9]]), "together"),
    "together absurd": (_set("together", to=[[0, 10**30]]), "together"),
    "together overlapping": (_set("together", to=[[0, 1], [1, 2]]), "together"),
    "bus nowhere": (_set("buses", to=[[0, 9, "x"]]), "buses"),
    "bus of two": (_set("buses", to=[[0, 1]]), "$.buses[0]"),
    "stages negative": (_set("rules", "stages", to=-1), "rules.stages"),
    "stages absurd": (_set("rules", "stages", to=10**30), "rules.stages"),
    "graph cyclic": (_set("graph", "tensors", 1, "consumers", to=[0]), "cycle: "),
    "graph unsorted": (
        lambda f: f["graph"].update(tensors=[{"name": "t", "producer": 2, "consumers": [0]}], tied=[]),
        "topological",
    ),
    "graph empty": (lambda f: f["graph"].update(ops=[], tensors=[], tied=[]), "a graph has 1 to"),
    "graph is a list": (_set("graph", to=[]), "$.graph"),
    "duplicate op": (_set("graph", "ops", 1, "name", to="a"), "duplicate op name 'a'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_problems(tmp_path: Path, name: str) -> None:
    """Tests that each kind of bad problem file is an `InputError` that names file and place."""
    edit, place = BAD[name]
    form = copy.deepcopy(FORM)
    edit(form)
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(form), encoding="utf-8")
    with pytest.raises(InputError) as error:
        load_problem(path)
    assert str(error.value).startswith(str(path))
    assert place in str(error.value)


@pytest.mark.parametrize(
    "data",
    [
        BYTES[:-30],
        BYTES + b"x",
        BYTES.replace(b'"by hand"', b'"\\ud800"'),
        BYTES.replace(b'"by hand"', b'"\xff"'),
        BYTES.replace(b'"by hand"', b"[" * 100_000),
        BYTES.replace(b'"by hand"', b"1" * 10_000),
        BYTES.replace(b'"by hand"', b"NaN"),
        b'{"format":"weftline-problem","x":' + b"[" * 100_000,
    ],
)
def test_broken_bytes(tmp_path: Path, data: bytes) -> None:
    """Tests that what is not even JSON is an `InputError` that names the file."""
    assert data != BYTES
    path = tmp_path / "problem.json"
    path.write_bytes(data)
    with pytest.raises(InputError, match="not a weftline problem") as error:
        load_problem(path)
    assert str(path) in str(error.value)


@settings(max_examples=300)
@given(st.data())
def test_damaged_bytes(data: st.DataObject) -> None:
    """Tests that flipped bits and cut ends give a problem or an `InputError`, nothing else."""
    damaged = bytearray(BYTES[: data.draw(st.one_of(st.just(len(BYTES)), st.integers(1, len(BYTES))))])
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        problem = problem_from_json(bytes(damaged))
    except InputError:
        return
    assert problem_to_json(problem_from_json(problem_to_json(problem))) == problem_to_json(problem)


@settings(max_examples=300)
@given(st.data())
def test_replaced_values(data: st.DataObject) -> None:
    """Tests that any JSON value anywhere in a problem gives a problem or an `InputError`."""
    form = copy.deepcopy(FORM)
    holder: Any = form
    key: Any = data.draw(st.sampled_from(sorted(form)))
    while isinstance(holder[key], dict | list) and holder[key] and data.draw(st.booleans()):
        holder = holder[key]
        key = data.draw(st.sampled_from(sorted(holder) if isinstance(holder, dict) else range(len(holder))))
    leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3))
    holder[key] = data.draw(st.one_of(leaves, st.lists(leaves, max_size=3), st.just(10**30)))
    try:
        problem_from_json(json.dumps(form).encode())
    except InputError:
        return


def test_infeasible_files_are_not_called_broken(tmp_path: Path) -> None:
    """Tests that a well-formed problem without a plan is infeasible, not bad input."""
    form = copy.deepcopy(FORM)
    form["time_rows"][1] = [-1, -1]
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(form), encoding="utf-8")
    with pytest.raises(InfeasibleError, match="no device can run op 'b'"):
        load_problem(path)


def test_speed_is_kept_and_left_out_where_it_is_one() -> None:
    """Tests that a slowed device stays so, that old files mean full speed, and that no other speed is read."""
    half = replace(SMALL, devices=(msgspec.structs.replace(SMALL.devices[0], speed=0.5), SMALL.devices[1]))
    data = problem_to_json(half)
    assert json.loads(data)["devices"][0]["speed"] == 0.5
    assert [device.speed for device in problem_from_json(data).devices] == [0.5, 1.0]
    assert b"speed" not in BYTES
    with pytest.raises(InputError, match=r"devices\[0\]\.speed: 1\.5 is not in"):
        problem_from_json(data.replace(b"0.5", b"1.5"))
