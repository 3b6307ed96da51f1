"""Tests of the msr-fiddle importer: on a small instance of our own always, on the published files where present."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.data import present, published

from weftline.errors import InputError
from weftline.graph import Graph, check_graph
from weftline.importers.registry import DeviceClass, FileCosts, ImportOptions
from weftline.papers.fiddle import IMPORTERS

PUBLISHED = published("fiddle", "*/*.json")
(IMPORTER,) = IMPORTERS

# Ops, tensors, colour classes of two or more, accelerators; counted in the files by hand.
FACTS = {
    "throughput/layer_bert24_training.json": (64, 60, 32, 6),
    "throughput/op_bert_l-3_training.json": (600, 537, 121, 3),
    "throughput/op_resnet50_inference.json": (604, 390, 108, 6),
    "throughput/layer_gnmt_inference.json": (96, 79, 0, 6),
    "latency/layer_bert24_inference.json": (32, 30, 0, 5),
}


def node(identity: int, cpu: float, accelerator: float, **more: Any) -> dict[str, Any]:
    fields = {"supportedOnFpga": 1, "isBackwardNode": 0, "size": 10.0, "name": f"n{identity}", **more}
    return {"id": identity, "cpuLatency": cpu, "fpgaLatency": accelerator, **fields}


def edge(source: int, target: int, cost: float) -> dict[str, Any]:
    return {"sourceId": source, "destId": target, "cost": cost, "size": 1.0}


def small() -> dict[str, Any]:
    """Listed against the topological order: 9 -> 4 -> 7 forward, 7 -> 5 -> 2 backward, 9 -> 7 a skip."""
    return {
        "maxSizePerFPGA": 629145600.0,
        "maxFPGAs": 2,
        "maxCPUs": 1,
        "nodes": [
            node(2, 5.0, 0.5, isBackwardNode=True, colorClass=1),
            node(5, 4.0, 0.4, isBackwardNode=1, colorClass=0),
            node(7, 3.0, 0.3, supportedOnFpga=False),
            node(4, 2.0, 0.2, supportedOnFpga=True, colorClass=0, size=1024.0, layerId=3),
            node(9, 1.5, 6.959999999999999, colorClass=1),
        ],
        "edges": [edge(9, 4, 0.25), edge(9, 7, 0.25), edge(4, 7, 1.0), edge(7, 5, 0.25), edge(5, 2, 0.0)],
    }


def write(folder: Path, instance: Any) -> Path:
    path = folder / "small.json"
    path.write_text(instance if isinstance(instance, str) else json.dumps(instance))
    return path


def read(path: Path) -> tuple[Graph, FileCosts]:
    with path.open("rb") as file:
        assert IMPORTER.accepts(path, file.read(4096))
    graph, costs = IMPORTER.read(path, ImportOptions())
    assert costs is not None
    return graph, costs


def test_small_instance(tmp_path: Path) -> None:
    """Tests that every number of a file arrives at the op, tensor or device it belongs to."""
    graph, costs = read(write(tmp_path, small()))
    assert graph.name == "small"
    assert [op.name for op in graph.ops] == ["n9", "n4", "n7", "n5", "n2"]
    assert [op.weight_bytes for op in graph.ops] == [10, 1024, 10, 10, 10]
    assert [op.backward for op in graph.ops] == [False, False, False, True, True]
    acc, cpu = DeviceClass("acc", "accelerator", 2, 629145600), DeviceClass("cpu", "cpu", 1, None, host=True)
    assert costs.classes == (acc, cpu)
    milliseconds = [[6.96, 1.5], [0.2, 2.0], [-1e-6, 3.0], [0.4, 4.0], [0.5, 5.0]]
    assert costs.time.tolist() == [[round(value * 1e6) for value in row] for row in milliseconds]
    moved = {
        tensor.name: (tensor.consumers, costs.transfer[row].tolist())
        for tensor, row in zip(graph.tensors, costs.transfer_row, strict=True)
    }
    quarter, one = [[250_000, 250_000], [250_000, 0]], [[1_000_000, 1_000_000], [1_000_000, 0]]
    assert moved == {
        "n9:0": ((1, 2), quarter),
        "n4:0": ((2,), one),
        "n7:0": ((3,), quarter),
        "n5:0": ((4,), [[0, 0], [0, 0]]),
    }
    assert costs.together == ((0, 4), (1, 3))
    assert (costs.transfers, costs.memory) == ("per-tensor", "static")


def test_different_costs_of_a_source(tmp_path: Path) -> None:
    """Tests that a source whose edges cost different times gets one tensor per cost."""
    instance = small()
    instance["edges"][1]["cost"] = 0.75
    graph, costs = read(write(tmp_path, instance))
    made = [
        (t.name, t.consumers, int(costs.transfer[costs.transfer_row[i], 0, 0])) for i, t in enumerate(graph.tensors)
    ]
    assert [row for row in made if row[0].startswith("n9")] == [("n9:0", (1,), 250_000), ("n9:1", (2,), 750_000)]


@pytest.mark.parametrize(("field", "left"), [("maxFPGAs", "cpu"), ("maxCPUs", "acc")])
def test_class_without_devices(tmp_path: Path, field: str, left: str) -> None:
    """Tests that a class of 0 devices is left out of classes, times and transfers."""
    graph, costs = read(write(tmp_path, {**small(), field: 0}))
    assert [device.id for device in costs.classes] == [left]
    assert costs.time.shape == (5, 1)
    assert costs.transfer.shape[1:] == (1, 1)
    assert costs.time[graph.index["n7"], 0] == (-1 if left == "acc" else 3_000_000)
    assert bool(costs.transfer.any()) == (left == "acc")


def test_names(tmp_path: Path) -> None:
    """Tests that missing, repeated and very long names become unique ones that the graph allows."""
    instance = small()
    for place, name in enumerate(["x", "x", "", "x#5", "y" * 2000]):
        instance["nodes"][place]["name"] = name
    graph, _ = read(write(tmp_path, instance))
    assert {op.name for op in graph.ops} == {"x", "x#5", "x#5+", "node7", "y" * 900}


def test_marker_behind_the_head(tmp_path: Path) -> None:
    """Tests that the format is recognised when its own keys stand behind the first 4096 bytes."""
    instance = {"comment": "-" * 5000, **small()}
    graph, _ = read(write(tmp_path, instance))
    assert len(graph.ops) == 5


@pytest.mark.parametrize("content", ['{"nodes": []}', "[1]", "maxFPGAs", '"maxFPGAs"', ""])
def test_other_files_are_not_accepted(tmp_path: Path, content: str) -> None:
    """Tests that a file without the marker, or that is no JSON object, is left to other importers."""
    path = write(tmp_path, content)
    assert not IMPORTER.accepts(path, content.encode())


def _set(*path: Any, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(instance: dict[str, Any]) -> None:
        place: Any = instance
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = to

    return change


def _drop(*path: Any) -> Callable[[dict[str, Any]], None]:
    def change(instance: dict[str, Any]) -> None:
        place: Any = instance
        for step in path[:-1]:
            place = place[step]
        del place[path[-1]]

    return change


BAD = {
    "missing cpuLatency": (_drop("nodes", 3, "cpuLatency"), r"nodes\[3\].*cpuLatency"),
    "missing fpgaLatency": (_drop("nodes", 3, "fpgaLatency"), r"nodes\[3\].*fpgaLatency is missing"),
    "missing size": (_drop("nodes", 0, "size"), r"nodes\[0\].*size"),
    "missing edges": (_drop("edges"), "edges"),
    "missing cost": (_drop("edges", 0, "cost"), r"edges\[0\].*cost"),
    "negative time": (_set("nodes", 2, "cpuLatency", to=-1), r"nodes\[2\].*cpuLatency is negative"),
    "huge time": (_set("nodes", 2, "cpuLatency", to=1e300), r"nodes\[2\].*absurdly large"),
    "sum of times": (lambda i: [n.update(cpuLatency=1e12) for n in i["nodes"]], "sum of times"),
    "text as time": (_set("nodes", 2, "cpuLatency", to="1"), r"nodes\[2\].cpuLatency.*float"),
    "negative size": (_set("nodes", 2, "size", to=-1), "size is negative"),
    "huge size": (_set("nodes", 2, "size", to=1e30), "size is absurdly large"),
    "flag 2": (_set("nodes", 2, "supportedOnFpga", to=2), r"nodes\[2\].supportedOnFpga"),
    "duplicate id": (_set("nodes", 2, "id", to=5), r"nodes\[2\].*id 5 is used twice"),
    "negative id": (_set("nodes", 2, "id", to=-5), r"nodes\[2\].id"),
    "unknown source": (_set("edges", 1, "sourceId", to=77), r"edges\[1\].*sourceId 77"),
    "unknown target": (_set("edges", 1, "destId", to=77), r"edges\[1\].*destId 77"),
    "self-loop": (_set("edges", 1, "destId", to=9), r"edges\[1\].*its own input"),
    "cycle": (_set("edges", 4, "destId", to=9), "cycle"),
    "negative cost": (_set("edges", 1, "cost", to=-0.5), r"edges\[1\].*cost is negative"),
    "sum of costs": (lambda i: [e.update(cost=1e12) for e in i["edges"]], "sum of transfer times"),
    "too many devices": (_set("maxFPGAs", to=4097), "maxFPGAs"),
    "negative devices": (_set("maxCPUs", to=-1), "maxCPUs"),
    "negative memory": (_set("maxSizePerFPGA", to=-1), "maxSizePerFPGA is negative"),
    "no nodes": (lambda i: i.update(nodes=[], edges=[]), "0"),
    "no devices": (lambda i: i.update(maxFPGAs=0, maxCPUs=0), "both 0"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_values(tmp_path: Path, case: str) -> None:
    """Tests that each wrong value has an error that says what is wrong and where."""
    change, message = BAD[case]
    instance = small()
    change(instance)
    with pytest.raises(InputError, match=message):
        read(write(tmp_path, instance))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"maxFPGAs": 1,\n "maxCPUs": NaN}', "line 2, column 13"),
        ('{"maxFPGAs": 1,\n "maxCPUs": 1', "line 2, column 14"),
        ('{"maxFPGAs": ' + "[" * 100_000, "deep|not valid|Expected"),
        ('{"x": ' + "[" * 100_000 + ', "maxFPGAs": 1}', "nested too deeply"),
    ],
)
def test_broken_json(tmp_path: Path, text: str, message: str) -> None:
    """Tests that broken JSON is reported with line and column."""
    with pytest.raises(InputError, match=message):
        read(write(tmp_path, text))


@pytest.mark.parametrize("known", [None, *PUBLISHED], ids=lambda p: "own" if p is None else f"{p.parent.name}/{p.stem}")
def test_every_file_keeps_its_totals(tmp_path: Path, known: Path | None) -> None:
    """Tests, against a plain reading of the JSON, that no time, weight, edge or colour is lost."""
    path = present(known) if known else write(tmp_path, small())
    raw = json.loads(path.read_text())
    graph, costs = read(path)
    check_graph(graph)
    nodes = raw["nodes"]
    assert len(graph.ops) == len(nodes)
    assert sum(op.weight_bytes for op in graph.ops) == sum(int(n["size"]) for n in nodes)
    assert costs.time[:, 1].sum() == sum(round(n["cpuLatency"] * 1e6) for n in nodes)
    supported = [n for n in nodes if n["supportedOnFpga"]]
    assert costs.time[costs.time[:, 0] >= 0, 0].sum() == sum(round(n["fpgaLatency"] * 1e6) for n in supported)
    assert (costs.time[:, 0] >= 0).sum() == len(supported)
    assert sum(len(t.consumers) for t in graph.tensors) == len({(e["sourceId"], e["destId"]) for e in raw["edges"]})
    paid = sum(round(e["cost"] * 1e6) for e in {e["sourceId"]: e for e in raw["edges"]}.values())
    assert costs.transfer[costs.transfer_row, 0, 0].sum() == paid
    colours = Counter(n["colorClass"] for n in nodes if "colorClass" in n)
    assert sorted(map(len, costs.together)) == sorted(size for size in colours.values() if size > 1)
    by_name = {n["name"]: n.get("colorClass") for n in nodes}
    assert all(len({by_name[graph.ops[op].name] for op in ops}) == 1 for ops in costs.together)
    assert sum(op.backward for op in graph.ops) == sum(bool(n["isBackwardNode"]) for n in nodes)


@pytest.mark.parametrize("own", [True, False], ids=["own", "published"])
def test_known_facts(own: bool, tmp_path: Path) -> None:
    """Tests counts of our own instance and of the published files."""
    mine = {write(tmp_path, small()): (5, 4, 2, 2)}
    for path, facts in (mine if own else {present(f"fiddle/{name}"): facts for name, facts in FACTS.items()}).items():
        graph, costs = read(path)
        assert (len(graph.ops), len(graph.tensors), len(costs.together), costs.classes[0].count) == facts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fiddle")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_files(folder: Path, data: st.DataObject) -> None:
    """Tests that a truncated or altered file is either read into a valid graph or refused with an InputError."""
    good = json.dumps(small()).encode()
    content = bytearray(good[: data.draw(st.integers(0, len(good)))] if data.draw(st.booleans()) else good)
    for _ in range(data.draw(st.integers(0, 3))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = folder / "damaged.json"
    path.write_bytes(content)
    if IMPORTER.accepts(path, bytes(content[:64])):
        try:
            graph, costs = IMPORTER.read(path, ImportOptions())
        except InputError:
            return
        assert costs is not None
        assert np.shape(costs.time) == (len(check_graph(graph).ops), len(costs.classes))
