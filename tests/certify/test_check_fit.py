"""Tests of the checker of plans of language models on cards: it agrees with the search, and believes no witness."""

from __future__ import annotations

import copy
import json
import os
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import weftline as wl
from weftline.certify.bound_fit import fit_bound
from weftline.certify.check_fit import check_fit_plan, fit_value
from weftline.certify.problem import Refusal
from weftline.errors import InfeasibleError
from weftline.fleet.fit import solve_fit
from weftline.plans.fit import fit_plan_to_json
from weftline.problem.fit import FitAnswer, FitProblem
from weftline.testing.fits import best_fit_value, random_fit_problem

PROBLEMS = int(os.environ.get("WEFTLINE_PROBLEMS", "100"))

Form = dict[str, Any]


def solved(seed: int) -> tuple[FitProblem, FitAnswer] | None:
    """None where nothing fits."""
    problem = random_fit_problem(seed)
    try:
        return problem, solve_fit(problem, seconds=10)
    except InfeasibleError:
        return None


def test_the_checker_re_adds_what_the_search_says() -> None:
    """Tests that value, memory and bound are the same numbers, computed by other means."""
    seen = 0
    for seed in range(PROBLEMS):
        found = solved(seed)
        if found is None:
            continue
        problem, answer = found
        form = msgspec.to_builtins(problem)
        value, held = fit_value(form, msgspec.to_builtins(answer.segments))
        assert value == answer.value_ns, seed
        assert [sum(own) for own in held] == [use.bytes for use in answer.uses], seed
        assert answer.witness is not None
        assert fit_bound(form, answer.witness) == answer.bound_ns, seed
        seen += 1
    assert seen > PROBLEMS // 3


def test_no_witness_proves_too_much() -> None:
    """Tests that prices and claims at random are refused, or prove no more than what trying everything finds."""
    refused = proved = 0
    for seed in range(PROBLEMS):
        found = solved(seed)
        if found is None:
            continue
        problem, answer = found
        best, dice, form = best_fit_value(problem), random.Random(seed), msgspec.to_builtins(problem)
        assert best is not None
        assert answer.witness is not None
        for _ in range(4):
            rows = len(problem.rows)
            claims = [
                [unit, after, first, last, dice.randint(0, 40 * 4096)]
                for unit in range(len(problem.units))
                for after in (0, 1)
                for first in range(rows)
                for last in range(first + 1, rows + 1)
            ]
            witness = {"kind": "fit-path", "price": dice.choice([0, 1, 5000, 40_000]), "claims": claims}
            try:
                assert fit_bound(form, witness) <= best, seed
                proved += 1
            except Refusal:
                refused += 1
    assert refused > 0
    assert proved > 0


def drop_a_row(form: Form, segments: list[Form]) -> None:
    """The last segment ends too early."""
    segments[-1]["last"] -= 1


def steal_a_device(form: Form, segments: list[Form]) -> None:
    """A device that the unit does not take."""
    segments[0]["devices"] = [*segments[0]["devices"], segments[0]["devices"][0]]


def shrink_devices(form: Form, segments: list[Form]) -> None:
    """No device has room for anything."""
    for device in form["devices"]:
        device["limit_bytes"] = 0
    for unit in form["units"]:
        unit["bytes"] = [[number + 1 for number in row] for row in unit["bytes"]]


def move_what_may_not(form: Form, segments: list[Form]) -> None:
    """Parts on the host, though no part may move."""
    form["rules"]["moves"] = []
    segments[0]["moved"] = [[segments[0]["first"], 0]]


def ask_for_more_units(form: Form, segments: list[Form]) -> None:
    """As many units in a row as no plan of this one has."""
    form["rules"]["exact_units"] = 200


def an_unknown_field(form: Form, segments: list[Form]) -> None:
    """A field that nobody reads."""
    form["extra"] = 1


@pytest.mark.parametrize(
    "change",
    [drop_a_row, steal_a_device, shrink_devices, move_what_may_not, ask_for_more_units, an_unknown_field],
    ids=lambda change: str(change.__name__),
)
def test_what_does_not_hold_is_refused(change: Callable[[Form, list[Form]], None]) -> None:
    """Tests that each way to cheat is seen."""
    found = next(one for one in map(solved, range(50)) if one is not None)
    form, segments = msgspec.to_builtins(found[0]), msgspec.to_builtins(found[1].segments)
    fit_value(form, segments)
    change(form, segments)
    with pytest.raises(Refusal):
        fit_value(form, segments)


def test_a_witness_of_another_kind_is_refused() -> None:
    """Tests that only what is known is believed."""
    form = msgspec.to_builtins(random_fit_problem(0))
    for witness in ({"kind": "magic"}, {"kind": "fit-path", "price": -1, "claims": []}):
        with pytest.raises(Refusal):
            fit_bound(form, witness)


@pytest.fixture(scope="module")
def plan() -> Form:
    """A plan with two cards, one of which has experts on the host."""
    cards = ["RTX 3060 12GB", "RTX 3060 12GB@8GB"]
    found = wl.fit("qwen3-30b-a3b", quantisation="q8_0", gpus=cards, cpus=["DDR5-5600"], ram="64GB")
    form: Form = json.loads(fit_plan_to_json(found))
    assert form["moved"]
    assert len([one for one in form["devices"] if one["layers"]]) == 2
    return form


def lie_about_layers(form: Form) -> None:
    """One layer more than the segment has."""
    form["devices"][0]["layers"][1] += 1


def lie_about_the_output(form: Form) -> None:
    """The output layer is elsewhere."""
    for one in form["devices"]:
        one["output"] = not one["output"]


def lie_about_what_moved(form: Form) -> None:
    """One layer less on the host."""
    form["moved"][0]["layers"].pop()


def lie_about_nothing_moved(form: Form) -> None:
    """All is on the cards."""
    form["moved"] = []


def lie_about_a_share(form: Form) -> None:
    """Half of every matrix."""
    form["devices"][0]["share"] = 0.5


def lie_about_the_rate(form: Form) -> None:
    """Twice as fast, and the bound too."""
    for name in ("value", "low", "high"):
        form["tokens_per_second"][name] *= 2
    form["bound_tokens_per_second"] *= 2


def lie_about_the_interval(form: Form) -> None:
    """An interval above the rate."""
    form["tokens_per_second"]["low"] = form["tokens_per_second"]["value"] * 1.01


def lie_about_the_proof(form: Form) -> None:
    """A bound that its witness does not prove."""
    form["bound_ns"] = form["bounds"][0]["value_ns"] = form["value_ns"] + 1


def lie_about_memory(form: Form) -> None:
    """Fewer bytes of weights."""
    form["devices"][0]["weights_bytes"] -= 1


LIES = [function for name, function in sorted(globals().items()) if name.startswith("lie_about_")]


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: str(lie.__name__))
def test_a_plan_that_lies_is_refused(lie: Callable[[Form], None], plan: Form) -> None:
    """Tests that a file cannot say other things than its segments, costs and witness do."""
    check_fit_plan(copy.deepcopy(plan))
    told = copy.deepcopy(plan)
    lie(told)
    with pytest.raises(Refusal):
        check_fit_plan(told)


def test_a_measured_plan_holds() -> None:
    """Tests that a measurement of the user's changes all rates by one factor, which the file says."""
    found = wl.fit("llama-3.1-8b", quantisation="q8_0", gpus=["RTX 3060 12GB"], measured="tg=36.5")
    form = json.loads(fit_plan_to_json(found))
    assert form["tokens_per_second"]["value"] == pytest.approx(36.5)
    assert check_fit_plan(form).value_ns == found.value_ns
    form["measured_factor"] = 1.0
    with pytest.raises(Refusal, match="tokens_per_second"):
        check_fit_plan(form)
