"""Tests that checkers of pipelines are as strong as their theorems and stop at every limit: what fuzzing cannot see."""

from __future__ import annotations

import pytest
from tests.certify.tiny_pipelines import Json, brute_force, tiny_form

from weftline.certify import Refusal, allowance, bound_of
from weftline.certify.allowance import Allowance
from weftline.certify.bound_cuts import CutGraph
from weftline.certify.bound_pipeline import MOST_BYTES, chain_exists, list_ideals
from weftline.certify.bound_unequal import States, UnequalGraph
from weftline.certify.piece_graph import PieceGraph, contract, read_pieces
from weftline.certify.problem import PlanProblem


def _form(times: list[list[int]], tensors: list[tuple[int, list[int], int]], *, stages: int = 0) -> Json:
    """A tiny problem by hand: times per op and device, (maker, readers, transfer)."""
    form, k = tiny_form(0), len(times[0])
    form["rules"]["stages"] = stages
    form["graph"]["ops"] = [{"name": f"op{i}", "weight_bytes": 1} for i in range(len(times))]
    form["graph"]["tensors"] = [{"name": f"t{i}", "producer": a, "consumers": b} for i, (a, b, _) in enumerate(tensors)]
    form["devices"] = [{"id": f"d{d}", "kind": "gpu", "capacity": None} for d in range(k)]
    form |= {"time_rows": times, "time_row": list(range(len(times))), "together": []}
    form["transfer_rows"] = [[0 if a == b else cost for a in range(k) for b in range(k)] for _, _, cost in tensors]
    return {**form, "transfer_row": list(range(len(tensors)))}


def _states(form: Json, target: int) -> States:
    graph = UnequalGraph(PlanProblem(form), memory=False)
    assert graph.contract(target)
    ideals = list_ideals(graph, Allowance(), separate=not graph.flat)
    return States(graph, ideals, [MOST_BYTES] * graph.k, target - 1, Allowance())


def test_states_of_two_devices_are_exact() -> None:
    """Tests that without looking at chains two devices are refuted up to the optimum, and that three stay below it."""
    exact = 0
    for seed in range(300):
        form = tiny_form(seed, equal=False, most_ops=6)
        best, problem = brute_force(form), PlanProblem(form)
        if best is None or best == 0 or not all(problem.forward):
            continue
        for target in (best, best + 1):
            graph = UnequalGraph(problem, memory=False)
            reached = graph.contract(target) and _states(form, target).reach_all(problem.stage_limit)
            assert reached or target <= best, seed
            if len(form["devices"]) == 2:
                assert reached == (target > best), seed
                exact += 1
    assert exact > 40


def test_what_is_left_is_priced() -> None:
    """Tests the prices of four chained ops on three devices: after the first, the two others cannot do the rest."""
    chain = [(i, [i + 1], 1) for i in range(3)]
    states = _states(_form([[20, 20, 20]] * 4, chain), 30)
    rest = states.priced_rest(0b110, [1, 2])
    assert [rest[i] // rest[-2] for i in range(5)] == [4, 3, 2, 1, 0]
    assert states.last_allowed(0b001, 3) == [False, False, True, True, True]
    assert states.last_allowed(0b011, 3) == [False, False, False, True, True]
    assert states.last_allowed(0b011, 2) == [False, False, False, False, True]
    tight = _form([[20, 20, 20]] * 4, chain)
    assert _states(tight, 41).last_allowed(0b011, 3) == [False, False, False, True, True]  # 40 and the tensor are 41
    assert _states(tight, 42).last_allowed(0b011, 3) == [False, False, True, True, True]
    assert _states(tight, 31).last_allowed(0b001, 3) == [False, False, True, True, True]  # 60 and the tensor are 61
    assert _states(tight, 32).last_allowed(0b001, 3) == [False, True, True, True, True]


def test_links_that_are_alike() -> None:
    """Tests what counts as flat, and that only then pieces move, to where they can run."""
    chain = [(0, [1], 9), (1, [2], 1)]
    form = _form([[1, 1, 1], [9, 9, 9], [5, 5, 5]], chain)
    graph = UnequalGraph(PlanProblem(form), memory=False)
    assert graph.flat
    assert graph.contract(20)
    assert sorted(graph.work) == [0, 2]
    form["transfer_rows"][1][1] = 2
    other = UnequalGraph(PlanProblem(form), memory=False)
    assert not other.flat
    assert other.contract(20)
    assert sorted(other.work) == [0, 1, 2]


def test_a_piece_moves_with_the_largest_time_that_it_has() -> None:
    """Tests that a device on which a piece cannot run does not count as its time, and forbids some moves."""
    chain = [(0, [1], 9), (1, [2], 1)]
    both = _form([[1, 3, -1], [9, 9, -1], [5, 5, 5]], chain)
    graph = UnequalGraph(PlanProblem(both), memory=False)
    assert graph.moved_work(0) == 3
    assert graph.contract(20)
    assert sorted(graph.work) == [0, 2]
    lone = UnequalGraph(PlanProblem(_form([[1, 3, -1], [9, 9, 9], [5, 5, 5]], chain)), memory=False)
    assert lone.contract(20)
    assert sorted(lone.work) == [0, 1, 2]


def test_a_budget_counts_both_ends_of_a_tensor() -> None:
    """Tests C2 by hand: 20 of work and twice 4 are more than two stages of 13, and no more than two of 14."""
    form = _form([[5, 5], [5, 5], [10, 10]], [(0, [1], 4)])
    for target, left in ((14, [0, 2]), (15, [0, 1, 2])):
        graph = PieceGraph()
        read_pieces(PlanProblem(form), graph)
        assert contract(graph, 2, target)
        assert sorted(graph.work) == left


def test_a_piece_that_reads_from_elsewhere_too_does_not_move() -> None:
    """Tests R2 in a training graph: a backward op makes the dear tensor, and stays where it is."""
    form = _form([[20, 20], [20, 20], [3, 3]], [(0, [2], 1), (1, [2], 9)])
    form["graph"]["ops"][1]["backward"] = True
    graph = PieceGraph()
    read_pieces(PlanProblem(form), graph)
    assert contract(graph, 2, 100)
    assert sorted(graph.work) == [0, 1, 2]


@pytest.mark.parametrize("kind", ["pipeline", "unequal", "cut-trees", "cut"])
def test_other_questions_are_refused(kind: str) -> None:
    """Tests that latency, overlapped communication and hosts have no witness of pipelines."""
    tree = {"1": [32]} if kind == "cut-trees" else None
    witness = {"kind": kind, "target": 1, "trees": tree, "op": 0, "convex": True}
    changes: list[Json] = [{"objective": "latency"}, {"communication": "overlapped"}]
    for change in changes:
        form = _form([[5, 5], [5, 5]], [(0, [1], 4)])
        form["rules"] = {**form["rules"], **change}
        with pytest.raises(Refusal) as caught:
            bound_of(PlanProblem(form), witness)
        assert caught.value.code == "witness"
    form = _form([[5, 5], [5, 5]], [(0, [1], 4)])
    form["devices"][1]["host"] = True
    with pytest.raises(Refusal, match="host"):
        bound_of(PlanProblem(form), witness)


@pytest.mark.parametrize(("price", "code"), [(-1, "negative"), (65, "range"), (0, "witness"), (64, "witness")])
def test_prices_of_leaves_have_two_ends(price: int, code: str) -> None:
    """Tests that a price is from 0 to 64, and that the least cut for those two shows nothing."""
    form = _form([[6, 6], [6, 6], [6, 6]], [(0, [1], 1), (1, [2], 1)])
    with pytest.raises(Refusal) as caught:
        bound_of(PlanProblem(form), {"kind": "cut-trees", "target": 13, "trees": {"1": [price]}})
    assert caught.value.code == code


@pytest.mark.parametrize("kind", ["ideals", "pairs", "nodes", "flows", "steps"])
def test_every_limit_stops_the_checker(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that a witness which would cost more than a limit is refused as too large."""
    tensors = [(0, [1], 3), (0, [2], 4), (1, [3], 3), (2, [3], 5), (3, [4], 2), (3, [5], 2)]
    equal = _form([[7, 7], [5, 5], [9, 9], [4, 4], [8, 8], [6, 6]], tensors)
    uneven = _form([[7, 9, 9], [5, 9, 6], [9, 8, 7], [4, 4, 6], [8, 6, 5], [6, 5, 9]], tensors)
    uneven["transfer_rows"] = [[x + (i == 1) for i, x in enumerate(row)] for row in uneven["transfer_rows"]]
    witness: Json = {"kind": "cut-trees", "target": 30, "trees": {"1": ["v", 3, [32], [32]]}}
    tried = {
        "ideals": (equal, {"kind": "pipeline", "target": 30}),
        "pairs": (uneven, {"kind": "unequal", "target": 25}),
        "nodes": (equal, witness),
        "flows": (equal, witness),
        "steps": (uneven, {"kind": "unequal", "target": 45}),
    }
    form, asked = tried[kind]
    monkeypatch.setitem(allowance.LIMITS, kind, 0)
    with pytest.raises(Refusal) as caught:
        bound_of(PlanProblem(form), asked)
    assert caught.value.code == "witness-size"


def test_time_is_a_limit() -> None:
    """Tests that a clock that has run out refuses after so many spendings, or when it is looked at."""
    late = Allowance(-1.0)
    for _ in range(1_999):
        late.spend("pairs")
    with pytest.raises(Refusal, match="too long"):
        late.spend("pairs")
    with pytest.raises(Refusal, match="too long"):
        Allowance(-1.0).look()


def test_pairs_of_all_scans_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that looks at sorted ideals and at those that share a tensor are both spent, on failure and on success."""
    form = _form([[3, 3, 3, 3]] * 6, [(i, [i + 1], 2) for i in range(5)])
    graph = PieceGraph()
    read_pieces(PlanProblem(form), graph)
    ideals = list_ideals(graph, Allowance())
    spent: list[int] = []
    monkeypatch.setattr(Allowance, "spend", lambda self, kind, count=1: spent.append(count))
    assert not chain_exists(ideals, 3, 9, MOST_BYTES, Allowance())
    assert spent == [2, 2, 1, 1, 1]
    spent.clear()
    assert chain_exists(ideals, 3, 10, MOST_BYTES, Allowance())
    assert min(spent) == 1
    assert max(spent) == 2
    assert len(spent) == 7


def test_leaves_and_cuts_by_hand() -> None:
    """Tests a tree whose last ideals are named one by one, and the least cut of a chain at three prices."""
    form = _form([[6, 6], [6, 6], [6, 6]], [(0, [1], 1), (1, [2], 1)])
    problem = PlanProblem(form)
    graph = PieceGraph()
    read_pieces(problem, graph)
    cuts = CutGraph.of(graph)
    assert cuts.measure(0b011) == (12, 1)
    assert cuts.least_cut(0, 0, 0, 10**9) == (0, 0b111)
    assert cuts.least_cut(64, 0, 0, 10**9) == (0, 0)
    assert cuts.least_cut(32, 0b001, 0b100, 10**9)[0] == 32 * 18 + 64
    everything = ["v", 0, ["v", 1, ["v", 2, 0, 0], 0], 0]
    wrong = ["v", 0, ["v", 1, ["v", 2, 0, 5], 0], 0]
    short = ["v", 0, ["v", 1, 0, 0], 0]
    assert bound_of(problem, {"kind": "cut-trees", "target": 13, "trees": {"1": everything}}) == 13
    for trees, target in (({"1": wrong}, 13), ({"1": short}, 13), ({"1": everything}, 14), ({"2": everything}, 13)):
        with pytest.raises(Refusal):
            bound_of(problem, {"kind": "cut-trees", "target": target, "trees": trees})
