"""Throughput: where is the pipeline cut, so that many inputs flow fast?

In: a Search on a Problem with objective throughput. Out: candidates, costed by the simulator; the search keeps the
best. Simplified: the memory of live activations is known to the simulator alone; solvers leave room for it.
"""

from functools import cache

from weftline.search import Solver, load_solvers

__all__ = ["solvers"]

_BUILT_IN = ("auto", "simple", "slice.slice", "anneal.anneal", "ideals", "exact.exact", "pack")


@cache
def solvers() -> dict[str, Solver]:
    """All pipeline solvers by name."""
    return load_solvers("pipeline", _BUILT_IN)
