"""Exact search by blocks: a chain of ops cuts the graph, blocks are solved apart, a shortest path joins them.

In: a problem and the best plan so far. Every (block, device before, device after) has a lower bound on its length and
perhaps a plan. The shortest path by lower bounds is a bound on the latency; only arcs on it are worked on, cheap
methods first: the energetic bound, annealing of the block, CP-SAT with the question whether the block can be shorter
than a better plan needs. The shortest path by known plans is offered. Where the blocks hold everything, bound and value
meet.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from weftline.errors import InfeasibleError
from weftline.latency.blocks.chain import MOST_OPS, Chain, Chains, reach
from weftline.latency.blocks.decomposition import (
    BLOCK_PLAN,
    EXACT_SEARCH,
    FINE_BOUND,
    DecomposeParameters,
    Decomposition,
)
from weftline.latency.blocks.hub_search import Branching, claim, offer_joined
from weftline.latency.bounds import OUT_OF_REACH
from weftline.search import Search, Solver, best_of
from weftline.simulate.tables import Tables, tables

__all__ = ["SOLVER", "chains", "decompose"]

BLOCK_SIZES = (60, 120, 320)
"""Most ops of a block, tried in turn."""
STARTS = ("single-device", "heft", "greedy")


def decompose(
    search: Search, work: Decomposition, *, until: Callable[[], bool] | None = None, effort: int = EXACT_SEARCH
) -> None:
    """Work until bound and value meet, `until` says so, or all that is left takes as much effort or more."""

    def over() -> bool:
        return search.is_over or (until is not None and until())

    offered = OUT_OF_REACH
    known = search.notes.setdefault("chain", [])
    if work not in known:
        known.append(work)
    claim(search, work.bound(), "chain")
    while not over():
        upper = search.best.value if search.best is not None else OUT_OF_REACH // 4
        steps = work.next_round(upper)
        if not steps or work.effort(*steps[0]) >= effort:
            return
        begun, expensive = search.seconds, work.effort(*steps[0]) >= BLOCK_PLAN
        try:
            for turn, step in enumerate(steps, 1):
                if over():
                    break
                upper = search.best.value if search.best is not None else OUT_OF_REACH // 4
                work.work_on(*step, upper, over, exact_work=search.work_limit is not None)
                if expensive or turn % work.parameters.steps_per_sum == 0:
                    claim(search, work.bound(), "chain")
        finally:
            claim(search, work.bound(), "chain")
        took = search.seconds - begun
        offered = _offer_known(search, work, offered, over)
        if work.effort(*steps[0]) > BLOCK_PLAN:
            offered = _polish(search, work, took, offered, over)


def _offer_known(search: Search, work: Decomposition, offered: int, over: Callable[[], bool]) -> int:
    """Offer the shortest known path if it is shorter than the last one -> how long the last one is now."""
    known, best = work.known_path(), search.best
    if known is None or over() or known[1] >= min(offered, OUT_OF_REACH if best is None else best.value):
        return offered
    path, offered = known
    offer_joined(search, work, path, [np.zeros(len(work.table.time), np.int32) if best is None else best.placement])
    return offered


def _polish(search: Search, work: Decomposition, seconds: float, offered: int, over: Callable[[], bool]) -> int:
    """Anneal the blocks of the shortest known path once more, and go on for as long as CP-SAT just took."""
    until = search.seconds + seconds
    while (known := work.known_path()) is not None and work.polish(known[0], over) and not over():
        offered = _offer_known(search, work, offered, over)
        if search.work_limit is not None or search.seconds >= until:
            break
    return offered


def _solve(search: Search) -> None:
    from weftline.latency import solvers

    problem, numbers = search.problem, search.parameters(DecomposeParameters)
    if search.best is None:
        best_of(search, solvers(), STARTS)
    if problem.rules.runtime == "parallel" and len(problem.graph.ops) <= MOST_OPS and len(problem.devices) > 1:
        table = tables(problem)
        before = reach(table)
        for chain, most in chains(table, before, numbers.least_share_of_chain):
            if search.is_over:
                break
            work = Decomposition.of(table, problem.group, chain, search.seed, parameters=numbers)
            decompose(search, work, effort=EXACT_SEARCH if work.complete else FINE_BOUND)
            if not work.complete and not search.is_over:
                branching = Branching.of(search, before, work, most)
                if branching is None:
                    decompose(search, work)
                    continue
                for part in (branching.bound_chain, branching.begin, branching.go_on):
                    part()
                decompose(search, branching.work)
                branching.plan_known()
    if not search.is_over and len(problem.graph.ops) <= numbers.most_exact_ops:
        search.run(solvers()["cp-sat"])  # ops beside every chain, memory that binds
    if search.best is None:
        raise InfeasibleError("no plan was found within the limits", conflicts=search.refused)


def chains(
    table: Tables, before: NDArray[np.bool_], share: float = DecomposeParameters.least_share_of_chain
) -> list[tuple[Chain, int]]:
    """Different chains by size of their blocks, small ones first; one that holds everything is the last.

    Those whose blocks hold less than a share of what another's hold are left out.
    """
    found: list[tuple[Chain, int]] = []
    made = Chains(table, before)
    for most in BLOCK_SIZES:
        chain = made.pick(most)
        if not found or chain.ops != found[-1][0].ops:
            found.append((chain, most))
        if chain.inside >= 1.0:
            break
    most_inside = max(chain.inside for chain, _ in found)
    return [entry for entry in found if entry[0].inside >= share * most_inside]


SOLVER = Solver(
    "decompose",
    "blocks between cuts, solved exactly and joined by a shortest path",
    _solve,
    parameters=DecomposeParameters,
)
