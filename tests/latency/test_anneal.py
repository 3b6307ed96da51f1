"""The latency annealer: its values are the simulator's, its moves keep every limit, its answers are good."""

from dataclasses import replace

import numpy as np
import pytest

from weftline.cluster import Cluster, Device
from weftline.cost import CostTable
from weftline.errors import InfeasibleError
from weftline.graph import Op, Tensor, assemble
from weftline.graph.arrays import Ints
from weftline.latency.anneal.anneal import SOLVER, anneal_starts
from weftline.latency.anneal.annealer import PlacementAnnealer
from weftline.latency.anneal.backfill import backfill
from weftline.latency.anneal.state import NOW_VALUE
from weftline.latency.list.schedulers import heft
from weftline.problem import Problem, Rules
from weftline.problem.load import build_problem
from weftline.search import Search
from weftline.simulate import replay, simulate_latency, violations
from weftline.simulate.tables import tables
from weftline.testing.conformance import check_solver, optimum, solve
from weftline.testing.generate import SeededChooser, make_order, make_placement, random_problem
from weftline.zoo import synthetic

STOP: Ints = np.zeros(1, np.int64)


def _annealer(problem: Problem, seed: int = 0) -> PlacementAnnealer:
    return PlacementAnnealer(tables(problem), capacity=problem.capacity, group=problem.group, seed=seed)


@pytest.mark.parametrize("first", range(0, 240, 40))
def test_value_is_the_simulators(first: int) -> None:
    """Tests that the best has the value that the simulator gives it and breaks no limit, whatever the options."""
    for seed in range(first, first + 40):
        problem = random_problem(seed, "latency", max_ops=14, max_devices=4)
        annealer, choose = _annealer(problem, seed), SeededChooser(seed)
        annealer.give(make_placement(choose, problem), make_order(choose, problem))
        for _ in range(4):
            annealer.run(300, STOP)
            best = annealer.best
            if best is None:
                continue
            placement, order, value = best
            timeline = simulate_latency(problem, placement, order)
            assert timeline.value == value
            assert not violations(problem, timeline)


@pytest.mark.parametrize("seed", range(12))
def test_state_is_the_simulators(seed: int) -> None:
    """Tests that after many trials, kept and taken back, the running state still has its true value."""
    problem = random_problem(seed + 500, "latency", max_ops=30, max_devices=4, limits=seed % 2 == 0)
    annealer = _annealer(problem, seed)
    for _ in range(10):
        annealer.run(200, STOP)
        device, order, value = annealer._state.device, annealer._state.order, int(annealer._state.now[NOW_VALUE])
        try:
            assert simulate_latency(problem, device.copy(), order.copy()).value == value
        except InfeasibleError:
            assert value >= annealer._problem.penalty


def test_stored_prefixes_may_be_sparse() -> None:
    """Tests that an annealer that stores every third prefix makes the same trials."""
    problem = random_problem(7, "latency", max_ops=40, max_devices=3, limits=False)
    every, third = _annealer(problem, 3), _annealer(problem, 3)
    third._state = third._state._replace(stride=3)
    third._starts.clear()
    third.give(third._fastest())
    for annealer in (every, third):
        annealer.run(2000, STOP)
    assert third.best is not None
    assert simulate_latency(problem, third.best[0], third.best[1]).value == third.best[2]


def test_conforms() -> None:
    """Tests limits, value, reference, bound, proofs, seed and stop rules on small problems."""
    for seed in range(30):
        check_solver(SOLVER, random_problem(seed, "latency", max_ops=5))


def test_finds_nearly_all_optima() -> None:
    """Tests that of small problems nearly all are solved, and nearly always with the optimum."""
    problems = [random_problem(seed, "latency", max_ops=5) for seed in range(2000, 2040)]
    feasible = [problem for problem in problems if optimum(problem) is not None]
    found = [solve(SOLVER, problem)[0].best for problem in feasible]
    best = [a is not None and a.value == optimum(p) for a, p in zip(found, feasible, strict=True)]
    assert sum(best) >= len(feasible) * 9 // 10


def _full_devices() -> Problem:
    """Six ops of three sizes; two devices that hold exactly half each, and the cheap split is not the first one."""
    sizes = (3, 2, 1, 1, 2, 3)
    ops = [Op(f"op{i}", "MatMul", 0, weight_bytes=size) for i, size in enumerate(sizes)]
    tensors = [Tensor(f"t{i}", i, (i + 1,) if i < 5 else (), 0, (), "float32", i == 5) for i in range(6)]
    time = np.array([[1, 9], [9, 1], [1, 9], [9, 1], [1, 9], [9, 1]], np.int64)
    costs = CostTable(time, np.zeros((1, 2, 2), np.int64), np.zeros(6, np.int32), "by hand")
    devices = tuple(Device(id=f"d{i}", kind="gpu", memory=6) for i in range(2))
    return Problem(assemble("full", ops, tensors), devices, costs, Rules(memory="static"))


def test_moves_when_memory_is_full() -> None:
    """Tests that ops are exchanged where no device has room for one more."""
    problem = _full_devices()
    assert solve(SOLVER, problem)[0].best.value == 6  # type: ignore[union-attr]


def test_backfill_uses_gaps() -> None:
    """Tests that a timeline with gaps filled can be replayed, is never worse, and sometimes better."""
    better = 0
    for seed in range(150):
        problem = random_problem(seed, "latency", max_ops=14, limits=False, runtime="parallel")
        choose = SeededChooser(seed)
        placement, order = make_placement(choose, problem), make_order(choose, problem)
        filled = backfill(tables(problem), placement, order)
        assert filled is not None
        again = replay(problem, placement, filled.actions(problem.graph.arrays.producer))
        assert again.value <= filled.value
        better += filled.value < simulate_latency(problem, placement, order).value
    assert better >= 20


def test_backfill_refuses_what_cannot_run() -> None:
    """Tests that a missing link or a sequential runtime has no timeline with gaps filled."""
    problem = _full_devices()
    order = np.arange(6, dtype=np.int32)
    unlinked = CostTable(problem.cost.time, np.array([[[0, -1], [-1, 0]]]), problem.cost.transfer_row, "by hand")
    split = np.array([0, 0, 0, 1, 1, 1], np.int32)
    assert backfill(tables(replace(problem, cost=unlinked)), split, order) is None
    assert backfill(tables(problem.with_rules(Rules(runtime="sequential"))), split, order) is None


def test_beats_heft_on_a_network() -> None:
    """Tests a layered network of 300 ops on four unequal devices: better than HEFT and than any single device."""
    problem = build_problem(synthetic("layered", ops=300, seed=1), Cluster.preset("four-unequal"))
    starts = anneal_starts(Search(problem))
    annealer = PlacementAnnealer(tables(problem), capacity=problem.capacity, group=problem.group, start=starts)
    annealer.run(10_000, STOP)
    single = min(simulate_latency(problem, np.full(300, device, np.int32)).value for device in range(4))
    assert annealer.value < 0.95 * min(heft(Search(problem)).value, single)


def test_stop_flag_ends_a_run() -> None:
    """Tests that a raised flag ends a run before its steps are done, and that the best stays."""
    problem = random_problem(3, "latency", max_ops=20, limits=False)
    annealer = _annealer(problem)
    before = annealer.best
    annealer.run(10**12, np.ones(1, np.int64))
    assert before is not None
    assert annealer.best is not None
    assert annealer.best[2] == before[2]


def test_a_given_plan_need_not_end_the_walk() -> None:
    """Tests that with `stay` the annealer knows a better plan but goes on where it was; without, at the better one."""
    rules = Rules(objective="latency")
    problem = build_problem(synthetic("layered", ops=40, seed=3), Cluster.preset("four-unequal"), rules=rules)
    better = _annealer(problem, 1)
    better.run(5000, STOP)
    found = better.best
    assert found is not None
    for stay in (True, False):
        walk = PlacementAnnealer(tables(problem), capacity=problem.capacity, group=problem.group, seed=2, cycle=500)
        walk.run(10, STOP)
        assert walk._length == 500
        assert walk.value > found[2]
        here = walk._state.device.copy()
        assert walk.give(found[0], found[1], stay=stay)
        assert walk.value == found[2]
        assert (walk._state.device == (here if stay else found[0])).all()
    assert (here != found[0]).any()


def test_numbers_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that settings reach the annealer: how many steps it makes, and from how many starts."""
    problem = random_problem(3, "latency", max_ops=20, limits=False)
    steps: list[int] = []
    run = PlacementAnnealer.run

    def noted(self: PlacementAnnealer, count: int, stop: Ints) -> None:
        steps.append(count)
        assert len(self._starts) <= 2
        run(self, count, stop)

    monkeypatch.setattr(PlacementAnnealer, "run", noted)
    SOLVER.solve(Search(problem, options={"most_steps": "700", "portions": "7", "most_starts": "2"}))
    assert steps == [100] * 7
