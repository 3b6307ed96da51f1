"""Plans from measurements: which placement is kept, what the file says, what cannot be asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.papers.machines import Machine, Read

import weftline as wl
from weftline.ask import make_plan
from weftline.certify import Refusal, check_plan
from weftline.cost import CostTable, devices_of_file, expand_file_costs
from weftline.errors import LimitReached, UsageError, WeftlineError
from weftline.graph.arrays import Indices
from weftline.latency.measured.measurements import Backend
from weftline.plans import Plan
from weftline.plans.plan import load_plan, plan_to_json, save_plan
from weftline.problem import Problem, Rules
from weftline.simulate import simulate_latency
from weftline.zoo import regal_costs, synthetic


def _problem(**rules: Any) -> Problem:
    graph = synthetic("series_parallel", ops=30, seed=3)
    costs = regal_costs(graph, 2)
    table = expand_file_costs(costs)
    table = CostTable(table.time * np.array([4, 5]), table.transfer // 50, table.transfer_row, table.source)
    return Problem(graph, devices_of_file(costs), table, Rules(**{"runtime": "sequential", **rules}))


def _placement(plan: Plan) -> Indices:
    problem = plan.load_problem()
    return np.array([problem.device_index[plan.placement[op.name]] for op in problem.graph.ops], np.int32)


def test_the_best_measured_is_the_plan(tmp_path: Path) -> None:
    """Tests that the plan is what the machine likes best, costed by the simulator, and that its file says so."""
    problem = _problem()
    machine = Machine(problem, [6.0, 1.0])  # the table says the first device is the faster one
    plan = make_plan(problem, solver="policy", backend=machine.backend(15))
    ratios = [machine.ratio(call) for call in machine.calls]
    assert machine.ratio(_placement(plan)) == min(ratios)
    assert plan.value_ns == simulate_latency(problem, _placement(plan)).value
    assert plan.measured
    assert (plan.measured.count, plan.measured.failures, plan.stopped_by) == (15, 0, "measurements")
    assert plan.measured.ratio == pytest.approx(min(ratios), abs=1e-6)
    assert "Measured on machine: 15 placements. This plan is the best of them" in plan.summary()
    assert "runtime is parallel" not in plan.summary()
    save_plan(plan, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == plan
    wl.verify(tmp_path / "plan.json")


def test_a_measured_plan_is_not_exchanged() -> None:
    """Tests that a baseline which the simulator likes better does not take the place of what was measured best."""
    problem = _problem()
    machine = Machine(problem, [6.0, 1.0])
    plan = make_plan(problem, solver="auto", backend=machine.backend(8))
    assert plan.measured
    assert machine.ratio(_placement(plan)) == min(machine.ratio(call) for call in machine.calls)
    assert plan.measured.ratio == pytest.approx(machine.ratio(_placement(plan)), abs=1e-6)


def test_other_plans_have_no_such_field() -> None:
    """Tests that the files of plans without measurements did not change."""
    plan = make_plan(_problem(), solver="greedy", work_limit=10)
    assert "measured" not in json.loads(plan_to_json(plan))
    assert "Measured" not in plan.summary()


@pytest.mark.parametrize(
    "change",
    [
        {"count": 0},
        {"failures": 99},
        {"ratio": "fast"},
        {"ratio": -1.0},
        {"seconds": None},
        {"reference": "nobody"},
        {"rounds": 0},
        {"remark": 1},
    ],
)
def test_the_checker_looks_at_the_form(change: dict[str, object]) -> None:
    """Tests that counts, times and the reference must make sense."""
    machine = Machine(_problem(), [1.0, 1.0])
    plan = msgspec.to_builtins(make_plan(_problem(), solver="heft", backend=machine.backend(4)))
    check_plan(plan)
    plan["measured"] |= change
    with pytest.raises(Refusal, match="measured"):
        check_plan(plan)


def test_the_runtime_is_named_if_it_is_not_the_machines() -> None:
    """Tests the sentence about a plan for the parallel runtime, which HETERO does not have."""
    problem = _problem(runtime="parallel")
    plan = make_plan(problem, solver="heft", backend=Machine(problem, [1.0, 1.0]).backend(4))
    assert "The plan lets devices work at the same time" in plan.summary()


def test_interrupted() -> None:
    """Tests that Ctrl-C keeps the best so far, or is passed on if nothing was measured yet."""
    machine = Machine(_problem(), [1.0, 1.0])

    def measure(placement: Indices, seconds: float | None) -> Read:
        if len(machine.calls) == 5:
            raise KeyboardInterrupt
        return machine.measure(placement, seconds)

    backend = Backend(measure, "machine", machine.truth.devices[0].id)
    plan = make_plan(_problem(), solver="policy", backend=backend)
    assert plan.stopped_by == "interrupted"
    assert plan.measured
    assert plan.measured.count == 5
    with pytest.raises(KeyboardInterrupt):
        make_plan(_problem(), solver="policy", backend=backend)


def test_nothing_ran() -> None:
    """Tests the errors where every placement failed, and where time was over before the first was measured."""
    machine = Machine(_problem(), [1.0, 1.0])
    machine.fails = lambda placement: True
    with pytest.raises(WeftlineError, match="none of 6 measured placements ran on machine: crashed"):
        make_plan(_problem(), solver="policy", backend=machine.backend(6))

    def late(placement: Indices, seconds: float | None) -> Read:
        raise LimitReached("over")

    with pytest.raises(LimitReached, match="before a placement was measured"):
        make_plan(_problem(), solver="policy", backend=Backend(late, "machine", "d0"))


@pytest.mark.parametrize(
    ("rules", "options", "says"),
    [
        ({"objective": "throughput"}, {}, "objective latency"),
        ({}, {"gap": 0.1}, "a gap and a work limit"),
        ({}, {"work_limit": 10}, "a gap and a work limit"),
        ({}, {"coarsen": np.zeros(30, np.int32)}, "coarse"),
    ],
)
def test_what_cannot_be_asked(rules: dict[str, str], options: dict[str, Any], says: str) -> None:
    """Tests that options of searches on the simulator are refused before anything runs."""
    problem = _problem(**rules)
    machine = Machine(_problem(), [1.0, 1.0])
    with pytest.raises(UsageError, match=says):
        make_plan(problem, solver="policy", backend=machine.backend(), **options)
    assert not machine.calls
