"""The one table of efficiency factors of the analytic model: which share of a device's peak an op kind reaches.

`compute` is the share of the peak FLOP/s, `memory` the share of the peak bandwidth. Sources: rules of thumb for
vendor libraries at batch 1; replace them by measurement (`weftline profile`) wherever a plan matters.

The roofline model: time = max(flops / compute rate, traffic / memory bandwidth) + launch overhead.

In: flops and traffic of the ops, rates of the devices, the factors of `efficiency`. Out: a CostTable.
Simplified: no cache, no overlap of ops, no dependence on shape beyond the totals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weftline.cluster import Cluster, Device, Rate
from weftline.cost.table import ABSENT, CostTable, check_table_size, distinct_rows
from weftline.errors import InputError
from weftline.graph import Graph
from weftline.graph.arrays import Indices, Ints
from weftline.units import MAX_QUANTITY

__all__ = [
    "FREE_KINDS",
    "Efficiency",
    "analytic_costs",
    "compute_seconds",
    "efficiency",
    "op_times",
    "stretched",
    "transfers",
    "whole",
]


@dataclass(frozen=True)
class Efficiency:
    """Shares of the peak, between 0 and 1."""

    compute: float
    memory: float


_DENSE = Efficiency(compute=0.60, memory=0.80)
_CONVOLUTION = Efficiency(compute=0.50, memory=0.75)
_ATTENTION = Efficiency(compute=0.45, memory=0.75)
_RECURRENT = Efficiency(compute=0.15, memory=0.50)
_NORMALISATION = Efficiency(compute=0.10, memory=0.60)
_POINTWISE = Efficiency(compute=0.20, memory=0.75)
_MOVEMENT = Efficiency(compute=1.0, memory=0.60)
_IRREGULAR = Efficiency(compute=0.05, memory=0.20)

_TABLE: dict[str, Efficiency] = {
    **dict.fromkeys(("MatMul", "Gemm", "FusedMatMul", "FusedGemm", "Einsum", "MatMulInteger", "QLinearMatMul"), _DENSE),
    **dict.fromkeys(("Conv", "ConvTranspose", "FusedConv", "ConvInteger", "QLinearConv", "DeformConv"), _CONVOLUTION),
    **dict.fromkeys(("Attention", "MultiHeadAttention", "GroupQueryAttention", "QAttention"), _ATTENTION),
    **dict.fromkeys(("LSTM", "GRU", "RNN", "Loop", "Scan", "If"), _RECURRENT),
    **dict.fromkeys(
        (
            "BatchNormalization",
            "LayerNormalization",
            "SkipLayerNormalization",
            "EmbedLayerNormalization",
            "SimplifiedLayerNormalization",
            "RMSNormalization",
            "InstanceNormalization",
            "GroupNormalization",
            "LRN",
            "Softmax",
            "LogSoftmax",
            "ReduceMean",
            "ReduceSum",
            "ReduceMax",
        ),
        _NORMALISATION,
    ),
    **dict.fromkeys(
        ("Transpose", "Concat", "Split", "Slice", "Pad", "Gather", "Expand", "Tile", "Cast", "Resize", "DepthToSpace"),
        _MOVEMENT,
    ),
    **dict.fromkeys(
        (
            "TopK",
            "NonMaxSuppression",
            "ScatterND",
            "ScatterElements",
            "GatherElements",
            "GatherND",
            "NonZero",
            "Unique",
        ),
        _IRREGULAR,
    ),
}

FREE_KINDS = frozenset(
    {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout", "Shape", "Size", "virtual"}
)
"""Kinds that move no data and launch no kernel: 0 ns."""


def efficiency(kind: str) -> Efficiency:
    """The factors of an op kind; what the table does not know counts as pointwise."""
    return _TABLE.get(kind, _POINTWISE)


_HALF = frozenset({"float16", "bfloat16"})
_BYTE = frozenset({"int8", "uint8"})


def analytic_costs(graph: Graph, cluster: Cluster) -> CostTable:
    """Estimate every op on every device and every tensor on every link."""
    sizes = len({tensor.bytes for tensor in graph.tensors})
    check_table_size(len(graph.ops), sizes, len(cluster.devices))
    time = np.stack([op_times(graph, device) for device in cluster.devices], axis=1)
    transfer, row = transfers(graph, cluster)
    sources = {d.rate.source or "guess" for d in cluster.devices if d.rate}
    sources |= {link.origin or "guess" for link in cluster.links}
    return CostTable(time, transfer, row, source=f"analytic roofline (rates: {', '.join(sorted(sources))})")


def op_times(graph: Graph, device: Device) -> Ints:
    """(n,): ns of every op on a device."""
    if device.rate is None:
        raise InputError(f"device {device.id!r} has no rate, so no op time can be estimated", hint="add rate = {...}")
    traffic = np.array([op.traffic_bytes for op in graph.ops], np.float64)
    memory = traffic / (float(device.rate.bandwidth) * np.array([efficiency(op.kind).memory for op in graph.ops]))
    seconds = np.maximum(compute_seconds(graph, device), memory)
    free = np.array([op.kind in FREE_KINDS for op in graph.ops])
    return np.where(free, 0, stretched(whole(seconds * 1e9) + device.rate.launch, device))


def compute_seconds(graph: Graph, device: Device) -> NDArray[np.float64]:
    """(n,): how long the arithmetic of every op takes on a device that has a rate."""
    assert device.rate is not None
    flops = np.array([op.flops for op in graph.ops], np.float64)
    peak = np.array([_peak(device.rate, dtype) for dtype in _compute_types(graph)], np.float64)
    seconds: NDArray[np.float64] = flops / (peak * np.array([efficiency(op.kind).compute for op in graph.ops]))
    return seconds


def whole(nanoseconds: NDArray[np.float64]) -> Ints:
    """Rounded up; what is absurdly long stays so without leaving 64 bits, and the table refuses it."""
    rounded: Ints = np.ceil(np.minimum(nanoseconds, 2.0 * MAX_QUANTITY)).astype(np.int64)
    return rounded


def stretched(time: Ints, device: Device) -> Ints:
    """Times at full speed -> times at the speed that the device is run at."""
    return time if device.speed == 1 else whole(time / device.speed)


def _peak(rate: Rate, dtype: str) -> int:
    if dtype in _HALF:
        return rate.fp16
    return rate.int8 or rate.fp16 if dtype in _BYTE else rate.fp32


def _compute_types(graph: Graph) -> list[str]:
    """The element type of each op's first output, which selects the device's rate."""
    types = [""] * len(graph.ops)
    for tensor in reversed(graph.tensors):
        if tensor.producer >= 0:
            types[tensor.producer] = tensor.dtype
    return types


def transfers(graph: Graph, cluster: Cluster) -> tuple[Ints, Indices]:
    """Times of every size of tensor over every link, and the row of each tensor in them."""
    count = len(cluster.devices)
    latency = np.full((count, count), ABSENT, np.int64)
    rate = np.ones((count, count), np.float64)
    for link in cluster.links:
        a, b = cluster.index[link.source], cluster.index[link.target]
        latency[a, b], rate[a, b] = link.latency, link.bandwidth
    # In order of first appearance: neighbours in the graph are then neighbours in the table.
    sizes, row = distinct_rows(np.array([t.bytes for t in graph.tensors], np.int64))
    duration = whole(sizes[:, None, None].astype(np.float64) * 1e9 / rate) + latency
    transfer = np.where(latency == ABSENT, ABSENT, duration)
    transfer[:, range(count), range(count)] = 0
    return transfer, row
