"""The checker itself: what it imports, what it accepts, and that its bounds are true."""

from __future__ import annotations

import ast
import copy
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.certify.base_plans import (
    Json,
    latency_plan,
    make_plan_with,
    parsed,
    rehash,
    sequential_plan,
    throughput_plan,
)

from weftline.ask import make_plan
from weftline.certify import Refusal, bound_of, check, check_plan
from weftline.cluster import Device
from weftline.cost import devices_of_file, expand_file_costs
from weftline.cost.table import CostTable
from weftline.errors import InfeasibleError
from weftline.graph import Op, Tensor, assemble
from weftline.latency.bounds import path_bound
from weftline.problem import Problem, Rules
from weftline.problem.model import problem_to_file
from weftline.search import Search
from weftline.testing import brute_force_latency, brute_force_throughput, random_problem
from weftline.zoo import regal_costs, synthetic

OBJECTIVES = ("latency", "throughput")


def test_it_imports_the_standard_library_alone() -> None:
    """Tests that the checker depends on nothing that could share a bug with a solver, also inside functions."""
    folder = Path(check.__file__).parent
    imported = set()
    for node in (node for path in folder.glob("*.py") for node in _nodes_of(path)):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            if not str(node.module).startswith("weftline.certify"):
                imported.add(str(node.module).partition(".")[0])
        elif isinstance(node, ast.Name):
            assert node.id not in {"__import__", "eval", "exec", "compile"}
    assert imported <= set(sys.stdlib_module_names) | {"__future__"}
    assert "json" in imported


def _nodes_of(path: Path) -> list[ast.AST]:
    """Of a checker; two files speak to the rest of weftline and are not part of it."""
    return [] if path.name in {"__init__.py", "run.py"} else list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_plans_of_random_problems_hold(objective: str) -> None:
    """Tests that 150 plans under all rules pass with the value they say."""
    passed = 0
    rules = set()
    for seed in range(400):
        if passed == 150:
            break
        problem = random_problem(seed, objective)  # type: ignore[arg-type]
        try:
            plan = make_plan(problem, work_limit=50)
        except InfeasibleError:
            continue
        verdict = check_plan(parsed(plan))
        assert verdict.value_ns == plan.value_ns
        assert verdict.proved_bound_ns == plan.proved_bound_ns <= plan.bound_ns <= plan.value_ns
        rules.add(problem.rules)
        passed += 1
    assert passed == 150
    assert len(rules) > 10


def _numbers(value: Json, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """Where the numbers are."""
    if isinstance(value, dict):
        return [found for key, inner in value.items() for found in _numbers(inner, (*path, key))]
    if isinstance(value, list):
        return [found for i, inner in enumerate(value) for found in _numbers(inner, (*path, i))]
    return [path] if isinstance(value, int | float) and not isinstance(value, bool) else []


PARTS = ("value_ns", "bound_ns", "gap", "timeline", "placement", "devices", "stages", "bounds")
BASES = (latency_plan(), sequential_plan(), throughput_plan())
PLACES = [(i, (part, *rest)) for i, base in enumerate(BASES) for part in PARTS for rest in _numbers(base[part])]


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(PLACES), st.one_of(st.integers(-3, 3), st.integers(-(2**64), 2**64)))
def test_a_single_edited_number_is_refused_or_harmless(place: tuple[int, tuple[object, ...]], change: int) -> None:
    """Tests that whatever one number is changed to, value and best bound stay true; schedules never change."""
    base, path = BASES[place[0]], place[1]
    plan = copy.deepcopy(base)
    holder = plan
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] += change
    try:
        verdict = check_plan(plan)
    except Refusal:
        return
    assert change == 0 or path[0] == "bounds", "what was decided cannot be edited unseen"
    before = check_plan(base)
    assert verdict.value_ns == before.value_ns
    assert plan["bound_ns"] == base["bound_ns"]
    assert verdict.proved_bound_ns <= before.proved_bound_ns
    for edited, original in zip(plan["bounds"], base["bounds"], strict=True):
        assert edited["value_ns"] <= original["value_ns"], "a bound may be lowered, never raised"


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(range(3)), st.data())
def test_a_single_replaced_value_never_breaks_the_checker(which: int, data: st.DataObject) -> None:
    """Tests that any JSON value anywhere gives a verdict or a `Refusal`, never another exception."""
    plan = copy.deepcopy(BASES[which])
    holder, key = plan, data.draw(st.sampled_from(sorted(set(plan) - {"format", "version"})))
    while isinstance(holder[key], dict | list) and holder[key] and data.draw(st.booleans()):
        holder = holder[key]
        key = data.draw(st.sampled_from(sorted(holder) if isinstance(holder, dict) else range(len(holder))))
    leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3))
    holder[key] = data.draw(st.one_of(leaves, st.lists(leaves, max_size=3), st.dictionaries(st.text(), leaves)))
    try:
        verdict = check_plan(plan)
    except Refusal:
        return
    assert verdict.value_ns == BASES[which]["value_ns"]


def _optimum(problem: Problem) -> int | None:
    return (brute_force_latency if problem.rules.objective == "latency" else brute_force_throughput)(problem)


def _tiny_problems() -> list[tuple[check.PlanProblem, int]]:
    found = []
    for seed in range(60):
        problem = random_problem(seed, OBJECTIVES[seed % 2], max_ops=4, max_devices=2)  # type: ignore[arg-type]
        best = _optimum(problem)
        if best is not None:
            found.append((check.PlanProblem(msgspec.to_builtins(problem_to_file(problem))), best))
    return found


TINY = _tiny_problems()


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(TINY), st.data())
def test_no_witness_proves_more_than_the_optimum(tiny: tuple[check.PlanProblem, int], data: st.DataObject) -> None:
    """Tests that a bound which the checker derives from any witness is a true lower bound, or is refused."""
    problem, best = tiny
    numbers = st.lists(st.integers(-1, 4), max_size=5)
    witness: Json = {"kind": data.draw(st.sampled_from(sorted(check.WITNESSES))), "ops": data.draw(numbers)}
    witness["op"] = data.draw(st.integers(-1, 4))
    witness["weights"] = data.draw(st.lists(st.integers(0, 9), max_size=3))
    witness["order"] = data.draw(st.permutations(range(data.draw(st.integers(1, 6)))))
    message = st.lists(st.integers(-9, 9), min_size=2, max_size=2)
    pair = st.tuples(st.integers(0, 1), st.integers(1, 3), message, message)
    witness["pairs"] = [list(row) for row in data.draw(st.lists(pair, max_size=2))]
    witness["stars"] = [
        [tensor, *rows]
        for tensor, rows in data.draw(st.lists(st.tuples(st.integers(0, 4), st.lists(message, max_size=4)), max_size=2))
    ]
    witness["scale"] = data.draw(st.integers(1, 3))
    try:
        proved = bound_of(problem, witness)
    except (Refusal, ValueError):
        return
    assert proved <= best


def test_enough_tiny_problems_are_feasible() -> None:
    """Tests that the property above is not about an empty set."""
    assert len(TINY) > 30


def test_what_takes_no_time_stands_between_two_others() -> None:
    """Tests a 0 ns op of a sequential plan: where it belongs, inside another one, and after everything."""
    ops = [Op(name) for name in ("a", "b", "c")]
    tensors = [Tensor("ta", 0, (1,), 8), Tensor("tb", 0, (2,), 8)]
    time = np.array([[5], [0], [5]], np.int64)
    problem = Problem(
        assemble("idle", ops, tensors, []),
        (Device(id="d0", kind="cpu", memory=200),),
        CostTable(time, np.zeros((1, 1, 1), np.int64), np.zeros(2, np.int32), "by hand"),
        Rules(runtime="sequential"),
    )

    def offer(search: Search) -> None:
        search.offer(np.zeros(3, np.int32))

    plan = parsed(make_plan_with(problem, offer))
    rows = {row[0]: row for row in plan["timeline"]["ops"]}
    for begin in (5, 10):
        rows[1][1:] = [begin, begin]
        assert check_plan(plan).value_ns == 10
    for begin in (6, 7, 9, 11, 100):
        rows[1][1:] = [begin, begin]
        with pytest.raises(Refusal, match=r"waits|value"):
            check_plan(plan)


@pytest.mark.parametrize("name", [7, None, ["pcie"], {"a": 1}])
def test_a_bus_has_a_name(name: object) -> None:
    """Tests names of other types."""
    plan = latency_plan()
    plan["problem"]["buses"][0][2] = name
    rehash(plan)
    with pytest.raises(Refusal, match="bus"):
        check_plan(plan)


@pytest.mark.parametrize("seed", range(6))
def test_paths_are_bounded_as_the_solver_does(seed: int) -> None:
    """Tests that the checker finds the very value of the path bound, also where some devices have no link."""
    graph = synthetic("erdos_renyi", ops=30, seed=seed)
    costs = regal_costs(graph, 4)
    table = expand_file_costs(costs)
    transfer = table.transfer.copy()
    transfer[:, 0, 1:3] = -1
    time = table.time * np.array([3, 2, 1, 4])
    time[seed, 2] = -1
    table = CostTable(time, transfer, table.transfer_row, table.source)
    problem = Problem(graph, devices_of_file(costs), table, Rules())
    bound = path_bound(problem)
    form = check.PlanProblem(msgspec.to_builtins(problem_to_file(problem)))
    assert bound.witness is not None
    assert check.bound_of(form, bound.witness) == bound.value > 0
