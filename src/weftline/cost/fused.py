"""The time of fused kernels: flops added up, traffic only with the outside, one launch.

In: a graph, devices, the times of the single ops, and for every device which ops run as one kernel. Out: times of the
ops again, such that those of a kernel add up to its time: each op has its share. So everything that works on ops works
on fused kernels too. Simplified: the roofline with the factors of `efficiency`; a kernel that copies nothing between
its ops is no faster than its arithmetic. Devices without rates (times from a file) gain nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.cluster import Device
from weftline.cost.analytic import FREE_KINDS, compute_seconds, efficiency, op_times, stretched, whole
from weftline.cost.table import ABSENT
from weftline.graph import Graph
from weftline.graph.arrays import Indices, Ints

__all__ = ["fused_times", "outside_traffic", "shares"]


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
        np.logical_and.at(able, number, time[:, d] != ABSENT)
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
