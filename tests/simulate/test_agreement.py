"""Tests that the kernels and the slow reference agree bit for bit, for every runtime and mode."""

from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices
from weftline.problem import Problem
from weftline.simulate import INFEASIBLE, Loads, Timeline, evaluate, replay, simulate_latency, simulate_throughput
from weftline.simulate.reference import ReferenceTimeline, reference_latency, reference_loads, reference_replay
from weftline.testing.generate import Chooser, SeededChooser, make_order, make_placement, make_problem
from weftline.testing.strategies import DrawnChooser, patient

LATENCY = [
    {"runtime": runtime, "transfers": transfers, "memory": memory}
    for runtime, transfers, memory in product(
        ("parallel", "sequential"), ("per-tensor", "per-edge"), ("dynamic", "static")
    )
]
THROUGHPUT = [
    {"communication": communication, "memory": memory}
    for communication, memory in product(("added", "overlapped"), ("dynamic", "static"))
]
CHUNK = 500
CHUNKS = range(4)
"""4 x 500 problems with two placements each for every mode."""

few = settings(patient, max_examples=40)


def _mode(fixed: dict[str, str]) -> str:
    return "-".join(fixed.values())


def _placements(choose: Chooser, problem: Problem) -> Indices:
    """One that respects what devices can run, and one that respects nothing but tends to go forward."""
    any_device = sorted(choose.integer(0, len(problem.devices) - 1) for _ in problem.graph.ops)
    if choose.integer(0, 3) == 0:
        any_device.reverse()
    return np.stack([make_placement(choose, problem), np.array(any_device, np.int32)])


def _times(timeline: Timeline) -> tuple[object, ...]:
    sent = sorted(tuple(row) for row in timeline.transfers.tolist())
    return timeline.value, timeline.start.tolist(), timeline.end.tolist(), sent, timeline.peak.tolist()


def _reference_times(slow: ReferenceTimeline) -> tuple[object, ...]:
    ops = range(len(slow.start))
    sent = sorted(slow.transfers)
    return slow.value, [slow.start[i] for i in ops], [slow.end[i] for i in ops], sent, slow.peak


def _compare_timeline(problem: Problem, placement: Indices, order: Indices) -> Timeline | None:
    try:
        slow = reference_latency(problem, placement.tolist(), order.tolist())
    except ValueError:
        with pytest.raises(InfeasibleError):
            simulate_latency(problem, placement, order)
        return None
    fast = simulate_latency(problem, placement, order)
    assert _times(fast) == _reference_times(slow)
    assert [tuple(row) for row in fast.transfers.tolist()] == slow.transfers  # booked in the same sequence, too
    actions = fast.actions(problem.graph.arrays.producer)
    assert _times(replay(problem, placement, actions)) == _times(fast)
    assert _reference_times(reference_replay(problem, placement.tolist(), actions.tolist())) == _times(fast)
    return fast


def compare_latency(choose: Chooser, fixed: dict[str, Any], seen: Counter[str]) -> None:
    """One problem, two placements, two orders: everything that can be compared."""
    problem = make_problem(choose, "latency", max_ops=9, max_devices=4, **fixed)
    placements = _placements(choose, problem)
    orders = np.stack([make_order(choose, problem) for _ in placements])
    batch, values = evaluate(problem, placements, orders, memory=True), evaluate(problem, placements, orders).value
    assert batch.peak is not None
    assert batch.value.tolist() == values.tolist()
    for row, (placement, order) in enumerate(zip(placements, orders, strict=True)):
        timeline = _compare_timeline(problem, placement, order)
        if timeline is None:
            assert batch.value[row] >= INFEASIBLE
            seen["infeasible"] += 1
            continue
        assert batch.value[row] == timeline.value
        assert batch.peak[row].tolist() == timeline.peak.tolist()
        makers = problem.graph.arrays.producer[timeline.transfers[:, 0]]
        late = timeline.transfers[:, 4] > timeline.end[makers]
        seen["contention"] += bool(late.any())
        seen["bus"] += bool(np.any(problem.bus[timeline.transfers[late, 1], timeline.transfers[late, 2]] >= 0))
        seen["memory"] += bool(np.any(timeline.peak > problem.capacity))


def _compare_loads(problem: Problem, placement: Indices) -> Loads | None:
    try:
        parts, peak = reference_loads(problem, placement.tolist())
    except ValueError:
        with pytest.raises(InfeasibleError):
            simulate_throughput(problem, placement)
        return None
    loads = simulate_throughput(problem, placement)
    assert [row.tolist() for row in (loads.compute, loads.entering, loads.leaving, loads.load)] == parts
    assert loads.peak.tolist() == peak
    assert loads.value == max(parts[-1])
    assert sorted(loads.stages) == sorted(set(placement.tolist()))
    return loads


def compare_throughput(choose: Chooser, fixed: dict[str, Any], seen: Counter[str]) -> None:
    """One problem, two placements: loads, peaks, and the batch."""
    problem = make_problem(choose, "throughput", max_ops=9, max_devices=4, **fixed)
    placements = _placements(choose, problem)
    batch, values = evaluate(problem, placements, memory=True), evaluate(problem, placements).value
    assert batch.peak is not None
    assert batch.value.tolist() == values.tolist()
    for row, placement in enumerate(placements):
        loads = _compare_loads(problem, placement)
        if loads is None:
            assert batch.value[row] >= INFEASIBLE
            seen["infeasible"] += 1
            continue
        assert batch.value[row] == loads.value
        assert batch.peak[row].tolist() == loads.peak.tolist()
        seen["stages"] += len(loads.stages) > 1
        seen["host"] += bool(problem.host[placement].any())
        seen["training"] += any(op.backward for op in problem.graph.ops)
        seen["memory"] += bool(np.any(loads.peak > problem.capacity))


@pytest.mark.parametrize("fixed", LATENCY, ids=_mode)
@pytest.mark.parametrize("chunk", CHUNKS)
def test_latency_agrees(chunk: int, fixed: dict[str, str]) -> None:
    """Tests that start, end, transfers, peaks, value, replay and batch are those of the reference."""
    seen: Counter[str] = Counter()
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        compare_latency(SeededChooser(seed), fixed, seen)
    # The cases are worth something only if they hold what they are for.
    assert min(seen[kind] for kind in ("infeasible", "contention", "bus", "memory")) >= 20, seen


@pytest.mark.parametrize("fixed", THROUGHPUT, ids=_mode)
@pytest.mark.parametrize("chunk", CHUNKS)
def test_throughput_agrees(chunk: int, fixed: dict[str, str]) -> None:
    """Tests that loads, peaks, value and batch are those of the reference."""
    seen: Counter[str] = Counter()
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        compare_throughput(SeededChooser(seed), fixed, seen)
    assert min(seen[kind] for kind in ("infeasible", "stages", "host", "training", "memory")) >= 20, seen


@pytest.mark.parametrize("fixed", LATENCY, ids=_mode)
@few
@given(data=st.data())
def test_latency_agrees_on_drawn_cases(fixed: dict[str, str], data: st.DataObject) -> None:
    """Tests the same on cases that hypothesis makes, and shrinks when they fail."""
    compare_latency(DrawnChooser(data.draw), fixed, Counter())


@pytest.mark.parametrize("fixed", THROUGHPUT, ids=_mode)
@few
@given(data=st.data())
def test_throughput_agrees_on_drawn_cases(fixed: dict[str, str], data: st.DataObject) -> None:
    """Tests the same on cases that hypothesis makes, and shrinks when they fail."""
    compare_throughput(DrawnChooser(data.draw), fixed, Counter())
