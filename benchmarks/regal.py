"""REGAL-like random graphs: how near bound and value come where graphs are wide and nothing can be reduced.

In: families, seeds, numbers of stages. Out: one row per graph and k, beside it what W / k alone says.
Simplified: the graphs are of our own generator, which follows the published recipe.
"""

from __future__ import annotations

import sys
from functools import partial

from benchmarks.planned import Row, plan_row
from benchmarks.results_file import Collector
from weftline.bounds import load_bound
from weftline.cost import devices_of_file, expand_file_costs
from weftline.problem import Problem, asked_rules
from weftline.zoo import regal_costs, synthetic

__all__ = ["measure_regal", "regal_draws", "regal_problem", "regal_settings"]

FAMILIES = ("erdos_renyi", "barabasi_albert", "watts_strogatz", "block_model")
OPS = (50, 80, 120, 160, 200)
SIZES: dict[str, Row] = {
    "tiny": {"graphs": 1, "stages": [4], "time_limit": 1.0},
    "quick": {"graphs": 4, "stages": [8], "time_limit": 8.0},
    "full": {"graphs": 20, "stages": [4, 8, 16], "time_limit": 60.0},
}


def regal_settings(size: str, time_limit: float | None, graphs: int | None) -> Row:
    """Number of graphs, stages and seconds of a run."""
    chosen = SIZES[size]
    return {**chosen, "time_limit": time_limit or chosen["time_limit"], "graphs": graphs or chosen["graphs"]}


def regal_draws(count: int) -> list[tuple[str, int, int]]:
    """Family, ops, seed: the families take turns, and each goes through all sizes."""
    return [(FAMILIES[i % 4], OPS[i // 4 % len(OPS)], i) for i in range(count)]


def regal_problem(family: str, ops: int, seed: int, stages: int) -> Problem:
    """One graph with REGAL's unit costs on equal devices."""
    graph = synthetic(family, ops=ops, seed=seed)
    costs = regal_costs(graph, stages)
    rules = asked_rules({"objective": "throughput"})
    return Problem(graph, devices_of_file(costs), expand_file_costs(costs), rules)


def measure_regal(settings: Row, collect: Collector) -> None:
    """All rows, graph by graph."""
    for family, ops, seed in regal_draws(settings["graphs"]):
        for stages in settings["stages"]:
            key = {"family": family, "instance": f"{family} {ops} seed {seed}", "stages": stages}
            print(f"regal: {key['instance']}, k = {stages}", file=sys.stderr, flush=True)
            collect.measure(key, partial(_row, family, ops, seed, stages, settings["time_limit"]))


def _row(family: str, ops: int, seed: int, stages: int, time_limit: float) -> Row:
    problem = regal_problem(family, ops, seed, stages)
    return {**plan_row(problem, time_limit=time_limit), "load_ns": int(load_bound(problem).value)}
