"""Every cut of a model into two stages, run for real: is one of them better than the plan?

In: a problem of two devices, its plan, the model's file. Out: one row: the plan and the best cut, in turns. Simplified:
one cut between two kernels in topological order, both ways round.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import mean
from time import perf_counter

import numpy as np

from benchmarks.results import Row
from weftline.ask import make_plan
from weftline.cost import NO_TIME, CostTable
from weftline.errors import WeftlineError
from weftline.graph.arrays import Indices
from weftline.plans import Plan
from weftline.problem import Problem
from weftline.run.local.run import run_local
from weftline.run.split.segments import cut_places

__all__ = ["cuts_row"]

CUT_REQUESTS, AGAIN_REQUESTS = 12, 80
AGAIN = 12
"""Cuts between two runs of the plan."""
TURNS = 9
"""Runs of the plan, and of the best cut, at the end."""


def cuts_row(problem: Problem, plan: Plan, path: Path) -> Row:
    """Run every cut, with both orders of the devices; one that fails is not counted."""
    begun = perf_counter()
    planned: list[int] = []
    found: list[tuple[int, list[int]]] = []
    for number, (ops, first) in enumerate(_cuts(problem)):
        if number % AGAIN == 0:
            planned.append(_measured(plan, path))
        with suppress(WeftlineError):
            found.append((_measured(_cut_plan(problem, ops, first), path), [ops, first]))
    planned.append(_measured(plan, path))
    _, cut = min(found)
    again = [_measured(plan_again, path, AGAIN_REQUESTS) for plan_again in (plan, _cut_plan(problem, *cut)) * TURNS]
    return {
        "note": "",
        "count": len(found),
        "best_cut": cut,
        "best_ns": round(mean(again[1::2])),
        "planned_ns": round(mean(again[::2])),
        "planned_between_ns": planned,
        "least_ns": min(found)[0],
        "predicted_ns": plan.value_ns,
        "seconds": round(perf_counter() - begun, 1),
    }


def _measured(plan: Plan, path: Path, requests: int = CUT_REQUESTS) -> int:
    done = run_local(plan, model=path, requests=requests, baselines=False)
    done.check()
    return done.measured_ns


def _cuts(problem: Problem) -> Iterator[tuple[int, int]]:
    """(ops before the cut, device of these): every cut that divides no kernel."""
    for ops in cut_places(problem.group):
        yield from ((ops, 0), (ops, 1))


def _cut_plan(problem: Problem, ops: int, first: int) -> Plan:
    """The plan of one cut: no device can run what the other has."""
    placement: Indices = np.where(np.arange(len(problem.graph.ops)) < ops, first, 1 - first).astype(np.int32)
    time = np.where(placement[:, None] == np.arange(2), problem.cost.time, NO_TIME)
    cost = CostTable(time, problem.cost.transfer, problem.cost.transfer_row, problem.cost.source)
    return make_plan(replace(problem, cost=cost), time_limit=2.0)
