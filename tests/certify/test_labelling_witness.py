"""The witnesses of labellings and cuts: true ones are re-computed, any others prove too little or are refused."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import numpy as np
import pytest

from weftline.bounds.label_costs import label_costs
from weftline.bounds.labelling import best_labelling, labelling_bound
from weftline.certify import Refusal, bound_of, check
from weftline.problem import Problem
from weftline.problem.model import problem_to_file
from weftline.testing import random_problem
from weftline.testing.conformance import optimum
from weftline.testing.generate import Feed, problem_of

Json = Any

# A star (tensor 0: op0 to op1 and op2) and a pair (tensor 1: op2 to op3), on two devices and on three.
TIMES = [[1, 5, 4], [9, 2, 3], [5, 1, 2], [2, 8, 8]]
WIRES = [Feed(0, (1, 2), 3), Feed(2, (3,), 4)]


def _read(problem: Problem) -> check.PlanProblem:
    return check.PlanProblem(msgspec.to_builtins(problem_to_file(problem)))


def _cut() -> tuple[check.PlanProblem, Json]:
    problem = problem_of([row[:2] for row in TIMES], WIRES, runtime="sequential", capacity=[99, None])
    return _read(problem), copy.deepcopy(labelling_bound(problem).witness)


def _elimination() -> tuple[check.PlanProblem, Json]:
    problem = problem_of(TIMES, WIRES, runtime="sequential")
    return _read(problem), copy.deepcopy(labelling_bound(problem).witness)


def test_true_witnesses_are_recomputed() -> None:
    """Tests by hand: op0 and op3 on d0, op1 and op2 on d1, one transfer each way."""
    problem, witness = _cut()
    assert witness["kind"] == "messages"
    assert bound_of(problem, witness) == 1 + 2 + 1 + 2 + 3 + 4
    problem, witness = _elimination()
    assert witness["kind"] == "elimination"
    assert bound_of(problem, witness) == 13


def test_no_messages_prove_the_work() -> None:
    """Tests that without messages the bound is the sum of least times, and that a scale changes nothing."""
    problem, _ = _cut()
    for scale in (1, 7):
        assert bound_of(problem, {"kind": "messages", "pairs": [], "stars": [], "scale": scale}) == 1 + 2 + 1 + 2


EDITS: dict[str, tuple[bool, Json, Json, str]] = {
    "messages for a pair that does not exist": (True, "pairs", [[0, 3, [0, 1], [0, 0]]], "witness"),
    "messages for one pair twice": (True, "pairs", [[2, 3, [0, 1], [0, 0]]] * 2, "witness"),
    "a message that is too short": (True, "pairs", [[2, 3, [0], [0, 0]]], "witness"),
    "a pair with one message": (True, "pairs", [[2, 3, [0, 1]]], "witness"),
    "a pair without messages": (True, "pairs", [[2]], "witness"),
    "a pair that is a number": (True, "pairs", [3], "type"),
    "a message of text": (True, "pairs", [[2, 3, [0, "1"], [0, 0]]], "type"),
    "a fraction as message": (True, "pairs", [[2, 3, [0, 0.5], [0, 0]]], "type"),
    "a message beyond all limits": (True, "pairs", [[2, 3, [0, 2**63], [0, 0]]], "range"),
    "messages for a tensor with one reader": (True, "stars", [[1, [0, 1], [0, 0], [0, 0]]], "witness"),
    "a message of a star missing": (True, "stars", [[0, [0, 1], [0, 0]]], "witness"),
    "scale 0": (True, "scale", 0, "range"),
    "a negative price": (True, "prices", [-1, 0], "negative"),
    "a price without a memory limit": (True, "prices", [0, 1], "witness"),
    "an order without a variable": (False, "order", [0, 1, 2, 3], "witness"),
    "an order that repeats one": (False, "order", [0, 1, 2, 3, 4, 4], "witness"),
    "an order with an unknown variable": (False, "order", [0, 1, 2, 3, 5], "range"),
    "an order of text": (False, "order", ["0"], "type"),
}


@pytest.mark.parametrize("name", EDITS)
def test_malformed_witnesses_are_refused(name: str) -> None:
    """Tests that each kind of broken witness has its code."""
    of_cut, field, value, code = EDITS[name]
    problem, witness = _cut() if of_cut else _elimination()
    witness[field] = value
    with pytest.raises(Refusal) as refused:
        bound_of(problem, witness)
    assert refused.value.code == code


def test_the_parallel_runtime_has_no_such_bound() -> None:
    """Tests that both kinds are refused where devices work at the same time."""
    problem = _read(problem_of([[1, 1]] * 2, [Feed(0, (1,), 3)]))
    for witness in ({"kind": "messages", "pairs": [], "stars": []}, {"kind": "elimination", "order": [0, 1]}):
        with pytest.raises(Refusal, match="sequential runtime alone"):
            bound_of(problem, witness)


def test_dropped_devices_are_never_better() -> None:
    """Tests that a device may be left out for one that is no worse in times and links, and only then."""
    links = [[0, 3, 9], [3, 0, 9], [9, 9, 0]]
    problem = _read(problem_of([[1, 1, 1], [2, 3, 9]], [Feed(0, (1,), links)], runtime="sequential"))
    witness: dict[str, Any] = {"kind": "elimination", "dropped": [[1, 0], [2, 0]], "order": []}
    assert bound_of(problem, witness) == 3
    for dropped in ([[0, 1]], [[1, 2]], [[1, 0], [1, 0]], [[1, 1]], [[1]], [[0, 3]], 3):
        with pytest.raises(Refusal):
            bound_of(problem, {**witness, "dropped": dropped})
    far = _read(
        problem_of([[1, 1, 1], [2, 3, 9]], [Feed(0, (1,), [[0, 3, 9], [3, 0, 8], [9, 9, 0]])], runtime="sequential")
    )
    with pytest.raises(Refusal, match="sometimes better"):
        bound_of(far, witness)
    once = _read(problem_of([[1, 1], [4, 3]], [Feed(0, (1,), 3)], runtime="sequential"))
    with pytest.raises(Refusal, match="sometimes better"):
        bound_of(once, {**witness, "dropped": [[1, 0]]})
    links = [[0, 3, 9, 9], [3, 0, 8, 9], [9, 9, 0, 9], [9, 9, 9, 0]]
    one_link = _read(problem_of([[1] * 4, [2] * 4], [Feed(0, (1,), links)], runtime="sequential"))
    with pytest.raises(Refusal, match="sometimes better"):
        bound_of(one_link, {**witness, "dropped": [[1, 0]]})


def test_an_order_that_takes_too_long_is_refused() -> None:
    """Tests that a forged order cannot keep the checker busy: the hub of many spokes is not minimised first."""
    wires = [Feed(0, (i,), 1) for i in range(1, 30)]
    problem = _read(problem_of([[1, 2]] * 30, wires, runtime="sequential"))
    with pytest.raises(Refusal, match="takes too long"):
        bound_of(problem, {"kind": "elimination", "order": list(range(30))})
    assert bound_of(problem, {"kind": "elimination", "order": list(range(29, -1, -1))}) == 30


def test_nothing_is_proved_where_nothing_is_possible() -> None:
    """Tests that ops whose tensors have no link are no reason for an infinite bound."""
    problem = _read(problem_of([[1, -1], [-1, 1]], [Feed(0, (1,), [[0, -1], [-1, 0]])], runtime="sequential"))
    for witness in ({"kind": "messages", "pairs": [], "stars": []}, {"kind": "elimination", "order": []}):
        with pytest.raises(Refusal, match="no placement"):
            bound_of(problem, witness)


def test_no_messages_prove_more_than_the_optimum() -> None:
    """Tests 200 problems with messages, scales and prices drawn at random, and the true ones changed by a few."""
    rng = np.random.default_rng(7)
    seen = close = 0
    for seed in range(200):
        problem = random_problem(seed, "latency", max_ops=5, max_devices=3, runtime="sequential")
        costs, least = label_costs(problem), optimum(problem)
        if least is None or costs is None:
            continue
        seen += 1
        k, read = len(problem.devices), _read(problem)
        sizes = np.diff(costs.star_ptr) + 1
        for width in (1, 6):
            witness = {
                "kind": "messages",
                "scale": int(rng.integers(1, 4)),
                "prices": [int(rng.integers(0, 3)) if d.capacity is not None else 0 for d in problem.devices],
                "pairs": [[*pair, *rng.integers(-width, width + 1, (2, k)).tolist()] for pair in costs.pair.tolist()],
                "stars": [
                    [tensor, *rng.integers(-width, width + 1, (size, k)).tolist()]
                    for tensor, size in zip(costs.star_tensor.tolist(), sizes.tolist(), strict=True)
                ],
            }
            assert bound_of(read, witness) <= least
        found = best_labelling(costs)
        assert found is not None
        assert bound_of(read, found.witness) == found.bound <= least
        close += found.bound == least
    assert seen > 150
    assert close > seen * 8 // 10


def test_a_link_that_costs_nothing_counts() -> None:
    """Tests that the witness of a cut takes the cheapest link for every tensor, also one of no time."""
    links = [[0, 0, 9], [0, 0, 9], [9, 9, 0]]
    problem = problem_of([[5, 5, 5], [5, 5, 5]], [Feed(0, (1,), links)], objective="throughput")
    assert bound_of(_read(problem), {"kind": "cut", "op": 0}) == 5
