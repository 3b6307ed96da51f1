"""`assemble`: any order in, topological order out, cycles shown by name."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weftline.errors import InputError
from weftline.graph import Graph, Op, Tensor, Tied, assemble
from weftline.testing import SeededChooser, make_graph


def _shuffled(graph: Graph, seed: int) -> Graph:
    """The same ops and tensors in another order, assembled again."""
    order = list(range(len(graph.ops)))
    random.Random(seed).shuffle(order)
    place = {old: new for new, old in enumerate(order)}
    tensors = [
        Tensor(
            t.name, place.get(t.producer, -1), tuple(place[c] for c in t.consumers), t.bytes, t.shape, t.dtype, t.output
        )
        for t in graph.tensors
    ]
    tied = [Tied(t.name, t.bytes, tuple(place[op] for op in t.ops)) for t in graph.tied]
    return assemble(graph.name, [graph.ops[old] for old in order], tensors, tied)


def _edges(graph: Graph) -> set[tuple[str, str, str]]:
    names = [op.name for op in graph.ops]
    return {
        (names[t.producer] if t.producer >= 0 else "", t.name, names[c]) for t in graph.tensors for c in t.consumers
    } | {(tied.name, "tied", names[op]) for tied in graph.tied for op in tied.ops}


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_shuffled_ops_are_sorted(seed: int, shuffle: int) -> None:
    """Tests that ops in any order give a topological order with the same edges by name."""
    graph = make_graph(SeededChooser(seed), 9)
    again = _shuffled(graph, shuffle)
    assert all(t.producer < c for t in again.tensors for c in t.consumers)
    assert sorted(op.name for op in again.ops) == sorted(op.name for op in graph.ops)
    assert _edges(again) == _edges(graph)


def test_a_valid_order_is_kept() -> None:
    """Tests that nothing moves without need."""
    graph = make_graph(SeededChooser(3), 9)
    assert assemble(graph.name, graph.ops, graph.tensors, graph.tied) == graph


def test_consumers_are_sorted_and_unique() -> None:
    """Tests that an op that reads a tensor twice is listed once."""
    graph = assemble("g", [Op("a"), Op("b"), Op("c")], [Tensor("t", 0, (2, 1, 2))])
    assert graph.tensors[0].consumers == (1, 2)


def test_cycle_is_shown_by_name() -> None:
    """Tests that the message walks along the cycle and leaves out what only hangs on it."""
    ops = [Op("start"), Op("one"), Op("two"), Op("three"), Op("tail")]
    tensors = [
        Tensor("a", 0, (1,)),
        Tensor("b", 1, (2,)),
        Tensor("c", 2, (3, 4)),
        Tensor("d", 3, (1,)),
    ]
    with pytest.raises(InputError) as error:
        assemble("loop", ops, tensors)
    shown = error.value.what.removeprefix("the graph has a cycle: ").split(" -> ")
    assert shown[0] == shown[-1]
    assert sorted(shown[1:]) == ["one", "three", "two"]
    follows = {"one": "two", "two": "three", "three": "one"}
    assert all(follows[a] == b for a, b in pairwise(shown))
    assert "unroll" in error.value.hint


def test_self_loop_is_a_cycle() -> None:
    """Tests that an op cannot read what it makes."""
    with pytest.raises(InputError, match="cycle: me -> me"):
        assemble("loop", [Op("me")], [Tensor("t", 0, (0,))])


def test_a_long_cycle_is_cut_short() -> None:
    """Tests that a cycle of a hundred ops fits on a line."""
    ops = [Op(f"op{i}") for i in range(100)]
    with pytest.raises(InputError) as error:
        assemble("ring", ops, [Tensor(f"t{i}", i, ((i + 1) % 100,)) for i in range(100)])
    assert "..." in str(error.value)
    assert len(str(error.value)) < 250


@pytest.mark.parametrize(
    ("tensor", "complaint"),
    [
        (Tensor("t", 2), "producer 2 is not an op"),
        (Tensor("t", -2), "producer -2 is not an op"),
        (Tensor("t", 0, (2,)), "consumer 2 is not an op"),
        (Tensor("t", 0, (-1,)), "consumer -1 is not an op"),
        (Tensor("t", 0, (10**30,)), "is not an op"),
    ],
)
def test_wrong_indices(tensor: Tensor, complaint: str) -> None:
    """Tests that an index that points nowhere is named with its tensor."""
    with pytest.raises(InputError, match=complaint) as error:
        assemble("g", [Op("a"), Op("b")], [tensor])
    assert error.value.where == "tensor 't'"


def test_wrong_index_of_a_tied_weight() -> None:
    """Tests that a tied weight cannot be used by an op that does not exist."""
    with pytest.raises(InputError, match="tied weight 'w': user 5 is not an op"):
        assemble("g", [Op("a"), Op("b")], [], [Tied("w", 1, (0, 5))])
