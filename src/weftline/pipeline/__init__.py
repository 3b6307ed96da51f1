"""Throughput: where is the pipeline cut, so that many inputs flow fast?

In: a Search on a Problem with objective throughput. Out: candidates, costed by the simulator; the search keeps the
best. Simplified: the memory of live activations is known to the simulator alone; solvers leave room for it.
"""

from functools import cache

from weftline.search import Solver, load_solvers

__all__ = ["prepare", "solvers"]

_BUILT_IN = ("auto", "simple", "slice", "anneal", "ideals", "exact")


@cache
def solvers() -> dict[str, Solver]:
    """All pipeline solvers by name."""
    return load_solvers("pipeline", _BUILT_IN)


@cache
def prepare() -> None:
    """Compile (or load) every kernel of this room before a clock runs: tiny problems go through all of them, once.

    Where the installation brought no machine code, this compiles for most of a minute; else it takes a second.
    Time limits are for searching, so `plan` calls this before its clock begins, and `make install` once.
    """
    import numpy as np

    from weftline.cost import CostTable, devices_of_file, expand_file_costs
    from weftline.pipeline.bounds import lower_bounds, node_cover_bound
    from weftline.pipeline.convex.convex_set import convex_set_bound
    from weftline.pipeline.exact.equal import work_before
    from weftline.pipeline.ideals import over_ideals
    from weftline.pipeline.pieces import make_pieces
    from weftline.problem import Problem, Rules
    from weftline.search import Search
    from weftline.zoo import regal_costs, synthetic

    graph = synthetic("erdos_renyi", ops=16, seed=1)
    costs = regal_costs(graph, 3)
    equal = Problem(graph, devices_of_file(costs), expand_file_costs(costs), Rules(objective="throughput"))
    table = equal.cost
    unequal = Problem(
        graph,
        equal.devices,
        CostTable(table.time * np.array([1, 2, 3]), table.transfer, table.transfer_row, table.source),
        equal.rules,
    )
    for problem in (unequal, equal):
        search = Search(problem, work_limit=10**6)
        for name in ("slice", "anneal"):
            solvers()[name].solve(search)
    best, pieces, never = search.best, make_pieces(equal), np.zeros(1, np.int64)
    lower_bounds(equal)
    work_before(pieces, pieces.time[:, 0].astype(np.int64))
    over_ideals(pieces, best, never)
    value = 1 if best is None else best.value
    node_cover_bound(pieces, 3, lambda: value, stop=never, work=20, on_bound=lambda bound, witness: None)
    convex_set_bound(pieces, 3, lambda: value, stop=never, work=20, on_bound=lambda bound, witness: None)
