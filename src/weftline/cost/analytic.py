"""The roofline model: time = max(flops / compute rate, traffic / memory bandwidth) + launch overhead.

In: flops and traffic of the ops, rates of the devices, the factors of `efficiency`. Out: a CostTable.
Simplified: no cache, no overlap of ops, no dependence on shape beyond the totals.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weftline.cluster import Cluster, Device, Rate
from weftline.cost.efficiency import FREE_KINDS, efficiency
from weftline.cost.table import ABSENT, CostTable, check_table_size, distinct_rows
from weftline.errors import InputError
from weftline.graph import Graph
from weftline.graph.arrays import Indices, Ints
from weftline.units import MAX_QUANTITY

__all__ = ["analytic_costs", "compute_seconds", "op_times", "stretched", "transfers", "whole"]

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
