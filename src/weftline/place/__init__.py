"""Latency: on which device does each op run, and in what order, so that one input is fast?

In: a Search on a Problem with objective latency. Out: candidates, costed by the simulator; the search keeps the best.
Simplified: the solvers here are heuristics; their bounds come from the bounds room.
"""

from functools import cache

from weftline.search import Solver, load_solvers

__all__ = ["solvers"]

_BUILT_IN = ("auto", "single_device", "even_split", "round_robin", "greedy", "heft", "pack")


@cache
def solvers() -> dict[str, Solver]:
    """All placement solvers by name."""
    return load_solvers("place", _BUILT_IN)
