"""Tests of pieces on examples worked out by hand."""

from weftline.pipeline.pieces import make_pieces
from weftline.problem import Problem
from weftline.testing.generate import Feed, problem_of


def _chain(time: list[list[int]], length: int = 0, **options: object) -> Problem:
    wires = [Feed(i, (i + 1,), length) for i in range(len(time) - 1)]
    return problem_of(time, wires, objective="throughput", **options)  # type: ignore[arg-type]


def test_pieces_join_sets_and_the_cycles_they_make() -> None:
    """Tests that ops between two ops of a `together` set belong to its piece."""
    pieces = make_pieces(_chain([[1, 2]] * 5, together=((1, 3),), weights=[1, 2, 4, 8, 16]))
    assert pieces.of.tolist() == [0, 1, 1, 1, 2]
    assert pieces.size.tolist() == [1, 3, 1]
    assert pieces.time.tolist() == [[1, 2], [3, 6], [1, 2]]
    assert pieces.weight.tolist() == [1, 14, 16]


def test_pieces_of_a_training_graph_ignore_gradients() -> None:
    """Tests that a backward op joined to its forward op makes no cycle."""
    pieces = make_pieces(_chain([[1, 1]] * 4, backward=[2, 3], together=((0, 3), (1, 2))))
    assert pieces.of.tolist() == [0, 1, 1, 0]


def test_pieces_keep_the_devices_that_can_run_all() -> None:
    """Tests that one op without a device keeps its whole piece away from it."""
    pieces = make_pieces(_chain([[1, 1], [1, -1], [1, 1]], together=((0, 1),)))
    assert (pieces.time >= 0).tolist() == [[True, False], [True, True]]


def test_pieces_are_in_topological_order() -> None:
    """Tests that a set whose first op comes early but which depends on a later op is placed behind it."""
    wires = [Feed(1, (2,), 0)]
    pieces = make_pieces(problem_of([[1]] * 3, wires, objective="throughput", together=((0, 2),)))
    assert pieces.of.tolist() == [1, 0, 1]
