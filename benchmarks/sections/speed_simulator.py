"""How fast the simulator is: evaluations per second of random placements, none of them twice, and how that grows.

In: sizes. Out: plain dictionaries for the JSON file. The plain-Python opponents get the same placements in the same
run, and their values must agree. Simplified: one synthetic graph, layered, on four unequal devices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log2
from typing import Any

import numpy as np

from benchmarks.clock import Prepare, best_median, exponent, interleaved
from weftline.cluster import Cluster
from weftline.graph.arrays import Indices
from weftline.problem import Problem, asked_rules, build_problem
from weftline.simulate import default_order, evaluate
from weftline.simulate.reference import reference_latency
from weftline.zoo import synthetic

__all__ = ["SEED", "Draw", "PlainSimulator", "layered_problem", "measure_growth", "measure_simulator"]

SEED = 7
GOAL = 25_000
"""Evaluations per second of 1,000 ops on 4 devices on one idle core."""
LEAST = 8
"""Placements in a batch, at least: a search costs many placements of one problem, not one of each in turn."""


def layered_problem(ops: int, objective: str = "latency") -> Problem:
    """The graph of this page on the cluster of this page."""
    graph = synthetic("layered", ops=ops, seed=SEED)
    return build_problem(graph, Cluster.preset("four-unequal"), rules=asked_rules({"objective": objective}))


def _free_transfers(problem: Problem) -> Problem:
    """Transfers take no time, so no port is ever booked."""
    return replace(problem, cost=replace(problem.cost, transfer=np.zeros_like(problem.cost.transfer)))


@dataclass
class Draw:
    """Placements that were never seen before."""

    problem: Problem
    random: np.random.Generator

    def anywhere(self, count: int) -> Indices:
        """Every op on a random device."""
        shape = (count, len(self.problem.graph.ops))
        return self.random.integers(0, len(self.problem.devices), shape, np.int32)

    def cuts(self, count: int) -> Indices:
        """Random cuts of the topological order: pipelines."""
        n, devices = len(self.problem.graph.ops), len(self.problem.devices)
        cuts = np.sort(self.random.integers(0, n + 1, (count, devices - 1)), axis=1)
        stage: Indices = (np.arange(n)[None, :, None] >= cuts[:, None, :]).sum(axis=2).astype(np.int32)
        return stage


class PlainSimulator:
    """The latency simulator as one would write it in plain Python, linear in the edges: the kernel's fair opponent.

    Same meaning of time (parallel runtime, one transfer per tensor and device, ports), no memory, no shared buses. The
    reference simulator is written to be obviously right and takes quadratic time; a ratio to it alone would flatter.
    """

    def __init__(self, problem: Problem) -> None:
        self.order = default_order(problem).tolist()
        self.time = problem.cost.time.tolist()
        self.transfer = problem.cost.transfer.tolist()
        self.devices = len(problem.devices)
        row = problem.cost.transfer_row.tolist()
        self.reads: list[list[tuple[int, int, int]]] = [[] for _ in problem.graph.ops]
        for t, tensor in enumerate(problem.graph.tensors):
            for op in tensor.consumers if tensor.producer >= 0 else ():
                self.reads[op].append((t, tensor.producer, row[t]))

    def latency(self, placement: Indices) -> int:
        """The value of one placement."""
        where = placement.tolist()
        end = [0] * len(where)
        free, send, receive = ([0] * self.devices for _ in range(3))
        arrived: dict[tuple[int, int], int] = {}
        for op in self.order:
            device = where[op]
            ready, missing = 0, []
            for tensor, maker, row in self.reads[op]:
                if where[maker] == device:
                    ready = max(ready, end[maker])
                elif (tensor, device) in arrived:
                    ready = max(ready, arrived[tensor, device])
                else:
                    missing.append((end[maker], tensor, where[maker], row))
            for done, tensor, source, row in sorted(missing):
                length, begin = self.transfer[row][source][device], done
                if length > 0:
                    begin = max(done, send[source], receive[device])
                    send[source] = receive[device] = begin + length
                arrived[tensor, device] = begin + length
                ready = max(ready, begin + length)
            duration = self.time[op][device]
            if duration > 0:
                ready = max(ready, free[device])
                free[device] = ready + duration
            end[op] = ready + duration
        return max(end)


def measure_simulator(*, ops: int, batch: int, plain: int, reference: int, repeats: int) -> dict[str, Any]:
    """Rates of the kernels beside plain Python; `batch`, `plain`, `reference` are placements per repeat."""
    problem = layered_problem(ops)
    draw = Draw(problem, np.random.default_rng(SEED))
    opponent, order = PlainSimulator(problem), default_order(problem).tolist()
    _check_agreement(problem, opponent, order, draw.anywhere(1))
    pipeline, free = layered_problem(ops, "throughput"), _free_transfers(problem)
    small = max(1, batch // 8)
    shared: dict[str, Indices] = {}

    def fresh() -> Callable[[], object]:
        shared["rows"] = rows = draw.anywhere(batch)
        return lambda: evaluate(problem, rows)

    def again(count: int, one: Callable[[Indices], object]) -> Prepare:
        """The opponents cost the first rows of the batch that the kernel has just costed."""
        return lambda: lambda: [one(row) for row in shared["rows"][:count]]

    actions: dict[str, tuple[int, Prepare]] = {
        "evaluate, latency": (batch, fresh),
        "evaluate, latency, free transfers": (batch, _timed(free, draw.anywhere, batch)),
        "evaluate, latency with memory peaks": (small, _timed(problem, draw.anywhere, small, memory=True)),
        "evaluate, throughput (random cuts)": (batch, _timed(pipeline, draw.cuts, batch)),
        "evaluate, throughput with memory peaks": (small, _timed(pipeline, draw.cuts, small, memory=True)),
        "plain Python, latency": (plain, again(plain, opponent.latency)),
        "reference, latency with memory peaks": (
            reference,
            again(reference, lambda row: reference_latency(problem, row.tolist(), order)),
        ),
    }
    interleaved({name: action for name, (_, action) in actions.items() if name.startswith("evaluate")}, 1)  # compile
    seconds = interleaved({name: action for name, (_, action) in actions.items()}, repeats)
    rows = [
        {"what": name, "per_second": count / best_median(seconds[name]), "placements": count}
        for name, (count, _) in actions.items()
    ]
    return {**_shape(problem), "repeats": repeats, "goal_per_second": GOAL, "rows": rows}


def _timed(problem: Problem, draw: Callable[[int], Indices], count: int, *, memory: bool = False) -> Prepare:
    def prepare() -> Callable[[], object]:
        rows = draw(count)
        return lambda: evaluate(problem, rows, memory=memory)

    return prepare


def _check_agreement(problem: Problem, opponent: PlainSimulator, order: list[int], rows: Indices) -> None:
    """A race between simulators that disagree would mean nothing."""
    answer = evaluate(problem, rows, memory=True)
    for row, value, peak in zip(rows, answer.value.tolist(), answer.peak.tolist(), strict=True):  # type: ignore[union-attr]
        reference = reference_latency(problem, row.tolist(), order)
        if not (value == opponent.latency(row) == reference.value and peak == reference.peak):
            raise RuntimeError("the simulators disagree, so their speeds cannot be compared")


def _shape(problem: Problem) -> dict[str, int]:
    edges = sum(len(tensor.consumers) for tensor in problem.graph.tensors if tensor.producer >= 0)
    return {"ops": len(problem.graph.ops), "edges": edges, "devices": len(problem.devices)}


def measure_growth(sizes: tuple[int, ...], *, work: int, repeats: int) -> dict[str, Any]:
    """Time of one evaluation over the number of ops; a repeat costs about `work` ops in all, whatever the size."""
    shapes, actions, counts = {}, {}, {}
    for ops in sizes:
        problem = layered_problem(ops)
        draw = Draw(problem, np.random.default_rng(SEED))
        shapes[str(ops)], counts[str(ops)] = _shape(problem), max(LEAST, work // ops)
        actions[str(ops)] = _timed(problem, draw.anywhere, counts[str(ops)])
        evaluate(problem, draw.anywhere(1))
    seconds = interleaved(actions, repeats)
    one = {name: best_median(seconds[name]) / counts[name] for name in actions}
    rows = [{**shapes[str(n)], "seconds": one[str(n)], "ns_per_op": one[str(n)] * 1e9 / n} for n in sizes]
    times = [row["seconds"] for row in rows]
    return {
        "rows": rows,
        "exponent_of_n": exponent([float(n) for n in sizes], times),
        "exponent_of_n_log_n": exponent([n * log2(n) for n in sizes], times),
        "repeats": repeats,
    }
