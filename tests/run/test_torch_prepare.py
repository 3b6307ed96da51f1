"""Tests of what worker processes are told."""

from __future__ import annotations

import numpy as np
import pytest

from weftline.errors import InputError
from weftline.problem.blocks import Block, Blocks, Lane
from weftline.run.train.run import make_job
from weftline.schedule.make_blocks import make_shape
from weftline.simulate import Timetable, simulate_schedule


def one_by_one(blocks: Blocks) -> Timetable:
    order = blocks.table.order.tolist()
    rows = [[b for b in order if d in blocks.blocks[b].devices] for d in range(len(blocks.devices))]
    return simulate_schedule(blocks, 1, [np.array(row, np.int64) for row in rows])


def job(blocks: Blocks, engine: str = "weftline"):  # type: ignore[no-untyped-def]
    return make_job(
        one_by_one(blocks), engine=engine, model="m:f", seeds=[0], steps=1, rate=0.1, check=True, time_limit=10
    )


def test_what_edges_carry() -> None:
    """Tests that activations go forward, gradients back, and that a stage's own blocks exchange nothing."""
    made = job(make_shape("linear", 2))
    names = {(made.blocks[e.source].kind, made.blocks[e.target].kind): e.what for e in made.edges}
    assert names == {("F", "F"): "activation", ("B", "B"): "gradient", ("F", "B"): "token", ("B", "W"): "token"}
    assert all(work.split for work in made.blocks)


def test_links_are_no_ranks() -> None:
    """Tests that devices after a link move up, in blocks and in actions."""
    lanes = [Lane("a"), Lane("wire", link=True), Lane("b")]
    parts = [Block("F", 1, (0,), (0,), stage=0), Block("C", 1, (1,), (0,)), Block("F", 1, (2,), (0,), stage=1)]
    made = job(Blocks.of("t", lanes, parts, [(0, 1), (1, 2)]))
    assert made.ranks == 2
    assert [work.ranks for work in made.blocks] == [(0,), (), (1,)]
    assert made.actions == ((("compute", 0, 0), ("send", 0, 0, 2, 1)), (("receive", 0, 0, 2, 0), ("compute", 0, 2)))
    assert made.layout.trained == (False, False)


def network(edges: list[tuple[int, int]], kinds: str, stages: list[int], devices: list[int]) -> Blocks:
    lanes = [Lane(str(d)) for d in range(max(devices) + 1)]
    rows = zip(kinds, stages, devices, strict=True)
    return Blocks.of("t", lanes, [Block(k, 1, (d,), (0,), stage=s) for k, s, d in rows], edges)


@pytest.mark.parametrize(
    ("edges", "kinds", "stages", "devices", "why"),
    [
        ([(0, 1)], "FF", [0, 0], [0, 1], "two F blocks compute stage 0"),
        ([(0, 1)], "FB", [0, 0], [0, 1], "on other devices than its gradients"),
        ([(0, 1), (1, 2), (0, 3)], "FFBB", [0, 1, 1, 0], [0, 1, 1, 0], "gets no gradient from stage 1"),
        ([(0, 1), (0, 2)], "FFB", [0, 1, 0], [0, 1, 0], "gets no gradient from stage 1"),
        ([(0, 1)], "FW", [0, 0], [0, 0], "without a backward block"),
        ([(0, 1)], "FB", [0, 3], [0, 0], "no forward block computes stage 3"),
        ([(0, 1)], "FB", [0, -1], [0, 0], "this one does not"),
        ([(0, 1), (0, 2), (1, 3), (2, 3)], "FFFC", [0, 1, 2, -1], [0, 1, 0, 1], "has one input"),
    ],
)
def test_what_is_no_network_is_refused(
    edges: list[tuple[int, int]], kinds: str, stages: list[int], devices: list[int], why: str
) -> None:
    """Tests the sentences for blocks that no engine could train."""
    edges = [*edges, (3, 4)] if kinds == "FFFC" else edges
    if kinds == "FFFC":
        kinds, stages, devices = kinds + "F", [*stages, 3], [*devices, 1]
    with pytest.raises(InputError, match=why):
        job(network(edges, kinds, stages, devices))
