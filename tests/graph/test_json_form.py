"""The graph's JSON: canonical bytes, and no input that breaks the reader in another way than `InputError`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weftline.errors import InputError
from weftline.graph import Op, Tensor, Tied, assemble, graph_from_json, graph_to_json
from weftline.importers import read_file
from weftline.testing import SeededChooser, make_graph
from weftline.zoo.synthetic import synthetic

SMALL = assemble(
    "small",
    [Op("a", "Conv", flops=7, weight_bytes=3, block="stem"), Op("b", backward=True)],
    [Tensor("x", -1, (0,), 4, (1,), "float32"), Tensor("y", 0, (1,), 8), Tensor("z", 1, (), 8, output=True)],
    [Tied("w", 5, (0, 1))],
)
BYTES = graph_to_json(SMALL)
FORM: dict[str, Any] = json.loads(BYTES)


def test_canonical_bytes() -> None:
    """Tests that field order, omitted defaults and spacing are fixed."""
    assert BYTES == (
        b'{"format":"weftline-graph","version":1,"name":"small","ops":['
        b'{"name":"a","kind":"Conv","flops":7,"weight_bytes":3,"block":"stem"},{"name":"b","backward":true}],'
        b'"tensors":[{"name":"x","producer":-1,"consumers":[0],"bytes":4,"shape":[1],"dtype":"float32"},'
        b'{"name":"y","producer":0,"consumers":[1],"bytes":8},{"name":"z","producer":1,"bytes":8,"output":true}],'
        b'"tied":[{"name":"w","bytes":5,"ops":[0,1]}]}'
    )


def test_dynamic_axes_and_guesses_are_kept() -> None:
    """Tests that they are written, read, and kept when ops are sorted."""
    graph = assemble(
        "dynamic",
        [Op("late", guessed=True), Op("early")],
        [Tensor("x", 1, (0,), 24, (2, 3), dynamic=(0,), guessed=True), Tensor("y", 0, output=True)],
    )
    data = graph_to_json(graph)
    assert b'"shape":[2,3],"dynamic":[0],"guessed":true}' in data
    assert graph_from_json(data) == graph
    assert [op.name for op in graph.guessed] == ["late"]
    assert graph.ops[1].guessed


@given(st.integers(0, 100_000))
def test_round_trip(seed: int) -> None:
    """Tests that reading gives an equal graph, and equal graphs equal bytes."""
    graph = make_graph(SeededChooser(seed), 12)
    data = graph_to_json(graph)
    again = graph_from_json(data)
    assert again == graph
    assert graph_to_json(again) == data


def test_layout_of_the_file_does_not_matter() -> None:
    """Tests that spaces, key order and spelled-out defaults do not change the graph."""
    form = {**FORM, "ops": [FORM["ops"][0], {"backward": True, "flops": 0, "name": "b"}]}
    assert graph_from_json(json.dumps(form, indent=3, sort_keys=True).encode()) == SMALL


def test_shuffled_ops_are_sorted() -> None:
    """Tests that a hand-written file may list ops in any order."""
    form = {"format": "weftline-graph", "version": 1, "name": "g", "ops": [{"name": "late"}, {"name": "early"}]}
    graph = graph_from_json(json.dumps({**form, "tensors": [{"name": "t", "producer": 1, "consumers": [0]}]}).encode())
    assert [op.name for op in graph.ops] == ["early", "late"]
    assert graph.tensors[0].consumers == (1,)


def test_a_hundred_thousand_ops() -> None:
    """Tests that a graph of 100,000 ops is read, checked and equal."""
    graph = synthetic("layered", ops=100_000)
    data = graph_to_json(graph)
    again = graph_from_json(data)
    assert len(again.ops) == 100_000
    assert again == graph
    assert graph_to_json(again) == data


def _with(**fields: object) -> bytes:
    return json.dumps({**FORM, **fields}).encode()


def _ops(*ops: object) -> bytes:
    return _with(ops=list(ops), tensors=[], tied=[])


BAD = {
    "truncated": (BYTES[:-40], "truncated"),
    "something after the end": (BYTES + b"]", "malformed"),
    "other version": (_with(version=2), "$.version"),
    "version as text": (_with(version="1"), "$.version"),
    "name missing": (json.dumps({k: v for k, v in FORM.items() if k != "name"}).encode(), "name"),
    "unknown field": (_with(colour="red"), "colour"),
    "unknown field of an op": (_ops({"name": "a", "colour": "red"}), "$.ops[0]"),
    "unknown field of a tensor": (_with(tensors=[{"name": "t", "producer": 0, "colour": 1}]), "$.tensors[0]"),
    "ops as object": (_with(ops={}), "$.ops"),
    "op as number": (_ops(3), "$.ops[0]"),
    "name as number": (_ops({"name": 3}), "$.ops[0].name"),
    "flops as text": (_ops({"name": "a", "flops": "7"}), "$.ops[0].flops"),
    "flops as boolean": (_ops({"name": "a", "flops": True}), "$.ops[0].flops"),
    "flops as fraction": (_ops({"name": "a", "flops": 0.5}), "$.ops[0].flops"),
    "flops negative": (_ops({"name": "a", "flops": -1}), "op 'a'"),
    "flops absurd": (_ops({"name": "a", "flops": 10**30}), "op 'a'"),
    "flops of 10,000 digits": (BYTES.replace(b'"flops":7', b'"flops":7' + b"0" * 10_000), "$.ops[0].flops"),
    "flops beyond floats": (BYTES.replace(b'"flops":7', b'"flops":7e999'), "flops"),
    "NaN": (BYTES.replace(b'"flops":7', b'"flops":NaN'), "malformed"),
    "null name": (_ops({"name": None}), "$.ops[0].name"),
    "no ops": (_ops(), "this one has 0"),
    "duplicate op": (_ops({"name": "a"}, {"name": "a"}), "duplicate op name 'a'"),
    "duplicate tensor": (_with(tensors=[{"name": "t", "producer": 0}] * 2), "duplicate tensor name 't'"),
    "producer nowhere": (_with(tensors=[{"name": "t", "producer": 9}]), "tensor 't'"),
    "producer absurd": (_with(tensors=[{"name": "t", "producer": 10**30}]), "tensor 't'"),
    "consumer nowhere": (_with(tensors=[{"name": "t", "producer": 0, "consumers": [9]}]), "tensor 't'"),
    "consumers as number": (_with(tensors=[{"name": "t", "producer": 0, "consumers": 1}]), "$.tensors[0].consumers"),
    "cycle": (
        _with(tensors=[{"name": "t", "producer": 0, "consumers": [1]}, {"name": "u", "producer": 1, "consumers": [0]}]),
        " -> ",
    ),
    "tied once": (_with(tied=[{"name": "w", "bytes": 1, "ops": [0]}]), "tied weight 'w'"),
    "half a character": (BYTES.replace(b'"Conv"', b'"\\ud800"'), "malformed"),
    "bad UTF-8": (BYTES.replace(b'"Conv"', b'"\xff"'), "utf-8"),
    "control character": (BYTES.replace(b'"Conv"', b'"\x01"'), "malformed"),
    "deep nesting": (BYTES.replace(b'"flops":7', b'"flops":' + b"[" * 100_000), "$.ops[0].flops"),
    "deep nesting in an unknown field": (b'{"format":"weftline-graph","x":' + b"[" * 100_000 + b"}", ""),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files(tmp_path: Path, name: str) -> None:
    """Tests that each kind of bad file is an `InputError` that names the file and the place."""
    data, place = BAD[name]
    assert data != BYTES
    path = tmp_path / "model.json"
    path.write_bytes(data)
    with pytest.raises(InputError) as error:
        read_file(path)
    assert str(error.value).startswith(str(path))
    assert place.lower() in str(error.value).lower()
    assert len(str(error.value)) < len(str(path)) + 600


@pytest.mark.parametrize("data", [b"", b" ", b"[" * 100_000, b"\x00" * 64, b"{}", b"null", bytes(range(256))])
def test_files_of_no_format(tmp_path: Path, data: bytes) -> None:
    """Tests that files which are nothing at all are refused by name."""
    path = tmp_path / "model"
    path.write_bytes(data)
    with pytest.raises(InputError, match="model"):
        read_file(path)


@pytest.mark.parametrize("data", [b"", b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfe"])
def test_reader_alone(data: bytes) -> None:
    """Tests that the reader needs nobody around it to raise the right error."""
    with pytest.raises(InputError, match="not a weftline graph"):
        graph_from_json(data)


@settings(max_examples=300)
@given(st.data())
def test_damaged_bytes(data: st.DataObject) -> None:
    """Tests that flipped bits and cut ends give a graph or an `InputError`, nothing else."""
    damaged = bytearray(BYTES[: data.draw(st.integers(1, len(BYTES)))])
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        graph = graph_from_json(bytes(damaged))
    except InputError:
        return
    assert graph_from_json(graph_to_json(graph)) == graph


def test_names_of_every_script_survive() -> None:
    """Tests that names are text, whatever they hold."""
    graph = assemble("图", [Op("<script>&\"'"), Op("\U0001f600/\n\t\0")], [Tensor("é", 0, (1,))])
    assert graph_from_json(graph_to_json(graph)) == graph
