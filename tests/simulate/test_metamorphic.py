"""Tests of what must not change, or must change in one direction, when a problem is changed."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weftline.ask.questions import lower_bounds
from weftline.cluster import Device
from weftline.cost import CostTable
from weftline.errors import InfeasibleError
from weftline.graph import assemble
from weftline.graph.arrays import Ints
from weftline.problem import Problem, check_feasible
from weftline.simulate import INFEASIBLE, evaluate
from weftline.testing.conformance import optimum
from weftline.testing.generate import Objective
from weftline.testing.strategies import orders, patient, placements, problems

few = settings(patient, max_examples=50)
OBJECTIVES: list[Objective] = ["latency", "throughput"]
each_objective = pytest.mark.parametrize("objective", OBJECTIVES)


def _bounds(problem: Problem) -> dict[str, int]:
    """By method; none where the problem is seen to be infeasible."""
    try:
        return {bound.by: bound.value for bound in lower_bounds(check_feasible(problem))}
    except InfeasibleError:
        return {}


def _with_costs(problem: Problem, time: Ints, transfer: Ints) -> Problem:
    return replace(problem, cost=CostTable(time, transfer, problem.cost.transfer_row))


def _scaled(problem: Problem, factor: int) -> Problem:
    time, transfer = (np.where(v < 0, -1, v * factor) for v in (problem.cost.time, problem.cost.transfer))
    return _with_costs(problem, time, transfer)


@each_objective
@few
@given(data=st.data(), factor=st.integers(2, 1000))
def test_all_costs_times_a_factor(objective: Objective, factor: int, data: st.DataObject) -> None:
    """Tests that value, optimum and bounds are multiplied by the same factor."""
    problem = data.draw(problems(objective, max_ops=4))
    larger = _scaled(problem, factor)
    placement, order = data.draw(placements(problem)), data.draw(orders(problem))
    value, scaled = (int(evaluate(p, placement, order).value[0]) for p in (problem, larger))
    assert scaled == (value * factor if value < INFEASIBLE else value)
    least = optimum(problem)
    assert optimum(larger) == (None if least is None else least * factor)
    before, after = _bounds(problem), _bounds(larger)
    assert before.keys() == after.keys()
    for method in before.keys() - {"load"}:
        assert after[method] == before[method] * factor
    if "load" in before:  # rounded up to whole ns, and the weights are found to six digits
        assert (before["load"] - 1) * factor * (1 - 1e-5) <= after["load"] <= before["load"] * factor


@each_objective
@few
@given(data=st.data())
def test_faster_links_are_never_worse(objective: Objective, data: st.DataObject) -> None:
    """Tests that smaller transfers do not raise the optimum (static memory: an earlier copy may not fit)."""
    problem = data.draw(problems(objective, max_ops=4, memory="static"))
    saved = data.draw(
        st.lists(st.integers(0, 9), min_size=problem.cost.transfer.size, max_size=problem.cost.transfer.size)
    )
    transfer = problem.cost.transfer
    faster = np.where(transfer < 0, -1, np.maximum(transfer - np.array(saved).reshape(transfer.shape), 0))
    before, after = optimum(problem), optimum(_with_costs(problem, problem.cost.time, faster))
    if before is not None:
        assert after is not None
        assert after <= before


@each_objective
@few
@given(data=st.data())
def test_one_more_device_is_never_worse(objective: Objective, data: st.DataObject) -> None:
    """Tests that an additional device does not raise the optimum."""
    problem = data.draw(problems(objective, max_ops=4, max_devices=2))
    n, k, rows = len(problem.graph.ops), len(problem.devices), len(problem.cost.transfer)
    times = data.draw(st.lists(st.integers(-1, 9), min_size=n, max_size=n))
    length = data.draw(st.integers(-1, 9))
    transfer = np.full((rows, k + 1, k + 1), length, np.int64)
    transfer[:, :k, :k] = problem.cost.transfer
    transfer[:, k, k] = 0
    more = Problem(
        problem.graph,
        (*problem.devices, Device("new", "gpu", data.draw(st.integers(1, 60)))),
        CostTable(np.column_stack([problem.cost.time, times]), transfer, problem.cost.transfer_row),
        problem.rules,
        problem.together,
        problem.buses,
    )
    before, after = optimum(problem), optimum(more)
    if before is not None:
        assert after is not None
        assert after <= before


@each_objective
@few
@given(data=st.data())
def test_names_and_order_of_devices_do_not_matter(objective: Objective, data: st.DataObject) -> None:
    """Tests that optimum and bounds stay when ops get other names, and devices other names and another order."""
    problem = data.draw(problems(objective, max_ops=4))
    k = len(problem.devices)
    old = data.draw(st.permutations(range(k)))  # the new device i was device old[i]
    new = {device: i for i, device in enumerate(old)}
    graph = problem.graph
    ops = [msgspec.structs.replace(op, name=f"other {i}") for i, op in enumerate(graph.ops)]
    changed = Problem(
        assemble("renamed", ops, graph.tensors, graph.tied),
        tuple(msgspec.structs.replace(problem.devices[d], id=f"x{i}") for i, d in enumerate(old)),
        CostTable(problem.cost.time[:, old], problem.cost.transfer[:, old][:, :, old], problem.cost.transfer_row),
        problem.rules,
        problem.together,
        tuple((new[a], new[b], f"bus {name}") for a, b, name in problem.buses),
    )
    assert optimum(changed) == optimum(problem)
    before, after = _bounds(problem), _bounds(changed)
    assert before.keys() == after.keys()
    for method, value in before.items():
        assert abs(after[method] - value) <= (method == "load")  # its weights are rounded device by device
