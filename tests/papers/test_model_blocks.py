"""Tests of the evaluation's models: sizes, times, stages, and what their placements hold."""

from __future__ import annotations

from itertools import combinations

import pytest

from weftline.errors import InfeasibleError, UsageError
from weftline.papers.tessel.model_blocks import MODELS, TRAINED_BYTES, V100, ModelLayer, make_network
from weftline.papers.tessel.placements import PLACEMENTS, LayerRun, equal_stages, place_network, staged
from weftline.schedule.classic.classic import classic_schedules

MIB = 2**20


def layer(flops: int, parameters: int = 0, output: int = 0) -> ModelLayer:
    return ModelLayer("x", flops, 0, 0, parameters, output, 0, 2)


def test_published_sizes() -> None:
    """Tests the parameters of GPT for 4 GPUs (11 G) and that an unknown size is an error that lists what exists."""
    network = make_network("gpt", 4)
    assert network.embedding is not None
    total = network.embedding.parameters + sum(each.parameters for each in network.first)
    assert round(total / 1e9, 1) == 10.7
    with pytest.raises(UsageError, match="flava for 4 GPUs"):
        make_network("flava", 8)


def test_times_follow_the_rates() -> None:
    """Tests one layer by hand: dense work at 60 % of the peak, split over devices, with its all-reduces."""
    dense = ModelLayer(
        "x", flops=75 * 10**9, attention_flops=0, traffic=0, parameters=0, output=MIB, work=0, reductions=2
    )
    assert V100.forward([dense], (0,)) == 1_000_000 + 12 * 5_000
    ring = 2 * 10_000 + -(-MIB * 10**9 // (150 * 10**9))
    assert V100.all_reduce(MIB, (0, 1)) == pytest.approx(ring, abs=1)
    assert V100.forward([dense], (0, 1)) == 500_000 + 12 * 5_000 + 2 * V100.all_reduce(MIB, (0, 1))
    assert V100.backward([dense], (0,)) == 3 * V100.forward([dense], (0,))
    assert V100.all_reduce(MIB, (0, 8)) > 10 * (V100.all_reduce(MIB, (0, 1)) - 20_000)
    assert V100.send(MIB, 3, 3) == 0
    assert V100.send(MIB, 0, 8) > V100.send(MIB, 0, 7) > 10_000


def test_equal_stages_are_the_best_cuts() -> None:
    """Tests the largest stage against all cuts of eight unequal layers into three."""
    layers = [layer(flops * 10**11) for flops in (5, 1, 7, 2, 2, 9, 4, 1)]
    groups = [(0,), (1,), (2,)]
    found = equal_stages(V100, layers, groups, True)
    assert [each for stage in found for each in stage.layers] == layers
    best = min(
        max(LayerRun(tuple(layers[a:b]), (0,)).time(V100, True) for a, b in ((0, i), (i, j), (j, 8)))
        for i, j in combinations(range(1, 8), 2)
    )
    assert max(stage.time(V100, True) for stage in found) == best


def test_staged_shares_what_does_not_fit() -> None:
    """Tests that a layer too large for one device is shared, all devices are used, and nothing may be too large."""
    large = layer(10**9, parameters=40 * 2**30 // TRAINED_BYTES)
    rest = [layer(10**12, parameters=2**30 // TRAINED_BYTES, output=MIB)] * 6
    found = staged(V100, [large, *rest], 4, True)
    assert len(found[0].devices) > 1
    assert sorted(device for stage in found for device in stage.devices) == [0, 1, 2, 3]
    with pytest.raises(InfeasibleError, match="fit into memory"):
        staged(V100, [layer(1, parameters=200 * 2**30 // TRAINED_BYTES)], 4, True)


@pytest.mark.parametrize(("model", "wide"), [("gpt", 1), ("mt5", 2), ("flava", 1), ("swin", 0)])
@pytest.mark.parametrize("train", [True, False])
def test_aware_placements(model: str, wide: int, train: bool) -> None:
    """Tests that models have the shape made for them: blocks on all devices, balanced, within memory."""
    blocks = place_network(make_network(model, 4), V100, 4, "aware", train=train)
    everywhere = [block for block in blocks.blocks if len(block.devices) == 4]
    assert len(everywhere) == wide * (2 if train else 1)
    assert blocks.balanced
    assert all(0 < lane.memory < V100.memory for lane in blocks.devices)
    assert {"1f1b-plus" if wide else "1f1b", "gpipe"} <= set(classic_schedules(blocks, 8))


def test_baselines_have_their_placements() -> None:
    """Tests that each placement is one that its schedule knows, and that two copies of GPT do not fit."""
    network = make_network("swin", 4)
    applies = {"staged": "1f1b", "interleaved": "interleaved-1f1b", "bidirectional": "chimera"}
    for placement, schedule in applies.items():
        blocks = place_network(network, V100, 4, placement, train=True)
        assert schedule in classic_schedules(blocks, 8)
    assert set(applies) | {"aware"} == set(PLACEMENTS)
    with pytest.raises(InfeasibleError, match="GiB more"):
        place_network(make_network("gpt", 4), V100, 4, "bidirectional", train=True)


def test_every_size_has_a_placement() -> None:
    """Tests that every published size fits its GPUs in the placement made for it."""
    for model, sizes in MODELS.items():
        for gpus in sizes:
            blocks = place_network(make_network(model, gpus), V100, gpus, "aware", train=False)
            assert min(blocks.loads) > 0
