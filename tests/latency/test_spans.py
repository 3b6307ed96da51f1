"""The energetic bound, chains, spans and the hub bound against brute force."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import count

import numpy as np
import pytest

from weftline.cluster import Device
from weftline.cost import CostTable
from weftline.graph import Op, Tensor, assemble
from weftline.latency.blocks.chain import Chains, Hub, chain_of, make_hub, pick_hub, reach, through
from weftline.latency.blocks.decomposition import FINE_BOUND, Decomposition
from weftline.latency.blocks.hub_program import block_work
from weftline.latency.blocks.hub_search import HubSearch
from weftline.latency.blocks.spans import Span, distances, least_end, make_part, make_spans, part_windows, refute, walk
from weftline.latency.bounds import OUT_OF_REACH
from weftline.problem import Problem
from weftline.search.lp import Program, minimise
from weftline.simulate import simulate_latency
from weftline.simulate.kernels.latency import run_order, workspace
from weftline.simulate.tables import part_of, tables
from weftline.testing.conformance import optimum
from weftline.testing.generate import random_problem

COUNT = 60


@cache
def _problems() -> list[tuple[Problem, int]]:
    """Parallel problems with an optimum above 0: half with limits, both rules of transfers."""
    found = []
    for seed in range(COUNT):
        problem = random_problem(seed, "latency", max_ops=6, runtime="parallel", limits=bool(seed % 2))
        least = optimum(problem)
        if least:
            found.append((problem, least))
    return found


def test_refutes_only_what_is_impossible() -> None:
    """Tests that a horizon that the optimum meets is never refuted, and that most smaller ones are."""
    tight = 0
    for problem, least in _problems():
        part = make_part(tables(problem), problem.group)
        for horizon in (least, least + 1, least + 3, 2 * least):
            assert not refute(part, horizon), (problem, horizon)
        found = part_windows(part)
        assert found is not None
        low = int(np.where(found.able, found.head + found.tail, OUT_OF_REACH).min(axis=1).max())
        end = least_end(part, low, least + 2, near=0.0)
        assert low <= end <= least
        tight += end == least
    assert tight >= len(_problems()) * 3 // 4


@pytest.mark.parametrize("most", [0, 2, 100])
def test_chain_bound_holds(most: int) -> None:
    """Tests that the bound by any chain, also after all its arcs were worked on, is at most the optimum."""
    for problem, least in _problems()[::2]:
        table = tables(problem)
        chain = Chains(table, reach(table)).pick(most)
        assert 0 <= chain.inside <= 1 + 1e-9
        work = Decomposition.of(table, problem.group, chain)
        assert work.bound() <= least
        for _ in range(6):
            for step in work.next_round(least + 2):
                work.work_on(*step, least + 2, lambda: False, exact_work=True)
            assert work.bound() <= least, problem


def test_segments_add_up() -> None:
    """Tests distances and the path along them on a hand-made chain."""
    lengths = [np.array([[3, 1]]), np.array([[1, 9], [9, 5]]), np.array([[2], [1]])]
    ahead, back = distances(lengths)
    assert [row.tolist() for row in ahead] == [[0], [3, 1], [4, 6], [6]]
    assert [row.tolist() for row in back] == [[6], [3, 6], [2, 1], [0]]
    assert walk(lengths) == [(0, 0), (0, 0), (0, 0)]


def test_open_ends_count_paths() -> None:
    """Tests that ends with too many ops are bounded by paths."""
    for problem, least in _problems()[::3]:
        table = tables(problem)
        before = reach(table)
        for op in range(len(table.time)):
            chain = chain_of(table, before, np.array([op], np.int32), 0)
            spans = make_spans(table, problem.group, chain)
            assert int(distances([span.low for span in spans])[0][-1][0]) <= least


def _skip_problem(seed: int) -> Problem:
    """A hub, a chain after it, and ops beside the chain that read the hub and feed later ops of the chain."""
    chooser = np.random.default_rng(seed)
    ops = [Op(f"op{i}") for i in range(6)]
    reads = {1: [0], 2: [0], 3: [1, 2], 4: [0], 5: [3, 4]}
    tensors = [Tensor(f"t{a}{b}", a, (b,), output=False) for b, makers in reads.items() for a in makers]
    if seed % 4 > 1:  # one tensor for all readers of the hub
        tensors = [Tensor("t0", 0, (1, 2, 4), output=False), *(tensor for tensor in tensors if tensor.producer != 0)]
    tensors.append(Tensor("out", 5, (), output=True))
    graph = assemble("skip", ops, tensors)
    devices = 2 + seed % 2
    transfer = chooser.integers(0, 6, (2, devices, devices))
    transfer[:, range(devices), range(devices)] = 0
    cost = CostTable(
        chooser.integers(1, 7, (6, devices)), transfer, chooser.integers(0, 2, len(graph.tensors)).astype(np.int32)
    )
    base = random_problem(
        0, "latency", max_ops=1, max_devices=1, limits=False, transfers=("per-edge", "per-tensor")[seed % 2]
    )
    kinds = tuple(replace_id(base, d) for d in range(devices))
    rules = base.rules
    return replace(base, graph=graph, devices=kinds, cost=cost, rules=rules, together=(), buses=())


def replace_id(problem: Problem, number: int) -> Device:
    """The problem's device under another name, without a limit."""
    import msgspec

    return msgspec.structs.replace(problem.devices[0], id=f"d{number}", memory=None)


def test_hub_bound_holds() -> None:
    """Tests that the bound with ops beside the chain is at most the optimum, and better than the chain's at times."""
    better = divided = 0
    for seed in range(60):
        problem = _skip_problem(seed)
        problem = problem.with_rules(type(problem.rules)(transfers=problem.rules.transfers))
        least = optimum(problem)
        assert least is not None
        table = tables(problem)
        before = reach(table)
        ops = [0, 1, 3, 5] if seed % 3 else [0, 3, 5]  # without and with ops between those of the chain
        chain = chain_of(table, before, np.array(ops, np.int32), 100)
        found = pick_hub(table, before, chain, 100)
        assert found is None or found[0] in found[1].ops
        hub = make_hub(before, through(table, before, chain, 0, 100), 0)
        assert hub is not None
        work = Decomposition.of(table, problem.group, chain)
        for upper in (least, least + 1, least + 3, 2 * least + 5):
            (alone, count), (raised, _) = (_all_cases(work, hub, upper, raise_arcs=each) for each in (False, True))
            assert raised <= least, (seed, upper)
            assert alone <= raised
            better += upper == least + 1 and alone > work.bound()
            divided += count
    assert better >= 5
    assert divided >= 20


def _all_cases(work: Decomposition, hub: Hub, upper: int, *, raise_arcs: bool) -> tuple[int, int]:
    """The hub bound when nothing is left to divide, and how many cases of cases there were; it never falls."""
    work = Decomposition.of(work.table, np.arange(len(work.table.time), dtype=np.int32), work.chain)

    def raised(step: tuple[int, int, int], held: Mapping[int, int]) -> int:
        while work.effort(*step) < FINE_BOUND:
            work.work_on(*step, upper, lambda: False, exact_work=True, held=held)
        return work.arc(work.spans[step[0]], *step[1:]).low

    cases = HubSearch(work.table, hub, work.spans, work.lengths, raised if raise_arcs else None)
    last = cases.bound(upper)
    assert last == min(upper, work.bound())
    assert cases.is_over(upper) or cases.step(upper, lambda: True) is None
    assert cases.bound(upper) == last
    divided = 0
    while not cases.is_over(upper):
        found = cases.step(upper, lambda: False)
        assert cases.bound(upper) >= last
        last = cases.bound(upper)
        divided += found is not None and len(found.held) > 1
    return last, divided


def _hub_cases(problem: Problem, chain_ops: list[int]) -> tuple[Decomposition, Hub]:
    table = tables(problem)
    before = reach(table)
    chain = chain_of(table, before, np.array(chain_ops, np.int32), 100)
    hub = make_hub(before, chain, 0)
    assert hub is not None
    return Decomposition.of(table, problem.group, chain), hub


def test_a_tensor_that_a_block_and_an_op_beside_it_read_is_sent_once() -> None:
    """Tests a hub that is fast on one device, and everything else on the other: one transfer serves both readers."""
    ops = [Op(f"op{i}") for i in range(5)]
    tensors = [Tensor("t", 0, (1, 3), output=False)]
    tensors += [Tensor(f"t{a}{b}", a, (b,), output=False) for a, b in ((1, 2), (2, 4), (3, 4))]
    graph = assemble("shared", ops, [*tensors, Tensor("out", 4, (), output=True)])
    time = np.where(np.arange(5)[:, None] == 0, [[1, 99]], [[99, 1]])
    transfer = np.array([[[0, 10], [10, 0]]])
    base = random_problem(0, "latency", max_ops=1, max_devices=1, limits=False, transfers="per-tensor")
    devices = tuple(replace_id(base, d) for d in range(2))
    cost = CostTable(time, transfer, np.zeros(5, np.int32))
    problem = replace(base, graph=graph, devices=devices, cost=cost, together=(), buses=())
    problem = problem.with_rules(type(problem.rules)(transfers="per-tensor"))
    assert optimum(problem) == 15
    work, hub = _hub_cases(problem, [0, 2, 4])
    for upper in (15, 16, 18, 35):
        assert _all_cases(work, hub, upper, raise_arcs=True)[0] <= 15


def test_a_stop_in_the_middle_of_a_case_loses_nothing() -> None:
    """Tests stops after any number of questions: the bound holds, and the search ends as if it had not been stopped."""
    resumed = 0
    for seed in (3, 4, 6, 9, 12, 15):
        problem = _skip_problem(seed)
        problem = problem.with_rules(type(problem.rules)(transfers=problem.rules.transfers))
        least = optimum(problem)
        assert least is not None
        work, hub = _hub_cases(problem, [0, 3, 5])
        upper = least + 3
        whole, _ = _all_cases(work, hub, upper, raise_arcs=False)
        for questions in range(0, 60, 4):
            cases = HubSearch(work.table, hub, work.spans, work.lengths)
            asked = count()

            def stop(asked: Iterator[int] = asked, most: int = questions) -> bool:
                return next(asked) >= most

            while not cases.is_over(upper) and not stop():
                cases.step(upper, stop)
            assert cases.bound(upper) <= least
            resumed += not cases.is_over(upper)
            while not cases.is_over(upper):
                cases.step(upper, lambda: False)
            assert cases.bound(upper) == pytest.approx(whole, abs=1)
    assert resumed > 10


def test_a_guess_does_not_change_what_is_proved() -> None:
    """Tests that bounds from any guess, good or bad, are at most the optimum and no worse than the bisection asks."""
    for problem, least in _problems()[::2]:
        part = make_part(tables(problem), problem.group)
        plain = least_end(part, 0, 2 * least, near=0.0)
        for guess in (0, 1, plain - 1, plain, least, 3 * least):
            found = least_end(part, 0, 2 * least, near=0.0, guess=guess, met=True)
            assert found <= least, (problem, guess)
            assert not refute(part, found) or found < least


def test_work_of_a_block_holds_for_every_plan() -> None:
    """Tests the least work of whole problems at some prices against every placement: tangents lie below all of it."""
    checked = 0
    for problem, least in _problems()[::2]:
        table = tables(problem)
        devices, ops = table.time.shape[1], np.arange(len(table.time), dtype=np.int32)
        chain = chain_of(table, reach(table), ops[:1], 100)
        span = make_spans(table, problem.group, chain)[-1]
        inside = span.ops[span.ops != chain.ops[0]]
        slack = 2 * least + 2
        for placement in np.ndindex(*[devices] * len(ops)):
            choice = np.array(placement)
            if np.any(table.time[ops, choice] < 0) or np.any(choice != choice[_first_of_group(problem)]):
                continue
            block = block_work(span, int(choice[chain.ops[0]]), 0, slack)
            value = _length_of(span, choice)
            if block is None or value > slack:
                assert value > slack
                continue
            prices = {0: 1.0, devices - 1: 0.5}
            low = int(span.low[choice[chain.ops[0]], 0])
            work, slope = block.least(prices, low)
            done = sum(prices.get(int(choice[op]), 0.0) * int(table.time[op, choice[op]]) for op in inside)
            assert done >= work + slope * (value - low) - 1e-3, (problem, placement)
            checked += 1
        if checked > 400:
            break
    assert checked > 100


def _first_of_group(problem: Problem) -> np.ndarray:
    _, first, inverse = np.unique(problem.group, return_index=True, return_inverse=True)
    return first[inverse]


def _length_of(span: Span, choice: np.ndarray) -> int:
    """How long the ops of a span take in their own order on these devices."""
    table, ops = span.part.table, np.arange(len(span.ops), dtype=np.int32)
    space = np.zeros(len(ops), np.int64), np.zeros(len(ops), np.int64), np.zeros((len(table.consumer_of), 6), int)
    return int(run_order(table, ops, choice[span.ops].astype(np.int32), *space, True, workspace(table))[0])


def test_part_of_is_the_same_problem_when_nothing_is_left_out() -> None:
    """Tests that the part of all ops has the same latency for the same placement and order."""
    for problem, _ in _problems()[::4]:
        table = tables(problem)
        whole = part_of(table, np.arange(len(table.time), dtype=np.int32))
        placement = np.array([int(np.flatnonzero(row >= 0)[0]) for row in table.time], np.int32)
        order = np.arange(len(table.time), dtype=np.int32)
        space = (
            np.zeros(len(order), np.int64),
            np.zeros(len(order), np.int64),
            np.zeros((len(table.consumer_of), 6), int),
        )
        first = run_order(table, order, placement, *space, True, workspace(table))
        assert run_order(whole, order, placement, *space, True, workspace(whole)) == first
        if first[0] < OUT_OF_REACH:
            assert simulate_latency(problem, placement, order).value == first[0]


def test_minimise_says_what_is_infeasible() -> None:
    """Tests value, solution and prices of a small program, and one that has no solution."""
    one = np.array([1.0, 2.0])
    rows, columns, values = np.array([0, 0]), np.array([0, 1]), np.array([1.0, 1.0])
    free = np.array([0.0, 0.0]), np.array([np.inf, np.inf])
    found = minimise(Program(one, *free, np.array([3.0]), np.array([np.inf]), rows, columns, values))
    assert found.value == pytest.approx(3.0)
    assert found.solution.tolist() == pytest.approx([3.0, 0.0])
    assert found.prices.tolist() == pytest.approx([1.0])
    none = minimise(Program(one, *free, np.array([-np.inf]), np.array([-1.0]), rows, columns, values))
    assert none.value == np.inf
