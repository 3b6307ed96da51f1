"""Moirai's MILP for placement and order, corrected, solved by HiGHS: for small graphs, and for comparison.

The best known value is the horizon, and so the M of every row. Bounds are claimed; they are rounded so that HiGHS's
tolerances cannot make them too large. See `look_below` for what is left where the memory of activations binds.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.latency.bounds import windows
from weftline.latency.exact.cp_sat import Attempt, look_below, start_plan
from weftline.latency.exact.order_model import OrderAnswer, common_unit, in_units
from weftline.papers.moirai.milp_model import MODEL_HORIZON, MilpModel, reachable
from weftline.papers.moirai.milp_worker import MilpAnswer, solve_here, solve_in_process
from weftline.search import Search, Solver
from weftline.simulate.tables import Tables, tables

__all__ = ["SOLVER"]

MOST_OPS = 3000
"""Of larger graphs pairs are not counted one by one."""
BOUND_LEAK = 1e-5
"""Share by which the tolerances of HiGHS may make a bound too large, generously."""


@dataclass(frozen=True)
class MilpParameters:
    """How large a model may be, and how long HiGHS works on it."""

    most_pairs: int = 20_000
    """Pairs of ops and of transfers whose order is open."""
    few_pairs: int = 30
    """Up to here a model is solved at once, without a process of its own."""
    tree_nodes: int = 3000
    """Of the search under a work limit."""
    closing_seconds: float = 0.5
    closing_share: float = 0.05
    """Kept of the time left, because HiGHS ends late and its answer has to be read."""


def _solve(search: Search) -> None:
    reasons = start_plan(search)
    look_below(search, "Moirai MILP (HiGHS)", _solve_model, exact=False)
    if search.best is None:
        raise InfeasibleError("the MILP found no plan within the limits", conflicts=(*reasons, *search.refused))


def _solve_model(attempt: Attempt) -> OrderAnswer | None:
    search, problem = attempt.search, attempt.search.problem
    parameters = search.parameters(MilpParameters)
    pairs = count_pairs(tables(problem))
    if pairs > parameters.most_pairs:
        most = parameters.most_pairs
        message = f"too large for Moirai's MILP: {pairs} pairs of ops or transfers, the limit is {most}"
        if search.best is None:
            raise InfeasibleError(message)
        search.tell(message)
        return None
    unit = common_unit(tables(problem))
    table, horizon = in_units(tables(problem), unit), attempt.horizon // unit
    lower = -(-attempt.lower // unit)
    window = windows(table, horizon, problem.group)
    if window.stuck >= 0 or lower > horizon:
        return OrderAnswer("infeasible", attempt.horizon + 1, None, None, None)
    model = MilpModel(table, window, horizon, lower, problem.group)
    if not model.fill(problem.capacity, attempt.excluded, lambda: search.is_over):
        return None
    answer = _run(search, model, pairs, parameters)
    bound = attempt.lower
    if np.isfinite(answer.bound):
        units = answer.bound * horizon / MODEL_HORIZON
        bound = max(bound, int(np.ceil(units * (1 - BOUND_LEAK) - 1e-6)) * unit)
    if answer.status == "infeasible":
        return OrderAnswer("infeasible", attempt.horizon + 1, None, None, None)
    if not answer.values:
        return OrderAnswer("unknown", bound, None, None, None)
    placement, actions = _read(model, table, answer.values)
    attempt.offer(placement, actions)
    return OrderAnswer(answer.status, bound, placement, actions, None)


def _run(search: Search, model: MilpModel, pairs: int, parameters: MilpParameters) -> MilpAnswer:
    left = search.seconds_left
    if left is not None:
        left -= parameters.closing_seconds + min(parameters.closing_share * left, 2.0)
    seconds, nodes = (left, None) if search.work_limit is None else (None, parameters.tree_nodes)
    if pairs <= parameters.few_pairs:
        return solve_here(model.model, seconds=seconds, nodes=nodes, seed=search.seed)
    return solve_in_process(model.model, seconds=seconds, nodes=nodes, seed=search.seed, stop=lambda: search.is_over)


def count_pairs(table: Tables) -> int:
    """Pairs of ops, and of edges, of which neither has to come after the other."""
    n, readers = len(table.time), np.repeat(np.arange(len(table.time)), np.diff(table.edge_ptr))
    if n > MOST_OPS or len(readers) > 2 * MOST_OPS:
        return n * (n - 1) // 2 + len(readers) * (len(readers) - 1) // 2
    reach = reachable(table)
    ordered = reach | reach.T
    after = reach[np.ix_(readers, table.edge_maker.astype(np.int64))]
    np.fill_diagonal(after, True)
    return int((n * n - ordered.sum()) // 2 + (after.size - (after | after.T).sum()) // 2)


def _read(model: MilpModel, table: Tables, values: dict[int, float]) -> tuple[Indices, Ints]:
    """The placement, and all ops and transfers by their starts, made to respect what depends on what."""
    placement = np.array([max(x, key=lambda k: values[x[k].id]) for x in model.place], np.int32)
    n = len(placement)
    rows: list[tuple[int, int, int]] = [(op, -1, -1) for op in range(n)]
    starts = [values[start.id] for start in model.start] or [float(op) for op in range(n)]
    after: list[list[int]] = [[] for _ in range(n)]
    missing = [0] * n

    def precede(first: int, second: int) -> None:
        after[first].append(second)
        missing[second] += 1

    for node in model.nodes:
        for a, b, _, _ in node.pairs:
            here = [reader for reader in node.readers if placement[reader] == b]
            if placement[node.maker] == a and here:
                rows.append((node.tensor, b, node.consumer))
                starts.append(0.0 if node.start is None else values[node.start.id])
                after.append([])
                missing.append(0)
                precede(node.maker, len(rows) - 1)
                for reader in here:
                    precede(len(rows) - 1, reader)
    for op in range(n):
        for maker in table.edge_maker[table.edge_ptr[op] : table.edge_ptr[op + 1]].tolist():
            precede(maker, op)
    heap = [(starts[i], i) for i in range(len(rows)) if not missing[i]]
    heapify(heap)
    actions = []
    while heap:
        _, item = heappop(heap)
        actions.append(rows[item])
        for later in after[item]:
            missing[later] -= 1
            if not missing[later]:
                heappush(heap, (starts[later], later))
    return placement, np.array(actions, np.int64)


SOLVER = Solver(
    "moirai-milp",
    "Moirai's MILP of placement and order, corrected, solved by HiGHS; small graphs",
    _solve,
    parameters=MilpParameters,
)
