"""`python -m reliability.determinism_once CASE...`: the digests of answers, as one JSON object; one run, one process.

In: names of cases. Out: case -> sha256 of the bytes of the plan or schedule. All searches have a work limit, so that
nothing depends on a clock.
"""

from __future__ import annotations

import hashlib
import json
import sys
from functools import cache
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from weftline.problem import Problem

__all__ = ["CASES", "answer"]

WORK = 150
CASES = (
    *(f"latency {solver}" for solver in ("greedy", "heft", "cpeft-64", "etf", "m-sct", "getf", "anneal")),
    *(f"latency {solver}" for solver in ("policy", "decompose", "cp-sat", "auto")),
    "sequential min-cut",
    *(f"throughput {solver}" for solver in ("greedy", "slice", "anneal", "brkga-100", "ideals", "exact", "auto")),
    *(f"schedule {solver}" for solver in ("1f1b", "list", "sequence", "cyclic", "full", "auto")),
    "fleet auto",
    *(f"layers {solver}" for solver in ("auto", "exact")),
)


@cache
def _problem(kind: str) -> Problem:
    from weftline.cluster import Cluster
    from weftline.problem import Rules, build_problem
    from weftline.zoo.synthetic import synthetic

    graph = synthetic("layered" if kind == "latency" else "transformer_like", ops=40, seed=1)
    cluster = Cluster.preset("laptop" if kind == "sequential" else "four-unequal")
    objective: Literal["latency", "throughput"] = "throughput" if kind == "throughput" else "latency"
    runtime: Literal["parallel", "sequential"] = "sequential" if kind == "sequential" else "parallel"
    return build_problem(graph, cluster, rules=Rules(objective=objective, runtime=runtime))


def answer(case: str) -> bytes:
    """The bytes of a case's plan or schedule."""
    kind, solver = case.split(" ", 1)
    if kind == "fleet":
        from weftline.ask import make_fleet
        from weftline.plans.fleet import fleet_to_json

        return fleet_to_json(make_fleet(_problem("throughput"), solver=solver, work_limit=WORK, seed=3))
    if kind == "layers":
        from weftline.ask.layers import make_layer_plan
        from weftline.plans.layers import layer_plan_to_json
        from weftline.testing import random_layers

        return layer_plan_to_json(make_layer_plan(random_layers(5, "links-depth"), solver=solver, work_limit=WORK))
    if kind == "schedule":
        from weftline.ask.scheduling import make_schedule
        from weftline.plans.schedule import schedule_to_json
        from weftline.schedule.make_blocks import make_shape

        return schedule_to_json(make_schedule(make_shape("vshape", 3), 6, solver=solver, work_limit=WORK, seed=3))
    from weftline.ask import make_plan
    from weftline.plans.plan import plan_to_json

    return plan_to_json(make_plan(_problem(kind), solver=solver, work_limit=WORK, seed=3))


if __name__ == "__main__":
    print(json.dumps({case: hashlib.sha256(answer(case)).hexdigest() for case in sys.argv[1:] or CASES}))
