"""Tests of damaged and invented witnesses of pipelines: none is accepted for more than the optimum of brute force.

`WEFTLINE_MUTANTS=50000 python -m pytest tests/certify/test_witness_mutants.py` tries as many of every kind.
"""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.certify.tiny_pipelines import brute_force, tiny_form

from weftline.ask.prove_cuts import cut_trees, named_merges
from weftline.certify import Refusal, bound_of
from weftline.certify.problem import PlanProblem

MUTANTS = int(os.environ.get("WEFTLINE_MUTANTS", "400"))
PER_PROBLEM = 20
Witness = dict[str, Any]


def _never() -> bool:
    return False


def _trees(problem: PlanProblem, best: int, dice: random.Random) -> Witness:
    """True ones of the optimum, with named pairs if there are any; else invented ones."""
    merge = named_merges(problem, best, _never) if dice.random() < 0.5 else []
    trees = cut_trees(problem, best, _never, merge) if best > 0 else None
    stages = max(2, problem.stage_limit)
    invented = {str(j): _invented(problem, dice, 4) for j in range(1, stages)}
    return {"kind": "cut-trees", "target": best, "trees": trees or invented, "merge": [list(pair) for pair in merge]}


def _invented(problem: PlanProblem, dice: random.Random, depth: int) -> Any:
    """Any tree."""
    if depth == 0 or dice.random() < 0.3:
        return 0 if dice.random() < 0.5 else [dice.randint(0, 64)]
    below = [_invented(problem, dice, depth - 1) for _ in range(2)]
    return ["v", dice.randrange(len(problem.names)), *below]


def _pipeline(problem: PlanProblem, best: int, dice: random.Random) -> Witness:
    pairs = [[dice.randrange(len(problem.names)) for _ in range(2)] for _ in range(dice.randint(0, 3))]
    return {"kind": "pipeline", "target": best, "merge": pairs, "memory": dice.random() < 0.3}


def _unequal(problem: PlanProblem, best: int, dice: random.Random) -> Witness:
    return {"kind": "unequal", "target": best, "memory": dice.random() < 0.3}


def _cut(problem: PlanProblem, best: int, dice: random.Random) -> Witness:
    return {"kind": "cut", "op": dice.randrange(len(problem.names)), "convex": dice.random() < 0.7}


def _group(problem: PlanProblem, best: int, dice: random.Random) -> Witness:
    ops = dice.choice(problem.together) if problem.together else [dice.randrange(len(problem.names))]
    return {"kind": "group", "ops": list(ops)}


def _load(problem: PlanProblem, best: int, dice: random.Random) -> Witness:
    count = len(problem.ids)
    return {"kind": "load", "weights": [dice.randint(0, 5) for _ in range(count)]}


KINDS: dict[str, Callable[[PlanProblem, int, random.Random], Witness]] = {
    "cut-trees": _trees,
    "pipeline": _pipeline,
    "unequal": _unequal,
    "cut": _cut,
    "group": _group,
    "load": _load,
}


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of everything inside."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def _mutated(witness: Witness, dice: random.Random) -> Witness:
    """One to three changes of numbers, lists and words; often a larger target."""
    found = copy.deepcopy(witness)
    for _ in range(dice.randint(1, 3)):
        places = [(holder, key) for holder, key in _places(found) if key != "kind"]
        holder, key = dice.choice(places)
        value = holder[key]
        if isinstance(value, bool):
            holder[key] = not value
        elif isinstance(value, int):
            holder[key] = value + dice.choice((-3, -1, 1, 2, 7, 2**40))
        elif isinstance(value, list) and value:
            _change(value, dice)
        elif isinstance(holder, list) or len(holder) > 2:
            del holder[key]
    if "target" in found and dice.random() < 0.7:
        found["target"] = witness["target"] + dice.randint(1, 4)
    return found


def _change(value: list[Any], dice: random.Random) -> None:
    place, other = dice.randrange(len(value)), dice.randrange(len(value))
    how = dice.randrange(5)
    if how == 0:
        del value[place]
    elif how == 1:
        value[place], value[other] = value[other], value[place]
    elif how == 2:
        value.insert(place, copy.deepcopy(value[other]))
    elif how == 3:
        value[place] = dice.choice((0, [32], [dice.randint(0, 64)], []))
    else:
        value[place] = copy.deepcopy(value[other])


@pytest.mark.parametrize("kind", KINDS)
def test_no_mutant_proves_too_much(kind: str) -> None:
    """Tests witnesses with changes of every sort: what is accepted is true."""
    tried = accepted = 0
    seed = 0
    while tried < MUTANTS:
        seed += 1
        dice = random.Random(f"{kind} {seed}")
        form = tiny_form(seed, equal=kind not in ("unequal", "load") or seed % 2 == 0, most_ops=6)
        best = brute_force(form)
        if best is None:
            continue
        problem = PlanProblem(form)
        for _ in range(PER_PROBLEM):
            mutant = _mutated(KINDS[kind](problem, best, dice), dice)
            tried += 1
            try:
                value = bound_of(problem, mutant)
            except (Refusal, KeyError, IndexError, TypeError, ValueError, AttributeError):
                continue  # `verify` refuses all of these
            accepted += 1
            assert value <= best, f"seed {seed}: {mutant} proves {value}, the optimum is {best}"
    assert accepted > 0
