"""Tests that throughput means the whole cluster, unless one pipeline is asked for, and that its answer is the best."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import weftline as wl
from weftline.ask import make_fleet
from weftline.ask.answer import resolve
from weftline.ask.fleets import is_for_fleet
from weftline.ask.request import PlanRequest
from weftline.certify import Refusal
from weftline.certify import check_fleet as fleet_checker
from weftline.certify.check_fleet import check_fleet
from weftline.plans.advice import advise_fleet
from weftline.plans.fleet import FleetLimits, FleetPlan, fleet_to_json
from weftline.problem import Problem
from weftline.problem.model import problem_to_json
from weftline.simulate.fleet import lane_latency
from weftline.testing.generate import Feed, problem_of
from weftline.zoo import zoo_graph


def request(**fields: Any) -> PlanRequest:
    """A small model on a preset, for throughput."""
    asked = {"model": zoo_graph("bert", size="small"), "cluster": "two-gpus", "objective": "throughput", **fields}
    return PlanRequest(**asked)


def problem(times: list[list[int]], transfer: int = 5, source: str = "") -> Problem:
    """A chain of ops with times on devices that are not equal."""
    feeds = [Feed(op, (op + 1,), transfer) for op in range(len(times) - 1)]
    made = problem_of(times, feeds)
    rules = msgspec.structs.replace(made.rules, objective="throughput")
    return replace(made, rules=rules, cost=replace(made.cost, source=source))


ONE: tuple[dict[str, Any], ...] = (
    {"copies": 1},
    {"stages": 2},
    {"solver": "exact"},
    {"solver": "even-split"},
    {"settings": {"few_pieces": "3"}},
    {"objective": "latency"},
    {"objective": None},
)
FLEET: tuple[dict[str, Any], ...] = (
    {},
    {"copies": "auto"},
    {"copies": "auto", "objective": None},
    {"solver": "replicas"},
    {"max_depth": 2},
    {"latency_limit": "5ms"},
    {"settings": {"most_rounds": "3"}},
    {"keep": "layers"},
)


@pytest.mark.parametrize("fields", ONE)
def test_one_pipeline(fields: dict[str, Any]) -> None:
    """Tests what makes a request one for a single placement."""
    assert not is_for_fleet(resolve(request(**fields)))


@pytest.mark.parametrize("fields", FLEET)
def test_the_whole_cluster(fields: dict[str, Any]) -> None:
    """Tests what a request for the whole cluster may hold."""
    assert is_for_fleet(resolve(request(**fields)))


def test_models_with_their_own_devices(tmp_path: Path) -> None:
    """Tests that a problem, as an object or a file, is one pipeline unless copies are asked for."""
    made, file = problem([[5, 9], [7, 4]]), tmp_path / "problem.json"
    file.write_bytes(problem_to_json(made))
    for model in (made, file):
        asked = PlanRequest(model=model, objective="throughput")
        assert not is_for_fleet(resolve(asked))
        assert is_for_fleet(resolve(replace(asked, copies="auto")))
        assert is_for_fleet(resolve(replace(asked, max_depth=1)))
        assert isinstance(wl.plan(model, objective="throughput", work_limit=20), wl.Plan)
        assert isinstance(wl.plan(model, objective="throughput", copies="auto", work_limit=20), FleetPlan)


CONTRADICTIONS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"copies": 0}, "is a whole number from 1"),
    ({"copies": "all"}, r'copies \(or "auto"\) is a whole number'),
    ({"copies": 2, "stages": 2}, "copies 2 and a number of stages"),
    ({"copies": 1, "max_depth": 2}, "a limit of depth and copies 1"),
    ({"copies": 1, "latency_limit": 1}, "a limit of latency and copies 1"),
    ({"copies": "auto", "stages": 2}, "a number of stages"),
    ({"copies": "auto", "objective": "latency"}, "the objective latency"),
    ({"max_depth": 2, "coarsen": "gcof"}, "coarsen gcof"),
    ({"max_depth": 0}, "max_depth is a whole number from 1"),
    ({"latency_limit": "soon"}, "latency_limit"),
)


@pytest.mark.parametrize(("fields", "words"), CONTRADICTIONS)
def test_contradictions(fields: dict[str, Any], words: str) -> None:
    """Tests that options that contradict each other are one sentence."""
    with pytest.raises(wl.UsageError, match=words):
        request(**fields)


def test_limits_are_for_throughput() -> None:
    """Tests that a limit without an objective is not taken for another question, and a pipeline solver is named."""
    with pytest.raises(wl.UsageError, match="a limit of depth is for --objective throughput"):
        wl.answer(request(objective=None, max_depth=2))
    with pytest.raises(wl.UsageError, match="'exact' places one pipeline; add --copies 1"):
        wl.answer(request(solver="exact", copies="auto"))


def test_the_face_gives_a_fleet() -> None:
    """Tests that a call for throughput gives a fleet plan that holds, and with copies=1 a plan."""
    graph = zoo_graph("bert", size="small")
    many = wl.plan(graph, "two-gpus", objective="throughput", work_limit=40)
    assert isinstance(many, FleetPlan)
    assert check_fleet(msgspec.json.decode(fleet_to_json(many))).value_ns == many.value_ns
    one = wl.plan(graph, "two-gpus", objective="throughput", copies=1, work_limit=40)
    assert isinstance(one, wl.Plan)
    pipeline = many.baselines["pipeline"]
    assert pipeline is not None
    assert many.rate >= pipeline


@pytest.mark.parametrize("seed", range(12))
def test_no_baseline_gives_more(seed: int) -> None:
    """Tests that the answer is never worse than one pipeline, whole copies, greedy and an even split."""
    random = np.random.default_rng(seed)
    times = random.integers(1_000, 9_000, (int(random.integers(2, 8)), int(random.integers(2, 5)))).tolist()
    made = problem(times, transfer=int(random.integers(0, 3_000)))
    for depth in (None, 2):
        found = make_fleet(made, work_limit=30, most_depth=depth)
        assert set(found.baselines) == {"single-device", "even-split", "greedy", "pipeline", "replicas"}
        assert all(rate is None or rate <= found.rate for rate in found.baselines.values())


def test_whole_copies_where_they_are_as_good() -> None:
    """Tests that lanes that gain less than 0.1 % give way to whole copies, and a device that gains nothing to one."""
    found = make_fleet(problem([[100_000, 100_001], [100_001, 100_000]]), work_limit=100)
    assert [lane.hops for lane in found.lanes] == [((0, 0, 2),), ((1, 0, 2),)]
    assert found.rate == found.baselines["replicas"]
    alone = make_fleet(problem([[1_000, 10**6], [1_000, 10**6]]), work_limit=100)
    assert len(alone.lanes) == len(alone.instances) == 2  # whole copies give more, so they stay
    assert alone.rate == alone.baselines["replicas"]
    slow = make_fleet(problem([[1_000, -1], [1_000, 10**6]], transfer=10**9), work_limit=100)
    assert [one.device for one in slow.instances] == ["d0"]


def test_one_lane_where_a_pipeline_is_best() -> None:
    """Tests that a pipeline of two devices, each good at one half, is the only lane."""
    found = make_fleet(problem([[1_000, 10**7], [10**7, 1_000]], transfer=1), work_limit=100)
    assert [lane.hops for lane in found.lanes] == [((0, 0, 1), (1, 1, 2))]
    assert found.depth == 2


def test_an_asked_gap_is_kept() -> None:
    """Tests that a simpler deployment does not cost a gap that was asked for and reached."""
    found = make_fleet(problem([[100_000, 200_000], [100_100, 200_000]], transfer=1), work_limit=200, gap=0.00005)
    simple = make_fleet(problem([[100_000, 200_000], [100_100, 200_000]], transfer=1), work_limit=200)
    assert found.gap <= 0.00005 < simple.gap <= 0.001
    assert {lane.depth for lane in simple.lanes} == {1}


def chain() -> Problem:
    """Two devices, each good at one half, with a link that takes time."""
    return problem([[3_000, 9_000], [9_000, 3_000]], transfer=500)


def test_a_limit_of_latency() -> None:
    """Tests that no lane takes longer than allowed, that the bound stays, and that too little is infeasible."""
    made = chain()
    free = make_fleet(made, work_limit=100)
    limited = make_fleet(made, work_limit=100, most_latency=12_000)
    assert (free.limits, limited.limits) == (msgspec.UNSET, FleetLimits(None, 12_000))
    assert limited.rate <= free.rate
    assert limited.rate_bound is None or limited.rate_bound >= free.rate
    for lane in limited.lanes:
        placement = np.concatenate([np.full(last - first, device) for device, first, last in lane.hops])
        assert lane_latency(made, placement.astype(np.int32)) <= 12_000
    with pytest.raises(wl.InfeasibleError) as wrong:
        make_fleet(made, work_limit=100, most_latency=100)
    assert "100 ns are allowed" in str(wrong.value.conflicts)


def test_what_an_input_takes_alone() -> None:
    """Tests the sum by hand: ops, and each tensor once to each other device that reads it."""
    made = problem_of([[10, 20], [30, 40], [50, 60]], [Feed(0, (1, 2), 7)])
    assert lane_latency(made, np.array([0, 0, 0], np.int32)) == 90
    assert lane_latency(made, np.array([0, 1, 1], np.int32)) == 10 + 40 + 60 + 7
    assert lane_latency(made, np.array([0, 0, 1], np.int32)) == 10 + 30 + 60 + 7


LIMIT_LIES: dict[str, Callable[[Any], object]] = {
    "shallower": lambda plan: plan["limits"].update(max_depth=1),
    "quicker": lambda plan: plan["limits"].update(latency_ns=1),
    "another field": lambda plan: plan["limits"].update(more=1),
    "a field less": lambda plan: plan["limits"].pop("max_depth"),
    "no limits": lambda plan: plan.update(limits=None),
    "a share": lambda plan: plan["limits"].update(latency_ns=10**6 + 0.5),
    "advice of another kind": lambda plan: plan.update(advice=1),
}


@pytest.mark.parametrize("name", LIMIT_LIES)
def test_limits_are_checked(name: str) -> None:
    """Tests that the checker re-adds depth and latency of lanes, and holds them to the limits of the file."""
    found = make_fleet(
        problem([[1_000, 10**6], [10**6, 1_000]], transfer=1), work_limit=100, most_depth=2, most_latency=9_000
    )
    plan = msgspec.json.decode(fleet_to_json(found))
    assert plan["limits"] == {"max_depth": 2, "latency_ns": 9_000}
    check_fleet({**plan, "advice": "Use one device."})
    wrong = copy.deepcopy(plan)
    LIMIT_LIES[name](wrong)
    with pytest.raises(Refusal):
        check_fleet(wrong)


def test_advice_comes_first() -> None:
    """Tests the first line: one device, whole copies, or nothing where the split gains more than costs can tell."""
    even = [[100_000, 100_000], [100_000, 100_000]]
    copies = make_fleet(problem(even), work_limit=50)
    words = "Run a whole copy on each of d0, d1: do not split the model, no split that was found gives more."
    assert advise_fleet(copies) == words
    assert copies.summary().splitlines()[0] == words
    split = [[1_000, 1_200], [1_150, 1_000]]
    for source, said in (("analytic", True), ("profiled", False), ("", False)):
        found = make_fleet(problem(split, transfer=1, source=source), work_limit=50)
        assert found.depth > 1
        assert ("less than these estimates can tell (about 10%)" in advise_fleet(found)) is said
    worse = make_fleet(problem([[1_000, 10**7], [10**7, 1_000]], transfer=1), solver="replicas")
    assert (worse.baselines["pipeline"] or 0) > worse.rate
    assert advise_fleet(worse) == ""
    alone = make_fleet(problem([[1_000, 10**5], [1_000, 10**5]], transfer=10**6, source="analytic"), work_limit=50)
    assert advise_fleet(alone).startswith("Use d0 alone: all devices together give 1.0% more")


def test_a_bound_that_the_checker_refuses_is_a_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that a plan is written although its bound cannot be repeated, and does not call it proved."""

    def refuse(form: object, witness: object) -> int:
        raise Refusal("bound", "not today")

    monkeypatch.setattr(fleet_checker, "fleet_bound_of", refuse)
    with pytest.warns(RuntimeWarning, match="is only claimed: bound: not today"):
        plan = make_fleet(problem([[10, 20], [30, 15], [20, 20]]), work_limit=2000)
    assert plan.proof == "claimed"
    assert [bound.proof for bound in plan.bounds] == ["claimed"]
