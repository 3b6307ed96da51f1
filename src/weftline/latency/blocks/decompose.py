"""Exact search by blocks: a chain of ops cuts the graph, blocks are solved apart, a shortest path joins them.

In: a problem and the best plan so far. Every (block, device before, device after) has a lower bound on its length and
perhaps a plan. The shortest way by lower bounds is a bound on the latency; only arcs on it are worked on, cheap methods
first: the energetic bound, annealing of the block, CP-SAT with the question whether the block can be shorter than a
better plan needs. The shortest way by known plans is offered. Where the blocks hold everything, bound and value meet.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from weftline.errors import InfeasibleError
from weftline.latency.blocks.chain import MOST_OPS, Chain, Chains, reach
from weftline.latency.blocks.decomposition import BOUNDED, EXACT, LONGEST_BLOCK, PLANNED, Decomposition
from weftline.latency.blocks.hub.branch import Branching, claim, offer_joined
from weftline.latency.blocks.windows import NEVER
from weftline.search import Search, Solver, best_of
from weftline.simulate.tables import Tables, tables

__all__ = ["SOLVER", "chains", "decompose"]

SIZES = (60, 120, 320)
"""Most ops of a block, tried in turn."""
ENOUGH = 0.93
"""A chain whose blocks hold less than this share of what another's hold is not tried."""
SOME = 16
"""After so many cheap steps the bound is added up; in large graphs that takes as long as one of them."""
STARTS = ("single-device", "heft", "greedy")


def decompose(
    search: Search, work: Decomposition, *, until: Callable[[], bool] | None = None, stages: int = EXACT
) -> None:
    """Work until bound and value meet, `until` says so, or nothing is left to do but what comes after some stages."""

    def over() -> bool:
        return search.is_over or (until is not None and until())

    offered = NEVER
    claim(search, work.bound(), "chain")
    while not over():
        upper = search.best.value if search.best is not None else NEVER // 4
        steps = work.next_round(upper)
        if not steps or work.stage(*steps[0]) >= stages:
            return
        begun, dear = search.seconds, work.stage(*steps[0]) >= PLANNED
        try:
            for turn, step in enumerate(steps, 1):
                if over():
                    break
                upper = search.best.value if search.best is not None else NEVER // 4
                work.work_on(*step, upper, over, exact_work=search.work_limit is not None)
                if dear or turn % SOME == 0:
                    claim(search, work.bound(), "chain")
        finally:
            claim(search, work.bound(), "chain")
        took = search.seconds - begun
        offered = _offer_known(search, work, offered, over)
        if work.stage(*steps[0]) > PLANNED:
            offered = _polish(search, work, took, offered, over)


def _offer_known(search: Search, work: Decomposition, offered: int, over: Callable[[], bool]) -> int:
    """Offer the shortest known way if it is shorter than the last one -> how long the last one is now."""
    known, best = work.known_way(), search.best
    if known is None or over() or known[1] >= min(offered, NEVER if best is None else best.value):
        return offered
    way, offered = known
    offer_joined(search, work, way, [np.zeros(len(work.table.time), np.int32) if best is None else best.placement])
    return offered


def _polish(search: Search, work: Decomposition, seconds: float, offered: int, over: Callable[[], bool]) -> int:
    """Anneal the blocks of the shortest known way once more, and go on for as long as CP-SAT just took."""
    until = search.seconds + seconds
    while (known := work.known_way()) is not None and work.polish(known[0], over) and not over():
        offered = _offer_known(search, work, offered, over)
        if search.work_limit is not None or search.seconds >= until:
            break
    return offered


def _solve(search: Search) -> None:
    from weftline.latency import solvers

    problem = search.problem
    if search.best is None:
        best_of(search, solvers(), STARTS)
    if problem.rules.runtime == "parallel" and len(problem.graph.ops) <= MOST_OPS and len(problem.devices) > 1:
        table = tables(problem)
        before = reach(table)
        for chain, most in chains(table, before):
            if search.is_over:
                break
            work = Decomposition.of(table, problem.group, chain, search.seed)
            decompose(search, work, stages=EXACT if work.complete else BOUNDED)
            if not work.complete and not search.is_over:
                branching = Branching.of(search, before, work, most)
                if branching is None:
                    decompose(search, work)
                    continue
                for part in (branching.bound_chain, branching.begin, branching.go_on):
                    part()
                decompose(search, branching.work)
                branching.plan_known()
    if not search.is_over and len(problem.graph.ops) <= LONGEST_BLOCK:
        search.run(solvers()["cp-sat"])  # ops beside every chain, memory that binds
    if search.best is None:
        raise InfeasibleError("no plan was found within the limits", conflicts=search.refused)


def chains(table: Tables, before: NDArray[np.bool_]) -> list[tuple[Chain, int]]:
    """Different chains by size of their blocks, small ones first; one that holds everything is the last."""
    found: list[tuple[Chain, int]] = []
    made = Chains(table, before)
    for most in SIZES:
        chain = made.pick(most)
        if not found or chain.ops != found[-1][0].ops:
            found.append((chain, most))
        if chain.inside >= 1.0:
            break
    most_inside = max(chain.inside for chain, _ in found)
    return [entry for entry in found if entry[0].inside >= ENOUGH * most_inside]


SOLVER = Solver("decompose", "blocks between cuts, solved exactly and joined by a shortest path", _solve)
