"""Layers on devices with tables against brute force: bounds hold, lanes are the best ones, exact solvers are equal.

`WEFTLINE_PROBLEMS=5000 python -m pytest tests/fleet/test_layers.py` tries so many of each kind.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from os import environ
from random import Random

import msgspec
import pytest

from weftline.certify.check_layers import refuted_rate
from weftline.errors import InfeasibleError, InputError
from weftline.fleet import LayerSearch, fleet_solvers, layers
from weftline.fleet.coverage import Coverage, coverage_limit
from weftline.fleet.exact import ExactLayersParameters, model_size
from weftline.fleet.flows import best_deployment, unlinked
from weftline.fleet.layers import solve_layers
from weftline.fleet.linked import Walk, linked_stages, stage_walk
from weftline.problem.layers import (
    DevicePool,
    LayerInstance,
    LayerProblem,
    LayerUnit,
    check_layers,
)
from weftline.simulate.layers import layer_violations
from weftline.testing.fleets import (
    LAYER_KINDS,
    best_layer_rate,
    lanes_rate,
    random_layers,
    solve_layer_problem,
)

COUNT = int(environ.get("WEFTLINE_PROBLEMS", "10"))
"""Problems of each kind; `auto` gets every third of them."""
ROUNDING = 20
"""Units per million seconds that whole numbers may lose."""


@cache
def _optimum(kind: str, seed: int) -> float:
    return best_layer_rate(random_layers(seed, kind))


def _equal(found: float, most: float) -> bool:
    return abs(found - most) <= most * 1e-6 + ROUNDING


@pytest.mark.parametrize("kind", LAYER_KINDS)
def test_refuted_rates_are_out_of_reach(kind: str) -> None:
    """Tests that no rate is refuted that brute force reaches, and that the checker accepts every witness."""
    tight = 0
    for seed in range(COUNT):
        problem, best = random_layers(seed, kind), _optimum(kind, seed)
        coverage, form, limit = Coverage(problem), msgspec.to_builtins(problem), coverage_limit(problem)
        assert limit >= best * (1 - 1e-9) - 1
        for share in (0.5, 0.9, 1.0, 1.001, 1.1, 1.5, 3.0):
            if 1 <= (rate := int(best * share)) <= limit and (found := coverage.refute(rate)) is not None:
                assert rate > best * (1 - 1e-9) - 1
                assert refuted_rate(form, found.witness()) == rate
                tight += share == 1.001
        found = coverage.refute(limit + 1)
        assert found is None or refuted_rate(form, found.witness()) == limit + 1
    assert tight >= COUNT // 6 or "ports" in kind or "links" in kind  # the program finds bounds where there are some


def _any_instances(problem: LayerProblem, dice: Random) -> list[LayerInstance]:
    """Some units that hold something."""
    found, free = [], [list(range(a, b)) for a, b in pairwise(problem.offsets)]
    for _ in range(problem.offsets[-1]):
        unit = dice.randrange(len(problem.units))
        about = problem.units[unit]
        taken = tuple(free[about.pool][: about.size])
        if len(taken) == about.size and dice.random() < 0.9:
            del free[about.pool][: about.size]
            first = dice.choice((0, 0, dice.randrange(problem.layers)))
            last = problem.layers if first and dice.random() < 0.5 else dice.randint(first + 1, problem.layers)
            found.append(LayerInstance(unit, taken, first, last))
    return found


@pytest.mark.parametrize("kind", LAYER_KINDS)
def test_lanes_are_the_best_ones(kind: str) -> None:
    """Tests the rate of given instances against a linear program over all lanes."""
    reached, dice = 0, Random(kind)
    for seed in range(COUNT):
        problem = msgspec.structs.replace(random_layers(seed, kind), max_copies=msgspec.UNSET)
        for _ in range(4):
            instances = _any_instances(problem, dice)
            most = lanes_rate(problem, instances)
            reached += most > 0
            for free in (False, True) if unlinked(problem, coverage_limit(problem)) else (False,):
                found = best_deployment(problem, instances, free=free)
                assert not layer_violations(problem, found)
                assert _equal(found.rate, most)
    assert reached >= COUNT // 10


@pytest.mark.parametrize("kind", LAYER_KINDS)
def test_exact_is_the_optimum(kind: str) -> None:
    """Tests that the exact solver finds what brute force finds, no more and no less."""
    for seed in range(COUNT):
        problem, best = random_layers(seed, kind), _optimum(kind, seed)
        search, error = solve_layer_problem(fleet_solvers(layers=True)["exact"], problem)
        assert error is None
        assert _equal(search.best.rate if search.best else 0, best), problem


@pytest.mark.parametrize("kind", LAYER_KINDS)
def test_auto_never_says_more_and_mostly_the_optimum(kind: str) -> None:
    """Tests that the default says nothing above the optimum, and that tiny problems are solved."""
    equal, asked = 0, range(0, COUNT, 3)
    for seed in asked:
        problem, best = random_layers(seed, kind), _optimum(kind, seed)
        search, _ = solve_layer_problem(fleet_solvers(layers=True)["auto"], problem)
        found = 0 if search.best is None else search.best.rate
        assert found <= best * (1 + 1e-6) + 1
        assert search.bound is None or search.bound.rate > best * (1 - 1e-9) - 1
        for depth, point in search.front.items():
            assert point.found.depth <= depth
            assert not layer_violations(msgspec.structs.replace(problem, max_depth=depth), point.found)
            assert point.bound is None or point.bound.rate > point.found.rate
        equal += _equal(found, best)
    assert equal >= len(asked) * 0.95


def _two(rates: tuple[int, ...], **options: object) -> LayerProblem:
    return LayerProblem("two", 2, (DevicePool("d", 2),), (LayerUnit("d", 0, rates),), **options)  # type: ignore[arg-type]


def test_wide_links_do_not_hide_narrow_ones() -> None:
    """Tests lanes through links a billion times apart, of which a program in one scale sees the narrow ones as 0."""
    ends = [(-1, 0, 10**15), (-1, 1, 3), (0, -2, 5), (1, -2, 10**15), (0, 1, 10**15), (1, 0, 10**15)]
    problem = check_layers(_two((10**6, 10**6), links=tuple(ends), partial=True))
    whole = [LayerInstance(0, (device,), 0, 2) for device in (0, 1)]
    assert not layer_violations(problem, found := best_deployment(problem, whole))
    assert found.rate == pytest.approx(lanes_rate(problem, whole), abs=ROUNDING)


def test_links_that_reach_nothing_end_the_search() -> None:
    """Tests that a problem without a way is over soon: rates that are tried do not fall for ever."""
    problem = check_layers(_two((7, 3), links=((0, 1, 5), (-1, 0, 0))))
    search = LayerSearch(problem=problem, options={"exact_variables": "0"})
    solve_layers(search)
    assert search.best is None


def test_walks_are_made_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that what is prepared before a clock runs goes through the kernels of walks over links, too."""
    walked = []

    def walk(*arguments: object, **options: object) -> Walk:
        walked.append(arguments[1])
        return stage_walk(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(layers, "stage_walk", walk)
    layers.prepare.__wrapped__()
    assert walked


def test_walks_are_no_longer_than_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that at a known pace a walk has as many steps as fit, and that where devices are many a pilot tells it."""
    steps: list[int] = []

    def walk(*arguments: object, **options: object) -> Walk:
        steps.append(options["steps"])  # type: ignore[arg-type]
        return stage_walk(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(layers, "stage_walk", walk)
    ends = [(a, b, 3) for a in (-1, 0, 1) for b in (-2, 0, 1) if a != b and a + b > -3]
    problem = check_layers(_two((7, 3), links=tuple(ends)))
    for many, expected in (("150", 1), ("2", 2)):
        search = LayerSearch(problem=problem, time_limit=1000.0, options={"many_devices": many})
        walker = layers._Walker(search, linked_stages(problem))  # type: ignore[arg-type]
        walker.walk(3, None, steps=40, seed=0, heat=1.0)
        assert len(steps) == expected
        walker.pace = 100.0
        walker.walk(3, None, steps=40, seed=0, heat=1.0)
        assert 1 <= steps[-1] <= 10
        steps.clear()


def test_a_late_answer_is_better_than_none() -> None:
    """Tests that where links limit one walk is made although the time was over before it began."""
    room = {-1: 50, -2: 50}
    ends = [(a, b, room.get(a, room.get(b, 6))) for a in (-1, *range(6)) for b in (-2, *range(6)) if a != b]
    ends = [(a, b, rate) for a, b, rate in ends if (a, b) != (-1, -2)]
    problem = LayerProblem("row", 12, (DevicePool("d", 6),), (LayerUnit("d", 0, (9, 7, 5)),), tuple(ends))
    search = LayerSearch(problem=check_layers(problem), time_limit=0.0, options={"exact_variables": "0"})
    solve_layers(search)
    assert search.best is not None
    assert not layer_violations(problem, search.best)


def test_largest_rates_are_added_without_overflow() -> None:
    """Tests that rates near the largest are refuted and reached, and that more of them together are no input."""
    problem = check_layers(_two((10**15, 10**15)))
    search = LayerSearch(problem=problem, work_limit=30)
    solve_layers(search)
    assert search.best is not None
    assert search.best.rate == 2 * 10**15
    assert search.bound is not None
    assert refuted_rate(msgspec.to_builtins(problem), search.bound.witness()) == search.bound.rate
    many = msgspec.structs.replace(problem, pools=(DevicePool("d", 90_000),))
    with pytest.raises(InputError, match="together are too large"):
        check_layers(many)


def test_exact_says_no_to_what_is_too_large() -> None:
    """Tests that the exact solver names the size of a program that it does not build."""
    problem = check_layers(LayerProblem("large", 500, (DevicePool("d", 40),), (LayerUnit("d", 0, (9,) * 500),)))
    assert model_size(problem, True) > ExactLayersParameters().most_variables
    with pytest.raises(InfeasibleError, match=r"500 layers on 40 devices has \d+ variables, 60000 are allowed"):
        fleet_solvers(layers=True)["exact"].solve(LayerSearch(problem=problem))
