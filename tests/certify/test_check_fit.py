"""Tests of the checker of plans of language models on cards: it agrees with the search, and believes no witness."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from weftline.certify.bound_fit import fit_bound
from weftline.certify.check_fit import fit_value
from weftline.certify.problem import Refusal
from weftline.errors import InfeasibleError
from weftline.fleet.fit import solve_fit
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
