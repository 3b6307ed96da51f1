"""Relays: transfers with a place of their own in an order."""

from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest

from weftline.errors import InfeasibleError
from weftline.latency.anneal.annealer import PlacementAnnealer
from weftline.latency.blocks.chain import Chains, reach
from weftline.latency.blocks.decomposition import BLOCK_PLAN, Decomposition
from weftline.latency.blocks.relays import join, with_relays
from weftline.problem import Problem
from weftline.problem.model import NO_LIMIT
from weftline.simulate import Timeline, replay, simulate_latency
from weftline.simulate.tables import edge_readers, tables
from weftline.testing.conformance import brute_force_latency
from weftline.testing.generate import Feed, SeededChooser, make_order, make_placement, problem_of, random_problem

SEEDS = range(40)
KINDS = ("per-tensor", "per-edge")
NEVER_HERE = 1_000


def _problem(seed: int, transfers: str) -> Problem:
    return random_problem(seed, "latency", max_ops=8, limits=seed % 2 == 0, runtime="parallel", transfers=transfers)


def _skip(transfers: str) -> Problem:
    """x and two slow ops on d0, what joins them and what adds x on d1; only the order of the transfers is open."""
    here, there = [1, NEVER_HERE], [NEVER_HERE, 1]
    wires = [Feed(0, (1, 2)), Feed(0, (4,), 6), Feed(1, (3,), 2), Feed(2, (3,), 2), Feed(3, (4,))]
    return problem_of([here, [4, NEVER_HERE], [4, NEVER_HERE], there, there], wires, transfers=transfers)


def _plans(transfers: str) -> Iterator[tuple[Problem, Timeline]]:
    """Problems with any placement and order that their links allow."""
    for seed in SEEDS:
        problem, dice = _problem(seed, transfers), SeededChooser(seed)
        with suppress(InfeasibleError):
            yield problem, simulate_latency(problem, make_placement(dice, problem), make_order(dice, problem))


@pytest.mark.parametrize("transfers", KINDS)
@pytest.mark.parametrize("every", [False, True])
def test_what_relays_are(transfers: str, every: bool) -> None:
    """Tests that an edge goes through a relay or is as it was, that relays cost nothing, and that ops stay in order."""
    made = 0
    for seed in SEEDS:
        problem = _problem(seed, transfers)
        table = tables(problem)
        relayed = with_relays(table, problem.group, every=every)
        new, real = relayed.table, ~np.isin(np.arange(len(relayed.op)), relayed.relay)
        made += len(relayed.relay)
        assert np.array_equal(relayed.op[relayed.place], np.arange(len(table.time)))
        assert np.array_equal(np.flatnonzero(real), relayed.place)
        assert np.array_equal(new.time[real], table.time)
        assert (new.time[relayed.relay] <= 0).all()
        assert np.array_equal(new.time[relayed.relay] < 0, table.time[relayed.op[relayed.relay]] < 0)
        assert np.array_equal(relayed.group, problem.group[relayed.op])
        reader, maker = edge_readers(new), new.edge_maker.astype(np.int64)
        assert (maker < reader).all()
        assert np.array_equal(new.producer[new.edge_tensor], maker)
        for tensor in range(len(new.producer)):  # both directions say the same
            users = new.consumer_of[new.consumer_ptr[tensor] : new.consumer_ptr[tensor + 1]]
            assert sorted(users.tolist()) == sorted(reader[new.edge_tensor == tensor].tolist())
        direct = real[maker] & real[reader]
        into = direct | ~real[reader]  # the edges that there were
        read = np.stack([relayed.op[maker], relayed.op[reader], new.edge_tensor])[:, into]
        old = np.stack([table.edge_maker, edge_readers(table), table.edge_tensor])
        assert sorted(zip(*read.tolist(), strict=True)) == sorted(zip(*old.tolist(), strict=True))
        last = ~into  # from a relay to its reader
        assert np.array_equal(relayed.op[maker[last]], relayed.op[reader[last]])
        assert np.array_equal(np.sort(maker[last]), relayed.relay)
        assert np.array_equal(new.transfer_row[: len(table.producer)], table.transfer_row)
        assert new.static_bytes.sum() == table.static_bytes.sum()
        assert np.array_equal(new.producer[new.output_of], np.repeat(np.arange(len(real)), np.diff(new.output_ptr)))
    assert made > len(SEEDS)


@pytest.mark.parametrize("transfers", KINDS)
def test_plans_come_back_as_they_were(transfers: str) -> None:
    """Tests that the order of a plan, with a relay for every transfer, gives it again or something earlier."""
    compared = 0
    for problem, plan in _plans(transfers):
        relayed = with_relays(tables(problem), problem.group, every=True)
        again = relayed.timeline(plan.placement[relayed.op], relayed.order(plan))
        assert again is not None
        assert (again.end <= plan.end).all()
        assert replay(problem, again.placement, again.actions(problem.graph.arrays.producer)).value <= again.value
        assert np.array_equal(again.placement, plan.placement)
        compared += len(plan.transfers) > 1
    assert compared >= len(SEEDS) // 4


@pytest.mark.parametrize("transfers", KINDS)
@pytest.mark.parametrize("every", [False, True])
def test_timelines_can_be_replayed(transfers: str, every: bool) -> None:
    """Tests that the simulator, given the actions of what an order with relays gives, finds the same or less."""
    for problem, plan in _plans(transfers):
        relayed = with_relays(tables(problem), problem.group, every=every)
        found = relayed.timeline(plan.placement[relayed.op], np.arange(len(relayed.op), dtype=np.int32))
        assert found is not None
        result = replay(problem, found.placement, found.actions(problem.graph.arrays.producer))
        assert result.value <= found.value
        assert (result.start <= found.start).all()


def test_a_missing_link_is_no_timeline() -> None:
    """Tests that there is nothing where a transfer has no link."""
    problem = problem_of([[1, 1], [1, 1], [1, 1]], [Feed(0, (2,), [[0, -1], [3, 0]]), Feed(1, (2,), 2)])
    relayed = with_relays(tables(problem), problem.group)
    order = np.arange(len(relayed.op), dtype=np.int32)
    there, back = np.array([0, 0, 1], np.int32), np.array([1, 1, 0], np.int32)
    assert relayed.timeline(there[relayed.op], order) is None
    assert relayed.timeline(back[relayed.op], order) is not None


@pytest.mark.parametrize("transfers", KINDS)
def test_an_early_input_is_sent_early(transfers: str) -> None:
    """Tests a case by hand: 18 in every order of ops; 13, the optimum, where transfers have places of their own."""
    problem = _skip(transfers)
    placement = np.array([0, 0, 0, 1, 1], np.int32)
    orders = ([0, 1, 2, 3, 4], [0, 2, 1, 3, 4])
    assert {simulate_latency(problem, placement, np.array(order, np.int32)).value for order in orders} == {18}
    assert brute_force_latency(problem) == 13
    relayed = with_relays(tables(problem), problem.group)
    annealer = PlacementAnnealer(
        relayed.table,
        capacity=np.full(2, NO_LIMIT, np.int64),
        group=relayed.group,
        start=[(placement[relayed.op], None)],
    )
    annealer.run(2_000, np.zeros(1, np.int64))
    assert annealer.best is not None
    found = relayed.timeline(*annealer.best[:2])
    assert found is not None
    assert found.value == annealer.value == 13
    assert replay(problem, found.placement, found.actions(problem.graph.arrays.producer)).value == 13


@pytest.mark.parametrize("transfers", KINDS)
def test_blocks_are_planned_with_them(transfers: str) -> None:
    """Tests that the annealing of a block finds what no order of its ops alone gives."""
    problem = _skip(transfers)
    table = tables(problem)
    work = Decomposition.of(table, problem.group, Chains(table, reach(table)).pick(60))
    assert work.complete
    for b, span in enumerate(work.spans):
        for k in range(len(span.low)):
            for j in range(span.low.shape[1]):
                while work.effort(b, k, j) < BLOCK_PLAN:
                    work.work_on(b, k, j, 10**9, lambda: False, exact_work=True)
    known = work.known_path()
    assert known is not None
    assert known[1] == 13
    for complete in (True, False):  # with the actions of blocks as they are, and as if something stood beside them
        work.complete = complete
        joined = join(work, known[0], np.zeros(len(table.time), np.int32))
        assert joined is not None
        assert replay(problem, *joined).value == 13


def test_simple_plans_of_blocks_keep_sets_together() -> None:
    """Tests that no arc has a plan that tears a set, which would hide plans that can be used."""
    arcs = 0
    for seed in range(150):
        problem = random_problem(seed, "latency", max_ops=8, runtime="parallel", memory="static")
        if not problem.together or len(problem.devices) < 2:
            continue
        table = tables(problem)
        work = Decomposition.of(table, problem.group, Chains(table, reach(table)).pick(60))
        for b, span in enumerate(work.spans):
            for k, j in np.ndindex(*span.low.shape):
                work.work_on(b, k, j, 10**9, lambda: False, exact_work=True)
                plan = work.arc(span, k, j).plan
                if plan is not None:
                    group = problem.group[span.ops]
                    assert all(len(set(plan.placement[group == each])) == 1 for each in group)
                    arcs += len(set(group)) < len(group)
    assert arcs >= 20
