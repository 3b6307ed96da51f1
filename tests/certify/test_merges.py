"""Tests of minimum cuts around pieces: closed stages, and pairs that no pipeline below a target separates."""

from __future__ import annotations

import os

import msgspec
import pytest
from tests.certify.tiny_pipelines import Json, brute_force, placements, tiny_form, value_of

from weftline.ask.prove_cuts import named_merges
from weftline.certify import Refusal, bound_of
from weftline.certify.merges import inseparable
from weftline.certify.piece_graph import PieceGraph, read_pieces
from weftline.certify.problem import PlanProblem
from weftline.pipeline.bounds import convex_cut_bound
from weftline.pipeline.pieces import make_pieces
from weftline.problem import Problem
from weftline.problem.model import ProblemFile, problem_from_file, problem_to_file
from weftline.testing.generate import Feed, problem_of

TINY = int(os.environ.get("WEFTLINE_TINY", "300"))


def _read(problem: Problem) -> PlanProblem:
    return PlanProblem(msgspec.to_builtins(problem_to_file(problem)))


def _apart(form: Json, a: int, b: int) -> int | None:
    """The best value of all placements that separate two ops."""
    found = (value_of(form, placement) for placement in placements(form) if placement[a] != placement[b])
    return min((value for value in found if value is not None), default=None)


@pytest.mark.parametrize("part", range(2))
def test_inseparable_pairs_are_together_in_every_good_pipeline(part: int) -> None:
    """Tests pairs that a flow joins below a target: whoever separates them has at least the target."""
    shown = 0
    for seed in range(part, TINY // 2, 2):
        form = tiny_form(seed, most_ops=6)
        best, problem = brute_force(form), PlanProblem(form)
        if best is None:
            continue
        graph = PieceGraph()
        read_pieces(problem, graph)
        for target in (best, best + 1, best + 4):
            for m in graph.work:
                for r in graph.work:
                    if m != r and target > 0 and inseparable(graph, m, r, problem.stage_limit, target):
                        apart = _apart(form, m, r)
                        assert apart is None or apart >= target, (seed, m, r, target)
                        shown += apart is not None
    assert shown > 10


def test_a_pair_by_hand() -> None:
    """Tests C2 by a flow: two cheap tensors that both must be paid twice are too much, one alone is not."""
    wires = [Feed(0, (1,), 4), Feed(0, (2,), 4), Feed(1, (3,), 4), Feed(2, (3,), 4)]
    problem = _read(problem_of([[5, 5], [5, 5], [5, 5], [5, 5]], wires, objective="throughput"))
    graph = PieceGraph()
    read_pieces(problem, graph)
    assert inseparable(graph, 0, 3, 2, 18)  # 20 of work and at least 2 x 8 of tensors are more than 2 x 17
    assert not inseparable(graph, 0, 3, 2, 19)
    assert not inseparable(graph, 3, 0, 2, 18)  # against the order


def test_named_pairs_are_shown_again() -> None:
    """Tests that the checker takes pairs that a flow shows, and refuses one that it does not."""
    wires = [Feed(0, (1,), 4), Feed(0, (2,), 4), Feed(1, (3,), 4), Feed(2, (3,), 4)]
    problem = _read(problem_of([[5, 5], [5, 5], [5, 5], [5, 5]], wires, objective="throughput"))
    assert named_merges(problem, 18, lambda: False) == [(0, 1), (0, 2)]
    assert bound_of(problem, {"kind": "pipeline", "target": 18, "merge": [[0, 3]]}) == 18
    for pair, code in (([0, 3, 1], "witness"), ([0, 4], "range"), ([0], "witness"), (3, "type")):
        with pytest.raises(Refusal) as caught:
            bound_of(problem, {"kind": "pipeline", "target": 19, "merge": [pair]})
        assert caught.value.code == code
    with pytest.raises(Refusal, match="not shown"):
        bound_of(problem, {"kind": "pipeline", "target": 19, "merge": [[0, 3]]})


def test_closed_stages_cost_no_less_and_bound_every_pipeline() -> None:
    """Tests the cut over closed sets on tiny graphs: at most the optimum, at least the plain cut, not always as low."""
    larger = 0
    for seed in range(TINY // 3):
        form = tiny_form(seed)
        best, problem = brute_force(form), PlanProblem(form)
        if best is None:
            continue
        for op in range(len(problem.names)):
            plain = bound_of(problem, {"kind": "cut", "op": op})
            closed = bound_of(problem, {"kind": "cut", "op": op, "convex": True})
            assert plain <= closed <= best, seed
            larger += closed > plain
    assert larger > 0


def test_the_solver_finds_what_the_checker_computes() -> None:
    """Tests that the largest closed cut over all pieces is the solver's bound, with a witness that holds."""
    found = 0
    for seed in range(100):
        form = tiny_form(seed)
        problem = problem_from_file(msgspec.convert(form, ProblemFile))
        read = PlanProblem(form)
        most = max(bound_of(read, {"kind": "cut", "op": op, "convex": True}) for op in range(len(read.names)))
        pieces = make_pieces(problem)
        bound = convex_cut_bound(pieces, 0)
        assert (0 if bound is None else bound.value) == most, seed
        assert convex_cut_bound(pieces, most) is None
        if bound is not None:
            assert bound.witness is not None
            assert bound_of(read, bound.witness) == bound.value
            found += 1
    assert found > 50


def test_a_closed_stage_by_hand() -> None:
    """Tests ends that want to be in one stage: the plain cut leaves the middle out, the closed one cannot."""
    wires = [Feed(0, (1,), 1), Feed(0, (2,), 50), Feed(1, (2,), 1)]
    problem = _read(problem_of([[3, 3], [40, 40], [3, 3]], wires, objective="throughput"))
    assert bound_of(problem, {"kind": "cut", "op": 0}) == 8
    assert bound_of(problem, {"kind": "cut", "op": 0, "convex": True}) == 46
