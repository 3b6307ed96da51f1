"""Tests of blocks made from a throughput plan."""

from __future__ import annotations

import numpy as np
import pytest

from weftline.errors import InfeasibleError, UsageError
from weftline.problem import Problem
from weftline.schedule.pipeline_blocks import pipeline_blocks
from weftline.simulate import Loads, simulate_throughput
from weftline.testing.generate import Feed, problem_of

THREE = problem_of(
    [[4, 4], [3, 3], [5, 5]], [Feed(0, (1,), 7), Feed(1, (2,), 9)], objective="throughput", communication="added"
)


def _loads(problem: Problem, placement: list[int]) -> Loads:
    return simulate_throughput(problem, np.array(placement, np.int32))


def test_inference_has_forward_blocks_and_a_transfer() -> None:
    """Tests spans, links and edges of two stages."""
    blocks = pipeline_blocks(THREE, _loads(THREE, [0, 0, 1]), train=False)
    assert [(b.kind, b.span) for b in blocks.blocks] == [("F", 7), ("F", 5), ("C", 9)]
    assert [lane.link for lane in blocks.devices] == [False, False, True]
    assert blocks.edges == ((0, 2, 0), (2, 1, 0))


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("recompute", [False, True])
def test_training_takes_back_its_memory(split: bool, recompute: bool) -> None:
    """Tests that backward work is twice the forward work (and once more where it is computed again), and memory."""
    blocks = pipeline_blocks(THREE, _loads(THREE, [0, 0, 1]), train=True, split=split, recompute=recompute)
    assert blocks.balanced
    spans = {kind: [b.span for b in blocks.blocks if b.kind == kind] for kind in "FBWC"}
    again = [7, 5] if recompute else [0, 0]
    backward = [b + w for b, w in zip(spans["B"], spans["W"] or [0, 0], strict=True)]
    assert backward == [14 + again[0], 10 + again[1]]
    assert spans["C"] == [9, 9]
    assert bool(spans["W"]) is split
    names = [lane.id for lane in blocks.devices if lane.link]
    assert len(names) == len(set(names)) == 2


def test_latency_plans_and_full_devices_are_refused() -> None:
    """Tests that a latency problem is a usage error, and weights with optimizer state that do not fit are named."""
    latency = problem_of([[4, 4]])
    with pytest.raises(UsageError, match="throughput"):
        pipeline_blocks(latency, _loads(THREE, [0, 0, 1]), train=True)
    tight = problem_of([[4, 4], [3, 3]], [Feed(0, (1,), 7)], objective="throughput", weights=[3, 3], capacity=[10, 10])
    pipeline_blocks(tight, _loads(tight, [0, 1]), train=False)
    with pytest.raises(InfeasibleError, match="optimizer"):
        pipeline_blocks(tight, _loads(tight, [0, 1]), train=True)
