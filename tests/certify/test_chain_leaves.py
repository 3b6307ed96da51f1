"""Tests of propagation and of leaves by hand: what each resource, each price and each message is worth."""

from __future__ import annotations

from typing import Any

import pytest
from tests.certify.tiny_latency import Json, tiny_latency

from weftline.certify.chain_block import ChainBlock, begin_block, shrink
from weftline.certify.chain_leaves import Possible, RowLeaf
from weftline.certify.problem import PlanProblem


def _small(times: list[list[int]], tensors: list[tuple[int, list[int], list[int]]], **changes: Any) -> ChainBlock:
    """Tensors: maker, readers, times of transfer."""
    form = tiny_latency(0)
    form["graph"]["ops"] = [{"name": f"op{i}"} for i in range(len(times))]
    form["graph"]["tensors"] = [
        {"name": f"t{i}", "producer": maker, "consumers": readers} for i, (maker, readers, _) in enumerate(tensors)
    ]
    form["devices"] = [{"id": f"d{d}", "kind": "gpu", "capacity": None} for d in range(len(times[0]))]
    form["time_rows"], form["time_row"] = times, list(range(len(times)))
    form["transfer_rows"], form["transfer_row"] = [row for _, _, row in tensors], list(range(len(tensors)))
    form["together"], form["buses"] = [], []
    rules = {**form["rules"], "transfers": "per-tensor", **changes.pop("rules", {})}
    problem = PlanProblem({**form, "rules": rules, **changes})
    return ChainBlock(problem, range(len(times)))


def _least_price(
    block: ChainBlock, rows: list[list[int]], shares: Any = (), messages: Any = (), horizon: int = 1000
) -> int:
    """The room that is just enough."""
    state = begin_block(block, None, None)
    assert shrink(block, state, horizon)
    leaf = RowLeaf(Possible(block, state, horizon))
    for row in rows:
        leaf.add_row(*row)
    for room in range(200):
        leaf.room = room
        if not leaf.is_too_much(shares, messages):
            return room
    raise AssertionError("no room is enough")


def test_rows_add_up_what_everything_costs_at_least() -> None:
    """Tests prices by device, multipliers, levels, and the room: four ops of 3 ns on two devices need 6 ns."""
    block = _small([[3, 3]] * 4, [])
    rows = [[0, 0, 0, 1], [1, 0, 0, 1]]
    assert _least_price(block, rows) == 12
    assert _least_price(block, [[0, 0, 0, 2], [1, 0, 0, 3]]) == 24
    assert _least_price(block, [[0, 1, 0, 1], [1, 0, 1, 1]]) == 0
    for horizon, refuted in ((5, True), (6, False)):
        state = begin_block(block, None, None)
        assert shrink(block, state, horizon)
        leaf = RowLeaf(Possible(block, state, horizon))
        for row in rows:
            leaf.add_row(*row)
        assert leaf.room == 2 * horizon
        assert leaf.is_too_much([], []) == refuted


def test_messages_join_ops_and_transfers() -> None:
    """Tests an edge: each op alone is cheap on a device of its own, but then the transfer is not."""
    block = _small([[1, 5], [5, 1]], [(0, [1], [0, 4, 4, 0])])
    rows = [[0, 0, 0, 1], [1, 0, 0, 1], [2, 0, 0, 1]]
    assert _least_price(block, rows) == 2
    assert _least_price(block, rows, messages=[[0, 1, [4, 0], [-4, 0]]]) == 6
    assert _least_price(block, rows, messages=[[0, 1, [9, 5], [-9, -5]]]) == 6
    assert _least_price(block, rows, messages=[[0, 1, [7, 0], [-7, 0]]]) < 6


@pytest.mark.parametrize(("transfers", "least"), [("per-tensor", 4), ("per-edge", 8)])
def test_readers_share_a_transfer(transfers: str, least: int) -> None:
    """Tests two readers that are forced to the other device: one transfer or two; shares are cut to its price."""
    block = _small([[1, -1], [-1, 1], [-1, 1]], [(0, [1, 2], [0, 4, 4, 0])], rules={"transfers": transfers})
    assert _least_price(block, [[2, 0, 0, 1]]) == least
    assert _least_price(block, [[3 + 2, 0, 0, 1]]) == least
    assert _least_price(block, [[3, 0, 0, 1]]) == 0


def test_shares_of_a_transfer() -> None:
    """Tests that a price divided between two open readers counts once, however much of it is asked for."""
    block = _small([[1, -1], [9, 1], [9, 1]], [(0, [1, 2], [0, 4, 4, 0])])
    rows = [[2, 0, 0, 1], [0, 0, 0, 1]]
    assert _least_price(block, rows) == 1 + 4
    assert _least_price(block, rows, shares=[[0, 0, 1, 2], [1, 0, 1, 2]]) == 1 + 4
    assert _least_price(block, rows, shares=[[0, 0, 1, 50], [1, 0, 1, 50]]) == 1 + 4
    assert _least_price(block, rows, shares=[[0, 1, 0, 3]]) == 1 + 4


def test_what_cannot_be_in_time_costs_too_much() -> None:
    """Tests pairs of devices that no plan within the horizon has, and links that are missing."""
    block = _small([[1, 1], [1, 1]], [(0, [1], [0, -1, 50, 0])])
    rows = [[0, 0, 0, 1]]
    assert _least_price(block, rows, messages=[[0, 1, [-1, 0], [1, 0]]], horizon=20) == 0
    assert _least_price(block, rows, horizon=20) == 0
    both = [[0, 0, 0, 1], [1, 0, 0, 2]]
    assert _least_price(block, both, horizon=20) == 2


@pytest.mark.parametrize(
    ("times", "tensors", "changes", "shown"),
    [
        ([[3, 3]], [], {}, 3),
        ([[2, 9], [9, 2]], [(0, [1], [0, 3, 3, 0])], {}, 7),
        ([[2, -1], [2, -1]], [], {}, 4),
        ([[1, -1], [-1, 1], [-1, 1]], [(0, [1], [0, 3, 3, 0]), (0, [2], [0, 4, 4, 0])], {}, 9),
        ([[1, -1], [-1, 1], [-1, 1]], [(0, [1, 2], [0, 3, 3, 0])], {}, 6),
        ([[1, -1], [-1, 1], [-1, 1]], [(0, [1, 2], [0, 3, 3, 0])], {"rules": {"transfers": "per-edge"}}, 8),
        ([[2, 9], [9, 2]], [(0, [1], [0, 30, 30, 0])], {"together": [[0, 1]]}, 11),
        ([[1, -1, -1], [-1, 1, -1], [-1, -1, 1]], [(0, [1], [0, 3, 9, 9, 0, 9, 9, 9, 0]),
          (0, [2], [0, 9, 5, 9, 0, 9, 9, 9, 0])], {}, 10),
        ([[1, -1, -1, -1], [-1, 1, -1, -1], [-1, -1, 1, -1], [-1, -1, -1, 1]], [
            (0, [2], [0, 9, 3, 9, 9, 0, 9, 9, 9, 9, 0, 9, 9, 9, 9, 0]),
            (1, [3], [0, 9, 9, 9, 9, 0, 9, 4, 9, 9, 0, 9, 9, 9, 9, 0])], {"buses": [[0, 2, "x"], [1, 3, "x"]]}, 9),
    ],
    ids=["one op", "path", "device", "send port", "shared", "per edge", "together", "two targets", "bus"],
)  # fmt: skip
def test_what_propagation_alone_shows(times: Any, tensors: Any, changes: Any, shown: int) -> None:
    """Tests windows and forced orders of every resource: the least horizon that is left, by hand."""
    block = _small(times, tensors, **changes)
    left = [shrink(block, begin_block(block, None, None), horizon) for horizon in range(40)]
    assert left.index(True) == shown
    assert all(left[shown:])


def test_weights_that_do_not_fit() -> None:
    """Tests that an op goes where there is room beside what is certain, and that sets are weighed as one."""
    form = tiny_latency(0)
    block = _small([[1, 50], [1, 50], [1, 50]], [], devices=_limits(6, 9), graph=_weights(3, [2, 2, 2], form))
    state = begin_block(block, None, None)
    assert shrink(block, state, 49)
    assert not shrink(_small([[1, 50]] * 3, [], devices=_limits(5, 9), graph=_weights(3, [2, 2, 2], form)), state, 49)
    tight = _small([[1, 9], [1, 9]], [], devices=_limits(3, 4), graph=_weights(2, [2, 2], form), together=[[0, 1]])
    state = begin_block(tight, None, None)
    assert not shrink(tight, begin_block(tight, None, None), 17)
    assert shrink(tight, state, 18)
    assert state.able == [(1,), (1,)]


def _limits(*bytes_of: int) -> list[Json]:
    return [{"id": f"d{d}", "kind": "gpu", "capacity": limit} for d, limit in enumerate(bytes_of)]


def _weights(count: int, sizes: list[int], form: Json) -> Json:
    return {**form["graph"], "ops": [{"name": f"op{i}", "weight_bytes": sizes[i]} for i in range(count)], "tensors": []}
