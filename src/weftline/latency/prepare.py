"""Compile (or load) every kernel of this room before a clock runs: tiny problems go through all of them once.

Where the installation brought no machine code, the first call compiles for half a minute; afterwards machine code comes
from disk in a second.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cache

import msgspec
import numpy as np

from weftline.bounds.label_costs import label_costs
from weftline.bounds.labelling import best_labelling
from weftline.cost import CostTable, devices_of_file, expand_file_costs
from weftline.errors import InfeasibleError
from weftline.latency.blocks.chain import Chains, reach
from weftline.latency.blocks.decompose import decompose
from weftline.latency.blocks.decomposition import BLOCK_PLAN, Decomposition
from weftline.latency.bounds import lower_bounds
from weftline.problem import Problem, Rules
from weftline.search import Search
from weftline.simulate.tables import tables
from weftline.zoo import regal_costs, synthetic

__all__ = ["prepare"]

SOLVERS = ("single-device", "cpeft", "heft", "greedy", "anneal")


@cache
def prepare() -> None:
    """Once per process."""
    from weftline.latency import solvers

    graph = synthetic("erdos_renyi", ops=12, seed=1)
    costs = regal_costs(graph, 3)
    table = expand_file_costs(costs)
    table = CostTable(table.time * np.array([1, 2, 3]), table.transfer, table.transfer_row, table.source)
    problem = Problem(graph, devices_of_file(costs), table, Rules())
    for each in (problem, problem.with_rules(Rules(runtime="sequential")), _tight(problem)):
        search = Search(each, work_limit=10**6)
        for name in SOLVERS:
            with suppress(InfeasibleError):
                solvers()[name].solve(search)
        with suppress(InfeasibleError):
            solvers()["min-cut"].solve(Search(each, work_limit=4))  # with tight memory it would try hundreds
    lower_bounds(problem)
    labels = label_costs(problem)
    if labels is not None:
        best_labelling(labels, rounds=1)
    flat = tables(problem)
    search = Search(problem, work_limit=10**6)
    search.offer(np.zeros(len(flat.time), np.int32))
    chain = Chains(flat, reach(flat)).pick(4)
    decompose(search, Decomposition.of(flat, problem.group, chain), effort=BLOCK_PLAN)


def _tight(problem: Problem) -> Problem:
    """With memory that binds."""
    share = max(1, sum(op.weight_bytes for op in problem.graph.ops) // 2)
    return replace(problem, devices=tuple(msgspec.structs.replace(d, memory=share) for d in problem.devices))
