"""Tests of the Moirai importer for JSON: on an instance of our own always, on the published ones where present."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.data import present

from weftline.errors import InputError
from weftline.graph import Graph, check_graph
from weftline.importers.registry import DeviceClass, FileCosts, ImportOptions
from weftline.papers.moirai.instance import IMPORTERS

ZERO = [[0.0, 0.0], [0.0, 0.0]]

# Ops (the virtual source included), tensors, edges, and nanoseconds of the best single device.
FACTS = {
    "example-1.json": (14, 14, 19, 65_000_000_000),
    "GoogLeNet.json": (141, 140, 167, 2_336_000_000),
    "yolov5x.json": (419, 416, 461, 24_169_000_000),
}


def op(identity: int, time: list[float], mem: int, virtual: bool = False) -> dict[str, Any]:
    return {"id": identity, "time": time, "mem": mem, "virtual": virtual}


def edge(source: int, target: int, identity: int | None, comm: list[list[float]]) -> dict[str, Any]:
    return {"src": source, "dst": target, "comm_id": identity, "comm": comm}


def small() -> dict[str, Any]:
    """A virtual source, a fork with two equal matrices and a different one, and a join."""
    near, far = [[0.0, 0.25926], [0.28772, 0.0]], [[0.0, 1.5], [0.1, 0.0]]
    return {
        "name": "small",
        "num_devices": 2,
        "device_mem": [14, 16],
        "ops": [
            op(0, [0.0, 0.0], 0, True),
            op(1, [0.014, 0.044], 100352),
            op(4, [8.0, 9.0], 5),
            op(5, [0.1, 0.7], 0),
            op(6, [0.3, 0.29999], 2),
            op(9, [1e-05, 2.0], 1),
        ],
        "edges": [
            edge(0, 1, None, ZERO),
            edge(1, 4, 2, near),
            edge(1, 5, 3, far),
            edge(1, 6, 10, near),
            edge(4, 9, 7, near),
            edge(5, 9, 8, far),
            edge(6, 9, 11, ZERO),
        ],
    }


def write(folder: Path, instance: Any) -> Path:
    path = folder / "small.json"
    path.write_text(instance if isinstance(instance, str) else json.dumps(instance))
    return path


def read(path: Path) -> tuple[Graph, FileCosts]:
    with path.open("rb") as file:
        head = file.read(4096)
    (importer,) = (importer for importer in IMPORTERS if importer.accepts(path, head))
    graph, costs = importer.read(path, ImportOptions())
    assert costs is not None
    return graph, costs


def test_small_instance(tmp_path: Path) -> None:
    """Tests that every number of a file arrives at the op, tensor or device it belongs to."""
    graph, costs = read(write(tmp_path, small()))
    assert graph.name == "small"
    assert [(o.name, o.kind, o.weight_bytes) for o in graph.ops[:3]] == [
        ("op0", "virtual", 0),
        ("op1", "", 100352),
        ("op4", "", 5),
    ]
    assert costs.classes == (DeviceClass("d0", "device", 1, 14), DeviceClass("d1", "device", 1, 16))
    assert costs.time[1:].tolist() == [
        [14_000_000, 44_000_000],
        [8_000_000_000, 9_000_000_000],
        [100_000_000, 700_000_000],
        [300_000_000, 299_990_000],
        [10_000, 2_000_000_000],
    ]
    near, far = [[0, 259_260_000], [287_720_000, 0]], [[0, 1_500_000_000], [100_000_000, 0]]
    moved = {
        tensor.name: (tensor.consumers, costs.transfer[row].tolist())
        for tensor, row in zip(graph.tensors, costs.transfer_row, strict=True)
    }
    assert moved == {
        "op0:0": ((1,), [[0, 0], [0, 0]]),
        "op1:0": ((2, 4), near),
        "op1:1": ((3,), far),
        "op4:0": ((5,), near),
        "op5:0": ((5,), far),
        "op6:0": ((5,), [[0, 0], [0, 0]]),
    }
    assert len(costs.transfer) == 3
    assert (costs.transfers, costs.memory, costs.together) == ("per-edge", "static", ())


def test_order_follows_the_graph(tmp_path: Path) -> None:
    """Tests that times follow their op when the file lists ops against the topological order."""
    instance = small()
    instance["ops"].reverse()
    graph, costs = read(write(tmp_path, instance))
    expected = {f"op{o['id']}": round(o["time"][1] * 1e9) for o in instance["ops"]}
    assert {o.name: int(costs.time[i, 1]) for i, o in enumerate(graph.ops)} == expected
    assert graph.ops[0].name == "op0"


@pytest.mark.parametrize("own", [True, False], ids=["own", "published"])
def test_known_facts(own: bool, tmp_path: Path) -> None:
    """Tests counts and single-device sums of our own instance and of the published files."""
    mine = {write(tmp_path, small()): (6, 6, 7, 8_414_010_000)}
    for path, facts in (mine if own else {present(f"moirai/{name}"): facts for name, facts in FACTS.items()}).items():
        graph, costs = read(path)
        check_graph(graph)
        best = int(costs.time.sum(axis=0).min())
        edges = sum(len(tensor.consumers) for tensor in graph.tensors)
        assert (len(graph.ops), len(graph.tensors), edges, best) == facts
        assert graph.name == path.stem
        assert [o.name for o in graph.ops if o.kind == "virtual"] == ["op0"]


def test_name_from_the_file_name(tmp_path: Path) -> None:
    """Tests that an instance without a name is called after its file."""
    instance = small()
    del instance["name"]
    path = tmp_path / "other.json"
    path.write_text(json.dumps(instance))
    assert read(path)[0].name == "other"


def test_times_below_a_nanosecond_are_rounded(tmp_path: Path) -> None:
    """Tests that nine decimals are exact and that more are rounded to the nearest nanosecond."""
    instance = small()
    instance["ops"][1]["time"] = [123456.789012345, 0.0000000016]
    _, costs = read(write(tmp_path, instance))
    assert costs.time[1].tolist() == [123456789012345, 2]


def _set(*path: Any, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(instance: dict[str, Any]) -> None:
        place: Any = instance
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = to

    return change


BAD = {
    "too few times": (_set("ops", 2, "time", to=[1.0]), r"ops\[2\].*1 times for 2"),
    "negative time": (_set("ops", 2, "time", to=[1.0, -1.0]), r"ops\[2\].*time is negative"),
    "huge time": (_set("ops", 2, "time", to=[1.0, 1e300]), r"ops\[2\].*absurdly large"),
    "sum of times": (lambda i: [o.update(time=[1e9, 0]) for o in i["ops"]], "sum of times"),
    "text as time": (_set("ops", 2, "time", to=["1", 2]), r"ops\[2\].time\[0\]"),
    "negative mem": (_set("ops", 2, "mem", to=-1), r"ops\[2\].mem"),
    "huge mem": (_set("ops", 2, "mem", to=2**61), r"ops\[2\].mem"),
    "duplicate id": (_set("ops", 2, "id", to=1), r"ops\[2\].*id 1 is used twice"),
    "negative id": (_set("ops", 2, "id", to=-1), r"ops\[2\].id"),
    "device_mem": (_set("device_mem", to=[1]), "device_mem has 1 entries for 2"),
    "no devices": (_set("num_devices", to=0), "num_devices"),
    "many devices": (_set("num_devices", to=100_000), "num_devices"),
    "unknown source": (_set("edges", 1, "src", to=77), r"edges\[1\].*src 77"),
    "unknown target": (_set("edges", 1, "dst", to=77), r"edges\[1\].*dst 77"),
    "self-loop": (_set("edges", 1, "dst", to=1), r"edges\[1\].*its own input"),
    "second edge": (_set("edges", 2, "dst", to=4), r"edges\[2\].*second edge from 1 to 4"),
    "cycle": (lambda i: i["edges"].append(edge(9, 1, 12, ZERO)), "cycle"),
    "ragged": (_set("edges", 1, "comm", to=[[0.0, 1.0], [1.0]]), r"edges\[1\].*2 x 2"),
    "too small": (_set("edges", 1, "comm", to=[[0.0]]), r"edges\[1\].*2 x 2"),
    "diagonal": (_set("edges", 1, "comm", to=[[1.0, 1.0], [1.0, 0.0]]), r"edges\[1\].*diagonal"),
    "negative comm": (_set("edges", 1, "comm", to=[[0.0, -1.0], [1.0, 0.0]]), r"edges\[1\].*comm is negative"),
    "sum of comm": (lambda i: [e.update(comm=[[0, 1e9], [0, 0]], comm_id=1) for e in i["edges"]], "sum of transfer"),
    "costly free edge": (_set("edges", 1, "comm_id", to=None), r"edges\[1\].*free"),
    "comm missing": (_set("edges", 1, "comm", to=None), r"edges\[1\].*comm is missing"),
    "no ops": (lambda i: i.update(ops=[], edges=[]), "0"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_values(tmp_path: Path, case: str) -> None:
    """Tests that each wrong value has an error that says what is wrong and where."""
    change, message = BAD[case]
    instance = small()
    change(instance)
    with pytest.raises(InputError, match=message):
        read(write(tmp_path, instance))


def test_broken_json(tmp_path: Path) -> None:
    """Tests that broken JSON is reported with line and column."""
    with pytest.raises(InputError, match="line 2, column 9"):
        read(write(tmp_path, '{"num_devices": 2,\n "ops": ]}'))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("moirai")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_files(folder: Path, data: st.DataObject) -> None:
    """Tests that a truncated or altered file is either read into a valid graph or refused with an InputError."""
    good = json.dumps(small()).encode()
    content = bytearray(good[: data.draw(st.integers(0, len(good)))] if data.draw(st.booleans()) else good)
    for _ in range(data.draw(st.integers(0, 4))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path = folder / "damaged.json"
    path.write_bytes(content)
    for importer in IMPORTERS:
        if importer.accepts(path, bytes(content[:4096])):
            try:
                graph, costs = importer.read(path, ImportOptions())
            except InputError:
                continue
            assert costs is not None
            assert costs.time.shape == (len(check_graph(graph).ops), len(costs.classes))
