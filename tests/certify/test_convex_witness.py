"""Trees of priced cuts over convex sets: against brute force, mutated, and on a graph too wide for a list of ideals.

`WEFTLINE_TINY=20000 WEFTLINE_MUTANTS=50000 python -m pytest tests/certify/test_convex_witness.py` tries as many.
"""

from __future__ import annotations

import json
import os
from functools import cache
from random import Random
from typing import Any

import pytest
from tests.certify.tiny_pipelines import brute_force, tiny_form

from weftline.ask.prove_convex import convex_witness
from weftline.certify import Refusal, bound_of
from weftline.certify.allowance import Allowance
from weftline.certify.bound_convex import PRICE_UNITS, read_convex
from weftline.certify.problem import PlanProblem

TINY = int(os.environ.get("WEFTLINE_TINY", "200"))
MUTANTS = int(os.environ.get("WEFTLINE_MUTANTS", "600"))
Json = dict[str, Any]


def weights_of(form: Json, dice: Random) -> list[list[int]]:
    """Work, or anything."""
    if dice.random() < 0.6:
        return [[op, row[0]] for op, row in enumerate(form["time_rows"])]
    return [[op, dice.randint(0, 4)] for op in range(len(form["time_rows"]))]


def wide_form(ops: int = 30, stages: int = 5) -> Json:
    """Ops that mostly do not wait for each other."""
    dice = Random(7)
    form = tiny_form(2)
    times = [[1000 * dice.randint(1, 100)] * stages for _ in range(ops)]
    tensors, lengths = [], []
    for op in range(ops - 1):
        readers = sorted(dice.sample(range(op + 1, min(ops, op + 12)), 1))
        tensors.append({"name": f"t{op}", "producer": op, "consumers": readers})
        cost = 1000 * dice.randint(1, 15)
        lengths.append([0 if a == b else cost for a in range(stages) for b in range(stages)])
    return form | {
        "graph": {"name": "wide", "ops": [{"name": f"op{i}"} for i in range(ops)], "tensors": tensors},
        "devices": [{"id": f"d{d}", "kind": "gpu", "capacity": None} for d in range(stages)],
        "rules": {**form["rules"], "stages": stages},
        "time_rows": times,
        "time_row": list(range(ops)),
        "transfer_rows": lengths,
        "transfer_row": list(range(ops - 1)),
        "together": [],
    }


@pytest.mark.parametrize("part", range(4))
def test_nothing_above_the_optimum(part: int) -> None:
    """Tests every tree that is made on tiny pipelines: the checker accepts it, and it is true."""
    proved = missed = branched = 0
    for seed in range(part, TINY, 4):
        form, dice = tiny_form(seed), Random(f"weights {seed}")
        best, problem = brute_force(form), PlanProblem(form)
        if best is None:
            continue
        for target in {max(1, best), best + 1, best + 2, best + 5}:
            witness = convex_witness(problem, target, weights_of(form, dice), lambda: False)
            if witness is None:
                missed += target <= best
                continue
            assert bound_of(problem, witness) <= best, f"seed {seed}: target {target}, optimum {best}"
            proved += 1
            branched += len(witness["tree"]) > 1  # type: ignore[arg-type]
    assert proved > 3 * missed
    assert branched


@cache
def _seeds() -> tuple[tuple[Json, int, str], ...]:
    """Forms, their optimum, and a witness for it as text, mostly with branches."""
    found = []
    for seed in range(120):
        form = tiny_form(seed)
        best = brute_force(form)
        work = [[op, row[0]] for op, row in enumerate(form["time_rows"])]
        witness = convex_witness(PlanProblem(form), best, work, lambda: False) if best else None
        if best and witness is not None and (len(witness["tree"]) > 1 or seed % 4 == 0):  # type: ignore[arg-type]
            found.append((form, best, json.dumps(witness)))
    assert len(found) > 15
    return tuple(found)


def _change(witness: Json, dice: Random) -> None:
    tree, weights = witness["tree"], witness["weights"]
    step = dice.randrange(7)
    if step == 0:
        witness["target"] += dice.choice((1, 1, 2, 5))
    elif step == 1 and tree:
        tree.pop(dice.randrange(len(tree)))
    elif step == 2 and tree:
        tree.insert(dice.randrange(len(tree)), dice.choice((0, -1, [0], dice.randrange(2**30), tree[0])))
    elif step == 3 and tree:
        tree[dice.randrange(len(tree))] = dice.choice((0, -1, -2, [dice.randrange(8)], PRICE_UNITS, None, "0", True))
    elif step == 4 and weights:
        weights[dice.randrange(len(weights))][1] += dice.choice((-2, -1, 1, 3, 50))
    elif step == 5:
        weights.append([dice.randrange(8), dice.choice((0, 1, 9, 10**9))])
    elif tree:
        dice.shuffle(tree)


def test_changed_trees_prove_nothing_wrong() -> None:
    """Tests that whatever is accepted of a changed witness lies at or below the optimum."""
    seeds, accepted, refused = _seeds(), 0, 0
    for turn in range(MUTANTS):
        dice = Random(f"convex {turn}")
        form, best, text = dice.choice(seeds)
        witness = json.loads(text)
        for _ in range(dice.choice((1, 1, 2, 3))):
            _change(witness, dice)
        try:
            proved = bound_of(PlanProblem(form), witness)
        except (Refusal, TypeError, IndexError):
            refused += 1
            continue
        accepted += 1
        assert proved <= best, (turn, witness)
    assert accepted > MUTANTS // 50
    assert refused > MUTANTS // 50


def test_the_least_cut_is_the_least_set() -> None:
    """Tests prices against all sets of a tiny graph: with nothing decided, and with one piece in or out."""
    looked = 0
    for seed in range(60):
        form = tiny_form(seed)
        work = [[op, row[0]] for op, row in enumerate(form["time_rows"])]
        try:
            found = read_convex(PlanProblem(form), {"weights": work}, 10**6, Allowance())
        except Refusal:  # a tensor against the order
            continue
        assert found is not None
        _, sets = found
        if not sets.n:  # nothing costs anything
            continue
        for price in (0, PRICE_UNITS // 2, PRICE_UNITS, 3 * PRICE_UNITS):
            for inside, outside in ((0, 0), (1, 0), (0, 1)):
                decided = sets.decide(inside, outside)
                assert decided is not None
                values = []
                for members in range(1 << sets.n):
                    if members & decided[0] == decided[0] and not members & decided[1]:
                        value = sum(PRICE_UNITS * w for v, w in enumerate(sets.cuts.work) if members >> v & 1)
                        value -= price * sum(pi for v, pi in enumerate(sets.pi) if members >> v & 1)
                        cut = (cost for _, _, ends, cost in sets.cuts.tensors if 0 < ends & members < ends)
                        if _is_convex(sets.cuts.before, sets.cuts.behind, members):
                            values.append(value + PRICE_UNITS * sum(cut))
                least, members = sets.least(*decided, price, 10**18)
                assert least <= min(values), (seed, price, inside)
                if _is_convex(sets.cuts.before, sets.cuts.behind, members):
                    assert least == min(values), (seed, price, inside)
                    looked += 1
    assert looked > 100


def _is_convex(before: list[int], behind: list[int], members: int) -> bool:
    inside = [v for v in range(len(before)) if members >> v & 1]
    between = 0
    for a in inside:
        for b in inside:
            between |= behind[a] & before[b]
    return between & ~members == 0


def test_a_wide_graph() -> None:
    """Tests a wide graph: a tree proves more than the work of all ops does, and only whole."""
    form = wide_form()
    problem = PlanProblem(form)
    total = sum(row[0] for row in form["time_rows"])
    target = int(1.025 * total / 5)
    witness = convex_witness(problem, target, [[op, row[0]] for op, row in enumerate(form["time_rows"])], lambda: False)
    assert witness is not None
    assert bound_of(problem, witness) == target > -(-total // 5)
    tree = witness["tree"]
    assert isinstance(tree, list)
    for broken in (tree[:-1], [*tree, 0], [0], [-1], []):
        with pytest.raises(Refusal):
            bound_of(problem, {**witness, "tree": broken})
