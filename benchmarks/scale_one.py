"""`python -m benchmarks.scale_one KIND OPS SECONDS`: one large problem in this process -> its row as JSON on stdout."""

from __future__ import annotations

import json
import resource
import sys
from time import perf_counter, process_time

from benchmarks.flat import flat_cluster
from benchmarks.planned import Row, plan_row, warm_up
from weftline.graph import Graph
from weftline.pipeline import solvers
from weftline.problem import Problem, asked_rules, build_problem
from weftline.search import Search
from weftline.zoo import synthetic, zoo_graph

__all__ = ["main"]

DEVICES = 8
SEED = 7
WARM = 200
LONGEST_SLICE = 40.0
"""Wall seconds for the slice solver alone."""
OPS_PER_LAYER = 34
"""Of the zoo's gpt2, roughly; the row has the exact number of ops."""


def main(words: list[str]) -> int:
    """Warm up, build, plan, slice alone."""
    kind, ops, seconds = words[0], int(words[1]), float(words[2])
    warm_up(_problem(kind, WARM), min(3.0, seconds))
    begun = perf_counter()
    problem = _problem(kind, ops)
    built = perf_counter() - begun
    row = plan_row(problem, time_limit=seconds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sliced = _slice(problem)
    edges = sum(len(tensor.consumers) for tensor in problem.graph.tensors if tensor.producer >= 0)
    print(json.dumps({**row, **sliced, "edges": edges, "build_seconds": round(built, 3), "peak_bytes": peak}))
    return 0


def _problem(kind: str, ops: int) -> Problem:
    return build_problem(_graph(kind, ops), flat_cluster(DEVICES), rules=asked_rules({"objective": "throughput"}))


def _graph(kind: str, ops: int) -> Graph:
    if kind == "gpt":
        return zoo_graph("gpt2", layers=max(1, ops // OPS_PER_LAYER))
    return synthetic(kind, ops=ops, seed=SEED)


def _slice(problem: Problem) -> Row:
    """The slice solver by itself, until it is done or takes too long; processor time."""
    search = Search(problem, time_limit=LONGEST_SLICE, solver="slice")
    begun = process_time()
    solvers()["slice"].solve(search)
    value = None if search.best is None else search.best.value
    taken = round(process_time() - begun, 4)
    return {"slice_seconds": taken, "slice_ns": value, "slice_done": not search.stopped_by}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
