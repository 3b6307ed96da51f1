"""Tests the time of fused kernels: the roofline by hand, shares to the nanosecond, never more than the sum."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from weftline import zoo
from weftline.cluster import Cluster, Device, Rate
from weftline.cost import NO_TIME, analytic_costs
from weftline.cost.analytic import fused_times, outside_traffic, shares
from weftline.graph import Graph, Op, Tensor, assemble
from weftline.importers import ImportOptions
from weftline.importers.onnx.model import graph_of_model

RATE = Rate(fp32=10**9, bandwidth=10**9, launch=100)
FAST = Device("fast", "gpu", None, rate=RATE)
FILE = Device("file", "gpu", None)


def _row(*ops: Op, size: int = 800) -> Graph:
    """Ops in a row, tensors of `size` bytes."""
    tensors = [Tensor("x", -1, (0,), size, (), "float32")]
    for i in range(len(ops)):
        last = i + 1 == len(ops)
        tensors.append(Tensor(f"t{i}", i, () if last else (i + 1,), size, (), "float32", last))
    return assemble("row", list(ops), tensors)


def test_one_launch_and_no_traffic_inside() -> None:
    """Tests a product with its bias: 800 + 200 bytes of weights in, 800 out, at 80 % of 1 GB/s, one launch."""
    product = Op("a", "MatMul", flops=600, weight_bytes=200, traffic_bytes=1800)
    bias = Op("b", "Add", flops=10, weight_bytes=40, traffic_bytes=1640)
    graph = _row(product, bias)
    assert outside_traffic(graph, np.array([0, 0])).tolist() == [1840]
    alone = analytic_costs(graph, Cluster("c", (FAST,))).time
    assert alone[:, 0].tolist() == [2250 + 100, 2187 + 100]
    fused = fused_times(graph, (FAST,), alone, np.array([[5], [5]], np.int32))
    assert fused.sum() == 2300 + 100  # 1840 / 0.8 ns
    assert (fused > 0).all()


def test_arithmetic_is_the_floor() -> None:
    """Tests that a kernel takes at least the arithmetic of its ops."""
    graph = _row(Op("a", "MatMul", flops=6000, traffic_bytes=1600), Op("b", "MatMul", flops=1200, traffic_bytes=1600))
    time = analytic_costs(graph, Cluster("c", (FAST,))).time
    assert fused_times(graph, (FAST,), time, np.zeros((2, 1), np.int32)).sum() == 10_000 + 2_000 + 100


def test_what_leaves_is_written_and_inputs_are_read_once() -> None:
    """Tests a tensor that is read inside and outside, an input that two ops share, and an op that only renames."""
    ops = [
        Op("a", "Neg", traffic_bytes=200),
        Op("b", "Add", traffic_bytes=300),
        Op("r", "Reshape"),
        Op("d", "Abs", traffic_bytes=200),
    ]
    tensors = [
        Tensor("x", -1, (0, 1), 100),
        Tensor("A", 0, (1, 3), 100),
        Tensor("B", 1, (2,), 100),
        Tensor("R", 2, (), 100, output=True),
        Tensor("D", 3, (), 100, output=True),
    ]  # fmt: skip
    graph = assemble("shared", ops, tensors)
    # a reads x and writes A; b finds both inside and writes B, which leaves through the reshape
    assert outside_traffic(graph, np.array([0, 0, 0, 1])).tolist() == [300, 200]
    assert outside_traffic(graph, np.array([0, 1, 2, 3])).tolist() == [200, 300, 0, 200]


def test_free_ops_stay_free_and_absent_stays_absent() -> None:
    """Tests that an op of 0 ns keeps it, and that a kernel which cannot run whole is not fused."""
    graph = _row(Op("a", "Neg", traffic_bytes=1600), Op("r", "Reshape"), Op("b", "Abs", traffic_bytes=1600))
    time = analytic_costs(graph, Cluster("c", (FAST,))).time
    fused = fused_times(graph, (FAST,), time, np.zeros((3, 1), np.int32))
    assert fused[1, 0] == 0
    assert fused.sum() < time.sum()
    time[2, 0] = NO_TIME
    assert fused_times(graph, (FAST,), time, np.zeros((3, 1), np.int32)).tolist() == time.tolist()


def test_times_from_a_file_gain_nothing() -> None:
    """Tests that without rates a kernel takes the sum."""
    graph = _row(Op("a", "Neg"), Op("b", "Abs"))
    time = np.array([[5, 7], [6, 8]])
    assert fused_times(graph, (FILE, FILE), time, np.zeros((2, 2), np.int32)).tolist() == time.tolist()


def test_measured_times_shrink_by_the_same_share() -> None:
    """Tests that a table which is twice the estimate gives a kernel of twice the estimated time."""
    graph = _row(Op("a", "Neg", traffic_bytes=1600), Op("b", "Abs", traffic_bytes=1600))
    time = analytic_costs(graph, Cluster("c", (FAST,))).time
    kernel = np.zeros((2, 1), np.int32)
    assert fused_times(graph, (FAST,), 2 * time, kernel).sum() == 2 * fused_times(graph, (FAST,), time, kernel).sum()


@pytest.mark.parametrize("seed", range(200))
def test_shares_add_up(seed: int) -> None:
    """Tests that shares meet the target exactly, that nobody gains, and that nobody who takes time loses all of it."""
    dice = np.random.default_rng(seed)
    n, kernels = int(dice.integers(1, 20)), int(dice.integers(1, 5))
    number = np.sort(np.concatenate([np.arange(kernels), dice.integers(0, kernels, n)]))[dice.permutation(n + kernels)]
    largest = int(dice.choice([3, 1000, 2**40, 2**55]))
    time = dice.integers(0, largest, n + kernels) * dice.integers(0, 2, n + kernels)
    total, busy = np.zeros(kernels, np.int64), np.zeros(kernels, np.int64)
    np.add.at(total, number, time)
    np.add.at(busy, number, time > 0)
    target = np.array([dice.integers(0, value + 1) for value in total])
    given = shares(time, number, target)
    found = np.zeros(kernels, np.int64)
    np.add.at(found, number, given)
    assert found.tolist() == np.maximum(target, busy).tolist()
    assert (given <= time).all()
    assert ((given > 0) == (time > 0)).all()


@pytest.mark.parametrize("name", ["resnet50", "bert", "moe"])
def test_never_above_the_sum(name: str) -> None:
    """Tests random kernels of real models: each is no slower than its ops, no faster than its largest arithmetic."""
    graph = graph_of_model(zoo.build(name, size="small", weights=False), ImportOptions(), name)
    cluster = Cluster.preset("laptop")
    time = analytic_costs(graph, cluster).time
    dice = np.random.default_rng(1)
    kernel = np.stack([np.cumsum(dice.integers(0, 2, len(time))) for _ in cluster.devices], axis=1).astype(np.int32)
    fused = fused_times(graph, cluster.devices, time, kernel)
    assert (fused <= time).all()
    assert (fused < time).any()
    for d in range(len(cluster.devices)):
        for number in np.unique(kernel[:, d]):
            mine = kernel[:, d] == number
            assert fused[mine, d].sum() <= time[mine, d].sum()


def test_speed_divides_kernels() -> None:
    """Tests that a slowed device runs a fused kernel in twice the time at half the speed, up to rounding."""
    graph = graph_of_model(zoo.build("resnet50", size="small", weights=False), ImportOptions(), "resnet50")
    whole = Cluster.preset("laptop").devices[:1]
    half = tuple(msgspec.structs.replace(device, speed=0.5) for device in whole)
    kernel = (np.arange(len(graph.ops), dtype=np.int32) // 3)[:, None]
    times = [
        fused_times(graph, devices, analytic_costs(graph, Cluster("c", devices)).time, kernel)
        for devices in (whole, half)
    ]
    sums = [np.bincount(kernel[:, 0], time[:, 0]) for time in times]
    assert sums[1] == pytest.approx(2 * sums[0], abs=2)
