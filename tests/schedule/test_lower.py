"""Tests of lowering: sends and receives in their order, under which sends they end, which blocks make up a stage."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from weftline.errors import InfeasibleError, InputError, UsageError
from weftline.problem.blocks import Block, Blocks, Lane
from weftline.schedule.lower import ActionLists, DeviceAction, data_edges, lower, routes, stages_of
from weftline.schedule.make_blocks import SHAPES, chunked, make_shape
from weftline.simulate import Timetable, simulate_schedule
from weftline.testing.lower_check import SEMANTICS, check_actions, safe_under, what_is_wrong


def one_by_one(blocks: Blocks, count: int) -> Timetable:
    """Every device runs its blocks by micro-batch, in topological order."""
    order = blocks.table.order.tolist()
    rows = [
        [m * blocks.n + b for m in range(count) for b in order if d in blocks.blocks[b].devices] for d in _all(blocks)
    ]
    return simulate_schedule(blocks, count, [np.array(row, np.int64) for row in rows])


def randomly(blocks: Blocks, count: int, seed: int) -> Timetable:
    """A random topological order of all operations, seen by every device."""
    random = np.random.default_rng(seed)
    waits = {(m, b): 0 for m in range(count) for b in range(blocks.n)}
    for _, target, _ in blocks.edges:
        for m in range(count):
            waits[m, target] += 1
    rows: list[list[int]] = [[] for _ in blocks.devices]
    while waits:
        ready = sorted(key for key, number in waits.items() if not number)
        m, b = ready[random.integers(len(ready))]
        del waits[m, b]
        for source, target, _ in blocks.edges:
            if source == b:
                waits[m, target] -= 1
        for device in blocks.blocks[b].devices:
            rows[device].append(m * blocks.n + b)
    return simulate_schedule(blocks, count, [np.array(row, np.int64) for row in rows])


def one_forward_one_backward(p: int, count: int) -> Timetable:
    """The classic order of a pipeline."""
    blocks = chunked("linear", range(p), [1] * p, [2] * p)
    rows = []
    for d in range(p):
        forward, backward = (
            [m * blocks.n + d for m in range(count)],
            [m * blocks.n + 2 * p - 1 - d for m in range(count)],
        )
        ahead = min(count, p - d)
        row = forward[:ahead]
        for m in range(count):
            row.append(backward[m])
            row += forward[ahead + m : ahead + m + 1]
        rows.append(np.array(row, np.int64))
    return simulate_schedule(blocks, count, rows)


def _all(blocks: Blocks) -> range:
    return range(len(blocks.devices))


def by_hand(blocks: Blocks, count: int, rows: Sequence[Sequence[tuple[object, ...]]]) -> ActionLists:
    return ActionLists(blocks, count, tuple(tuple(DeviceAction(*item) for item in row) for row in rows))  # type: ignore[arg-type]


def test_a_pipeline_of_two_by_hand() -> None:
    """Tests the whole action lists of one micro-batch on two devices."""
    lists = lower(one_by_one(make_shape("vshape", 2), 1))
    assert lists.rows() == [
        [["compute", 0, 0], ["send", 0, 0, 1, 1], ["receive", 0, 2, 3, 1], ["compute", 0, 3]],
        [["receive", 0, 0, 1, 0], ["compute", 0, 1], ["compute", 0, 2], ["send", 0, 2, 3, 0]],
    ]


def test_who_sends_to_whom() -> None:
    """Tests that devices that hold a result are not sent it, and that several holders share the sending."""
    lanes = [Lane(str(d)) for d in range(4)]
    blocks = Blocks.of("t", lanes, [Block("F", 1, (0, 1), (0, 0)), Block("F", 1, (1, 2, 3), (0, 0, 0))], [(0, 1)])
    assert routes(blocks) == ((0, 1, 0, 2), (0, 1, 1, 3))
    embedding = [route for route in routes(make_shape("mshape", 4)) if route.source == 0]
    assert not embedding
    into = [route for route in routes(make_shape("mshape", 4)) if route.target == 9]
    assert [(route.sender, route.receiver) for route in into] == [(0, 1), (0, 2), (0, 3)]


def test_blocks_on_links_are_the_transfer_itself() -> None:
    """Tests that data goes past blocks on links to the next block on a device."""
    lanes = [Lane("a"), Lane("b"), Lane("wire", link=True), Lane("wire2", link=True)]
    parts = [Block("F", 1, (0,), (0,)), Block("C", 5, (2,), (0,)), Block("C", 5, (3,), (0,)), Block("F", 1, (1,), (0,))]
    blocks = Blocks.of("t", lanes, parts, [(0, 1), (1, 2), (2, 3)])
    assert data_edges(blocks) == ((0, 3),)
    lists = lower(one_by_one(blocks, 2))
    assert lists.actions[2] == lists.actions[3] == ()
    assert [action.do for action in lists.actions[0]] == ["compute", "send", "compute", "send"]
    assert safe_under(lists) == SEMANTICS


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("train", [True, False])
def test_early_receives_are_safe_under_every_meaning_of_a_send(name: str, train: bool) -> None:
    """Tests that random schedules of every shape are complete and end, even with blocking sends."""
    blocks = make_shape(name, 4, train=train)
    for seed in range(6):
        lists = lower(randomly(blocks, 3, seed))
        assert what_is_wrong(lists) == ""
        assert safe_under(lists) == SEMANTICS


def random_blocks(seed: int) -> Blocks:
    random = np.random.default_rng(seed)
    devices = int(random.integers(1, 5))
    lanes = [Lane(str(d), link=d > 1 and bool(random.random() < 0.3)) for d in range(devices)]
    parts = []
    for _ in range(int(random.integers(1, 8))):
        held = tuple(sorted(random.choice(devices, int(random.integers(1, devices + 1)), replace=False).tolist()))
        parts.append(Block("F", int(random.integers(1, 4)), held, (0,) * len(held)))
    edges = [(i, j, 1) for j in range(len(parts)) for i in range(j) if random.random() < 0.4]
    return Blocks.of("random", lanes, parts, edges)


@pytest.mark.parametrize("seed", range(40))
def test_random_blocks(seed: int) -> None:
    """Tests that early receives are always safe, late ones with buffered sends, and that both ends agree on order."""
    timetable = randomly(random_blocks(seed), 1 + seed % 3, seed)
    early, late = lower(timetable), lower(timetable, receives="late")
    assert safe_under(early) == SEMANTICS
    assert "buffered" in safe_under(late)
    for lists in (early, late):
        for a, row in enumerate(lists.actions):
            for b, other in enumerate(lists.actions):
                sent = [(x.micro_batch, x.block, x.to) for x in row if x.do == "send" and x.peer == b]
                got = [(x.micro_batch, x.block, x.to) for x in other if x.do == "receive" and x.peer == a]
                assert sent == got
        again = ActionLists.of_rows(lists.blocks, lists.micro_batches, json.loads(json.dumps(lists.rows())))
        assert again == lists


def test_late_receives_deadlock_with_blocking_sends() -> None:
    """Tests the classic deadlock of 1F1B: both neighbours send, and neither receives."""
    timetable = one_forward_one_backward(2, 4)
    late = lower(timetable, receives="late")
    assert safe_under(late) == ("buffered", "batched")
    stuck = check_actions(late, "blocking")
    assert "device '0' waits to send F0 of micro-batch" in stuck
    assert "device '1' waits to send B1 of micro-batch" in stuck
    assert safe_under(lower(timetable)) == SEMANTICS


def crossed(first: tuple[str, str], second: tuple[str, str]) -> ActionLists:
    """Two devices that each compute a block and exchange results, then need the other's; actions in the given order."""
    parts = [Block("F", 1, (d,), (0,), f"{'ab'[d]}{k}") for k in (0, 1) for d in (0, 1)]
    blocks = Blocks.of("cross", [Lane("0"), Lane("1")], parts, [(0, 3), (1, 2)])
    give = {
        "send": [("send", 0, 0, 3, 1), ("send", 0, 1, 2, 0)],
        "receive": [("receive", 0, 1, 2, 1), ("receive", 0, 0, 3, 0)],
    }
    rows = [
        [("compute", 0, d), *(give[do][d] for do in order), ("compute", 0, 2 + d)]
        for d, order in enumerate((first, second))
    ]
    return by_hand(blocks, 1, rows)


def test_the_three_meanings_differ() -> None:
    """Tests that crossing sends deadlock if they block, not in a batch, and that receiving first does too."""
    out, back = ("send", "receive"), ("receive", "send")
    assert safe_under(crossed(out, out)) == ("buffered", "batched")
    assert safe_under(crossed(out, back)) == SEMANTICS
    assert safe_under(crossed(back, back)) == ("batched",)


def test_against_all_interleavings() -> None:
    """Tests the player against brute force: blocking transfers end iff some order of them fits both lists."""
    parts = [Block("F", 1, (0,), (0,)), Block("F", 1, (1,), (0,)), Block("F", 1, (0,), (0,)), Block("F", 1, (1,), (0,))]
    blocks = Blocks.of("cross", [Lane("0"), Lane("1")], parts, [(0, 1), (0, 3), (1, 2)])
    sides = [
        [("compute", 0, 0), ("send", 0, 0, 1, 1), ("send", 0, 0, 3, 1), ("receive", 0, 1, 2, 1), ("compute", 0, 2)],
        [("receive", 0, 0, 1, 0), ("compute", 0, 1), ("receive", 0, 0, 3, 0), ("send", 0, 1, 2, 0), ("compute", 0, 3)],
    ]
    ends = 0
    for left in permutations(sides[0]):
        for right in permutations(sides[1]):
            lists = by_hand(blocks, 1, [list(left), list(right)])
            assert (check_actions(lists, "blocking") == "") == _fits(left, right)
            ends += _fits(left, right)
    assert ends == 11


def _fits(left: tuple[tuple[object, ...], ...], right: tuple[tuple[object, ...], ...]) -> bool:
    """Whether data is there when it is computed with, and the transfers stand in one order on both sides."""
    needs = {2: ("receive", 0, 1, 2, 1), 1: ("receive", 0, 0, 1, 0), 3: ("receive", 0, 0, 3, 0)}
    gives = {("send", 0, 0, 1, 1): 0, ("send", 0, 0, 3, 1): 0, ("send", 0, 1, 2, 0): 1}
    for row in (left, right):
        for place, item in enumerate(row):
            if item[0] == "compute" and item[2] in needs and needs[item[2]] not in row[:place]:
                return False
            if item[0] == "send" and ("compute", 0, gives[item]) not in row[:place]:  # type: ignore[index]
                return False
    moves = [[item[1:4] for item in row if item[0] != "compute"] for row in (left, right)]
    return moves[0] == moves[1]


def test_wrong_lists_are_named() -> None:
    """Tests that a missing transfer, a doubled one and a computation without its data are told apart."""
    lists = lower(one_by_one(make_shape("vshape", 2), 1))
    first, second = lists.actions
    short = ActionLists(lists.blocks, 1, (first[:1] + first[2:], second))
    assert "device '0' lacks actions" in what_is_wrong(short)
    assert safe_under(short) == ()
    assert "twice" in what_is_wrong(ActionLists(lists.blocks, 1, (first + first[:1], second)))
    hasty = ActionLists(lists.blocks, 1, (first, (second[1], second[0], *second[2:])))
    assert "device '1' computes F1 of micro-batch 0 before it has what F0 gives" in check_actions(hasty, "buffered")


def test_devices_of_one_block_wait_for_each_other() -> None:
    """Tests that blocks on several devices in different orders deadlock under every meaning."""
    everyone = Block("F", 1, (0, 1), (0, 0))
    blocks = Blocks.of("t", [Lane("0"), Lane("1")], [everyone, everyone], [])
    good = [("compute", 0, 0), ("compute", 0, 1)]
    assert safe_under(by_hand(blocks, 1, [good, good])) == SEMANTICS
    assert safe_under(by_hand(blocks, 1, [good, good[::-1]])) == ()
    with pytest.raises(InfeasibleError):
        simulate_schedule(blocks, 1, [np.array([0, 1]), np.array([1, 0])])


@pytest.mark.parametrize(
    "rows",
    [
        None,
        [[]],
        [[], 3],
        [[["compute", 0]], []],
        [[["compute", 0, 99]], []],
        [[["jump", 0, 0]], []],
        [[[[], 0, 0]], []],
    ],
)
def test_bad_json_is_refused(rows: object) -> None:
    """Tests that lists of another form are input errors that say where."""
    with pytest.raises(InputError, match="actions"):
        ActionLists.of_rows(make_shape("vshape", 2), 1, rows)


def test_unknown_words_are_refused() -> None:
    """Tests that misspelt options are usage errors."""
    timetable = one_by_one(make_shape("vshape", 2), 1)
    with pytest.raises(UsageError, match="early"):
        lower(timetable, receives="soon")
    with pytest.raises(UsageError, match="buffered"):
        check_actions(lower(timetable), "pigeon")


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("devices", [2, 4, 8])
def test_stages_are_found_without_their_numbers(name: str, train: bool, devices: int) -> None:
    """Tests that blocks that do not name their stage are matched as those that do."""
    named = make_shape(name, devices, train=train)
    nameless = replace(named, blocks=tuple(replace(block, stage=-1) for block in named.blocks))
    pairs = [{(s.forward, s.backward, s.weight) for s in stages_of(blocks)} for blocks in (named, nameless)]
    assert pairs[0] == pairs[1]


def test_a_fork_by_hand() -> None:
    """Tests inputs, outputs and devices of a stage that feeds two others."""
    parts = [Block("F", 1, (d,), (0,), stage=d) for d in range(3)]
    lanes = [Lane("0"), Lane("1"), Lane("2"), Lane("wire", link=True)]
    blocks = Blocks.of("fork", lanes, [*parts, Block("C", 1, (3,), (0,))], [(0, 1), (0, 3), (3, 2)])
    first, *others = stages_of(blocks)
    assert (first.inputs, first.outputs, first.devices) == ((), (1, 2), (0,))
    assert [stage.inputs for stage in others] == [(0,), (0,)]


def test_what_is_not_clear_is_asked_for() -> None:
    """Tests that a backward block that could belong to two stages needs a number."""
    parts = [Block("F", 1, (0,), (0,)), Block("F", 1, (0,), (0,)), Block("B", 1, (0,), (0,))]
    with pytest.raises(InputError, match="give `stage`"):
        stages_of(Blocks.of("t", [Lane("0")], parts, [(0, 2), (1, 2)]))
