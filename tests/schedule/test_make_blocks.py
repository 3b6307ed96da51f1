"""Tests of the named shapes, and of blocks made from a throughput plan."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.data import present, published

from weftline.errors import InfeasibleError, UsageError
from weftline.problem import Problem, read_blocks
from weftline.schedule.make_blocks import SHAPES, chunked, make_shape, pipeline_blocks
from weftline.simulate import Loads, simulate_throughput
from weftline.testing.generate import Feed, problem_of


@pytest.mark.parametrize("path", published("tessel"), ids=lambda path: path.stem)
def test_shapes_are_those_that_were_published(path: Path) -> None:
    """Tests that the shapes for 4 devices are, block by block and edge by edge, those of the published files."""
    known = read_blocks(present(path))
    name, devices, mode = known.name.rsplit("-", 2)
    made = make_shape(name, int(devices), train=mode == "train")
    assert made.name == known.name
    rows = [[(b.kind, b.span, b.devices, b.memory) for b in blocks.blocks] for blocks in (made, known)]
    assert rows[0] == rows[1]
    assert made.edges == known.edges


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("devices", [2, 6, 16])
@pytest.mark.parametrize("train", [True, False])
def test_shapes_of_any_size_are_balanced(name: str, devices: int, train: bool) -> None:
    """Tests that shapes take back all memory, use every device, and have no memory changes for inference."""
    blocks = make_shape(name, devices, train=train)
    assert blocks.balanced
    assert min(blocks.loads) > 0
    assert train or not any(change for block in blocks.blocks for change in block.memory)


def test_known_loads() -> None:
    """Tests the busiest device's load of every shape against the published periods."""
    loads = {name: max(make_shape(name, 8).loads) for name in SHAPES}
    assert loads == {
        "vshape": 4,
        "xshape": 8,
        "mshape": 6,
        "nnshape": 8,
        "nnshape-eager": 8,
        "kshape": 6,
        "mllm": 8,
        "finetune": 4,
        "alphafold": 4,
        "linear": 3,
        "zigzag": 6,
        "interleaved": 6,
    }


def test_wrong_shapes_are_refused() -> None:
    """Tests that an unknown name and an odd number of devices are errors that say what exists."""
    with pytest.raises(UsageError, match="vshape"):
        make_shape("circle", 4)
    with pytest.raises(UsageError, match="even"):
        make_shape("kshape", 5)


def test_latency_stands_on_edges_between_devices() -> None:
    """Tests that the turn of a zigzag has no latency and all other steps have."""
    blocks = chunked("z", [0, 1, 1, 0], [1] * 4, [1] * 4, [1] * 4, latency=50)
    lags = {(blocks.blocks[a].name, blocks.blocks[b].name): lag for a, b, lag in blocks.edges}
    assert lags["F0", "F1"] == 50
    assert lags["F1", "F2"] == 0
    assert lags["B3", "B2"] == 50
    assert lags["B2", "W2"] == 0


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
