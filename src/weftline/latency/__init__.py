"""Latency: on which device does each op run, and in what order, so that one input is fast?

In: a Search on a Problem with objective latency. Out: candidates, costed by the simulator; the search keeps the best.
Simplified: contention and order are exact; kernels of a device that overlap, and noise of its times, are not there.
"""

from functools import cache

from weftline.search import Solver, load_solvers

__all__ = ["solvers"]

_BUILT_IN = (
    "auto",
    "list.schedulers",
    "anneal.anneal",
    "exact.cp_sat",
    "blocks.decompose",
    "sequential.min_cut",
    "policy.policy",
)


@cache
def solvers() -> dict[str, Solver]:
    """All placement solvers by name."""
    return load_solvers("latency", _BUILT_IN)
