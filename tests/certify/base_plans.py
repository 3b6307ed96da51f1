"""Small hand-made plans to which every kind of tampering applies, as parsed JSON.

`latency`: a on d0 feeds b1 and b2 on d1 and b3 on d2, b3 feeds c on d1, everything meets in z on d0. So two transfers
leave d0 by one send port, several enter it by one receive port, and d1 -> d0 and d2 -> d1 share a bus. All devices have
memory limits.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from weftline.ask import make_plan
from weftline.bounds import Bound
from weftline.cluster import Device
from weftline.cost import NO_TIME, CostTable
from weftline.graph import Op, Tensor, Tied, assemble
from weftline.plans.plan import plan_to_json
from weftline.problem import Problem, Rules
from weftline.search import Search

Json = Any


def parsed(plan: object) -> Json:
    """A plan as the checker reads it."""
    return json.loads(plan_to_json(plan))  # type: ignore[arg-type]


def rehash(plan: Json) -> None:
    """What a forger does after editing the problem."""
    text = json.dumps(plan["problem"], sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    plan["provenance"]["problem_sha256"] = hashlib.sha256(text.encode()).hexdigest()


@cache
def _latency() -> Json:
    ops = [Op(name, weight_bytes=10, workspace_bytes=1) for name in ("a", "b1", "b2", "b3", "c", "z")]
    tensors = [
        Tensor("in", -1, (0,), 4),
        Tensor("ta", 0, (1, 2, 3), 8),
        Tensor("tb1", 1, (5,), 8),
        Tensor("tb2", 2, (5,), 8),
        Tensor("tb3", 3, (4, 5), 8),
        Tensor("tc", 4, (5,), 8),
        Tensor("tz", 5, (), 8, output=True),
    ]
    return _planned(ops, tensors, Rules(), together=((1, 2),), placement=[0, 1, 1, 2, 1, 0])


@cache
def _sequential() -> Json:
    ops = [Op(name, weight_bytes=10) for name in ("a", "b", "c", "d")]
    tensors = [Tensor("ta", 0, (1, 2), 8), Tensor("tb", 1, (3,), 8), Tensor("tc", 2, (3,), 8)]
    return _planned(ops, tensors, Rules(runtime="sequential"), placement=[0, 1, 0, 0])


@cache
def _throughput() -> Json:
    ops = [Op(name, weight_bytes=10, workspace_bytes=1) for name in ("a", "b", "c", "d", "e", "f")]
    tensors = [Tensor(f"t{i}", i, (i + 1,), 8) for i in range(5)] + [Tensor("out", 5, (), 8, output=True)]
    rules = Rules(objective="throughput")
    return _planned(ops, tensors, rules, together=((0, 1),), placement=[0, 0, 1, 1, 2, 2])


def _planned(
    ops: list[Op],
    tensors: list[Tensor],
    rules: Rules,
    *,
    placement: list[int],
    together: tuple[tuple[int, ...], ...] = (),
) -> Json:
    n, k = len(ops), 3
    graph = assemble("hand-made", ops, tensors, [Tied("shared", 5, (0, n - 1))])
    time = np.full((n, k), 10, np.int64) + np.arange(k)
    time[0, 2] = NO_TIME
    transfer = np.full((1, k, k), 4, np.int64)
    transfer[:, range(k), range(k)] = 0
    problem = Problem(
        graph,
        tuple(Device(id=f"d{i}", kind="gpu", memory=200) for i in range(k)),
        CostTable(time, transfer, np.zeros(len(tensors), np.int32), "by hand"),
        rules,
        together,
        ((1, 0, "pcie"), (2, 1, "pcie")),
    )

    def offer(search: Search) -> None:
        search.offer(np.array(placement, np.int32))
        search.offer_bound(Bound(search.best.value - 1, "oracle 1.0"))  # type: ignore[union-attr]

    return parsed(make_plan_with(problem, offer))


def make_plan_with(problem: Problem, solve: Callable[[Search], None]) -> object:
    """A plan of a solver that exists for one test alone."""
    from weftline.ask.planning import solvers_for
    from weftline.search import Solver

    registry = solvers_for(problem.rules.objective)
    registry["for-a-test"] = Solver("for-a-test", "offers what the test says", solve)
    try:
        return make_plan(problem, solver="for-a-test", work_limit=100)
    finally:
        del registry["for-a-test"]


def latency_plan() -> Json:
    """Parallel runtime."""
    return copy.deepcopy(_latency())


def sequential_plan() -> Json:
    """Sequential runtime."""
    return copy.deepcopy(_sequential())


def throughput_plan() -> Json:
    """Three stages."""
    return copy.deepcopy(_throughput())
