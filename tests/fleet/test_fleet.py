"""Fleets against brute force: bounds hold, values are reached, and the checker refuses what is false.

`WEFTLINE_MUTANTS=20000 python -m pytest tests/fleet/test_fleet.py` makes so many witnesses and files,
`WEFTLINE_PROBLEMS=5000` so many problems.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from math import ceil
from os import environ
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest

from weftline.ask import make_fleet
from weftline.certify import Refusal
from weftline.certify.check_fleet import check_fleet, fleet_bound_of
from weftline.errors import InfeasibleError
from weftline.fleet import FleetSearch, fleet_solvers, rates
from weftline.fleet.rates import best_rates
from weftline.plans.fleet import fleet_to_json
from weftline.problem import Problem
from weftline.problem.model import problem_to_file
from weftline.search.lp import Answer
from weftline.simulate.fleet import FULL_SECOND, LaneLoads, deployment_violations, simulate_deployment
from weftline.testing import random_problem
from weftline.testing.generate import Feed, problem_of

Json = Any
SEEDS = range(int(environ.get("WEFTLINE_PROBLEMS", "40")))
MUTANTS = int(environ.get("WEFTLINE_MUTANTS", "1000"))


def _problem(seed: int) -> Problem:
    found = random_problem(seed, "throughput", max_ops=5, max_devices=3, stages=0)
    cost = replace(found.cost, time=np.where(found.cost.time >= 0, found.cost.time * 100 + 7, -1))
    return replace(found, cost=cost)


def _all_lanes(problem: Problem) -> list[LaneLoads]:
    """Every lane that fits by itself."""
    search = FleetSearch(problem)
    for placement in product(range(len(problem.devices)), repeat=len(problem.graph.ops)):
        search.add(np.array(placement, np.int32))
    return list(search.lanes.values())


def _best(problem: Problem, lanes: list[LaneLoads]) -> float:
    """The largest rate of lanes that fit together: by every choice of what devices hold that some lanes ask for."""
    if not lanes:
        return 0.0
    together = simulate_deployment(problem, lanes, [0] * len(lanes))
    if not deployment_violations(problem, together):
        return best_rates(lanes).total
    best = max(best_rates([lane]).total for lane in lanes)
    for first, second in product(lanes, repeat=2):
        pair = [first, second]
        if first is not second and not deployment_violations(problem, simulate_deployment(problem, pair, [0, 0])):
            best = max(best, best_rates(pair).total)
    return best


@pytest.mark.parametrize("seed", SEEDS)
def test_bounds_hold_and_values_are_reached(seed: int) -> None:
    """Tests that no bound is above what brute force reaches, which the search reaches where memory is no limit."""
    problem = _problem(seed)
    lanes = _all_lanes(problem)
    search = FleetSearch(problem, time_limit=2)
    try:
        fleet_solvers()["auto"].solve(search)
    except InfeasibleError:
        assert not lanes or search.best is None
    best = _best(problem, lanes)
    if search.bound is not None:
        assert not best or search.bound.value <= ceil(1e9 / best - 1e-6)
        form = msgspec.to_builtins(problem_to_file(problem))
        assert fleet_bound_of(form, search.bound.witness) >= search.bound.value
    if search.best is not None:
        assert not deployment_violations(problem, search.best)
        assert search.best.rate / 1e6 <= best_rates(lanes).total * (1 + 1e-6)
        if all(device.capacity is None for device in problem.devices):
            assert search.best.rate / 1e6 >= best * (1 - 1e-3)


def test_limits_of_depth_are_kept_and_bounds_still_hold() -> None:
    """Tests that with a limit of depth nothing deeper is used, and that no bound is above what can be reached."""
    for seed in SEEDS[::2]:
        problem = _problem(seed)
        limit = 1 + seed % 2
        lanes = [lane for lane in _all_lanes(problem) if lane.depth <= limit]
        search = FleetSearch(problem, work_limit=200, most_depth=limit)
        try:
            fleet_solvers()["auto"].solve(search)
        except InfeasibleError:
            assert search.best is None
        best = _best(problem, lanes)
        if search.bound is not None and best:
            assert search.bound.value <= ceil(1e9 / best - 1e-6)
        if search.best is not None:
            assert search.best.depth <= limit
            assert search.best.rate / 1e6 <= best_rates(lanes).total * (1 + 1e-6)


@pytest.mark.parametrize("share", [0.4, 0.6, 0.9])
def test_scarce_memory_ends_under_a_limit_of_work(share: float) -> None:
    """Tests that few windows are not looked at for ever, and that what is found fits."""
    times = [[50, 70], [60, 40], [30, 90], [80, 20]]
    problem = problem_of(times, [Feed(0, (1,), 3), Feed(1, (2, 3), 4), Feed(2, (3,), 2)])
    ops = tuple(msgspec.structs.replace(op, weight_bytes=100) for op in problem.graph.ops)
    devices = tuple(msgspec.structs.replace(device, memory=int(400 * share) + 60) for device in problem.devices)
    graph = msgspec.structs.replace(problem.graph, ops=ops)
    rules = msgspec.structs.replace(problem.rules, objective="throughput")
    problem = replace(problem, graph=graph, devices=devices, rules=rules)
    try:
        found = make_fleet(problem, work_limit=60)
    except InfeasibleError:
        assert share == 0.4
        return
    assert check_fleet(msgspec.json.decode(fleet_to_json(found))).value_ns == found.value_ns


def test_programs_of_rates_are_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests loads at which the solver lost itself while limits were far away; and that losing itself is survived."""
    rows = [[1_932_706, 1_933_064, 1_846_213], [1_538_308, 1_632_842, 4_315_526]]
    nothing = np.zeros(3, np.int64)
    lanes = [LaneLoads(np.zeros(1, np.int32), np.array([row], np.int64), nothing, 1) for row in rows]
    found = best_rates(lanes)
    assert found.total == pytest.approx(519.8453, abs=1e-3)
    assert found.rates @ np.array(rows) == pytest.approx([998_278_634, 1e9, 1e9], rel=1e-6)
    monkeypatch.setattr(rates, "minimise", lambda program: Answer(-np.inf, np.zeros(0), np.zeros(0)))
    alone = best_rates(lanes)
    assert (alone.total, alone.rates.tolist()) == (1e9 / 1_933_064, [1e9 / 1_933_064, 0.0])
    assert alone.prices[0].argmax() == 1


def test_random_witnesses_prove_nothing_false() -> None:
    """Tests that no prices and shares, however chosen, prove more than brute force reaches."""
    dice, tried = Random(0), 0
    for seed in range(MUTANTS // 25):
        problem = _problem(seed)
        lanes = _all_lanes(problem)
        if not lanes:
            continue
        best, k = best_rates(lanes).total, len(problem.devices)
        form = msgspec.to_builtins(problem_to_file(problem))
        for _ in range(25):
            prices = {name: [dice.randrange(0, 30) for _ in range(k)] for name in ("compute", "entering", "leaving")}
            if problem.rules.communication == "added":
                prices = {"compute": prices["compute"]}
            sent = []
            for number, tensor in enumerate(problem.graph.tensors):
                if tensor.producer >= 0 and len(tensor.consumers) > 1 and dice.random() < 0.7:
                    parts = [0] * len(tensor.consumers)
                    for _ in range(16):
                        parts[dice.randrange(len(parts))] += 1
                    sent.append([number, *parts])
            inner = {"kind": "messages", "pairs": [], "stars": []}
            try:
                proved = fleet_bound_of(form, {"kind": "prices", **prices, "sent": sent, "cheapest": inner})
            except Refusal:
                continue
            tried += 1
            assert proved <= ceil(1e9 / best - 1e-6)
    assert tried > MUTANTS * 3 // 10


def _chain() -> Problem:
    """Two unequal devices; whole copies are not the best."""
    problem = problem_of([[900, 400], [300, 900], [500, 700]], [Feed(0, (1, 2), 40), Feed(1, (2,), 30)])
    return replace(problem, rules=msgspec.structs.replace(problem.rules, objective="throughput"))


def _example() -> Json:
    return msgspec.json.decode(fleet_to_json(make_fleet(_chain(), work_limit=100)))


def test_an_answer_is_proved_and_better_than_its_baselines() -> None:
    """Tests the whole path: the file holds, its bound is proved, and no baseline is better."""
    plan = _example()
    verdict = check_fleet(plan)
    assert plan["proof"] == "proved"
    assert verdict.proved_bound_ns == plan["bound_ns"] <= plan["value_ns"]
    assert plan["gap"] <= 0.01
    assert all(rate is None or rate <= plan["rate"] * (1 + 1e-6) for rate in plan["baselines"].values())


def _more(plan: Json) -> None:
    plan["lanes"][0]["rate"] += FULL_SECOND // 10**6


LIES: dict[str, Any] = {
    "a rate that no device has time for": _more,
    "another rate": lambda plan: plan.update(rate=plan["rate"] * 1.01),
    "a shorter period": lambda plan: plan.update(value_ns=plan["value_ns"] - 1),
    "a higher bound": lambda plan: plan["bounds"][0].update(value_ns=plan["bounds"][0]["value_ns"] + 1),
    "a bound by nobody": lambda plan: plan.update(bound_ns=plan["bound_ns"] - 1),
    "another gap": lambda plan: plan.update(gap=plan["gap"] / 2 + 0.001),
    "an op left out": lambda plan: plan["lanes"][0]["hops"].pop(),
    "a hole": lambda plan: plan["lanes"][0]["hops"][0].__setitem__(1, 1),
    "an unknown device": lambda plan: plan["lanes"][0]["hops"][0].__setitem__(0, 7),
    "another depth": lambda plan: plan.update(depth=plan["depth"] + 1),
    "a float rate": lambda plan: plan["lanes"][0].update(rate=float(plan["lanes"][0]["rate"])),
    "another problem": lambda plan: plan["problem"]["time_rows"][0].__setitem__(0, 1),
    "a field more": lambda plan: plan.update(extra=1),
    "no lanes": lambda plan: plan.update(lanes=[]),
    "another instance": lambda plan: plan["instances"][0].update(ops=1000),
    "less memory": lambda plan: plan["devices"]["d0"].update(memory_bytes=-1),
    "prices of nothing": lambda plan: plan["bounds"][0]["witness"].update(compute=[0, 0]),
    "a wrong kind of witness": lambda plan: plan["bounds"][0]["witness"].update(kind="load"),
    "proved without a witness": lambda plan: plan["bounds"][0].update(witness=None),
}


@pytest.mark.parametrize("name", LIES)
def test_lies_are_refused(name: str) -> None:
    """Tests that the checker refuses a file that says what is not so."""
    plan = copy.deepcopy(_example())
    LIES[name](plan)
    with pytest.raises(Refusal):
        check_fleet(plan)


def _paths(form: Json, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where there is a number, anywhere."""
    if isinstance(form, dict | list):
        pairs = form.items() if isinstance(form, dict) else enumerate(form)
        return [found for key, value in pairs for found in _paths(value, (*path, key))]
    return [path] if isinstance(form, int | float) else []


def _any_number(plan: Json, dice: Random) -> None:
    *path, last = dice.choice(_paths(plan))
    for key in path:
        plan = plan[key]
    plan[last] = dice.choice((plan[last] + dice.choice((-(10**6), -1, 1, 10**6)), float(plan[last]), None, "1", 2**70))


def _lane_rate(plan: Json, dice: Random) -> None:
    dice.choice(plan["lanes"])["rate"] += dice.choice((-(10**6), -1, 1, 10**6))


def _lane_hop(plan: Json, dice: Random) -> None:
    hops = dice.choice(plan["lanes"])["hops"]
    hop = dice.choice(hops)
    hop[dice.randrange(3)] += dice.choice((-1, 1))


def _price(plan: Json, dice: Random) -> None:
    witness = plan["bounds"][0]["witness"]
    prices = witness["compute"]
    prices[dice.randrange(len(prices))] += dice.choice((-1, 1, 7, 100))
    if dice.random() < 0.5:
        value = plan["bounds"][0]["value_ns"] + dice.choice((-1, 0, 1, 10))
        plan["bounds"][0]["value_ns"] = plan["bound_ns"] = value
        plan["gap"] = (plan["value_ns"] - value) / plan["value_ns"]


def _true_rate(plan: Json) -> None:
    total = sum(lane["rate"] for lane in plan["lanes"])
    plan["rate"], plan["value_ns"] = total / 10**6, -(-FULL_SECOND // total)
    plan["gap"] = (plan["value_ns"] - plan["bound_ns"]) / plan["value_ns"]


CHANGES: tuple[Callable[[Json, Random], None], ...] = (_any_number, _lane_rate, _lane_hop, _price)


def test_changed_files_are_refused_or_true() -> None:
    """Tests files that were changed by chance: what is accepted is no better than all lanes together allow."""
    dice, accepted, seeds = Random(1), 0, []
    for seed in range(12):
        problem = _problem(seed)
        if all(device.capacity is None for device in problem.devices) and (lanes := _all_lanes(problem)):
            file = fleet_to_json(make_fleet(problem, work_limit=40))
            seeds.append((file, best_rates(lanes).total, msgspec.json.decode(file)["problem"]))
    example = fleet_to_json(make_fleet(_chain(), work_limit=100))
    seeds.append((example, best_rates(_all_lanes(_chain())).total, msgspec.json.decode(example)["problem"]))
    for _ in range(MUTANTS):
        file, best, form = dice.choice(seeds)
        plan = msgspec.json.decode(file)
        try:
            for _ in range(dice.choice((1, 1, 2))):
                dice.choice(CHANGES)(plan, dice)
            if dice.random() < 0.7:
                _true_rate(plan)
            check_fleet(plan)
        except (Refusal, KeyError, TypeError, IndexError, ZeroDivisionError, ValueError):
            continue
        accepted += 1
        assert plan["problem"] == form  # its hash holds it
        assert sum(lane["rate"] for lane in plan["lanes"]) <= best * 1e6 * (1 + 1e-6)
        assert all(b["proof"] != "proved" or b["value_ns"] <= ceil(1e9 / best + 1e-6) for b in plan["bounds"])
    assert accepted > MUTANTS // 100
