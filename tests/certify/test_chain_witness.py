"""Tests of chains of blocks: against brute force, mutated, refused, and read back from text.

`WEFTLINE_TINY=20000 WEFTLINE_MUTANTS=50000 python -m pytest tests/certify/test_chain_witness.py` tries as many.
"""

from __future__ import annotations

import base64
import copy
import json
import os
import random
import zlib
from typing import Any

import pytest
from tests.certify.tiny_latency import Json, least_latency, tiny_latency

from weftline.certify import Refusal, bound_of
from weftline.certify.allowance import Allowance
from weftline.certify.bound_chain import ChainOfBlocks, shortest_way
from weftline.certify.chain_block import BlockState, ChainBlock, begin_block, shrink
from weftline.certify.chain_leaves import Possible, RowLeaf, set_is_full
from weftline.certify.problem import PlanProblem

TINY = int(os.environ.get("WEFTLINE_TINY", "300"))
MUTANTS = int(os.environ.get("WEFTLINE_MUTANTS", "300"))
LEAST_SHOWN = {"propagated": 1637, "shown": 39, "leaves": 2, "targets": 1041}
"""Of 200 problems, in sum."""
Witness = dict[str, Any]


def proves(problem: PlanProblem, witness: Witness) -> bool:
    """Whether the checker accepts it."""
    try:
        return bool(bound_of(problem, witness) == witness["target"])
    except (Refusal, KeyError, IndexError, TypeError, ValueError, AttributeError):
        return False


def drawn_chain(problem: PlanProblem, dice: random.Random) -> tuple[list[int], list[list[int]]]:
    """Ops of which each comes before the next, and all that lies between them, or part of it."""
    n = len(problem.names)
    before: list[set[int]] = []
    for tensors in problem.inputs:
        makers = {problem.producer[t] for t in tensors}
        before.append(makers.union(*(before[maker] for maker in makers)))
    chain: list[int] = []
    for op in range(n):
        if (not chain or chain[-1] in before[op]) and dice.random() < 0.4:
            chain.append(op)
    blocks = []
    for i in range(len(chain) + 1):
        inside = [op for op in range(n) if op not in chain and (i == 0 or chain[i - 1] in before[op])]
        inside = [op for op in inside if i == len(chain) or op in before[chain[i]]]
        blocks.append([op for op in inside if dice.random() < 0.95])
    return chain, blocks


def drawn_tree(
    block: ChainBlock, ends: tuple[int | None, int | None], horizon: int, dice: random.Random
) -> list[Any] | None:
    """A tree with arguments and decisions as they come; None where something may be left."""
    tree: list[Any] = []
    waiting = [begin_block(block, *ends)]
    while waiting:
        state = waiting.pop()
        if len(tree) > 400:
            return None
        if not shrink(block, state, horizon):
            tree.append(["w"])
            continue
        leaf = _drawn_leaf(block, state, horizon, dice)
        if leaf is not None:
            tree.append(leaf)
            continue
        branch = _drawn_branch(block, state, dice)
        if branch is None:
            return None
        tree.append(branch[0])
        waiting += reversed(branch[1])
    return tree


def _drawn_leaf(block: ChainBlock, state: BlockState, horizon: int, dice: random.Random) -> list[Any] | None:
    possible = Possible(block, state, horizon)
    levels = [(r, i.head, i.after) for r, items in sorted(possible.by_resource.items()) for i in items]
    for resource, head, after in levels:
        if set_is_full(state, horizon, resource, head, after):
            return ["e", resource, head, after]
    for _ in range(3 if levels else 0):
        rows = [[*dice.choice(levels), dice.randint(1, 4)] for _ in range(dice.randint(1, 4))]
        drawn = [[dice.randrange(max(1, len(block.edges))), *dice.choices(range(block.k), k=2), dice.randint(0, 9)]]
        shares = drawn if block.edges and dice.random() < 0.5 else []
        pair = [dice.randrange(block.n), dice.randrange(block.n)]
        messages = [[*pair, *([dice.randint(-4, 4) for _ in range(block.k)] for _ in range(2))]]
        leaf = RowLeaf(possible)
        for row in rows:
            leaf.add_row(*row)
        if leaf.is_too_much(shares, messages):
            return ["d", rows, shares, messages]
    return None


def _drawn_branch(
    block: ChainBlock, state: BlockState, dice: random.Random
) -> tuple[list[Any], list[BlockState]] | None:
    open_ops = [i for i in range(block.n) if len(state.able[i]) > 1]
    if open_ops and dice.random() < 0.8:
        op = dice.choice(open_ops)
        cut = dice.randrange(1, len(state.able[op]))
        sets = [list(state.able[op][:cut]), list(state.able[op][cut:])]
        return ["b", op, *sets], [state.child(op, devices) for devices in sets]
    pairs = sorted(
        {(x.name, y.name) for items in state.items.values() for x in items for y in items if x.name < y.name}
        - {pair for x, y in state.orders for pair in ((x, y), (y, x))}
    )
    if pairs:
        x, y = dice.choice(pairs)
        return ["o", x, y], [state.child(order=(x, y)), state.child(order=(y, x))]
    return None if not open_ops else _drawn_branch(block, state, dice)


def drawn_witness(form: Json, dice: random.Random, best: int) -> Witness:
    """Parts with horizons around what the blocks need; the target is what they say."""
    problem = PlanProblem(form)
    ops, blocks = drawn_chain(problem, dice)
    chain = ChainOfBlocks(problem, ops, blocks, Allowance())
    parts = []
    for number, block in enumerate(chain.blocks):
        for k, row in enumerate(chain.lengths[number]):
            for j, length in enumerate(row):
                ends = k if block.first >= 0 else None, j if block.last >= 0 else None
                horizon = min(length, best + 9) + dice.randint(0, 4)
                tree = drawn_tree(block, ends, horizon, dice)
                if tree is not None:
                    own = {name: end for name, end in zip("kj", ends, strict=True) if end is not None}
                    parts.append({"block": number, **own, "H": horizon, "tree": tree})
                    chain.raise_to(number, ends, horizon + 1)
    return {"kind": "chain", "target": shortest_way(chain.lengths), "ops": ops, "blocks": blocks, "parts": parts}


@pytest.mark.parametrize("part", range(4))
def test_no_chain_proves_more_than_the_optimum(part: int) -> None:
    """Tests drawn chains, horizons and trees: what the checker accepts is never above the optimum."""
    accepted = 0
    for seed in range(part, TINY, 4):
        form = tiny_latency(seed)
        best = least_latency(form)
        if best is None:
            continue
        try:
            witness = drawn_witness(form, random.Random(seed), best)
        except Refusal:
            continue
        problem = PlanProblem(form)
        assert proves(problem, witness) or witness["target"] == 0, f"seed {seed}"
        assert not proves(problem, {**witness, "target": witness["target"] + 1})
        assert witness["target"] <= best, f"seed {seed}: proved {witness['target']}, optimum {best}"
        accepted += 1
    assert accepted > TINY // 10


@pytest.mark.parametrize("part", range(4))
def test_the_optimum_is_proved_by_one_block(part: int) -> None:
    """Tests the whole graph as one block: a tree shows the optimum, and none shows more."""
    shown = 0
    for seed in range(part, TINY, 4):
        form = tiny_latency(seed)
        best = least_latency(form)
        if not best:
            continue
        problem, dice = PlanProblem(form), random.Random(seed)
        block = ChainBlock(problem, range(len(problem.names)))
        blocks = [list(range(len(problem.names)))]
        tree = drawn_tree(block, (None, None), best - 1, dice)
        witness = {"kind": "chain", "target": best, "ops": [], "blocks": blocks, "parts": []}
        if tree is not None:
            shown += 1
            assert proves(problem, {**witness, "parts": [{"block": 0, "H": best - 1, "tree": tree}]}), f"seed {seed}"
            higher = {**witness, "target": best + 1, "parts": [{"block": 0, "H": best, "tree": tree}]}
            assert not proves(problem, higher), f"seed {seed}"
        for _ in range(3):
            assert drawn_tree(block, (None, None), best + dice.randint(0, 2), dice) is None, f"seed {seed}"
    assert shown > TINY // 8


def _shown_by_propagation(form: Json) -> int:
    """The largest horizon that is refuted without any branch, + 1."""
    problem = PlanProblem(form)
    block = ChainBlock(problem, range(len(problem.names)))
    horizon = 0
    while horizon < 100 and not shrink(block, begin_block(block, None, None), horizon):
        horizon += 1
    return horizon


def test_how_much_is_shown() -> None:
    """Tests that propagation and drawn trees show no less than they once did: what is weaker proves less, not wrong."""
    propagated = leaves = targets = shown = 0
    for seed in range(200):
        form, dice = tiny_latency(seed), random.Random(seed)
        problem = PlanProblem(form)
        propagated += _shown_by_propagation(form)
        block = ChainBlock(problem, range(len(problem.names)))
        for horizon in range(_shown_by_propagation(form), 40):
            tree = drawn_tree(block, (None, None), horizon, dice)
            if tree is None:
                break
            leaves += sum(node[0] in "de" for node in tree)
            shown += 1
        if least_latency(form):
            try:
                targets += int(drawn_witness(form, dice, 20)["target"])
            except Refusal:
                continue
    found = {"propagated": propagated, "shown": shown, "leaves": leaves, "targets": targets}
    assert all(found[name] >= least for name, least in LEAST_SHOWN.items()), found


def _mutated(value: Any, dice: random.Random) -> Any:
    """One number, list or word somewhere inside is another one."""
    if isinstance(value, dict):
        key = dice.choice(sorted(value))
        return {**value, key: _mutated(value[key], dice)}
    if isinstance(value, list) and value:
        at, other = dice.randrange(len(value)), dice.randrange(len(value))
        return dice.choice(
            (
                [*value[:at], *value[at + 1 :]],
                [*value[:at], copy.deepcopy(value[at]), *value[at:]],
                [value[other] if i == at else x for i, x in enumerate(value)],
                *([[*value[:at], _mutated(value[at], dice), *value[at + 1 :]]] * 7),
            )
        )
    if isinstance(value, int):
        return value + dice.choice((-2, -1, 1, 2, 7))
    return dice.choice(("w", "e", "d", "b", "o")) if isinstance(value, str) else [1]


def test_mutated_witnesses_prove_nothing_above_the_optimum() -> None:
    """Tests one and two changes anywhere in a witness: it is refused, or what it says is still true."""
    tried = accepted = 0
    seed = 0
    while tried < MUTANTS:
        seed += 1
        form = tiny_latency(seed)
        best = least_latency(form)
        if not best:
            continue
        dice, problem = random.Random(seed), PlanProblem(form)
        try:
            witness = drawn_witness(form, dice, best)
        except Refusal:
            continue
        for _ in range(10):
            changed = _mutated(copy.deepcopy(witness), dice)
            if dice.random() < 0.5:
                changed = _mutated(changed, dice)
            if dice.random() < 0.7:
                changed["target"] = max(best + 1, witness["target"] + 1)
            tried += 1
            if changed.get("kind") == "chain" and proves(problem, changed):
                accepted += 1
                assert changed["target"] <= best, f"seed {seed}: {changed}, optimum {best}"
    assert accepted < tried


def _row_of_ops(count: int, *, name: str = "chain") -> Json:
    """One op after another on two devices; each feeds two ops that join again."""
    form = tiny_latency(0)
    form["graph"]["ops"] = [{"name": f"{name}{i}"} for i in range(3 * count + 1)]
    tensors: list[Json] = []
    for i in range(count):
        a = 3 * i
        tensors.append({"name": f"a{i}", "producer": a, "consumers": [a + 1, a + 2]})
        tensors += [{"name": f"{n}{i}", "producer": a + n, "consumers": [a + 3]} for n in (1, 2)]
    form["graph"]["tensors"] = tensors
    form["devices"] = [{"id": f"d{d}", "kind": "gpu", "capacity": None} for d in range(2)]
    form["time_rows"], form["time_row"] = [[2, 2], [6, 6]], [0, *[1, 1, 0] * count]
    form["transfer_rows"], form["transfer_row"] = [[0, 2, 2, 0]], [0] * len(tensors)
    form["together"], form["buses"] = [], []
    return form


def _forks(count: int) -> tuple[PlanProblem, Witness]:
    """Each fork lasts 12 ns from end to end, not 8 as its paths do: both arms on one device, or two transfers."""
    problem = PlanProblem(_row_of_ops(count))
    ops = [3 * i for i in range(count + 1)]
    blocks = [[], *([3 * i + 1, 3 * i + 2] for i in range(count)), []]
    chain, dice = ChainOfBlocks(problem, ops, blocks, Allowance()), random.Random(1)
    parts = []
    for k in range(2):
        for j in range(2):
            tree = drawn_tree(chain.blocks[1], (k, j), 11 if k == j else 9, dice)
            parts.append({"block": 1, "k": k, "j": j, "H": 11 if k == j else 9, "tree": tree})
    return problem, {"kind": "chain", "target": 2 + 12 * count - 2, "ops": ops, "blocks": blocks, "parts": parts}


def test_equal_blocks_are_proved_once() -> None:
    """Tests that a proof of one block holds for all that have the same tables, and for no other."""
    problem, witness = _forks(6)
    assert shortest_way(ChainOfBlocks(problem, witness["ops"], witness["blocks"], Allowance()).lengths) == 2 + 6 * 8
    assert proves(problem, {**witness, "target": 2 + 6 * 10})
    form = _row_of_ops(6)
    form["time_rows"].append([5, 6])
    form["time_row"][7] = 2  # an op of the third fork
    assert not proves(PlanProblem(form), {**witness, "target": 2 + 6 * 10})


def test_large_parts_may_be_text() -> None:
    """Tests base64 of zlib, and that what cannot be unpacked, or is too long, is refused."""
    problem, witness = _forks(3)
    witness["target"] = 2 + 3 * 10
    packed = zlib.compress(json.dumps(witness["parts"]).encode())
    assert proves(problem, {**witness, "parts": base64.b64encode(packed).decode()})
    for wrong in (packed[:-5], b"no zlib", zlib.compress(b"[1"), zlib.compress(b"{}")):
        assert not proves(problem, {**witness, "parts": base64.b64encode(wrong).decode()})
    assert not proves(problem, {**witness, "parts": "no base64"})
    bomb = base64.b64encode(zlib.compress(b" " * (17 * 2**20))).decode()
    with pytest.raises(Refusal, match="witness-size"):
        bound_of(problem, {**witness, "parts": bomb})


def test_too_much_work_is_refused() -> None:
    """Tests limits of nodes, depth and time."""
    problem, witness = _forks(2)
    deep: list[Any] = [["b", 1, [0, 1]]] * 500
    wide: list[Any] = [["w"]]
    for _ in range(15):  # twice as large each time
        wide = [["b", 1, [0], [1]], *wide, *wide]
    many = [["b", 1, *[[0, 1]] * 3]]
    for horizon, tree, why in ((100, deep, "deeper than 400"), (0, wide, "more than 20000"), (100, many, "more sets")):
        part = {"block": 1, "k": 0, "j": 0, "H": horizon, "tree": tree}
        with pytest.raises(Refusal, match=why):
            bound_of(problem, {**witness, "parts": [part]})
    with pytest.raises(Refusal, match="too long to check"):
        bound_of(problem, witness, Allowance(-1.0))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"ops": [3, 0]}, "does not come after|one more block"),
        ({"blocks": [[], [1, 5], [4, 5], []]}, "does not lie between"),
        ({"blocks": [[], [2, 1], [4, 5], []]}, "ascending"),
        ({"blocks": [[], []]}, "one more block"),
        ({"target": 1000}, "does not show"),
        ({"ops": [0, 0, 6]}, "twice"),
    ],
)
def test_witnesses_that_are_refused(change: Witness, why: str) -> None:
    """Tests chains that are none, and targets that are too high."""
    problem, witness = _forks(2)
    assert proves(problem, {**witness, "target": 2 + 2 * 10})
    with pytest.raises(Refusal, match=why):
        bound_of(problem, {**witness, **change})


def test_other_questions_have_no_chain() -> None:
    """Tests that pipelines and the sequential runtime are refused: there a transfer is part of a load."""
    for rule, value in (("objective", "throughput"), ("runtime", "sequential")):
        form = _row_of_ops(1)
        form["rules"][rule] = value
        with pytest.raises(Refusal, match="parallel runtime alone"):
            bound_of(PlanProblem(form), {"kind": "chain", "target": 1, "ops": [], "blocks": [[]], "parts": []})
