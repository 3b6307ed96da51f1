"""Plans and schedules of every kind for tests of the report, made once; and a way to take a page apart."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import msgspec

from weftline.ask import make_plan
from weftline.ask.scheduling import make_schedule
from weftline.cluster import Cluster
from weftline.graph import Graph
from weftline.plans import Plan
from weftline.plans.schedule import Schedule
from weftline.problem import Problem, asked_rules, build_problem
from weftline.schedule.make_blocks import make_shape
from weftline.zoo.synthetic import synthetic

HOSTILE = "</script><img src=x onerror=alert(1)>"
KINDS = ("latency", "throughput", "hetero", "schedule", "large", "run")


def problem(family: str, ops: int, cluster: str, objective: str, **rules: object) -> Problem:
    """A synthetic graph on a preset."""
    asked = asked_rules({"objective": objective, **rules})
    return build_problem(synthetic(family, ops=ops, seed=1), Cluster.preset(cluster), rules=asked)


def sample(kind: str) -> Plan | Schedule:
    """The six kinds of the report."""
    return schedule_sample() if kind == "schedule" else plan_sample(kind)


@cache
def schedule_sample() -> Schedule:
    """The only kind that is no plan."""
    return make_schedule(make_shape("vshape", 4).with_memory(4), 12, solver="1f1b", work_limit=5)


@cache
def plan_sample(kind: str) -> Plan:
    """The other five."""
    if kind == "latency":
        return make_plan(problem("series_parallel", 120, "four-unequal", "latency"), solver="heft", time_limit=5)
    if kind == "large":
        return make_plan(problem("layered", 20_000, "eight-gpus", "latency"), solver="round-robin", work_limit=1)
    if kind == "hetero":
        return make_plan(problem("transformer_like", 150, "four-unequal", "throughput"), solver="greedy", time_limit=5)
    if kind == "run":
        return make_plan(problem("chain", 30, "two-gpus", "throughput"), solver="even-split", work_limit=5)
    return make_plan(
        problem("transformer_like", 200, "eight-gpus", "throughput", stages=8), solver="slice", time_limit=5
    )


RUN: dict[str, Any] = {
    "engine": "local",
    "objective": "throughput",
    "requests": 50,
    "measured_ns": 1_200_000,
    "predicted_ns": 1_000_000,
    "devices": [
        {"device": "gpu0", "compute_ns": 900_000, "predicted_compute_ns": 880_000, "utilisation": 0.75},
        {"device": "gpu1", "compute_ns": 1_100_000, "predicted_compute_ns": 950_000, "utilisation": 0.9},
    ],
    "baselines": {"replicas": 1_100_000, "one process": 2_000_000},
    "max_output_difference": 1e-7,
    "notes": [f"note {HOSTILE}"],
}


def run_of(plan: Plan) -> dict[str, Any]:
    """A run that may be one of this plan."""
    devices = [{**row, "device": id} for row, id in zip(RUN["devices"], plan.devices, strict=False)]
    return {**RUN, "objective": plan.objective, "predicted_ns": plan.value_ns, "devices": devices}


"""What a run of the local engine prints, in short."""


def hostile_plan(objective: str) -> Plan:
    """Every text that a file can bring is an attack."""
    clean = problem("chain", 6, "two-gpus", objective)
    graph = Graph(
        name=f"model {HOSTILE}",
        ops=tuple(
            msgspec.structs.replace(op, name=f"{i}{HOSTILE}", kind=HOSTILE) for i, op in enumerate(clean.graph.ops)
        ),
        tensors=tuple(msgspec.structs.replace(t, name=f"{i}{HOSTILE}") for i, t in enumerate(clean.graph.tensors)),
    )
    dirty = replace(clean, graph=graph, cost=replace(clean.cost, source=HOSTILE))
    solver = "round-robin" if objective == "latency" else "even-split"
    plan = make_plan(dirty, solver=solver, work_limit=3, argv=(HOSTILE,), inputs={HOSTILE: HOSTILE})
    bounds = tuple(msgspec.structs.replace(bound, by=HOSTILE) for bound in plan.bounds)
    return msgspec.structs.replace(plan, bounds=bounds, bound_by=HOSTILE, solver=HOSTILE, stopped_by=HOSTILE)


@dataclass(frozen=True)
class Parts:
    """A page taken apart."""

    policy: str
    style: str
    data: dict[str, Any]
    raw_data: str
    script: str
    text: str


def parts(page: bytes) -> Parts:
    """The elements that matter; each must be there once."""
    text = page.decode()
    found = {}
    for name, pattern in {
        "policy": r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">',
        "style": r"<style>(.*?)</style>",
        "raw_data": r'<script type="application/json" id="weft-data">(.*?)</script>',
        "script": r"<script>(.*?)</script>",
    }.items():
        (found[name],) = re.findall(pattern, text, re.DOTALL)
    return Parts(**found, data=json.loads(found["raw_data"]), text=text)
