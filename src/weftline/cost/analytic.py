"""The roofline model: time = max(flops / compute rate, traffic / memory bandwidth) + launch overhead; of ops, and of
fused kernels (flops added up, traffic only with the outside, one launch).

In: flops and traffic of the ops, rates of the devices. Out: a CostTable; for ops that run as one kernel times again,
such that those of a kernel add up to its time, so that everything that works on ops works on fused kernels too.

Here is the one table of efficiency factors: which share of a device's peak an op kind reaches. `compute` is the share
of the peak FLOP/s, `memory` the share of the peak bandwidth. Sources: rules of thumb for vendor libraries at batch 1;
replace them by measurement (`weftline profile`) wherever a plan matters.

Simplified: no cache, no overlap of ops, no dependence on shape beyond the totals; a kernel that copies nothing between
its ops is no faster than its arithmetic. Devices without rates (times from a file) gain nothing from fusion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.cluster import Cluster, Device, Rate
from weftline.cost.table import NO_TIME, CostTable, check_table_size, distinct_rows
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
    "fused_times",
    "op_times",
    "outside_traffic",
    "shares",
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
    latency = np.full((count, count), NO_TIME, np.int64)
    rate = np.ones((count, count), np.float64)
    for link in cluster.links:
        a, b = cluster.index[link.source], cluster.index[link.target]
        latency[a, b], rate[a, b] = link.latency, link.bandwidth
    # In order of first appearance: neighbours in the graph are then neighbours in the table.
    sizes, row = distinct_rows(np.array([t.bytes for t in graph.tensors], np.int64))
    duration = whole(sizes[:, None, None].astype(np.float64) * 1e9 / rate) + latency
    transfer = np.where(latency == NO_TIME, NO_TIME, duration)
    transfer[:, range(count), range(count)] = 0
    return transfer, row


def fused_times(graph: Graph, devices: Sequence[Device], time: Ints, kernel: Indices) -> Ints:
    """(n, K) times with fusion; `kernel` (n, K) has the same number for ops that are one kernel on a device.

    A kernel never takes longer than its ops one by one. Absent times stay absent, and an op of 0 ns stays so. Times
    that were measured, not estimated, shrink by the same share as the estimate.
    """
    result = time.copy()
    traffic: dict[bytes, NDArray[np.float64]] = {}
    for d, device in enumerate(devices):
        number, count = _compact(kernel[:, d])
        joined = np.bincount(number, minlength=count) > 1
        if device.rate is None or not joined.any():
            continue
        key = number.tobytes()
        if key not in traffic:
            traffic[key] = outside_traffic(graph, number)
        alone = op_times(graph, device)
        estimate = _kernel_times(graph, device, alone, number, traffic[key])
        able = np.ones(count, np.bool_)
        np.logical_and.at(able, number, time[:, d] != NO_TIME)
        whole_kernels = joined & able
        total = _sums(number, np.maximum(time[:, d], 0), count)
        target = _scaled(total, estimate, _sums(number, alone, count))
        mine = whole_kernels[number]
        result[mine, d] = shares(time[:, d], number, target)[mine]
    return result


def outside_traffic(graph: Graph, number: Ints) -> NDArray[np.float64]:
    """(kernels,): bytes that each kernel reads and writes in memory.

    What an op makes for other ops of its kernel alone is not written, and not read; an input of several of them is read
    once. What goes through an op that only renames a buffer counts as it did.
    """
    arrays, count = graph.arrays, int(number.max()) + 1
    own = np.array([op.traffic_bytes for op in graph.ops], np.int64)
    moves = own > 0
    tensor = np.repeat(np.arange(len(arrays.producer)), np.diff(arrays.consumer_ptr))
    reader, maker, size = arrays.consumer_of, arrays.producer[tensor], arrays.tensor_bytes[tensor]
    inside = (maker >= 0) & (number[maker] == number[reader])
    saved = np.zeros(len(own), np.int64)
    kept = inside & moves[maker]  # the reader finds it in registers
    np.add.at(saved, reader[kept], size[kept])
    again = ~inside & moves[reader]
    saved_again = _repeated(tensor[again] * count + number[reader[again]])
    np.add.at(saved, reader[again][saved_again], size[again][saved_again])
    stays = (arrays.producer >= 0) & ~arrays.is_output & (np.diff(arrays.consumer_ptr) > 0)
    stays[tensor[~(inside & moves[reader])]] = False
    np.add.at(saved, arrays.producer[stays], arrays.tensor_bytes[stays])
    left = own - np.minimum(saved, own)
    total: NDArray[np.float64] = np.bincount(number, left.astype(np.float64), count).astype(np.float64)
    return total


def shares(time: Ints, number: Ints, target: Ints) -> Ints:
    """Split `target` (kernels,) among the ops of each kernel in proportion to their times, to the nanosecond.

    Every op that takes time keeps at least 1 ns and at most its own time, where the target allows both.
    """
    takes = time > 0
    count = len(target)
    busy = _sums(number, takes.astype(np.int64), count)
    extra = np.where(takes, time - 1, 0)
    total = _sums(number, extra, count)
    rest = np.clip(target - busy, 0, total)
    part, remainder = _divided(rest[number], extra, np.maximum(total, 1)[number])
    missing = rest - _sums(number, part, count)
    order = np.lexsort((np.arange(len(time)), -remainder, number))
    rank = np.empty(len(time), np.int64)
    rank[order] = np.arange(len(time)) - np.searchsorted(number[order], np.arange(count))[number[order]]
    part += rank < missing[number]
    result: Ints = np.where(takes, part + 1, 0)
    return result


class _Factors(NamedTuple):
    memory: NDArray[np.float64]
    free: NDArray[np.bool_]


def _kernel_times(graph: Graph, device: Device, alone: Ints, number: Ints, traffic: NDArray[np.float64]) -> Ints:
    """(kernels,): the roofline of each kernel, never more than the sum of its ops."""
    assert device.rate is not None
    count = len(traffic)
    factors = _Factors(
        np.array([efficiency(op.kind).memory for op in graph.ops]),
        np.array([op.kind in FREE_KINDS for op in graph.ops], np.bool_),
    )
    compute = np.bincount(number, np.where(factors.free, 0.0, compute_seconds(graph, device)), count)
    slowest = np.lexsort((np.arange(len(alone)), -alone, number))
    lead = slowest[np.searchsorted(number[slowest], np.arange(count))]
    memory = traffic / (float(device.rate.bandwidth) * factors.memory[lead])
    launched = np.bincount(number, ~factors.free, count) > 0
    fused = stretched(whole(np.maximum(compute, memory) * 1e9) + device.rate.launch, device)
    return np.where(launched, np.minimum(fused, _sums(number, alone, count)), 0)


def _scaled(total: Ints, estimate: Ints, alone: Ints) -> Ints:
    """total * estimate / alone, rounded up; exactly the estimate where the times are estimates."""
    same = total == alone
    share = estimate / np.maximum(alone, 1)
    scaled = np.ceil(total * share).astype(np.int64)
    return np.where(same, estimate, np.minimum(scaled, total))


def _divided(a: Ints, b: Ints, c: Ints) -> tuple[Ints, Ints]:
    """a * b divided by c: quotients and remainders, exact beyond 64 bits."""
    if int(a.max(initial=0)) * int(b.max(initial=0)) < 2**63:
        return a * b // c, a * b % c
    product = a.astype(object) * b.astype(object)
    return (product // c).astype(np.int64), (product % c).astype(np.int64)


def _repeated(keys: Ints) -> NDArray[np.bool_]:
    """True at every key that stood before."""
    first = np.unique(keys, return_index=True)[1]
    again = np.ones(len(keys), np.bool_)
    again[first] = False
    return again


def _compact(kernel: Indices) -> tuple[Ints, int]:
    values, number = np.unique(kernel, return_inverse=True)
    return number.astype(np.int64), len(values)


def _sums(key: Ints, value: Ints, count: int) -> Ints:
    total = np.zeros(count, np.int64)
    np.add.at(total, key, value)
    return total
