"""Control flow: If, Loop, Scan and sequences as single ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from weftline.errors import InputError
from weftline.graph import Graph
from weftline.importers.onnx.model import graph_of_model
from weftline.importers.registry import ImportOptions

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
MATRIX = numpy_helper.from_array(np.ones((8, 8), np.float32), "w")


def _value(name: str, element: int = FLOAT, shape: Any = None) -> Any:
    return helper.make_tensor_value_info(name, element, shape)


def _read(nodes: list[Any], inputs: list[Any], outputs: list[str], weights: list[Any]) -> Graph:
    graph = helper.make_graph(nodes, "g", inputs, [_value(name) for name in outputs], weights)
    return graph_of_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), ImportOptions())


def _if(then_weights: list[Any]) -> Graph:
    dear = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["d0"]), helper.make_node("Add", ["d0", "b"], ["d"])],
        "dear",
        [],
        [_value("d")],
        then_weights,
    )
    cheap = helper.make_graph([helper.make_node("Relu", ["x"], ["e"])], "cheap", [], [_value("e")])
    nodes = [
        helper.make_node("Abs", ["x0"], ["x"]),
        helper.make_node("If", ["flag"], ["y"], name="choice", then_branch=dear, else_branch=cheap),
    ]
    bias = numpy_helper.from_array(np.ones((2, 8), np.float32), "b")
    outer = [] if then_weights else [MATRIX]
    return _read(nodes, [_value("x0", FLOAT, [2, 8]), _value("flag", BOOL, [])], ["y"], [*outer, bias])


def test_if_counts_its_dearer_branch() -> None:
    """Tests that If is one op, costs its dearer branch, reads what its branches capture, and holds their weights."""
    graph = _if([])
    assert [op.kind for op in graph.ops] == ["Abs", "If"]
    choice = graph.ops[1]
    assert choice.flops == 2 * 2 * 8 * 8 + 16
    assert choice.weight_bytes == 256 + 64
    assert {tensor.name: tensor.consumers for tensor in graph.tensors}["x"] == (1,)
    assert graph.tensors[-1].shape == (2, 8)


def test_weights_inside_a_body() -> None:
    """Tests that an initializer of a body is a weight of the op."""
    assert _if([MATRIX]).ops[1].weight_bytes == 256 + 64


def _loop(trips: int | None) -> Graph:
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["state", "w"], ["m"]),
            helper.make_node("Add", ["m", "x"], ["next"]),
            helper.make_node("ReduceSum", ["next"], ["total"], keepdims=0),
            helper.make_node("Identity", ["going"], ["go"]),
        ],
        "body",
        [_value("i", INT64, []), _value("going", BOOL, []), _value("state")],
        [_value("go", BOOL, []), _value("next"), _value("total")],
    )
    nodes = [helper.make_node("Loop", ["trips", "", "x"], ["y", "history"], body=body)]
    inputs = [_value("x", FLOAT, [2, 8])]
    weights = [MATRIX]
    if trips is None:
        inputs.append(_value("trips", INT64, []))
    else:
        weights.append(numpy_helper.from_array(np.array(trips), "trips"))
    return _read(nodes, inputs, ["y", "history"], weights)


@pytest.mark.parametrize(("trips", "rounds"), [(5, 5), (1, 1), (0, 0), (None, 1)])
def test_loop_counts_its_rounds(trips: int | None, rounds: int) -> None:
    """Tests that a Loop costs its body times the constant trip count, or one round if that is not known."""
    graph = _loop(trips)
    assert graph.ops[0].flops == rounds * (2 * 2 * 8 * 8 + 16 + 16)
    assert graph.ops[0].weight_bytes == 256 + (0 if trips is None else 8)
    shapes = {tensor.name: tensor.shape for tensor in graph.tensors}
    assert (shapes["y"], shapes["history"]) == ((2, 8), (rounds,))


@pytest.mark.parametrize(
    ("condition", "limit", "rounds", "guessed"),
    [
        (["Less", "later", "most"], 7, 7, False),
        (["Less", "most", "later"], 7, 1, True),
        (["Greater", "most", "later"], 7, 7, False),
        (["LessOrEqual", "later", "most"], 7, 8, False),
        (["Less", "count", "most"], 7, 8, False),
        (["Less", "later", "most"], 0, 1, False),
        (["Less", "later", "most"], 2**40, 1, True),
        (["Less", "i", "most"], 7, 8, False),
        (["Less", "state", "most"], 7, 1, True),
        (["Less", "later", "data"], 7, 1, True),
    ],
)
def test_loop_that_counts_by_itself(condition: list[str], limit: int, rounds: int, guessed: bool) -> None:
    """Tests that a condition on a number that grows says how many rounds there are, as in LSTMs of Keras."""
    kind, *sides = condition
    cast = [helper.make_node("Cast", [side], [f"{side} as float"], to=FLOAT) for side in sides]
    asked = [helper.make_node(kind, [f"{side} as float" for side in sides], ["go"])]
    if "state" in sides:
        asked = [helper.make_node("Not", ["going"], ["go"])]
        cast = []
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["state", "w"], ["next"]),
            helper.make_node("Add", ["count", "one"], ["later"]),
            *cast,
            *asked,
        ],
        "body",
        [_value("i", INT64, []), _value("going", BOOL, []), _value("count", INT64, []), _value("state"),
         _value("most", INT64, [])],
        [_value("go", BOOL, []), _value("later"), _value("next"), _value("most")],
        [numpy_helper.from_array(np.array(1), "one")],
    )  # fmt: skip
    loop = helper.make_node("Loop", ["", "yes", "begin", "x", "limit"], ["", "y", ""], body=body)
    stored = {"yes": np.array(True), "begin": np.array(0), "limit": np.array(limit)}
    inputs = [_value("x", FLOAT, [2, 8]), *([_value("data", INT64, [])] if "data" in sides else [])]
    graph = _read([loop], inputs, ["y"], [MATRIX, *(numpy_helper.from_array(v, k) for k, v in stored.items())])
    assert graph.ops[-1].flops // (2 * 2 * 8 * 8) == rounds
    assert bool(graph.guessed) == guessed


def test_absurd_trip_counts_are_refused() -> None:
    """Tests that a loop of 2^62 rounds is an error, not an overflow."""
    with pytest.raises(InputError, match="2\\^60"):
        _loop(2**62)


def test_scan_counts_its_length() -> None:
    """Tests that a Scan costs its body once per slice, and stacks its results."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "slice"], ["next"]),
            helper.make_node("Exp", ["next"], ["out"]),
        ],
        "body",
        [_value("state"), _value("slice")],
        [_value("next"), _value("out")],
    )
    nodes = [helper.make_node("Scan", ["s", "x"], ["last", "all"], body=body, num_scan_inputs=1, scan_input_axes=[1])]
    graph = _read(nodes, [_value("s", FLOAT, [4]), _value("x", FLOAT, [4, 7])], ["last", "all"], [])
    assert graph.ops[0].flops == 7 * (4 + 4 * 4)
    assert {tensor.name: tensor.shape for tensor in graph.tensors}["all"] == (7, 4)
    assert {tensor.name: tensor.shape for tensor in graph.tensors}["last"] == (4,)


def test_constant_branches_are_folded() -> None:
    """Tests that an If over constants alone is part of the constant cone."""
    branch = helper.make_graph([helper.make_node("Neg", ["w"], ["n"])], "branch", [], [_value("n")])
    other = helper.make_graph([helper.make_node("Abs", ["w"], ["a"])], "other", [], [_value("a")])
    nodes = [
        helper.make_node("If", ["flag"], ["chosen"], then_branch=branch, else_branch=other),
        helper.make_node("MatMul", ["x", "chosen"], ["y"]),
    ]
    flag = numpy_helper.from_array(np.array(True), "flag")
    graph = _read(nodes, [_value("x", FLOAT, [2, 8])], ["y"], [MATRIX, flag])
    assert [(op.kind, op.weight_bytes) for op in graph.ops] == [("MatMul", 256)]


def test_captured_name_without_producer() -> None:
    """Tests that a body which captures a name that does not exist is refused by name."""
    branch = helper.make_graph([helper.make_node("Neg", ["ghost"], ["n"])], "branch", [], [_value("n")])
    nodes = [helper.make_node("If", ["flag"], ["y"], name="choice", then_branch=branch, else_branch=branch)]
    with pytest.raises(InputError, match=r"'choice' \(If\).*'ghost'"):
        _read(nodes, [_value("flag", BOOL, [])], ["y"], [])


def test_nesting_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that 30 bodies inside each other are read, and that one more than the limit is refused."""

    def chain(depth: int) -> Graph:
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["o0"])], "b0", [], [_value("o0")])
        for level in range(1, depth + 1):
            short = helper.make_graph([helper.make_node("Abs", ["x"], ["o"])], "short", [], [_value("o")])
            node = helper.make_node("If", ["flag"], [f"o{level}"], then_branch=graph, else_branch=short)
            graph = helper.make_graph([node], f"b{level}", [], [_value(f"o{level}")])
        return _read(list(graph.node), [_value("x", FLOAT, [1]), _value("flag", BOOL, [])], [f"o{depth}"], [])

    assert chain(30).ops[0].flops == 1
    monkeypatch.setattr("weftline.importers.onnx.scope.MAX_NESTING", 5)
    assert chain(5).ops[0].flops == 1
    with pytest.raises(InputError, match="nested more than 5"):
        chain(6)


def test_sequences() -> None:
    """Tests that sequences are as large as what they hold, and come apart again with exact shapes."""
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["parts"], axis=1, keepdims=0),
        helper.make_node("SequenceInsert", ["parts", "extra"], ["more"]),
        helper.make_node("ConcatFromSequence", ["more"], ["y"], axis=0, new_axis=1),
        helper.make_node("SequenceAt", ["more", "extra_index"], ["z"]),
    ]
    index = numpy_helper.from_array(np.array(0), "extra_index")
    inputs = [_value("x", FLOAT, [2, 3]), _value("extra", FLOAT, [2])]
    graph = _read(nodes, inputs, ["y", "z"], [index])
    found = {tensor.name: (tensor.shape, tensor.bytes) for tensor in graph.tensors}
    assert found["parts"] == ((2,), 24)
    assert found["more"] == ((2,), 32)
    assert found["y"] == ((4, 2), 32)
    assert found["z"] == ((2,), 8)
