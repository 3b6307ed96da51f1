"""Small problems: random ones with every option, from anything that can choose (a seed, or hypothesis); tiny ones by
kind; and ones written out by hand.

In: a `Chooser`. Out: a Graph, a Problem or a placement. Numbers are small, so ties, zeros and tight memory are common.
Placement problems come by kind: both runtimes, both ways of sending, both models of memory, with room and without; the
same list each time, with absent times and links, buses, tied weights and `together` in most of them. By hand: a table
of op times and the edges between ops, for answers worked out on paper; ops are op0, op1 ..., devices d0, d1 ...
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import msgspec
import numpy as np

from weftline.cluster import Device
from weftline.cost import NO_TIME, CostTable
from weftline.graph import Graph, Op, Tensor, Tied, assemble
from weftline.graph.arrays import Indices, Ints
from weftline.problem import Problem, Rules
from weftline.problem.feasible import least_memory, merge_together

__all__ = [
    "KINDS",
    "Chooser",
    "Feed",
    "SeededChooser",
    "make_graph",
    "make_order",
    "make_placement",
    "make_problem",
    "placement_problems",
    "problem_of",
    "random_problem",
]

T = TypeVar("T")
Objective = Literal["latency", "throughput"]


class Chooser(Protocol):
    """Something that makes choices."""

    def integer(self, low: int, high: int) -> int:
        """A whole number in low..high."""
        ...

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""
        ...


class SeededChooser:
    """Choices from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        """A whole number in low..high."""
        return self._random.randint(low, high)

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""
        return options[self._random.randint(0, len(options) - 1)]


def random_problem(
    seed: int, objective: Objective, *, max_ops: int = 8, max_devices: int = 3, limits: bool = True, **fixed: object
) -> Problem:
    """The problem of a seed; `fixed` sets fields of `Rules`."""
    chooser = SeededChooser(seed)
    return make_problem(chooser, objective, max_ops=max_ops, max_devices=max_devices, limits=limits, **fixed)


def make_graph(choose: Chooser, max_ops: int, *, training: bool = False) -> Graph:
    """Ops with 0 to 2 outputs each, inputs of the model, tied weights; for training the last ops are backward."""
    n = choose.integer(1, max_ops)
    first_backward = choose.integer(1, n) if training else n
    ops = [
        Op(
            name=f"op{i}",
            kind=choose.pick(("MatMul", "Add", "Conv")),
            flops=choose.integer(0, 100) * 10**6,
            weight_bytes=choose.integer(0, 9),
            workspace_bytes=choose.integer(0, 3),
            traffic_bytes=choose.integer(0, 10**6),
            block=f"layer.{i // 3}",
            backward=i >= first_backward,
        )
        for i in range(n)
    ]
    tensors = []
    for producer in range(-1, n):
        for number in range(choose.pick((0, 1, 1, 1, 2)) if n > 1 else 1):
            later = range(producer + 1, n)
            readers = {choose.pick(later) for _ in range(choose.integer(1, 3))} if later else set()
            output = producer >= 0 and (not readers or choose.integer(0, 5) == 0)
            tensors.append(
                Tensor(
                    f"t{producer}.{number}",
                    producer,
                    tuple(sorted(readers)),
                    choose.integer(0, 9),
                    (),
                    "float32",
                    output,
                )
            )
    tied = []
    if n > 1 and choose.integer(0, 3) == 0:
        users = {choose.integer(0, n - 1) for _ in range(3)}
        if len(users) > 1:
            tied.append(Tied("shared", choose.integer(1, 9), tuple(sorted(users))))
    return assemble("generated", ops, tensors, tied)


def make_problem(
    choose: Chooser,
    objective: Objective,
    *,
    max_ops: int = 8,
    max_devices: int = 3,
    limits: bool = True,
    **fixed: object,
) -> Problem:
    """A problem in which every op has a device. With `limits`: absent times and links, memory, together, buses."""
    graph = make_graph(choose, max_ops, training=objective == "throughput" and choose.integer(0, 3) == 0)
    n, m, k = len(graph.ops), len(graph.tensors), choose.integer(1, max_devices)
    rare = 8 if limits else 0
    time = _table(choose, (n, k), rare)
    for row in time:
        if row.max() == NO_TIME:
            row[choose.integer(0, k - 1)] = choose.integer(0, 9)
    rows = choose.integer(1, 3)
    transfer = _table(choose, (rows, k, k), 20 if limits else 0)
    transfer[:, range(k), range(k)] = 0
    capacities = [choose.integer(5, 60) if limits and choose.integer(0, 2) == 0 else None for _ in range(k)]
    hosts = [limits and objective == "throughput" and choose.integer(0, 5) == 0 for _ in range(k)]
    devices = tuple(
        Device(id=f"d{i}", kind="cpu" if host else "gpu", memory=capacity, host=host)
        for i, (capacity, host) in enumerate(zip(capacities, hosts, strict=True))
    )
    buses = [
        (a, b, choose.pick(("x", "y")))
        for a in range(k)
        for b in range(k)
        if a != b and limits and choose.integer(0, 2) == 0
    ]
    together = [{choose.integer(0, n - 1) for _ in range(2)}] if limits and choose.integer(0, 2) == 0 else []
    options: dict[str, object] = {
        "objective": objective,
        "runtime": choose.pick(("parallel", "parallel", "sequential")),
        "transfers": choose.pick(("per-tensor", "per-edge")),
        "communication": choose.pick(("added", "overlapped")),
        "memory": choose.pick(("dynamic", "static")),
        "stages": choose.integer(0, k),
    }
    return Problem(
        graph=graph,
        devices=devices,
        cost=CostTable(
            time, transfer, np.array([choose.integer(0, rows - 1) for _ in range(m)], np.int32), "generated"
        ),
        rules=Rules(**{**options, **fixed}),  # type: ignore[arg-type]
        together=merge_together(together),
        buses=tuple(buses),
    )


def make_placement(choose: Chooser, problem: Problem) -> Indices:
    """Any placement on devices that can run the ops; `together`, memory and links may be broken."""
    allowed = [np.flatnonzero(row != NO_TIME).tolist() for row in problem.cost.time]
    return np.array([choose.pick(devices) for devices in allowed], np.int32)


def make_order(choose: Chooser, problem: Problem) -> Indices:
    """Any topological order."""
    makers = [set() for _ in problem.graph.ops]  # type: list[set[int]]
    for tensor in problem.graph.tensors:
        for op in tensor.consumers:
            makers[op].add(tensor.producer)
    done: set[int] = {-1}
    order: list[int] = []
    while len(order) < len(makers):
        op = choose.pick([op for op in range(len(makers)) if op not in done and makers[op] <= done])
        order.append(op)
        done.add(op)
    return np.array(order, np.int32)


def _table(choose: Chooser, shape: tuple[int, ...], rare: int) -> Ints:
    """Times 0..9, absent once in `rare` entries."""
    values = [
        NO_TIME if rare and choose.integer(1, rare) == 1 else choose.integer(0, 9) for _ in range(int(np.prod(shape)))
    ]
    return np.array(values, np.int64).reshape(shape)


KINDS: dict[str, dict[str, Any]] = {
    "any": {},
    "parallel per-tensor": {"runtime": "parallel", "transfers": "per-tensor"},
    "parallel per-edge": {"runtime": "parallel", "transfers": "per-edge"},
    "sequential": {"runtime": "sequential"},
    "static memory": {"memory": "static"},
    "tight memory": {},
    "tight static memory": {"memory": "static"},
    "no limits": {"limits": False},
}
SEEDS_APART = 1000
"""Seeds from one kind to the next."""


@cache
def placement_problems(kind: str, count: int, first: int = 0) -> list[Problem]:
    """`count` problems of a kind; another `first` gives others."""
    begin = first + SEEDS_APART * list(KINDS).index(kind)
    found = [random_problem(seed, "latency", max_ops=5, **KINDS[kind]) for seed in range(begin, begin + count)]
    return [_tight(problem) for problem in found] if "tight" in kind else found


def _tight(problem: Problem) -> Problem:
    """Every device holds about its share of the memory that everything needs."""
    need = int(least_memory(problem).sum()) + sum(t.bytes for t in problem.graph.tensors if t.producer >= 0) // 2
    share = max(1, need * 5 // (4 * len(problem.devices)))
    return replace(problem, devices=tuple(msgspec.structs.replace(d, memory=share) for d in problem.devices))


class Feed(NamedTuple):
    """One tensor."""

    producer: int
    """An op, or -1 for an input of the model."""
    consumers: tuple[int, ...]
    length: int | Sequence[Sequence[int]] = 0
    """ns between any two devices, or from each device (row) to each device (column)."""
    bytes: int = 0
    output: bool = False


def problem_of(
    time: Sequence[Sequence[int]],
    wires: Sequence[Feed] = (),
    *,
    weights: Sequence[int] = (),
    workspace: Sequence[int] = (),
    backward: Sequence[int] = (),
    tied: Sequence[tuple[int, tuple[int, ...]]] = (),
    capacity: Sequence[int | None] = (),
    hosts: Sequence[int] = (),
    together: tuple[tuple[int, ...], ...] = (),
    buses: tuple[tuple[int, int, str], ...] = (),
    **rules: object,
) -> Problem:
    """Rows of `time` are ops, its columns devices; what is left out is 0, or without limit. `rules` sets `Rules`."""
    n, k = len(time), len(time[0])
    ops = [
        Op(
            f"op{i}",
            weight_bytes=weights[i] if weights else 0,
            workspace_bytes=workspace[i] if workspace else 0,
            backward=i in backward,
        )
        for i in range(n)
    ]
    tensors = [
        Tensor(f"t{i}", wire.producer, wire.consumers, wire.bytes, output=wire.output) for i, wire in enumerate(wires)
    ]
    shared = [Tied(f"w{i}", size, users) for i, (size, users) in enumerate(tied)]
    transfer = np.zeros((max(len(wires), 1), k, k), np.int64)
    for row, wire in zip(transfer, wires, strict=False):
        row[:] = np.array(wire.length)
        row[range(k), range(k)] = 0
    return Problem(
        graph=assemble("by hand", ops, tensors, shared),
        devices=tuple(Device(f"d{i}", "gpu", capacity[i] if capacity else None, host=i in hosts) for i in range(k)),
        cost=CostTable(np.array(time, np.int64), transfer, np.arange(len(wires), dtype=np.int32), "by hand"),
        rules=Rules(**rules),  # type: ignore[arg-type]
        together=together,
        buses=buses,
    )
