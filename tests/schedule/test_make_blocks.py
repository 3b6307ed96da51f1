"""Tests of the named shapes, and of blocks made from a throughput plan."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.data import present, published

from weftline.ask.scheduling import make_schedule
from weftline.certify.check_schedule import check_schedule
from weftline.cluster import Device
from weftline.cost import CostTable
from weftline.errors import InfeasibleError, UsageError
from weftline.graph import Op, Tensor, assemble
from weftline.graph.ir import MODEL_INPUT
from weftline.problem import Problem, Rules, read_blocks
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


HELD = problem_of(
    [[10, 10]] * 4,
    [Feed(0, (1,), 0, 100), Feed(1, (2,), 3, 7), Feed(2, (3,), 0, 50)],
    objective="throughput",
    communication="added",
)
"""Two stages: the first makes 107 bytes, the second 50 beside the 7 that enter."""
ALL, ENTERING = (107, 57), (0, 7)


def _order(seed: int, split: bool, count: int) -> list[tuple[str, int]]:
    """Any order of a device's blocks in which F, B and W of a micro-batch follow each other."""
    left = {m: ["F", "B", *("W" if split else "")] for m in range(count)}
    chooser, found = np.random.default_rng(seed), []
    while left:
        m = int(chooser.choice(sorted(left)))
        found.append((left[m].pop(0), m))
        left = {k: kinds for k, kinds in left.items() if kinds}
    return found


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_memory_is_that_of_what_is_there(split: bool, recompute: bool, seed: int) -> None:
    """Tests peaks of any order against what lies on each device while each block runs.

    They are exact where the backward pass is whole or nothing is computed again, and never too small.
    """
    count = 4
    blocks = pipeline_blocks(HELD, _loads(HELD, [0, 0, 1, 1]), train=True, split=split, recompute=recompute)
    for device in range(2):
        held, kept = ALL[device], ENTERING[device] if recompute else ALL[device]
        number = {(b.kind, b.stage): i for i, b in enumerate(blocks.blocks)}
        order = _order(seed + 100 * device, split, count)
        there, most = dict.fromkeys(range(count), 0), 0
        for kind, m in order:
            there[m] = {"F": kept, "B": held, "W": held // 2}[kind]
            most = max(most, sum(there.values()))
            there[m] = {"F": kept, "B": held // 2 if split else 0, "W": 0}[kind]
        level = [blocks.blocks[number[kind, device]].memory[0] for kind, _ in order]
        peak = blocks.devices[device].reserved + max(0, *np.cumsum(level).tolist())
        assert peak >= most
        assert peak == most or (split and recompute)


def test_what_is_computed_again_has_room() -> None:
    """Tests that recompute reserves the activations of one micro-batch, under any limit that is given later."""
    blocks = pipeline_blocks(HELD, _loads(HELD, [0, 0, 1, 1]), train=True, recompute=True)
    assert [lane.reserved for lane in blocks.devices] == [107, 50, 0, 0]
    made = make_schedule(blocks.with_memory(120), 5, work_limit=40)
    assert made.memory_limit == (120, 120, None, None)
    assert made.peak_memory[0] == 107
    assert 57 <= made.peak_memory[1] <= 120
    check_schedule(msgspec.to_builtins(made))
    with pytest.raises(InfeasibleError, match=r"needs 107 memory \(107 reserved for its backward pass\)"):
        make_schedule(blocks.with_memory(106), 5, work_limit=40)


def test_inputs_of_the_model_are_held() -> None:
    """Tests that what the caller provides enters each stage that reads it, and is kept for its backward pass."""
    graph = assemble("in", [Op("a"), Op("b")], [Tensor("x", MODEL_INPUT, (0, 1), 30), Tensor("t", 0, (1,), 5)])
    cost = CostTable(np.full((2, 2), 4, np.int64), np.zeros((1, 2, 2), np.int64), np.zeros(2, np.int32))
    devices = (Device("d0", "gpu", None), Device("d1", "gpu", None))
    problem = Problem(graph, devices, cost, Rules(objective="throughput"))
    blocks = pipeline_blocks(problem, _loads(problem, [0, 1]), train=True, recompute=True)
    assert [block.memory for block in blocks.blocks if block.kind == "F"] == [(30,), (35,)]
    assert [lane.reserved for lane in blocks.devices] == [5, 0]


def test_transfers_have_the_name_of_what_is_sent() -> None:
    """Tests the largest tensor, its producer and its first reader, forward and back; long names are cut."""
    wires = [Feed(0, (1,), 3, 9), Feed(0, (2,), 3, 8)]
    problem = problem_of([[4, 4]] * 3, wires, objective="throughput")
    blocks = pipeline_blocks(problem, _loads(problem, [0, 1, 1]), train=True)
    names = [block.name for block in blocks.blocks if block.kind == "C"]
    tensor, ops = problem.graph.tensors[0].name, [op.name for op in problem.graph.ops]
    assert names == [f"{tensor}: {ops[0]} -> {ops[1]} and 1 more", f"gradient of {names[0]}"]


def test_latency_plans_and_full_devices_are_refused() -> None:
    """Tests that a latency problem is a usage error, and weights with optimizer state that do not fit are named."""
    latency = problem_of([[4, 4]])
    with pytest.raises(UsageError, match="throughput"):
        pipeline_blocks(latency, _loads(THREE, [0, 0, 1]), train=True)
    tight = problem_of([[4, 4], [3, 3]], [Feed(0, (1,), 7)], objective="throughput", weights=[3, 3], capacity=[10, 10])
    pipeline_blocks(tight, _loads(tight, [0, 1]), train=False)
    with pytest.raises(InfeasibleError, match="optimizer"):
        pipeline_blocks(tight, _loads(tight, [0, 1]), train=True)
