"""Tests of the bounds from three superblocks: valid for every number of stages before, exact for three stages."""

from weftline import pipeline as partition
from weftline.pipeline.bounds import bottleneck, guess
from weftline.pipeline.pieces import make_pieces
from weftline.problem import Problem
from weftline.search import Search
from weftline.testing.conformance import optimum
from weftline.testing.generate import Feed, problem_of, random_problem


def _alike(seed: int, devices: int) -> Problem:
    """A generated graph on equal devices."""
    drawn = random_problem(seed, "throughput", max_ops=7, max_devices=1, limits=False, communication="added")
    wires = [Feed(t.producer, t.consumers, t.bytes) for t in drawn.graph.tensors if t.producer >= 0 and t.consumers]
    return problem_of(drawn.cost.time.repeat(devices, axis=1).tolist(), wires, objective="throughput")


def _bounds(problem: Problem) -> tuple[int, list[int]]:
    search = Search(problem, work_limit=10**6)
    partition.solvers()["greedy"].solve(search)
    pieces, stages = make_pieces(problem), len(problem.devices)
    return bottleneck(search, pieces, seconds=None), [guess(search, pieces, b, seconds=None) for b in range(stages)]


def test_never_above_the_optimum() -> None:
    """Tests bottleneck and every guess on generated graphs of 2 to 4 equal devices; three stages are exact."""
    for seed in range(40):
        stages = 2 + seed % 3
        problem = _alike(seed, stages)
        best = optimum(problem)
        assert best is not None
        share, guesses = _bounds(problem)
        assert share <= best
        assert max(guesses) <= best
        if stages <= 3:
            assert max(guesses) == best


def test_by_hand() -> None:
    """Tests a chain of three ops on two devices: half of the work is in the expensive op or in two cheap ones."""
    wires = [Feed(0, (1,), 2), Feed(1, (2,), 2)]
    share, guesses = _bounds(problem_of([[4, 4], [4, 4], [4, 4]], wires, objective="throughput"))
    assert share == 10  # two ops and one border; a border on both sides of one op is less work than half
    assert max(guesses) == 10
