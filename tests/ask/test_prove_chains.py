"""Tests of proofs of latency: against brute force, after searches that knew blocks and after searches that did not."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import msgspec
import pytest
from tests.certify.tiny_latency import Json, least_latency, tiny_latency

from weftline.ask import make_plan
from weftline.ask.proofs import ProofTask, prove_more
from weftline.ask.prove_blocks import grow_tree
from weftline.certify import bound_of, check_plan
from weftline.certify.chain_block import ChainBlock
from weftline.certify.problem import PlanProblem
from weftline.cluster import Cluster
from weftline.graph import Graph
from weftline.latency import solvers
from weftline.latency.bounds import lower_bounds
from weftline.plans.explain import explain_blocks
from weftline.problem import Problem, asked_rules, build_problem
from weftline.problem.model import ProblemFile, problem_from_file, problem_to_file
from weftline.search import Search
from weftline.zoo import zoo_graph

TINY = int(os.environ.get("WEFTLINE_TINY", "120"))


def _problem(form: Json) -> Problem:
    return problem_from_file(msgspec.convert(form, ProblemFile))


@pytest.mark.parametrize("part", range(2))
def test_trees_show_the_optimum_and_nothing_above(part: int) -> None:
    """Tests tiny problems, their graph as one block: the optimum is proved each time, and no horizon that it meets."""
    for seed in range(part, TINY, 2):
        form = tiny_latency(seed + 10_000)
        best = least_latency(form)
        if best is None:
            continue
        problem = PlanProblem(form)
        ops = list(range(len(problem.names)))
        block = ChainBlock(problem, ops)
        for horizon in (best - 1, best):
            tree = grow_tree(block, (None, None), horizon, 5_000, lambda: False)
            if best in (horizon, 0):
                assert tree is None, f"seed {seed}: no plan within {horizon}, optimum {best}"
                continue
            assert tree is not None, f"seed {seed}: {best} is not shown"
            parts = [{"block": 0, "H": horizon, "tree": tree}]
            witness = {"kind": "chain", "target": best, "ops": [], "blocks": [ops], "parts": parts}
            assert bound_of(problem, witness) == best


def _task(problem: Problem, value: int, notes: Mapping[str, Sequence[object]]) -> ProofTask:
    form = PlanProblem(msgspec.to_builtins(problem_to_file(problem)))
    proved = max(bound.value for bound in lower_bounds(problem) if bound.by == "path")
    return ProofTask(problem, form, value, value, proved, 6.0, lambda _: None, notes)


def _on_two_gpus(graph: Graph) -> Problem:
    return build_problem(graph, Cluster.preset("two-gpus"), rules=asked_rules({"objective": "latency"}))


def test_a_search_by_blocks_is_proved() -> None:
    """Tests that what `decompose` claims of its chain is proved after it, and that the checker repeats it."""
    problem = _on_two_gpus(zoo_graph("resnet50", size="small"))
    plan = make_plan(problem, solver="decompose", time_limit=20.0, proof=20.0)
    assert (plan.proof, plan.gap) == ("proved", 0.0)
    assert check_plan(msgspec.to_builtins(plan)).proved_bound_ns == plan.value_ns
    told = explain_blocks(plan)
    assert told[0].startswith("Why none ends before ")
    assert all(" more than " in line and " case" in line for line in told[1:-1])
    assert explain_blocks(make_plan(problem, solver="single-device", work_limit=1)) == []
    for witness in ({"kind": "chain"}, {"kind": "chain", "ops": [10**6], "blocks": [], "parts": "no base64"}):
        entry = msgspec.structs.replace(plan.bounds[0], witness=witness)
        assert explain_blocks(msgspec.structs.replace(plan, bounds=(entry,))) == []


def test_a_search_that_knows_no_blocks_is_proved_too() -> None:
    """Tests that the maker looks for blocks itself where the search left none, and finds nearly as much."""
    problem = _on_two_gpus(zoo_graph("resnet50", size="small"))
    search = Search(problem, time_limit=20.0, seed=1)
    search.run(solvers()["decompose"])
    assert search.best is not None
    best = search.best.value
    for notes in (search.notes, {}):
        task = _task(problem, best, notes)
        before = task.proved
        (bound,) = prove_more(task)
        assert bound.by == "blocks"
        assert before < bound.value <= best
        assert bound.value > 0.99 * best


def test_a_proof_that_stops_early_is_still_one() -> None:
    """Tests that with few nodes, or no time, the best that was shown is kept, and nothing wrong is said."""
    form = tiny_latency(10_007)
    problem = PlanProblem(form)
    block = ChainBlock(problem, range(len(problem.names)))
    assert grow_tree(block, (None, None), 0, 5_000, lambda: True) is None
    task = _task(_on_two_gpus(zoo_graph("resnet50", size="small")), 10**9, {})
    task.seconds = 0.0
    assert prove_more(task) == []
