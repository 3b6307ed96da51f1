"""Tests of two workers where sizes depend on data, on the caller's inputs, or are declared wrongly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.run.open_samples import BOOL, FLOAT, INT64, check_equal, floats, info, node, plain, save, two_workers

from weftline.errors import InputError
from weftline.run.local.engine import WorkerFailed


def test_non_zero_crosses_a_cut(tmp_path: Path) -> None:
    """Tests that a number of rows that depends on data, here another for every request, comes over with the data."""
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("NonZero", ["r"], ["where"]),
        node("Transpose", ["where"], ["rows"], perm=[1, 0]),
        node("Cast", ["rows"], ["y"], to=FLOAT),
    ]
    path = save(tmp_path / "m.onnx", nodes, [info("x", FLOAT, [4, 5])], [info("y", FLOAT, ["n", 2])])
    feeds: list[dict[str, Any]] = [{"x": floats(4, 5, seed=seed)} for seed in range(5)]
    feeds.append({"x": -np.ones((4, 5), np.float32)})
    check_equal(path, [0, 0, 1, 1], feeds)


def test_a_shape_that_is_declared_wrongly(tmp_path: Path) -> None:
    """Tests an output, and a note on what crosses the cut, that say another shape than what is made."""
    nodes = [
        node("Cast", ["goal"], ["to"], to=INT64),
        node("Relu", ["x"], ["r"]),
        node("Reshape", ["r", "to"], ["o"]),
        node("Tanh", ["o"], ["y"]),
    ]
    path = save(
        tmp_path / "m.onnx",
        nodes,
        [info("x", FLOAT, [4, 6]), info("goal", FLOAT, [2])],
        [info("y", FLOAT, [4, 6])],
    )
    model = onnx.load(path)
    model.graph.value_info.append(info("o", FLOAT, [24, 1]))
    onnx.save(model, path)
    goals = [np.array(goal, np.float32) for goal in ([3, 8], [2, 12], [24, 1])]
    feeds = [{"x": floats(4, 6), "goal": goal} for goal in goals]
    check_equal(path, lambda name: int("Tanh" in name), feeds)


def test_more_than_planned(tmp_path: Path) -> None:
    """Tests that what is far larger than its slot finds room, request after request, and shrinks again."""
    nodes = [node("Expand", ["x", "to"], ["big"]), node("Neg", ["big"], ["y"])]
    inputs = [info("x", FLOAT, [1, 3]), info("to", INT64, [2])]
    path = save(tmp_path / "m.onnx", nodes, inputs, [info("y", FLOAT, ["n", 3])])
    rows = (1, 700_000, 5, 300_000)
    feeds = [{"x": floats(1, 3), "to": np.array([count, 3])} for count in rows]
    check_equal(path, [0, 1], feeds)


def test_a_loop_that_ends_by_data(tmp_path: Path) -> None:
    """Tests a Loop on one worker whose number of turns, and so the length of what it collects, is computed before."""
    body = helper.make_graph(
        [node("Identity", ["go"], ["goes"]), node("Add", ["old", "old"], ["new"]), node("Identity", ["new"], ["row"])],
        "body",
        [info("i", INT64, []), info("go", BOOL, []), info("old", FLOAT, [2])],
        [info("goes", BOOL, []), info("new", FLOAT, [2]), info("row", FLOAT, [2])],
    )
    nodes = [
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Cast", ["sum"], ["turns"], to=INT64),
        node("Slice", ["x", "zero", "two"], ["start"]),
        node("Loop", ["turns", "", "start"], ["last", "rows"], name="loop", body=body),
        node("Neg", ["rows"], ["y"]),
    ]
    path = save(
        tmp_path / "m.onnx",
        nodes,
        [info("x", FLOAT, [3])],
        [info("y", FLOAT, ["turns", 2]), info("last", FLOAT, [2])],
        {"zero": np.array([0]), "two": np.array([2])},
    )
    feeds = [{"x": np.array(x, np.float32)} for x in ([1, 1, 1], [2, 2, 3], [0.1, 0, 0])]
    check_equal(path, lambda name: int(name in ("loop",) or "Neg" in name), feeds)


def test_branches_of_different_shapes(tmp_path: Path) -> None:
    """Tests an If whose branches differ in shape, and of which one would fail under fixed shapes."""
    then = helper.make_graph([node("Squeeze", ["r", "ax"], ["a"])], "then", [], [info("a", FLOAT, None)])
    other = helper.make_graph([node("Identity", ["r"], ["b"])], "other", [], [info("b", FLOAT, None)])
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("ReduceMax", ["x"], ["top"], keepdims=0),
        node("Greater", ["top", "limit"], ["c"]),
        node("If", ["c"], ["f"], name="if", then_branch=then, else_branch=other),
        node("Tanh", ["f"], ["y"]),
    ]
    path = save(
        tmp_path / "m.onnx",
        nodes,
        [info("x", FLOAT, ["n", 3])],
        [onnx.ValueInfoProto(name="y", type=helper.make_tensor_type_proto(FLOAT, None))],
        {"limit": np.float32(50), "ax": np.array([0])},
    )
    feeds = [{"x": floats(2, 3)}, {"x": floats(1, 3) + 100}, {"x": floats(1, 3)}]
    for last in ("Tanh", "if"):
        check_equal(path, lambda name, last=last: int(last in name or "Tanh" in name), feeds, {"x": (2, 3)})  # type: ignore[misc]


def test_other_shapes_than_planned(tmp_path: Path) -> None:
    """Tests that symbols stay symbols: requests of other sizes than the plan's, each with its own."""
    nodes = [
        node("MatMul", ["x", "w"], ["p"]),
        node("Shape", ["p"], ["s"]),
        node("ConstantOfShape", ["s"], ["zeros"]),
        node("Add", ["p", "zeros"], ["q"]),
        node("Transpose", ["q"], ["t"], perm=[1, 0]),
        node("Tanh", ["t"], ["y"]),
    ]
    path = save(
        tmp_path / "m.onnx",
        nodes,
        [info("x", FLOAT, ["batch", 8])],
        [info("y", FLOAT, [4, "batch"])],
        {"w": floats(8, 4)},
    )
    feeds = [{"x": floats(size, 8, seed=size)} for size in (3, 1, 0, 40)]
    check_equal(path, [0, 0, 0, 0, 1, 1], feeds, {"x": (3, 8)})
    with pytest.raises(InputError, match=r"shape \(3, 9\) are given, the plan was made for \(3, 8\)"):
        two_workers(path, [0, 0, 0, 0, 1, 1], [{"x": floats(3, 9)}], {"x": (3, 8)})


def test_a_question_mark_is_no_symbol(tmp_path: Path) -> None:
    """Tests that two open sizes that a file calls "?" need not be equal."""
    path = save(tmp_path / "m.onnx", [node("Neg", ["x"], ["a"]), node("Abs", ["a"], ["y"])],
                [info("x", FLOAT, ["?", "?"])], [info("y", FLOAT, ["?", "?"])])  # fmt: skip
    check_equal(path, [0, 1], [{"x": floats(2, 3)}, {"x": floats(4, 1)}], {"x": (2, 3)})


def test_lists_optionals_and_text(tmp_path: Path) -> None:
    """Tests outputs, and values across the cut, that are no plain tensors."""
    of_floats = helper.make_tensor_type_proto(FLOAT, None)
    nodes = [
        node("Neg", ["x"], ["a"]),
        node("SequenceConstruct", ["x", "a", "x"], ["list"], name="list"),
        node("ConcatFromSequence", ["list"], ["y"], name="join", axis=0),
        node("Cast", ["a"], ["words"], name="words", to=TensorProto.STRING),
        node("Identity", ["words"], ["text"], name="text"),
        node("Optional", ["y"], ["maybe"], name="maybe"),
    ]
    outputs = [
        info("y", FLOAT, [6, 3]),
        helper.make_value_info("list", helper.make_sequence_type_proto(of_floats)),
        info("text", TensorProto.STRING, [2, 3]),
        helper.make_value_info("maybe", helper.make_optional_type_proto(of_floats)),
    ]
    path = save(tmp_path / "m.onnx", nodes, [info("x", FLOAT, [2, 3])], outputs)
    check_equal(
        path, lambda name: int(name in ("join", "text", "maybe")), [{"x": floats(2, 3, seed=s)} for s in (1, 2)]
    )


@pytest.mark.parametrize("kind", ["FLOAT16", "BFLOAT16", "INT8", "UINT8", "DOUBLE", "BOOL"])
def test_element_types(kind: str, tmp_path: Path) -> None:
    """Tests that every type crosses and comes out bit for bit."""
    to = TensorProto.DataType.Value(kind)
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("Cast", ["r"], ["c"], to=to),
        node("Identity", ["c"], ["y"]),
        node("Cast", ["c"], ["z"], to=FLOAT),
    ]
    path = save(
        tmp_path / "m.onnx", nodes, [info("x", FLOAT, ["n", 3])], [info("y", to, ["n", 3]), info("z", FLOAT, ["n", 3])]
    )
    feeds = [{"x": floats(size, 3)} for size in (4, 2)]
    found = two_workers(path, [0, 0, 1, 1], feeds, {"x": (4, 3)})
    for feed, made in zip(feeds, found, strict=True):
        z = np.maximum(feed["x"], 0)
        if kind == "BFLOAT16":
            assert made["y"].dtype == np.uint16
            np.testing.assert_allclose((made["y"].astype(np.uint32) << 16).view(np.float32), z, rtol=1e-2)
            np.testing.assert_array_equal(made["z"], (made["y"].astype(np.uint32) << 16).view(np.float32))
        else:
            wanted = plain(path, feed)
            np.testing.assert_array_equal(made["y"], wanted["y"])
            np.testing.assert_array_equal(made["z"], wanted["z"])
            assert made["y"].dtype == wanted["y"].dtype


def decoder(path: Path) -> Path:
    """One layer of attention with a cache that grows by what each step adds."""
    nodes = [
        *(node("MatMul", ["x", f"w{name}"], [f"flat_{name}"], name=f"product_{name}") for name in "qkv"),
        *(node("Reshape", [f"flat_{name}", "heads"], [f"rows_{name}"]) for name in "qkv"),
        *(node("Transpose", [f"rows_{name}"], [name], perm=[0, 2, 1, 3]) for name in "qkv"),
        node("Concat", ["past_k", "k"], ["present_k"], axis=2),
        node("Concat", ["past_v", "v"], ["present_v"], axis=2),
        node("Transpose", ["present_k"], ["turned"], name="turn", perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "turned"], ["scores"], name="scores"),
        node("Softmax", ["scores"], ["shares"], name="shares"),
        node("MatMul", ["shares", "present_v"], ["mixed"], name="mix"),
        node("ReduceMean", ["mixed"], ["y"], name="mean", keepdims=0),
    ]
    cache = [1, 2, "past", 4]
    later = [1, 2, "total", 4]
    return save(
        path,
        nodes,
        [info("x", FLOAT, [1, "step", 8]), info("past_k", FLOAT, cache), info("past_v", FLOAT, cache)],
        [info("y", FLOAT, []), info("present_k", FLOAT, later), info("present_v", FLOAT, later)],
        {**{f"w{name}": floats(8, 8, seed=ord(name)) for name in "qkv"}, "heads": np.array([1, -1, 2, 4])},
    )


def grouped(path: Path) -> Path:
    """The same by the op that onnxruntime-genai writes."""
    nodes = [
        *(node("MatMul", ["x", f"w{name}"], [name], name=f"product_{name}") for name in "qkv"),
        node("Add", ["seen", "minus"], ["last"], name="last"),
        node(
            "GroupQueryAttention",
            ["q", "k", "v", "past_k", "past_v", "last", "seen_scalar"],
            ["y", "present_k", "present_v"],
            name="attention",
            domain="com.microsoft",
            num_heads=2,
            kv_num_heads=2,
        ),
        node("Tanh", ["y"], ["z"], name="after"),
    ]
    nodes.insert(4, node("Squeeze", ["seen", "zero"], ["seen_scalar"], name="scalar"))
    cache, later = [1, 2, "past", 8], [1, 2, "total", 8]
    int32 = TensorProto.INT32
    return save(
        path,
        nodes,
        [info("x", FLOAT, [1, "step", 16]), info("past_k", FLOAT, cache), info("past_v", FLOAT, cache),
         info("seen", int32, [1])],
        [info("z", FLOAT, [1, "step", 16]), info("present_k", FLOAT, later), info("present_v", FLOAT, later)],
        {**{f"w{name}": floats(16, 16, seed=ord(name)) for name in "qkv"}, "minus": np.array([-1], np.int32),
         "zero": np.array([0])},
    )  # fmt: skip


@pytest.mark.parametrize("make", [decoder, grouped])
def test_a_cache_that_grows(make: Any, tmp_path: Path) -> None:
    """Tests three steps of a decoder in one session: each feeds what the step before gave back."""
    path = make(tmp_path / "m.onnx")
    width = 8 if make is decoder else 16
    cache = np.zeros((1, 2, 0, width // 2), np.float32)
    past, feeds, seen = {"past_k": cache, "past_v": cache}, [], 0
    for step, count in enumerate((3, 1, 1)):
        seen += count
        feed: dict[str, Any] = {"x": floats(1, count, width, seed=step), **past}
        if make is grouped:
            feed["seen"] = np.array([seen], np.int32)
        feeds.append(feed)
        made = plain(path, feed)
        past = {"past_k": made["present_k"], "past_v": made["present_v"]}
    assert past["past_k"].shape == (1, 2, 5, width // 2)
    shapes = {"x": (1, 1, width), "past_k": (1, 2, 4, width // 2), "past_v": (1, 2, 4, width // 2)}
    second = ("turn", "scores", "shares", "mix", "mean", "attention", "after")
    check_equal(path, lambda name: int(name in second), feeds, shapes)


def test_outputs_that_jump_with_rounding(tmp_path: Path) -> None:
    """Tests that a difference that only other kernels make is told from a mistake: it is gone without optimisations."""
    from tests.run.test_local_run import make as make_plan

    from weftline.run.local.run import run_local

    nodes = [
        node("MatMul", ["x", "w"], ["p"]),
        node("Div", ["p", "root"], ["d"]),
        node("Erf", ["d"], ["e"]),
        node("Add", ["e", "one"], ["a"]),
        node("Mul", ["p", "a"], ["m"]),
        node("Mul", ["m", "half"], ["g"]),
        node("Mul", ["g", "large"], ["l"]),
        node("Cast", ["l"], ["y"], to=INT64),
    ]
    numbers = {"root": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5), "large": np.float32(1e9)}
    path = save(
        tmp_path / "m.onnx",
        nodes,
        [info("x", FLOAT, [64, 64])],
        [info("y", INT64, [64, 64])],
        {"w": floats(64, 64), **numbers},
    )
    found = run_local(make_plan(path, "throughput", "even-split"), model=path, requests=2, baselines=False)
    assert found.max_output_difference > 1
    assert found.plain_difference == 0
    assert "without optimisations" in found.summary()
    found.check()


def test_a_wrong_guess_of_ours_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that a planned shape that turns out wrong costs a second call, not the run."""
    from weftline.run.split import split as cutting

    monkeypatch.setattr(cutting, "open_shapes", _nothing_is_open)
    nodes = [node("NonZero", ["x"], ["where"]), node("Cast", ["where"], ["y"], to=FLOAT)]
    path = save(tmp_path / "m.onnx", nodes, [info("x", FLOAT, [4])], [info("y", FLOAT, [1, "n"])])
    feeds = [{"x": np.array(x, np.float32)} for x in ([1, 0, 0, 1], [0, 0, 0, 1])]
    check_equal(path, [0, 0], feeds)
    with pytest.raises(WorkerFailed, match="d1"):  # the next segment says what it takes
        two_workers(path, [0, 1], feeds)
    found = two_workers(path, [0, 1], feeds, declare=False)
    assert [outputs["y"].tolist() for outputs in found] == [[[0, 3]], [[3]]]


def _nothing_is_open(scope: Any, live: Any, opsets: Any, given: Any, symbols: Any) -> tuple[Any, dict[str, Any]]:
    from weftline.importers.onnx.infer import Inference

    return Inference(opsets, symbols).run(scope, given), {}
