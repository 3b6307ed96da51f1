"""Golden plans: what the deterministic solvers answer today. A change here is either meant, or a defect.

`WEFTLINE_UPDATE_GOLDEN=1 make test TESTS=tests/golden WORKERS=1` writes plans.json anew; the difference belongs in the
review.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from weftline.ask import make_plan
from weftline.ask.planning import solvers_for
from weftline.cluster import Cluster
from weftline.plans import Plan
from weftline.problem import asked_rules, build_problem
from weftline.zoo import synthetic, zoo_graph

FILE = Path(__file__).with_name("plans.json")
CASES = [
    (model, cluster, objective)
    for model in ("resnet50", "bert", "unet", "moe", "layered", "series_parallel")
    for cluster in ("laptop", "four-unequal")
    for objective in ("latency", "throughput")
]
SOLVERS = {"latency": ("heft", "greedy", "even-split"), "throughput": ("greedy", "even-split")}


def plan(model: str, cluster: str, objective: str, solver: str) -> Plan:
    """A small plan."""
    graph = (
        synthetic(model, ops=80, seed=1) if model in ("layered", "series_parallel") else zoo_graph(model, size="small")
    )
    problem = build_problem(graph, Cluster.preset(cluster), rules=asked_rules({"objective": objective}))
    return make_plan(problem, solver=solver, work_limit=1000)


def digest(plan: Plan) -> dict[str, object]:
    """Value, bound, and a hash of every decision."""
    decisions = json.dumps([plan.placement, plan.timeline.ops if plan.timeline else None], sort_keys=True)
    short = hashlib.sha256(decisions.encode()).hexdigest()[:16]
    return {"value_ns": plan.value_ns, "bound_ns": plan.bound_ns, "bound_by": plan.bound_by, "decisions": short}


@pytest.mark.parametrize("case", CASES, ids="/".join)
def test_golden(case: tuple[str, str, str]) -> None:
    """Tests that nobody's answer has changed by accident."""
    answers = {"/".join((*case, solver)): digest(plan(*case, solver)) for solver in SOLVERS[case[2]]}
    if os.environ.get("WEFTLINE_UPDATE_GOLDEN"):
        kept = json.loads(FILE.read_text()) if FILE.exists() else {}
        FILE.write_text(json.dumps(kept | answers, indent=1, sort_keys=True) + "\n")
    golden = json.loads(FILE.read_text())
    assert answers == {name: golden[name] for name in answers}


def test_golden_names_exist() -> None:
    """Tests that the file holds no answers of solvers or cases that are gone."""
    asked = {"/".join((*case, solver)) for case in CASES for solver in SOLVERS[case[2]]}
    assert set(json.loads(FILE.read_text())) == asked
    assert all(solver in solvers_for(objective) for objective, names in SOLVERS.items() for solver in names)
