"""Tests of the trace: spans in microseconds where the timeline has nanoseconds, counters that follow memory."""

from __future__ import annotations

import itertools
import json

import pytest

from weftline.ask import make_plan
from weftline.plans import plan_result
from weftline.problem import asked_rules
from weftline.report import trace_json
from weftline.simulate import Timeline, memory_over_time
from weftline.testing import random_problem
from weftline.testing.generate import Feed, problem_of


def _spans(trace: bytes) -> list[dict[str, object]]:
    return [event for event in json.loads(trace)["traceEvents"] if event["ph"] == "X"]


@pytest.mark.parametrize("seed", [2, 5, 9])
def test_latency_spans_are_the_timeline(seed: int) -> None:
    """Tests that every op and transfer is there, at its time and on the track of its device."""
    plan = make_plan(random_problem(seed, "latency", limits=False), solver="round-robin")
    problem, result = plan_result(plan)
    assert isinstance(result, Timeline)
    spans = _spans(trace_json(plan))
    assert len(spans) == len(problem.graph.ops) + len(result.transfers)
    for op, span in zip(range(len(problem.graph.ops)), spans, strict=False):
        assert span["name"] == problem.graph.ops[op].name
        assert (span["ts"], span["dur"]) == (result.start[op] / 1000, (result.end[op] - result.start[op]) / 1000)
        assert span["tid"] == result.placement[op]


def test_memory_counters() -> None:
    """Tests that the counters of a device are its memory over time."""
    plan = make_plan(random_problem(4, "latency", limits=False), solver="heft")
    problem, result = plan_result(plan)
    assert isinstance(result, Timeline)
    counters = [event for event in json.loads(trace_json(plan))["traceEvents"] if event["ph"] == "C"]
    expected = [
        (f"memory {device.id}", time / 1000, level)
        for device, steps in zip(problem.devices, memory_over_time(problem, result), strict=True)
        for time, level in steps
    ]
    assert [(event["name"], event["ts"], event["args"]["bytes"]) for event in counters] == expected


def test_pipeline_spans_come_one_period_apart() -> None:
    """Tests that the compute of one stage repeats every period, and lasts what the stage says."""
    plan = make_plan(random_problem(3, "throughput", limits=False, stages=0), solver="single-device")
    spans = [span for span in _spans(trace_json(plan)) if str(span["name"]).startswith("compute")]
    starts = [float(str(span["ts"])) for span in spans]
    assert len(starts) > 1
    for before, after in itertools.pairwise(starts):
        assert after - before == pytest.approx(plan.value_ns / 1000)
    assert {span["dur"] for span in spans} == {plan.stages[0].compute_ns / 1000}


def test_a_transfer_of_a_pipeline_has_two_ends() -> None:
    """Tests that each end is named, that ends fill the loads, and that the trace says that it is schematic."""
    wires = [Feed(0, (1, 2), 3), Feed(1, (2,), 5)]
    for communication in ("added", "overlapped"):
        problem = problem_of([[10, -1, -1], [-1, 20, -1], [-1, -1, 30]], wires, objective="throughput")
        rules = asked_rules({"communication": communication}, problem.rules)
        plan = make_plan(problem.with_rules(rules), solver="greedy")
        trace = trace_json(plan)
        about = json.loads(trace)["otherData"]
        assert about["note"].startswith("schematic")
        spans = [span for span in _spans(trace) if span["args"]["input"] == 0]  # type: ignore[index]
        assert sorted((span["name"], span["tid"], span["dur"]) for span in spans) == [
            ("compute 0", 0, 0.01),
            ("compute 0", 1, 0.02),
            ("compute 0", 2, 0.03),
            ("receive t0", 1, 0.003),
            ("receive t0", 2, 0.003),
            ("receive t1", 2, 0.005),
            ("send t0", 0, 0.003),
            ("send t1", 1, 0.005),
        ]
        assert {span["pid"] for span in spans if str(span["name"]).startswith("send")} == {2}
        assert {span["pid"] for span in spans if str(span["name"]).startswith("receive")} == {3}


def test_a_latency_trace_is_not_schematic() -> None:
    """Tests that a timeline is drawn as it is."""
    plan = make_plan(random_problem(2, "latency", limits=False))
    assert "note" not in json.loads(trace_json(plan))["otherData"]
