"""`python -m benchmarks.placement_scale_one KIND OPS SECONDS`: one large placement -> its row as JSON on stdout."""

from __future__ import annotations

import json
import resource
import sys
from time import perf_counter

import msgspec

from benchmarks.planned import Row, plan_row, warm_up
from benchmarks.searched import run_solver
from weftline.cluster import Cluster
from weftline.latency import solvers
from weftline.problem import Problem, asked_rules, build_problem
from weftline.search import Search
from weftline.zoo import synthetic

__all__ = ["main"]

PRESET = "four-unequal"
LIMITED = ", memory limited"
SEED = 7
WARM = 100
AGAINST = {"heft": "heft", "single-device": "single"}
"""Solver -> what its columns begin with."""
LONGEST = 120.0
"""Wall seconds for each of them."""


def main(words: list[str]) -> int:
    """Warm up, build, plan, then HEFT and single devices by themselves."""
    kind, ops, seconds = words[0], int(words[1]), float(words[2])
    warm_up(_problem(kind, WARM), min(3.0, seconds))
    begun = perf_counter()
    problem = _problem(kind, ops)
    built = perf_counter() - begun
    row = plan_row(problem, time_limit=seconds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    edges = sum(len(tensor.consumers) for tensor in problem.graph.tensors if tensor.producer >= 0)
    more = {"edges": edges, "build_seconds": round(built, 3), "peak_bytes": peak}
    print(json.dumps({**row, **_against(problem), **more}))
    return 0


def _problem(kind: str, ops: int) -> Problem:
    cluster = Cluster.preset(PRESET)
    if not kind.endswith(LIMITED):
        devices = tuple(msgspec.structs.replace(device, memory=None, reserve=0) for device in cluster.devices)
        cluster = msgspec.structs.replace(cluster, devices=devices)
    graph = synthetic(kind.removesuffix(LIMITED), ops=ops, seed=SEED)
    return build_problem(graph, cluster, rules=asked_rules({"objective": "latency"}))


def _against(problem: Problem) -> Row:
    found: Row = {}
    for name, column in AGAINST.items():
        search = Search(problem, time_limit=LONGEST, solver=name)
        run_solver(solvers()[name], search)
        value = None if search.best is None else int(search.best.value)
        found |= {f"{column}_ns": value, f"{column}_seconds": round(search.seconds, 3)}
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
