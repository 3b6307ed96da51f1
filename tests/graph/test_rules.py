"""The rules of the graph: each one broken alone."""

from __future__ import annotations

import pytest

from weftline.errors import InputError
from weftline.graph import Graph, Op, Tensor, Tied, check_graph
from weftline.graph import build as graph_rules

A, B = Op("a"), Op("b")


def _graph(*, ops: tuple[Op, ...] = (A, B), tensors: tuple[Tensor, ...] = (), tied: tuple[Tied, ...] = ()) -> Graph:
    return Graph("g", ops, tensors, tied)


def test_a_good_graph_passes() -> None:
    """Tests that the graph itself comes back."""
    graph = _graph(tensors=(Tensor("t", 0, (1,), 4, (1,), "float32"),), tied=(Tied("w", 4, (0, 1)),))
    assert check_graph(graph) is graph


BROKEN = {
    "no ops": (_graph(ops=()), "a graph has 1 to"),
    "empty name": (_graph(ops=(Op(""),)), "op name '' is empty"),
    "long name": (_graph(ops=(Op("x" * 1_001),)), "longer than 1000 characters"),
    "long kind": (_graph(ops=(Op("x", kind="k" * 1_001),)), "longer than 1000 characters"),
    "long block": (_graph(ops=(Op("x", block="k" * 1_001),)), "longer than 1000 characters"),
    "long name of the graph": (Graph("g" * 10**6, (A,), ()), "longer than 1000 characters"),
    "half a character": (_graph(ops=(Op("\ud800"),)), "not valid Unicode"),
    "half a character as dtype": (_graph(tensors=(Tensor("t", 0, dtype="\udfff"),)), "not valid Unicode"),
    "two ops of one name": (_graph(ops=(A, A)), "duplicate op name 'a'"),
    "two tensors of one name": (_graph(tensors=(Tensor("t", 0), Tensor("t", 1))), "duplicate tensor name 't'"),
    "two tied of one name": (_graph(tied=(Tied("w", 1, (0, 1)),) * 2), "duplicate tied weight name 'w'"),
    "negative flops": (_graph(ops=(Op("a", flops=-1),)), "op 'a': flops = -1"),
    "absurd weight": (_graph(ops=(Op("a", weight_bytes=2**61),)), "op 'a': weight_bytes"),
    "absurd sum": (_graph(ops=(Op("a", weight_bytes=2**60), Op("b", weight_bytes=1))), "sum of weight_bytes"),
    "absurd sum of tensors": (
        _graph(tensors=(Tensor("t", 0, (), 2**60), Tensor("u", 0, (), 1))),
        "sum of tensor bytes",
    ),
    "absurd sum of tied": (_graph(tied=(Tied("v", 2**60, (0, 1)), Tied("w", 1, (0, 1)))), "sum of tied bytes"),
    "negative size": (_graph(tensors=(Tensor("t", 0, (), -4),)), "tensor 't': bytes = -4"),
    "negative dimension": (_graph(tensors=(Tensor("t", 0, shape=(3, -1)),)), "tensor 't': shape"),
    "absurd dimension": (_graph(tensors=(Tensor("t", 0, shape=(10**30,)),)), "tensor 't': shape"),
    "dynamic axis out of range": (_graph(tensors=(Tensor("t", 0, shape=(3,), dynamic=(1,)),)), "not axes of shape"),
    "dynamic axis negative": (_graph(tensors=(Tensor("t", 0, shape=(3,), dynamic=(-1,)),)), "not axes of shape"),
    "dynamic axis twice": (_graph(tensors=(Tensor("t", 0, shape=(3, 4), dynamic=(1, 1)),)), "not axes of shape"),
    "producer out of range": (_graph(tensors=(Tensor("t", 2),)), "producer 2 is not an op"),
    "consumer out of range": (_graph(tensors=(Tensor("t", 0, (2,)),)), "tensor 't': op indices must lie in 0..1"),
    "consumers not ascending": (_graph(ops=(A, B, Op("c")), tensors=(Tensor("t", 0, (2, 1)),)), "ascending"),
    "consumer twice": (_graph(tensors=(Tensor("t", 0, (1, 1)),)), "ascending, each once"),
    "reader before maker": (_graph(tensors=(Tensor("t", 1, (0,)),)), "op 'a' reads it but stands before its producer"),
    "reader is maker": (_graph(tensors=(Tensor("t", 1, (1,)),)), "stands before its producer 'b'"),
    "tied to one op": (_graph(tied=(Tied("w", 1, (0,)),)), "fewer than two ops"),
    "tied to none": (_graph(tied=(Tied("w", 1, ()),)), "tied weight 'w'"),
    "tied size negative": (_graph(tied=(Tied("w", -1, (0, 1)),)), "size -1 is not in"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_rule(name: str) -> None:
    """Tests that a graph that breaks one rule is refused with a short sentence about that rule."""
    graph, complaint = BROKEN[name]
    with pytest.raises(InputError) as error:
        check_graph(graph)
    assert complaint in str(error.value)
    assert len(str(error.value)) < 300


def test_too_many_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that an absurd number of ops is refused."""
    monkeypatch.setattr(graph_rules, "MAX_OPS", 1)
    with pytest.raises(InputError, match="a graph has 1 to 1 ops, this one has 2"):
        check_graph(_graph())
