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

from weftline.bounds import Bound
from weftline.bounds.chain import MOST_OPS, Chain, Chains, reach
from weftline.bounds.side_ops import Hub, make_hub, pick_hub, side_bound
from weftline.bounds.windows import NEVER
from weftline.errors import InfeasibleError
from weftline.place.blocks import BOUNDED, EXACT, LONGEST_BLOCK, Decomposition, Held
from weftline.search import Search, Solver, best_of
from weftline.simulate.tables import Tables, tables

__all__ = ["SOLVER", "beside_the_chain", "branch", "chains", "decompose"]

SIZES = (60, 120, 320)
"""Most ops of a block, tried in turn."""
ENOUGH = 0.93
"""A chain whose blocks hold less than this share of what another's hold is not tried."""
SIDE_SECONDS = 20.0
STARTS = ("single-device", "heft", "greedy")


def decompose(
    search: Search, work: Decomposition, *, until: Callable[[], bool] | None = None, stages: int = EXACT
) -> None:
    """Work until bound and value meet, `until` says so, or nothing is left to do but what comes after some stages."""

    def over() -> bool:
        return search.is_over or (until is not None and until())

    offered = NEVER
    while not over():
        upper = search.best.value if search.best is not None else NEVER // 4
        _claim(search, work.bound(), upper, "chain")
        steps = work.next_round(upper)
        if not steps or work.stage(*steps[0]) >= stages:
            return
        for step in steps:
            if over():
                return
            upper = search.best.value if search.best is not None else NEVER // 4
            work.work_on(*step, upper, over, exact_work=search.work_limit is not None)
            _claim(search, work.bound(), upper, "chain")
        rest = search.best.placement if search.best is not None else np.zeros(len(work.table.time), np.int32)
        found = work.joined(rest)
        if found is not None and found[3] < min(offered, upper) and not over():
            placement, order, actions, offered = found
            search.offer(placement, order=None if actions is not None else order, actions=actions)


def branch(search: Search, work: Decomposition, hub: Hub, *, until: Callable[[], bool] | None = None) -> None:
    """One case for every device of the hub: first its chain bound, then the bound with the ops beside the chain."""

    def over() -> bool:
        return search.is_over or (until is not None and until())

    def on(device: int) -> Held:
        return hub.place, device

    def best() -> int:
        return NEVER // 4 if search.best is None else search.best.value

    def claim(least: int) -> None:
        _claim(search, least, best(), "hub")

    for device in np.flatnonzero(work.table.time[hub.op] >= 0).tolist():
        while not over():
            steps = work.next_round(best(), on(device))
            if not steps or work.stage(*steps[0]) >= BOUNDED:
                break
            for step in steps:
                if not over():
                    work.work_on(*step, best(), over, exact_work=True, held=on(device))
    least = {device: work.bound(on(device)) for device in np.flatnonzero(work.table.time[hub.op] >= 0).tolist()}
    done: set[int] = set()
    while not over():
        claim(min(least.values()))
        device = min(least, key=lambda each: least[each])
        if device in done or least[device] >= best():
            return
        done.add(device)
        least[device] = max(least[device], _side_bound(work, hub, on(device), best(), over))
    claim(min(least.values()))


def _side_bound(work: Decomposition, hub: Hub, held: Held, upper: int, over: Callable[[], bool]) -> int:
    def raised(step: tuple[int, int, int]) -> int:
        while work.stage(*step) < BOUNDED and not over():
            work.work_on(*step, upper, over, exact_work=True, held=held)
        return work.arc(work.segments[step[0]], *step[1:]).low

    return side_bound(
        work.table,
        hub,
        held[1],
        work.segments,
        work.lengths(held),
        upper,
        seconds=SIDE_SECONDS,
        stop=over,
        raised=raised,
    )


def beside_the_chain(
    search: Search,
    before: NDArray[np.bool_],
    work: Decomposition,
    most: int,
    *,
    until: Callable[[], bool] | None = None,
) -> None:
    """The hub bound, where something jumps over the chain."""
    table, group = tables(search.problem), search.problem.group
    found = pick_hub(table, before, work.chain, most)
    if found is None:
        return
    op, chain = found
    hub = make_hub(before, chain, op)
    if hub is not None:
        if chain.ops != work.chain.ops:
            work = Decomposition.of(table, group, chain, search.seed, work)
        branch(search, work, hub, until=until)


def _claim(search: Search, bound: int, upper: int, name: str) -> None:
    """A bound, as far as it matters."""
    if bound > 0:
        search.offer_bound(Bound(min(bound, upper), name, seconds=search.seconds))


def _solve(search: Search) -> None:
    from weftline.place import solvers

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
                beside_the_chain(search, before, work, most)
                decompose(search, work)
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
