"""Plans of layers that were changed by chance and on purpose: whatever the checker accepts is true, by other means.

`WEFTLINE_MUTANTS=20000 python -m pytest tests/certify/test_layer_mutants.py` makes as many as you like.
"""

from __future__ import annotations

import copy
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from hashlib import sha256
from random import Random
from typing import Any

import msgspec
import pytest

from weftline.ask.layers import make_layer_plan
from weftline.certify.check import Refusal
from weftline.certify.check_layers import check_layer_plan, refuted_rate
from weftline.errors import InfeasibleError, InputError
from weftline.problem.layers import LayerProblem, check_layers
from weftline.testing.fleets import LAYER_KINDS, best_layer_rate, random_layers

MUTANTS = int(os.environ.get("WEFTLINE_MUTANTS", "1200"))
PARTS = 4
File = dict[str, Any]
ODD: tuple[Any, ...] = (0, -1, 1, 2, -7, 10**17, 2**62, 2**70, 0.5, 1.0, 1e17, -1e17, True, None, "1", "", [], {})
SCALE = 10**6


@cache
def _seeds() -> tuple[str, ...]:
    """Small plans of every kind."""
    made = []
    for kind in LAYER_KINDS:
        for seed in range(2000, 2006):
            try:
                found = make_layer_plan(random_layers(seed, kind), work_limit=25)
            except InfeasibleError:
                continue
            made.append(json.dumps(msgspec.to_builtins(found)))
            if sum(f'"{kind}-2' in text for text in made) == 2:
                break
    assert len(made) >= 18
    return tuple(made)


@cache
def _optimum(problem: str) -> float:
    return best_layer_rate(msgspec.json.decode(problem, type=LayerProblem))


def _most(form: File, **changes: object) -> float:
    return _optimum(json.dumps({**form, **changes}))


def _paths(form: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where there is a number, anywhere."""
    if isinstance(form, dict | list):
        for key, value in form.items() if isinstance(form, dict) else enumerate(form):
            yield from _paths(value, (*path, key))
    elif isinstance(form, int | float):
        yield path


def _put(file: Any, path: tuple[Any, ...], change: Callable[[Any], Any]) -> None:
    for key in path[:-1]:
        file = file[key]
    file[path[-1]] = change(file[path[-1]])


def _any_number(file: File, dice: Random) -> None:
    step = dice.choice((-2, -1, 1, 2, 100, 10**6))
    _put(file, dice.choice(list(_paths(file))), lambda number: number + step)


def _any_type(file: File, dice: Random) -> None:
    odd = dice.choice(ODD)
    _put(file, dice.choice(list(_paths(file))), lambda _: copy.deepcopy(odd))


def _same_as_float(file: File, dice: Random) -> None:
    _put(file, dice.choice(list(_paths(file))), float)


def _forms(form: Any) -> Iterator[File]:
    if isinstance(form, dict):
        yield form
    for value in form.values() if isinstance(form, dict) else form if isinstance(form, list) else ():
        yield from _forms(value)


def _a_field(file: File, dice: Random) -> None:
    form = dice.choice([form for form in _forms(file) if form])
    if dice.random() < 0.5:
        del form[dice.choice(list(form))]
    else:
        form[dice.choice(("note", "rate", "size", "links"))] = copy.deepcopy(dice.choice(ODD))
    _rehash(file)


def _lane(file: File, dice: Random) -> File:
    """One of the plan's or of its front's."""
    lanes = [lane for form in (file, *file["front"]) for lane in form["lanes"]]
    return dice.choice(lanes)


def _other_rate(file: File, dice: Random) -> None:
    lane = _lane(file, dice)
    lane["rate"] = max(1, lane["rate"] + dice.choice((-SCALE, -1, 1, SCALE, lane["rate"])))


def _other_hops(file: File, dice: Random) -> None:
    hops = _lane(file, dice)["hops"]
    hop = dice.choice(hops)
    what = dice.randrange(4)
    if what == 0:
        hops.remove(hop)
    elif what == 1:
        hops.insert(dice.randrange(len(hops) + 1), list(hop))
    elif what == 2:
        hop[0] = dice.randrange(-1, len(file["instances"]) + 1)
    else:  # the border between two moves
        at = dice.randrange(len(hops))
        step = dice.choice((-1, 1))
        hops[at][2] += step
        if at + 1 < len(hops):
            hops[at + 1][1] += step


def _joined_hops(file: File, dice: Random) -> None:
    """Two hops as one: a request leaves an instance out."""
    hops = _lane(file, dice)["hops"]
    if len(hops) > 1:
        at = dice.randrange(len(hops) - 1)
        hops[at : at + 2] = [[hops[at + dice.randrange(2)][0], hops[at][1], hops[at + 1][2]]]


def _other_instance(file: File, dice: Random) -> None:
    one, names = dice.choice(file["instances"]), [d for i in file["instances"] for d in i["devices"]]
    what = dice.randrange(4)
    if what == 0:
        one[dice.choice(("first", "last"))] += dice.choice((-1, 1))
    elif what == 1:
        one["unit"] = dice.choice(file["problem"]["units"])["name"]
    elif what == 2:
        one["devices"][dice.randrange(len(one["devices"]))] = dice.choice(names)
        one["node"] = one["devices"][0]
    else:
        file["instances"].append(copy.deepcopy(one))


def _other_problem(file: File, dice: Random) -> None:
    """Another question with the same answer; its hash says so."""
    form = file["problem"]
    numbers = list(_paths(form))
    what = dice.randrange(4)
    if what == 0 and form["links"]:
        form["links"].remove(dice.choice(form["links"]))
    elif what == 1:
        form["partial"] = not form["partial"]
    elif what == 2:
        form["max_depth"] = dice.choice((None, 1, 2, 3))
    else:
        step = dice.choice((-1, 1, SCALE, -SCALE))
        _put(form, dice.choice(numbers), lambda number: number + step)
    _rehash(file)


def _other_witness(file: File, dice: Random) -> None:
    found = [bound["witness"] for bound in file["bounds"]] + [point["witness"] for point in file["front"]]
    witness = dice.choice([one for one in found if one] or [{"rate": 1, "steps": [[1, 1]]}])
    what = dice.randrange(4)
    if what == 0:
        witness["rate"] += dice.choice((-SCALE, -1, 1, -witness["rate"] // 2))
    elif what == 1:
        step = dice.choice(witness["steps"])
        step[dice.randrange(2)] += dice.choice((-1, 1, 500))
    elif what == 2:
        witness["steps"].remove(dice.choice(witness["steps"]))
    else:
        name = dice.choice(("full", "slope", "hop", "extra"))
        witness[name] = witness.get(name, 0) + dice.choice((-100, -1, 1, 100))


def _other_front(file: File, dice: Random) -> None:
    if file["front"]:
        point = dice.choice(file["front"])
        point["depth"] += dice.choice((-1, 1))


def _rehash(file: File) -> None:
    if isinstance(file.get("provenance"), dict) and "problem" in file:
        text = json.dumps(file["problem"], sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        file["provenance"]["problem_sha256"] = sha256(text.encode()).hexdigest()


def _true_sums(file: File) -> None:
    """Every sum of the file as its lanes and witnesses have them, so that only what is meant is wrong."""
    served = Counter[int]()
    for lane in file["lanes"]:
        served.update({hop[0]: lane["rate"] for hop in lane["hops"]})
    total = sum(lane["rate"] for lane in file["lanes"])
    for number, one in enumerate(file["instances"]):
        one["rate"] = served[number] / SCALE
    file["rate"], file["value_ns"] = total / SCALE, -(-(10**15) // total)
    file["depth"] = max(len(lane["hops"]) for lane in file["lanes"])
    limits = [bound["witness"]["rate"] - 1 for bound in file["bounds"]]
    for bound, limit in zip(file["bounds"], limits, strict=True):
        bound["rate_bound"] = limit / SCALE
    if limits:
        least = min(limits)
        file["rate_bound"], file["bound_ns"], file["gap"] = (
            least / SCALE,
            -(-(10**15) // least),
            (least - total) / least,
        )
    for point in file["front"]:
        point["rate"] = sum(lane["rate"] for lane in point["lanes"]) / SCALE
        if point["witness"]:
            point["rate_bound"] = (point["witness"]["rate"] - 1) / SCALE


MUTATIONS: tuple[Callable[[File, Random], None], ...] = (
    _any_number,
    _any_type,
    _same_as_float,
    _a_field,
    _other_rate,
    _other_hops,
    _joined_hops,
    _other_instance,
    _other_problem,
    _other_witness,
    _other_front,
)


def _holds(file: File) -> None:
    """What an accepted file says, against brute force and sums in another order."""
    form = file["problem"]
    problem = check_layers(msgspec.convert(form, LayerProblem))
    best = _most(form)
    total = sum(lane["rate"] for lane in file["lanes"])
    assert file["rate"] == total / SCALE
    assert total <= best * (1 + 1e-9) + 1
    for layer in range(problem.layers):  # every request passes every layer, once
        passed = [[hop for hop in lane["hops"] if hop[1] <= layer < hop[2]] for lane in file["lanes"]]
        assert all(len(hops) == 1 for hops in passed)
        assert all(file["instances"][i]["first"] <= layer < file["instances"][i]["last"] for ((i, _, _),) in passed)
    for bound in file["bounds"]:
        if bound["proof"] == "proved":
            assert bound["rate_bound"] * SCALE >= best * (1 - 1e-9) - 1
    for point in file["front"]:
        most = _most(form, max_depth=min(point["depth"], form["max_depth"] or point["depth"]))
        assert sum(lane["rate"] for lane in point["lanes"]) == round(point["rate"] * SCALE) <= most * (1 + 1e-9) + 1
        assert point["rate_bound"] is None or point["rate_bound"] * SCALE >= most * (1 - 1e-9) - 1


@pytest.mark.parametrize("part", range(PARTS))
def test_what_is_accepted_is_true(part: int) -> None:
    """Tests that a changed plan is refused, or true by brute force; and that the checker never fails otherwise."""
    dice, accepted = Random(part), 0
    for _ in range(MUTANTS // PARTS):
        file = json.loads(dice.choice(_seeds()))
        try:
            for _ in range(dice.choice((1, 1, 1, 2, 3))):
                dice.choice(MUTATIONS)(file, dice)
            if dice.random() < 0.7:
                _true_sums(file)
                _rehash(file)
        except (KeyError, TypeError, ValueError, IndexError, ZeroDivisionError, AttributeError, OverflowError):
            pass  # too broken for a second change; it still goes to the checker
        file = json.loads(json.dumps(file))
        try:
            check_layer_plan(file)
        except Refusal:
            continue
        accepted += 1
        try:
            _holds(file)
        except (InputError, msgspec.ValidationError) as error:
            raise AssertionError(f"accepted, but its problem is none: {error}\n{json.dumps(file)}") from error
    assert MUTANTS // PARTS // 100 < accepted < MUTANTS // PARTS // 2


def test_random_witnesses_prove_nothing_false() -> None:
    """Tests that no weights, slope and hop, however chosen, refute a rate that is reached."""
    dice, accepted = Random(7), 0
    for seed in range(MUTANTS // 10):
        problem = random_layers(seed, dice.choice(LAYER_KINDS))
        form, best = msgspec.to_builtins(problem), best_layer_rate(problem)
        for _ in range(20):
            rate = max(1, int(best * dice.choice((0.5, 0.9, 1.0, 1.2, 2.0, 4.0))))
            flows = sorted({rate, *(dice.randint(1, rate) for _ in range(dice.randint(0, 4)))})
            weights = sorted(dice.randint(0, 40) for _ in flows)
            steps = [list(step) for step in zip(flows, weights, strict=True)]
            hop = dice.choice((0, dice.randint(0, 40))) if problem.max_depth else 0
            witness = {"kind": "coverage", "rate": rate, "steps": steps, "full": dice.randint(0, 41)}
            try:
                extra = dice.choice((0, dice.randint(0, 20)))
                refuted_rate(form, {**witness, "slope": dice.randint(0, 40), "hop": hop, "extra": extra})
            except Refusal:
                continue
            accepted += 1
            assert rate > best * (1 - 1e-9) - 1
    assert accepted > MUTANTS // 50
