"""The flat arrays that kernels read, made once per problem; and orders in which ops may be booked.

In: a Problem. Out: `Tables`; upward ranks, whose descending order (HEFT's priority) is the default. What is computed
once per problem stands beside its function (`once_per_problem`), not on the problem, and goes when the problem goes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from weftline.errors import UsageError
from weftline.graph.arrays import Indices, Ints
from weftline.problem import Problem
from weftline.simulate.kernels.jit import kernel

__all__ = [
    "Tables",
    "Unsigned",
    "check_placement",
    "default_order",
    "edge_readers",
    "longest_paths",
    "once_per_problem",
    "part_of",
    "reordered",
    "tables",
    "upward_rank",
]

_Key = TypeVar("_Key")
_Result = TypeVar("_Result")

Unsigned = NDArray[np.uint32]
"""Unsigned indices spare a kernel the test for negative ones: this alone makes it twice as fast."""


class Tables(NamedTuple):
    """One problem, flat. numba passes a NamedTuple of arrays to a kernel as it is."""

    time: Ints
    transfer: Ints
    transfer_row: Indices
    producer: Indices
    consumer_ptr: Indices
    consumer_of: Indices
    edge_ptr: Unsigned
    edge_tensor: Unsigned
    edge_maker: Unsigned
    """Op -> tensors it reads from other ops, and the ops that make them."""
    output_ptr: Indices
    output_of: Indices
    tensor_bytes: Ints
    is_output: NDArray[np.bool_]
    static_bytes: Ints
    """(n,): what an op holds all the time: weights, and under the static rule its workspace too."""
    workspace_bytes: Ints
    backward: NDArray[np.bool_]
    tied_ptr: Indices
    tied_of: Indices
    tied_bytes: Ints
    bus: Indices
    host: NDArray[np.bool_]
    per_edge: bool
    sequential: bool
    overlapped: bool
    dynamic: bool
    stage_limit: int


def once_per_problem(function: Callable[[_Key], _Result]) -> Callable[[_Key], _Result]:
    """Keep what a function says about a problem (or the pieces of one) for as long as that lives."""
    known: WeakKeyDictionary[_Key, _Result] = WeakKeyDictionary()

    @wraps(function)
    def look_up(problem: _Key) -> _Result:
        try:
            return known[problem]
        except KeyError:
            found = known[problem] = function(problem)
            return found

    return look_up


@once_per_problem
def tables(problem: Problem) -> Tables:
    """The arrays of a problem."""
    graph, rules = problem.graph.arrays, problem.rules
    dynamic = rules.memory == "dynamic"
    inner = graph.producer[graph.input_of] >= 0
    edge_tensor = graph.input_of[inner]
    edge_ptr = np.concatenate([[0], np.cumsum(inner)])[graph.input_ptr]
    return Tables(
        time=np.ascontiguousarray(problem.cost.time),
        transfer=np.ascontiguousarray(problem.cost.transfer),
        transfer_row=problem.cost.transfer_row,
        producer=graph.producer,
        consumer_ptr=graph.consumer_ptr,
        consumer_of=graph.consumer_of,
        edge_ptr=edge_ptr.astype(np.uint32),
        edge_tensor=edge_tensor.astype(np.uint32),
        edge_maker=graph.producer[edge_tensor].astype(np.uint32),
        output_ptr=graph.output_ptr,
        output_of=graph.output_of,
        tensor_bytes=graph.tensor_bytes,
        is_output=graph.is_output,
        static_bytes=graph.weight_bytes if dynamic else graph.weight_bytes + graph.workspace_bytes,
        workspace_bytes=graph.workspace_bytes,
        backward=graph.backward,
        tied_ptr=graph.tied_ptr,
        tied_of=graph.tied_of,
        tied_bytes=graph.tied_bytes,
        bus=problem.bus,
        host=problem.host,
        per_edge=rules.transfers == "per-edge",
        sequential=rules.runtime == "sequential",
        overlapped=rules.communication == "overlapped",
        dynamic=dynamic,
        stage_limit=problem.stage_limit,
    )


def reordered(table: Tables, order: Indices) -> Tables:
    """The same problem with ops numbered by their place in `order`, and tensors by the place of their producers.

    A kernel that books ops in this order then walks through memory instead of jumping: half the time at 100,000 ops.
    The inputs of an op keep their order, which decides between equals, so that every value stays the same.
    """
    n, m = len(order), len(table.producer)
    place = np.empty(n, np.int32)
    place[order] = np.arange(n, dtype=np.int32)
    made = table.producer >= 0
    producer = np.where(made, place[table.producer], -1).astype(np.int32)
    tensors = np.argsort(producer, kind="stable")
    number = np.empty(m, np.int32)
    number[tensors] = np.arange(m, dtype=np.int32)
    edge_ptr, edges = _rows(table.edge_ptr.astype(np.int64), order)
    output_ptr, outputs = _rows(table.output_ptr, order)
    consumer_ptr, consumers = _rows(table.consumer_ptr, tensors)
    row = table.transfer_row[tensors]
    used = row[np.sort(np.unique(row, return_index=True)[1])]  # rows of transfer times by first use
    rank = np.zeros(len(table.transfer), np.int32)
    rank[used] = np.arange(len(used), dtype=np.int32)
    return table._replace(
        time=_narrow(table.time[order]),
        transfer=_narrow(table.transfer[used]),
        transfer_row=rank[row],
        producer=producer[tensors],
        consumer_ptr=consumer_ptr.astype(np.int32),
        consumer_of=place[table.consumer_of[consumers]],
        edge_ptr=edge_ptr.astype(np.uint32),
        edge_tensor=number[table.edge_tensor[edges]].astype(np.uint32),
        edge_maker=place[table.edge_maker[edges]].astype(np.uint32),
        output_ptr=output_ptr.astype(np.int32),
        output_of=number[table.output_of[outputs]],
        tensor_bytes=table.tensor_bytes[tensors],
        is_output=table.is_output[tensors],
        static_bytes=table.static_bytes[order],
        workspace_bytes=table.workspace_bytes[order],
        backward=table.backward[order],
        tied_of=place[table.tied_of],
    )


def check_placement(problem: Problem, placement: Indices) -> Indices:
    """A placement as kernels want it: one existing device per op."""
    placement = np.ascontiguousarray(placement, np.int32)
    if placement.shape != (len(problem.graph.ops),):
        raise UsageError(f"a placement needs one device for each of the {len(problem.graph.ops)} ops")
    if placement.min() < 0 or placement.max() >= len(problem.devices):
        raise UsageError(f"a placement holds device numbers 0..{len(problem.devices) - 1}")
    return placement


def edge_readers(table: Tables) -> Ints:
    """(edges,): the op that reads, in the order of `edge_tensor`."""
    counts: Ints = np.diff(table.edge_ptr).astype(np.int64)
    return np.repeat(np.arange(len(counts), dtype=np.int64), counts)


def part_of(table: Tables, ops: Indices) -> Tables:
    """The problem of some ops alone (ascending), numbered anew: their tensors, and the edges between them."""
    n, m = len(table.time), len(table.producer)
    place = np.full(n, -1, np.int32)
    place[ops] = np.arange(len(ops), dtype=np.int32)
    output_ptr, outputs = _rows(table.output_ptr, ops)
    made = table.output_of[outputs]
    tensors = np.sort(made)
    number = np.full(m, -1, np.int32)
    number[tensors] = np.arange(len(tensors), dtype=np.int32)
    edge_ptr, edges = _rows(table.edge_ptr.astype(np.int64), ops)
    inside = number[table.edge_tensor[edges]] >= 0
    edge_ptr = np.concatenate([[0], np.cumsum(inside)])[edge_ptr]
    edges = edges[inside]
    consumer_ptr, consumers = _rows(table.consumer_ptr, tensors)
    near = place[table.consumer_of[consumers]]
    consumer_ptr = np.concatenate([[0], np.cumsum(near >= 0)])[consumer_ptr]
    user = place[table.tied_of]
    weight = np.repeat(np.arange(len(table.tied_bytes)), np.diff(table.tied_ptr))[user >= 0]
    return table._replace(
        time=np.ascontiguousarray(table.time[ops]),
        transfer_row=table.transfer_row[tensors],
        producer=place[table.producer[tensors]],
        consumer_ptr=consumer_ptr.astype(np.int32),
        consumer_of=near[near >= 0],
        edge_ptr=edge_ptr.astype(np.uint32),
        edge_tensor=number[table.edge_tensor[edges]].astype(np.uint32),
        edge_maker=place[table.edge_maker[edges]].astype(np.uint32),
        output_ptr=output_ptr.astype(np.int32),
        output_of=number[made],
        tensor_bytes=table.tensor_bytes[tensors],
        is_output=table.is_output[tensors],
        static_bytes=table.static_bytes[ops],
        workspace_bytes=table.workspace_bytes[ops],
        backward=table.backward[ops],
        tied_ptr=np.searchsorted(weight, np.arange(len(table.tied_bytes) + 1)).astype(np.int32),
        tied_of=user[user >= 0],
    )


def _narrow(times: Ints) -> Ints:
    """In 32 bits where they fit: half the memory to walk through. (Sums are made in 64 bits all the same.)"""
    return times.astype(np.int32) if times.max(initial=0) < 2**31 else times


def _rows(pointer: NDArray[Any], order: NDArray[Any]) -> tuple[Ints, Ints]:
    """Compressed rows in another order: the new pointer, and the old position of every new entry."""
    sizes = np.diff(pointer)[order]
    fresh = np.zeros(len(order) + 1, np.int64)
    np.cumsum(sizes, out=fresh[1:])
    within = np.arange(fresh[-1]) - np.repeat(fresh[:-1], sizes)
    return fresh, np.repeat(pointer[:-1][order], sizes) + within


@once_per_problem
def upward_rank(problem: Problem) -> Ints:
    """(n,): longest path to the end, with mean times over devices and mean transfers over links."""
    time = problem.cost.time
    mean_time = np.where(time >= 0, time, 0).sum(axis=1) // np.maximum((time >= 0).sum(axis=1), 1)
    links = problem.cost.transfer.reshape(len(problem.cost.transfer), len(problem.devices) ** 2)
    between = ~np.eye(len(problem.devices), dtype=np.bool_).ravel()
    usable = (links >= 0) & between
    mean_transfer = np.where(usable, links, 0).sum(axis=1) // np.maximum(usable.sum(axis=1), 1)
    return longest_paths(tables(problem), mean_time, mean_transfer)


def default_order(problem: Problem) -> Indices:
    """(n,): ops by descending upward rank; a topological order, since ties keep the order of the graph."""
    return np.argsort(-upward_rank(problem), kind="stable").astype(np.int32)


@kernel
def longest_paths(table: Tables, time: NDArray[Any], transfer: NDArray[Any]) -> NDArray[Any]:
    """(n,): from the start of each op to the end of all; `time` of ops, `transfer` of rows of the table."""
    rank = time.copy()
    for op in range(len(rank) - 1, -1, -1):
        longest = 0
        for k in range(table.output_ptr[op], table.output_ptr[op + 1]):
            tensor = table.output_of[k]
            for c in range(table.consumer_ptr[tensor], table.consumer_ptr[tensor + 1]):
                longest = max(longest, transfer[table.transfer_row[tensor]] + rank[table.consumer_of[c]])
        rank[op] += longest
    return rank
