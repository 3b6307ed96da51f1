"""Tests of the list schedulers: all through the conformance suite, each on examples worked out by hand."""

from dataclasses import replace
from functools import cache

import msgspec
import numpy as np
import pytest

from weftline.errors import InfeasibleError
from weftline.latency import solvers
from weftline.latency.list import schedulers as heft
from weftline.latency.list.decoder import DEAD_END, Decoder, optimistic_costs
from weftline.latency.list.memory_left import possible_devices
from weftline.latency.list.schedulers import bias_unit
from weftline.papers.baechi.m_topo import kahn_order
from weftline.papers.getf import EarliestFirst
from weftline.problem import Problem
from weftline.problem.feasible import least_memory
from weftline.search import Search, Solver
from weftline.simulate.sentinels import NEVER
from weftline.simulate.tables import default_order
from weftline.testing.conformance import check_solver
from weftline.testing.generate import Feed, problem_of, random_problem

NAMES = ("cpeft", "cpeft-64", "etf", "getf", "m-topo", "m-etf", "m-sct", "placeto-greedy")
SOLVERS: dict[str, Solver] = {name: solvers()[name] for name in NAMES}
KINDS: tuple[dict[str, object], ...] = (
    {},
    {"runtime": "parallel", "transfers": "per-tensor"},
    {"runtime": "parallel", "transfers": "per-edge"},
    {"runtime": "sequential"},
    {"memory": "static"},
    {"limits": False},
)


@cache
def _problems() -> list[Problem]:
    """48 in all; every second one has tight memory."""
    found = []
    for number, kind in enumerate(KINDS):
        for seed in range(8):
            problem = random_problem(9000 + 100 * number + seed, "latency", max_ops=5, **kind)  # type: ignore[arg-type]
            found.append(_tight(problem) if seed % 2 else problem)
    return found


def _tight(problem: Problem) -> Problem:
    need = int(least_memory(problem).sum()) + sum(t.bytes for t in problem.graph.tensors if t.producer >= 0) // 2
    share = max(1, need * 5 // (4 * len(problem.devices)))
    return replace(problem, devices=tuple(msgspec.structs.replace(d, memory=share) for d in problem.devices))


def _solve(name: str, problem: Problem, **options: int) -> Search:
    search = Search(problem, solver=name, **options)  # type: ignore[arg-type]
    SOLVERS[name].solve(search)
    return search


def _placement(name: str, problem: Problem) -> list[int]:
    best = _solve(name, problem).best
    assert best is not None
    return list(best.placement.tolist())


def _larger(seed: int, **fixed: object) -> Problem:
    return random_problem(seed, "latency", max_ops=30, max_devices=4, **fixed)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", SOLVERS)
def test_conforms(name: str) -> None:
    """Tests limits, value, reference, bound, proofs, seed and stop rules on 48 problems."""
    for problem in _problems():
        check_solver(SOLVERS[name], problem)


@pytest.mark.parametrize("name", SOLVERS)
def test_same_answer_twice(name: str) -> None:
    """Tests that a seed gives one answer, on problems larger than those of the conformance suite."""
    for seed in range(4):
        problem = _larger(seed, limits=False)
        first, second = (_solve(name, problem, seed=3, work_limit=100) for _ in range(2))
        assert first.best is not None
        assert second.best is not None
        assert first.best.value == second.best.value
        assert first.best.placement.tolist() == second.best.placement.tolist()
        assert first.offered == second.offered


@pytest.mark.parametrize("name", SOLVERS)
def test_nothing_fits(name: str) -> None:
    """Tests that a solver that finds nothing says so, and does not call it a proof."""
    for problem in (
        problem_of([[1], [1]], weights=[2, 2], capacity=[3]),
        problem_of([[1], [1]], [Feed(0, (1,), 0, 50)], capacity=[10]),
        problem_of([[1, -1], [-1, 1]], [Feed(0, (1,), [[0, -1], [-1, 0]])]),
    ):
        with pytest.raises(InfeasibleError) as caught:
            _solve(name, problem)
        assert not caught.value.proved


@pytest.mark.parametrize("name", SOLVERS)
def test_a_missing_link_is_never_chosen(name: str) -> None:
    """Tests that a fast device without a way on is left alone: op1 runs on d1 only, and only d0 reaches it."""
    gone = [[0, 2, 2], [2, 0, 2], [2, -1, 0]]
    problem = problem_of([[9, -1, 1], [-1, 1, -1]], [Feed(0, (1,), gone)])
    assert possible_devices(problem).tolist() == [[True, False, False], [False, True, False]]
    assert _placement(name, problem) == [0, 1]


def test_a_link_to_a_set_that_is_placed() -> None:
    """Tests that an op behind which a `together` set already stands looks at the link to it."""
    # op0 and op2 stand together on d1 (fast there); op1 would be fastest on d0, from which no tensor reaches d1.
    gone = [[0, -1, 0], [1, 0, 1], [1, 1, 0]]
    problem = problem_of([[9, 1, 9], [1, 9, 5], [9, 1, 9]], [Feed(1, (2,), gone)], together=((0, 2),))
    timeline = Decoder(problem).decode(np.array([0, 1, 2], np.int32), lam=0.0)
    assert timeline.placement.tolist() == [1, 2, 1]


def _slow_costs(problem: Problem) -> list[list[int]]:
    """The Optimistic Cost Table by its definition, op by op."""
    possible, group = possible_devices(problem), problem.group
    n, k = problem.cost.time.shape
    table = [[0] * k for _ in range(n)]
    for op in range(n - 1, -1, -1):
        for number, tensor in enumerate(problem.graph.tensors):
            if tensor.producer != op:
                continue
            for reader in tensor.consumers:
                for d in range(k):
                    ways = [
                        int(problem.cost.transfer[problem.cost.transfer_row[number], d, e])
                        + int(problem.cost.time[reader, e])
                        + table[reader][e]
                        for e in range(k)
                        if problem.cost.transfer[problem.cost.transfer_row[number], d, e] >= 0
                        and possible[group[reader], e]
                        and (d == e or group[reader] != group[op])
                    ]
                    table[op][d] = max(table[op][d], min([*ways, DEAD_END]))
    return table


def test_optimistic_costs_against_a_slow_reference() -> None:
    """Tests the table on generated problems with every limit, and on a chain by hand."""
    for seed in range(60):
        problem = _larger(seed)
        assert optimistic_costs(problem).tolist() == _slow_costs(problem), seed
    chain = problem_of([[5, 5], [4, 1], [1, 9]], [Feed(0, (1,), 2), Feed(1, (2,), 3)])
    # op1: op2 on d0 takes 1, from d1 3 + 1. op0: from d0 min(4 + 1, 2 + 1 + 4), from d1 min(2 + 4 + 1, 1 + 4).
    assert optimistic_costs(chain).tolist() == [[5, 5], [1, 4], [0, 0]]


def test_cpeft_sees_what_follows() -> None:
    """Tests an op that HEFT puts where it ends first, and cPEFT where its consumer must be."""
    problem = problem_of([[3, 2], [1, -1]], [Feed(0, (1,), 5)])
    assert Decoder(problem).decode(lam=0.0).placement.tolist() == [1, 0]
    assert Decoder(problem).decode().placement.tolist() == [0, 0]
    assert _placement("cpeft", problem) == [0, 0]


def test_bias_kappa_and_order_of_the_decoder() -> None:
    """Tests each term of the score, and that many decodes agree with single ones."""
    problem = problem_of([[4, 5], [4, 5]])
    decoder = Decoder(problem)
    assert decoder.decode().placement.tolist() == [0, 1]
    assert decoder.decode(np.array([1, 0], np.int32)).placement.tolist() == [1, 0]
    assert decoder.decode(bias=np.array([[2, 0], [0, 0]])).placement.tolist() == [1, 0]
    assert decoder.decode(bias=np.array([[0.4, 0.0], [0, 0]])).placement.tolist() == [0, 1]
    assert decoder.decode(kappa=4.0).placement.tolist() == [0, 0]
    for seed in range(20):
        problem = _larger(seed)
        decoder, rng = Decoder(problem), np.random.default_rng(seed)
        biases = rng.normal(0, 5, (6, *problem.cost.time.shape))
        lams, kappas = rng.uniform(0, 2, 6), rng.uniform(-1, 1, 6)
        placements, values = decoder.decode_many(biases, lams, kappas)
        for row in range(6):
            try:
                alone = decoder.decode(None, biases[row], lams[row], kappas[row])
            except InfeasibleError:
                assert values[row] == NEVER
                continue
            assert alone.placement.tolist() == placements[row].tolist()
            assert alone.value == values[row]


def test_touching_intervals_keep_their_gaps() -> None:
    """Tests on larger problems that no two ops of a planned schedule overlap on a device."""
    for seed in range(100):
        problem = _larger(seed, limits=False)
        planned = Decoder(problem).decode(lam=0.0)
        for device in range(len(problem.devices)):
            mine = np.flatnonzero((planned.placement == device) & (planned.end > planned.start))
            mine = mine[np.argsort(planned.start[mine])]
            assert np.all(planned.end[mine][:-1] <= planned.start[mine][1:]), seed


def test_random_decodes_are_never_worse_than_cpeft() -> None:
    """Tests 64 decodes against one, the unit of noise by hand, and that noise helps somewhere."""
    assert bias_unit(problem_of([[2, 4, -1], [1, 1, 1]])).tolist() == [0.25 * (3 + 1.5), 0.25 * (1 + 1.5)]
    better = 0
    for seed in range(20):
        problem = _larger(seed, limits=False)
        one, many = _solve("cpeft", problem).best, _solve("cpeft-64", problem).best
        assert one is not None
        assert many is not None
        assert many.value <= one.value
        better += many.value < one.value
    assert better > 3


def test_etf_takes_the_earliest_start() -> None:
    """Tests that a free slow device is taken at once, where HEFT waits for the fast one."""
    problem = problem_of([[2, 9], [2, 9]])
    assert sorted(_placement("etf", problem)) == [0, 1]
    assert Decoder(problem).decode(lam=0.0).placement.tolist() == [0, 0]
    # Equal starts: the op of higher rank first (op1), each on the device where it ends first.
    assert _placement("etf", problem_of([[3, 9], [8, 5], [1, -1]], [Feed(1, (2,), 1)])) == [0, 1, 0]


def _slow_etf(problem: Problem) -> list[tuple[int, int, int]]:
    """(op, device, start) in the order of choice: every ready op on every device, with ports and no buses."""
    time, cost = problem.cost.time, problem.cost
    position = {int(op): i for i, op in enumerate(default_order(problem))}
    inputs: list[list[int]] = [[] for _ in range(len(time))]
    for number, tensor in enumerate(problem.graph.tensors):
        for op in tensor.consumers if tensor.producer >= 0 else ():
            inputs[op].append(number)
    k = len(problem.devices)
    free, send, receive = [0] * k, [0] * k, [0] * k
    arrived: dict[tuple[int, int], int] = {}
    where: dict[int, tuple[int, int]] = {}

    def book(op: int, d: int, out: list[int], into: list[int]) -> tuple[int, dict[tuple[int, int], int]]:
        ready, came = 0, {}
        for number in inputs[op]:
            origin, done = where[problem.graph.tensors[number].producer]
            length = int(cost.transfer[cost.transfer_row[number], origin, d])
            if origin != d and (number, d) in arrived:
                done = arrived[number, d]
            elif origin != d and length:
                done = max(done, out[origin], into[d]) + length
                out[origin] = into[d] = done
                if problem.rules.transfers == "per-tensor":
                    came[number, d] = done
            ready = max(ready, done)
        return (ready if time[op, d] == 0 else max(ready, free[d])), came

    chosen = []
    while len(where) < len(time):
        ready = [
            op
            for op in range(len(time))
            if op not in where and all(problem.graph.tensors[i].producer in where for i in inputs[op])
        ]
        options = []
        for op in ready:
            starts = [book(op, d, send[:], receive[:])[0] for d in range(k)]
            start, _, d = min((starts[d], starts[d] + int(time[op, d]), d) for d in range(k))
            options.append((start, position[op], op, d))
        start, _, op, d = min(options)
        _, came = book(op, d, send, receive)
        arrived.update(came)
        where[op] = d, start + int(time[op, d])
        free[d] = max(free[d], where[op][1]) if time[op, d] else free[d]
        chosen.append((op, d, start))
    return chosen


def test_etf_against_a_slow_reference() -> None:
    """Tests that the ops it does not look at again change nothing: the same devices and starts as by trying all."""
    for seed in range(60):
        problem = _larger(seed, limits=False)
        plan = EarliestFirst(problem, "ETF").schedule(Search(problem), problem.capacity)
        assert plan is not None
        timeline = plan.timeline
        assert timeline is not None
        for op, device, start in _slow_etf(problem):
            assert (timeline.placement[op], timeline.start[op]) == (device, start), seed


def test_kahn_order_is_a_queue() -> None:
    """Tests that ops come in the order in which they became ready, not by number."""
    wires = [Feed(0, (3,), 0), Feed(1, (2,), 0), Feed(3, (4,), 0), Feed(2, (5,), 0)]
    assert kahn_order(problem_of([[1]] * 6, wires)).tolist() == [0, 1, 3, 2, 4, 5]


def test_placeto_visits_every_op_once() -> None:
    """Tests the start on the best single device, single moves that help, and a move of two that it cannot see."""
    # All on d0 takes 8; op0 alone to d1 gives 4; then op1 stays.
    assert _placement("placeto-greedy", problem_of([[4, 4], [4, 4]])) == [1, 0]
    # Moving only one end of a costly wire is worse, moving both would be better: it stays on d0.
    wires = [Feed(0, (1,), 50)]
    assert _placement("placeto-greedy", problem_of([[5, 5], [5, 5], [9, 9]], wires)) == [0, 0, 1]
    assert _placement("placeto-greedy", problem_of([[5, 5], [5, 5], [9, 99]], wires)) == [0, 0, 0]
    # A `together` set moves as one.
    assert _placement("placeto-greedy", problem_of([[5, 5], [5, 5], [9, 99]], wires, together=((0, 1),))) == [1, 1, 0]


def test_placeto_starts_where_no_single_device_fits() -> None:
    """Tests a start from HEFT."""
    problem = problem_of([[1, 2], [1, 2]], weights=[2, 2], capacity=[3, 3])
    assert sorted(_placement("placeto-greedy", problem)) == [0, 1]


def test_heft_is_the_decoder_without_terms() -> None:
    """Tests that HEFT and the decoder with lambda 0 agree."""
    for seed in range(30):
        problem = _larger(seed, limits=False)
        assert heft.heft(Search(problem)).value == Decoder(problem).decode(lam=0.0).value
