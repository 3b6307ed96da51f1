"""Tests that every reduction keeps the promises of `Reduction`, on many small problems, by brute force."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest

from weftline.cluster import Cluster
from weftline.errors import InfeasibleError, UsageError
from weftline.graph.arrays import Indices
from weftline.latency.measured.trials import Nodes, make_nodes
from weftline.pipeline.pieces import Pieces, make_pieces, merge
from weftline.pipeline.reduce import contract_uncuttable, reduce_exactly
from weftline.problem import Problem, build_problem
from weftline.reduce import METHODS, Reduction, acyclic, coarsened, compose, contract
from weftline.simulate import simulate_latency, simulate_throughput, violations
from weftline.testing.conformance import brute_force_latency, brute_force_throughput
from weftline.testing.generate import random_problem
from weftline.zoo import synthetic

SEEDS = range(60)
TARGET = 12


def _grouped(problem: Problem) -> Indices:
    group = np.random.default_rng(len(problem.graph.ops)).integers(0, 3, len(problem.graph.ops))
    return acyclic(problem, group)


def _contract_twice(problem: Problem) -> Reduction[Problem]:
    first = contract(problem, acyclic(problem, np.arange(len(problem.graph.ops)) // 2))
    return compose(first, contract(first.small, _grouped(first.small)))


def _fuse_and_contract(problem: Problem) -> Reduction[Problem]:
    first = coarsened(problem, "gcof")
    return compose(first, contract(first.small, acyclic(first.small, first.small.group)))


def _contract_to_nodes(problem: Problem) -> Reduction[Nodes]:
    first = contract(problem, _grouped(problem))
    return compose(first, make_nodes(first.small))


def _coarsen_to_nodes(problem: Problem) -> Reduction[Nodes]:
    first = coarsened(problem, "none")
    return compose(first, make_nodes(first.small))


def _merged(problem: Problem) -> Pieces:
    pieces = make_pieces(problem)
    return merge(pieces, np.arange(len(pieces.time)) // 2, exact=False)


@dataclass(frozen=True)
class Case:
    """One way to make a reduction."""

    make: Callable[[Problem], Reduction[Any]]
    keeps_value: bool
    """The value of a lifted placement is that of the smaller problem."""


LATENCY = {
    "single ops": Case(lambda problem: contract(problem, np.arange(len(problem.graph.ops))), True),
    "contract": Case(lambda problem: contract(problem, _grouped(problem)), False),
    "nodes": Case(make_nodes, False),
    "runs": Case(lambda problem: make_nodes(problem, coarse=False, most=3), False),
    "contract twice": Case(_contract_twice, False),
    "fuse and contract": Case(_fuse_and_contract, False),
    "contract to nodes": Case(_contract_to_nodes, False),
    "coarsen to nodes": Case(_coarsen_to_nodes, False),
    **{
        name: Case(lambda problem, name=name: coarsened(problem, name), name == "none" or not METHODS[name].fuses)  # type: ignore[misc]
        for name in ("none", "gcof", "chains", "coplace")
    },
}
PIPELINE = {
    "pieces": Case(make_pieces, True),
    "split": Case(lambda problem: make_pieces(problem, split=True), True),
    "exactly": Case(lambda problem: reduce_exactly(make_pieces(problem)), True),
    "uncuttable": Case(lambda problem: contract_uncuttable(make_pieces(problem, split=True), TARGET), True),
    "merged": Case(_merged, True),
}


def _parts(small: Any) -> np.ndarray:
    """(parts, K): where each part of a smaller problem may stand."""
    if isinstance(small, Nodes):
        return small.allowed
    return (small.cost.time if isinstance(small, Problem) else small.time) >= 0


def _placements(small: Any) -> Iterator[Indices]:
    """Every placement, or some hundred of them, that devices can run and that keeps sets together."""
    able = [np.flatnonzero(row).tolist() for row in _parts(small)]
    sets = small.together if isinstance(small, Problem) else small.same if isinstance(small, Pieces) else ()
    every = product(*able)
    if np.prod([float(len(row)) for row in able]) > 300:
        rng = np.random.default_rng(len(able))
        every = (tuple(int(rng.choice(row)) for row in able) for _ in range(100))  # type: ignore[assignment]
    for choice in every:
        if all(len({choice[part] for part in members}) == 1 for members in sets):
            yield np.array(choice, np.int32)


def _load(pieces: Pieces, device: Indices) -> int | None:
    """What the longest stage takes, by the arrays of the pieces alone; None where two devices have no link."""
    host, count = pieces.problem.host, pieces.time.shape[1]
    compute, entering, leaving = ([0] * count for _ in range(3))
    for piece, home in enumerate(device.tolist()):
        compute[home] += int(pieces.time[piece, home])
    for tensor, maker in enumerate(pieces.maker.tolist()):
        home, table = int(device[maker]), pieces.transfer[pieces.row[tensor]]
        readers = pieces.reader_of[pieces.reader_ptr[tensor] : pieces.reader_ptr[tensor + 1]]
        lengths = {int(d): int(table[home, d]) for d in device[readers] if d != home}
        if min(lengths.values(), default=0) < 0:
            return None
        for target, length in lengths.items():
            entering[target] += 0 if host[target] else length
        leaving[home] += 0 if host[home] else max(lengths.values(), default=0)
    combine = max if pieces.problem.rules.communication == "overlapped" else lambda *parts: sum(parts)
    return max(combine(*parts) for parts in zip(compute, entering, leaving, strict=True))


def _value(problem: Problem, placement: Indices) -> int | None:
    """By the simulator; None where it cannot run or a limit is broken."""
    simulate = simulate_latency if problem.rules.objective == "latency" else simulate_throughput
    try:
        found = simulate(problem, placement)
    except InfeasibleError:
        return None
    return None if violations(problem, found) else int(found.value)


def _problems(objective: Any, **fixed: Any) -> Iterator[Problem]:
    for seed in SEEDS:
        yield random_problem(seed, objective, max_ops=6, max_devices=3, limits=seed % 2 == 0, **fixed)


def _made(case: Case, problem: Problem) -> Reduction[Any] | None:
    try:
        return case.make(problem)
    except InfeasibleError:
        return None


CASES = [
    *[pytest.param("latency", case, id=f"latency-{name}") for name, case in LATENCY.items()],
    *[pytest.param("throughput", case, id=f"throughput-{name}") for name, case in PIPELINE.items()],
]


@pytest.mark.parametrize(("objective", "case"), CASES)
def test_lowering_gives_back_what_was_lifted(objective: str, case: Case) -> None:
    """Tests both directions: `lower(lift(q))` is q, and what `lower` finds is lifted to what it was given."""
    tried = 0
    for problem in _problems(objective):
        reduction = _made(case, problem)
        if reduction is None:
            continue
        assert reduction.problem is problem
        for placement in _placements(reduction.small):
            lifted = reduction.lift(placement)
            assert lifted.shape == (len(problem.graph.ops),)
            lowered = reduction.lower(lifted)
            assert lowered is not None
            assert lowered.tolist() == placement.tolist()
            tried += 1
        rng = np.random.default_rng(0)
        for _ in range(10):
            any_placement = rng.integers(0, len(problem.devices), len(problem.graph.ops)).astype(np.int32)
            found = reduction.lower(any_placement)
            assert found is None or reduction.lift(found).tolist() == any_placement.tolist()
    assert tried > 100


@pytest.mark.parametrize(("objective", "case"), CASES)
def test_lifting_keeps_limits_and_values(objective: str, case: Case) -> None:
    """Tests that a lifted placement breaks no limit the small one keeps, and costs the same where that is promised.

    Under dynamic memory peaks depend on the times, which a smaller problem has of its own; so memory is static here.
    """
    agreed = 0
    for problem in _problems(objective, memory="static"):
        reduction = _made(case, problem)
        if reduction is None:
            continue
        small = reduction.small
        for placement in _placements(small):
            lifted = reduction.lift(placement)
            assert (problem.cost.time[np.arange(len(lifted)), lifted] >= 0).all()
            assert all(len(set(lifted[list(members)].tolist())) == 1 for members in problem.together)
            value = _value(problem, lifted)
            if isinstance(small, Problem):
                before = _value(small, placement)
                assert before is None or value is not None
                if case.keeps_value and before is not None:
                    assert value == before
                    agreed += 1
            elif isinstance(small, Pieces) and value is not None:
                assert value == _load(small, placement)
                agreed += 1
    assert agreed > 50 or not case.keeps_value


def _optimum_of_pieces(pieces: Pieces) -> int | None:
    values = [_value(pieces.problem, pieces.lift(device)) for device in _every(pieces)]
    return min((value for value in values if value is not None), default=None)


def _every(pieces: Pieces) -> Iterator[Indices]:
    for choice in product(range(pieces.time.shape[1]), repeat=len(pieces.time)):
        if all(len({choice[part] for part in members}) == 1 for members in pieces.same):
            yield np.array(choice, np.int32)


@pytest.mark.parametrize("name", sorted(LATENCY))
def test_bounds_of_latency(name: str) -> None:
    """Tests that a bound is kept, by the optimum over all placements and orders, or that there is none."""
    kept = 0
    for seed in range(25):
        problem = random_problem(seed, "latency", max_ops=4, max_devices=2)
        reduction = _made(LATENCY[name], problem)
        if reduction is None or reduction.lift_bound(1) is None:
            continue
        best, least = brute_force_latency(problem), brute_force_latency(reduction.small)
        assert isinstance(reduction.small, Problem)
        assert best is None or least is None or (reduction.lift_bound(least) or 0) <= best
        kept += 1
    assert (kept > 0) == LATENCY[name].keeps_value or name == "single ops"


@pytest.mark.parametrize("name", sorted(PIPELINE))
@pytest.mark.parametrize("communication", ["added", "overlapped"])
def test_bounds_of_pipelines(name: str, communication: str) -> None:
    """Tests that the optimum of the pieces, lifted as a bound, never exceeds that of the problem."""
    equal = 0
    for problem in _problems("throughput", communication=communication):
        reduction = PIPELINE[name].make(problem)
        best = brute_force_throughput(problem)
        if best is None:
            continue
        least = _optimum_of_pieces(reduction.small)
        bound = reduction.lift_bound(10**9 if least is None else least)
        assert bound is None or bound <= best
        equal += bound == best
    assert equal > 0 or name == "merged"


def test_fused_times_keep_placements_but_no_bound() -> None:
    """Tests fusion where kernels are faster than their ops: other times, the same placements."""
    problem = build_problem(synthetic("layered", ops=30, seed=1), Cluster.preset("laptop"))
    reduction = coarsened(problem, "gcof")
    assert reduction.small is not problem
    everything = np.zeros(len(problem.graph.ops), np.int32)
    assert reduction.lift(everything).tolist() == everything.tolist()
    assert reduction.lift_bound(1) is None


def test_a_cut_part_has_no_smaller_placement() -> None:
    """Tests `lower` on placements that cut a group, a node, a kernel."""
    problem = build_problem(synthetic("chain", ops=6, seed=1), Cluster.preset("laptop"))
    cut = np.array([0, 0, 0, 1, 1, 1][: len(problem.graph.ops)], np.int32)
    assert contract(problem, np.zeros(len(cut), np.int32)).lower(cut) is None
    assert make_nodes(problem).lower(cut) is None


def test_only_neighbours_are_composed() -> None:
    """Tests that a reduction of another problem is refused."""
    one, other = random_problem(1, "latency"), random_problem(2, "latency")
    with pytest.raises(UsageError, match="first one's"):
        compose(coarsened(one, "none"), coarsened(other, "none"))
