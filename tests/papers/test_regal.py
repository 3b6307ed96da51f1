"""Tests of the CostGraphDef text importer, its unit costs and its writer."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weftline.errors import InputError
from weftline.graph import Graph, Op, Tensor, assemble, check_graph
from weftline.importers.registry import DeviceClass, FileCosts, ImportOptions
from weftline.papers.regal import IMPORTERS
from weftline.zoo.unit_costs import regal_costs, to_cost_graph_text

(IMPORTER,) = IMPORTERS

SMALL = r"""# a comment before the first node
  # and another
node {
  name: "last"  # listed before what it reads
  id: 7
  device: "/job:localhost/replica:0/task:0/device:GPU:0"
  input_info { preceding_node: 3 preceding_port: 1 }
  input_info: < preceding_port: 0 >
  control_input: 3
  compute_cost: 42;
  is_final: true
}
node {
  name: 'fir' "st\t\303\251"
  output_info { size: 50 alias_input_port: -1 shape { dim { size: 1 name: "}" } dim { size: -1 } } dtype: DT_FLOAT }
  temporary_memory_size: 0x10, compute_cost: 0x10
  inaccurate: false
}
node {
  id: 3
  output_info { size: 1 }
  output_info { size: 9 }
  input_info { }
  control_input: [0, 0]
  [google.ext/name] { x: -inf y: 1.5e3f z: [ 1, 2 ] w: [] v: [ { a: 1 }, < b: 'c' > ] }
  unknown_text: "a \" } \\" 'b'
  compute_cost: 010
}
cost { cost: 1.25 dimension: "time" }
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "small.pbtxt"
    path.write_text(text, encoding="utf-8")
    return path


def read(path: Path) -> tuple[Graph, FileCosts]:
    assert IMPORTER.accepts(path, path.read_bytes()[:4096])
    graph, costs = IMPORTER.read(path, ImportOptions())
    assert costs is not None
    return graph, costs


def test_small_graph(tmp_path: Path) -> None:
    """Tests that nodes, ports, control edges, escapes, defaults and everything that is skipped are read."""
    graph, costs = read(write(tmp_path, SMALL))
    assert graph.name == "small"
    assert graph.ops == (
        Op("first\té", flops=16_000_000),
        Op("node3", flops=8_000_000),
        Op("last", flops=42_000_000),
    )
    assert graph.tensors == (
        Tensor("first\té:0", 0, (1, 2), bytes=50),
        Tensor("first\té:control", 0, (1,)),
        Tensor("node3:1", 1, (2,), bytes=9),
        Tensor("node3:control", 1, (2,)),
    )
    assert costs.classes == (DeviceClass("acc", "accelerator", count=2, memory=None),)
    assert costs.time.tolist() == [[16_000], [8_000], [42_000]]
    assert costs.transfer[costs.transfer_row].ravel().tolist() == [50_000, 0, 9_000, 0]
    assert (costs.transfers, costs.memory, costs.together) == ("per-tensor", "dynamic", ())


def test_what_was_read_can_be_written(tmp_path: Path) -> None:
    """Tests that a graph with unread ports, control edges and odd names comes back the same."""
    graph, _ = read(write(tmp_path, SMALL))
    again, _ = read(write(tmp_path, to_cost_graph_text(graph)))
    assert again == graph


def test_any_graph_can_be_written(tmp_path: Path) -> None:
    """Tests that inputs of the graph are left out, FLOP rounded up, and tensors with other names get a port."""
    ops = [Op("a", "MatMul", flops=1), Op('b"\\\n', "Add", flops=2_000_001)]
    tensors = [Tensor("x", -1, (0,), bytes=5), Tensor("y", 0, (1,), bytes=6), Tensor("z", 1, (), bytes=7, output=True)]
    graph, _ = read(write(tmp_path, to_cost_graph_text(assemble("g", ops, tensors))))
    assert graph.ops == (Op("a", flops=1_000_000), Op('b"\\\n', flops=3_000_000))
    assert graph.tensors == (Tensor("a:0", 0, (1,), bytes=6),)


def test_unit_costs_of_a_graph() -> None:
    """Tests that unit costs are a nanosecond per 1000 FLOP, rounded up, and a microsecond per byte."""
    graph = assemble("g", [Op("a", flops=1_001), Op("b")], [Tensor("t", 0, (1,), bytes=3)])
    costs = regal_costs(graph, devices=5)
    assert costs.time.tolist() == [[2], [0]]
    assert costs.transfer.tolist() == [[[3_000]]]
    assert costs.classes[0].count == 5


def test_unit_costs_that_do_not_fit() -> None:
    """Tests that sizes whose unit cost leaves 63 bits are refused."""
    graph = assemble("g", [Op("a"), Op("b")], [Tensor("t", 0, (1,), bytes=2**59)])
    with pytest.raises(InputError, match="sum of transfer times"):
        regal_costs(graph)


@pytest.mark.parametrize("head", ["node{", " # x\n\n#y\n node  {", "\nnode\n{"])
def test_accepted(tmp_path: Path, head: str) -> None:
    """Tests that comments and space before the first node do not hide the format."""
    graph, _ = read(write(tmp_path, head + 'name: "a" }'))
    assert [op.name for op in graph.ops] == ["a"]


@pytest.mark.parametrize("head", ["nodes {", "# node {", '{"node": 1}', "node: 1", ""])
def test_not_accepted(tmp_path: Path, head: str) -> None:
    """Tests that other text is left to other importers."""
    assert not IMPORTER.accepts(write(tmp_path, head), head.encode())


BAD = {
    "duplicate id": ("node { id: 1 } node { id: 1 }", "line 1.*id 1 is used by two nodes"),
    "two without id": ("node { }\nnode { }", "line 2.*id 0 is used by two nodes"),
    "id twice": ("node { id: 1 id: 2 }", "id is given twice"),
    "name twice": ('node { name: "a" name: "b" }', "name is given twice"),
    "negative id": ("node { id: -1 }", "id is negative"),
    "negative cost": ("\nnode { compute_cost: -5 }", "line 2.*compute_cost is negative: -5"),
    "huge cost": ("node { compute_cost: 9999999999999999 }", "compute_cost is absurdly large"),
    "sum of costs": (
        "\n".join(f"node {{ id: {i} compute_cost: 1000000000000 }}" for i in range(3)),
        "sum of flops",
    ),
    "negative size": ("node { output_info { size: -1 } }", "size is negative"),
    "huge size": ("node { output_info { size: 1152921504606846977 } }", "size is absurdly large"),
    "many digits": ("node { id: " + "9" * 5000 + " }", "whole number is expected"),
    "float id": ("node { id: 1.5 }", "id is '1.5' where a whole number"),
    "bad octal": ("node { id: 09 }", "id is '09' where a whole number"),
    "text id": ('node { id: "1" }', "where a whole number"),
    "bare name": ("node { name: abc }", "string in quotes"),
    "message as id": ("node { id { } }", "id is a message where a whole number"),
    "number as message": ("node { input_info: 5 }", "where a message is expected"),
    "unknown node": ("node { input_info { preceding_node: 5 } }", "reads node 5, which does not exist"),
    "unknown control": ("node { control_input: 5 }", "reads node 5"),
    "unknown port": ("node { id: 1 } node { input_info { preceding_node: 1 } }", "port 0 of node 1, which has 0"),
    "huge port": ("node { input_info { preceding_port: 70000 } }", "preceding_port is absurdly large"),
    "self-loop": ("node { id: 4 output_info { } input_info { preceding_node: 4 } }", "its own input"),
    "cycle": ("node { id: 1 control_input: 2 } node { id: 2 control_input: 1 }", "cycle"),
    "not closed": ("node { id: 1\n", "line 2.*end of the file"),
    "closed twice": ("node { } }", "field name was expected, not '}'"),
    "open string": ('node { name: "a\n" }', "string that does not end"),
    "odd character": ("node { id: 1 }\nnode { § }", "line 2.*unexpected character"),
    "no value": ("node { id: }", "value of id was expected, not '}'"),
    "no colon": ("node { id 1 }", "value of id was expected"),
    "open list": ("node { x: [ 1 2 ] }", "',' or ']' was expected"),
    "open extension": ("node { [abc }", "extension name"),
    "deep": ("node {" + " x {" * 10_000, "nested more than 64 deep"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_text(tmp_path: Path, case: str) -> None:
    """Tests that each mistake has an error that says what is wrong and on which line."""
    text, message = BAD[case]
    with pytest.raises(InputError, match=message):
        read(write(tmp_path, text))


def test_not_utf8(tmp_path: Path) -> None:
    """Tests that bytes that are not UTF-8 are refused."""
    path = tmp_path / "latin.pbtxt"
    path.write_bytes(b'node { name: "\xe9" }')
    with pytest.raises(InputError, match="not UTF-8 text: byte 14"):
        read(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("regal")


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_files(folder: Path, data: st.DataObject) -> None:
    """Tests that a truncated or altered file is either read into a valid graph or refused with an InputError."""
    good = SMALL.encode()
    content = bytearray(good[: data.draw(st.integers(0, len(good)))] if data.draw(st.booleans()) else good)
    for _ in range(data.draw(st.integers(0, 4))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = folder / "damaged.pbtxt"
    path.write_bytes(content)
    if IMPORTER.accepts(path, bytes(content)):
        try:
            graph, costs = IMPORTER.read(path, ImportOptions())
        except InputError:
            return
        assert costs is not None
        assert costs.time.shape == (len(check_graph(graph).ops), 1)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=8), min_size=1, max_size=6))
def test_names_survive(folder: Path, names: list[str]) -> None:
    """Tests that any name is escaped and read back; the graph's own rule makes repeated and empty ones unique."""
    unique = [f"{i}{name}" for i, name in enumerate(names)]
    graph = assemble("names", [Op(name) for name in unique], [])
    again, _ = read(write(folder, to_cost_graph_text(graph)))
    assert [op.name for op in again.ops] == unique
