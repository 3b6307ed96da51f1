"""Lower bounds on the value of every possible plan, each with a witness that can be checked without a solver.

In: a Problem. Out: `Bound`s, the best first; `certify/check.py` re-computes each from its witness alone.
Simplified: these are the combinatorial bounds (path, load, group); they ignore contention and memory.
"""

from weftline.bounds.bound import Bound
from weftline.bounds.group import group_bound
from weftline.bounds.load import load_bound
from weftline.bounds.path import path_bound
from weftline.problem import Problem

__all__ = ["Bound", "group_bound", "load_bound", "lower_bounds", "path_bound"]


def lower_bounds(problem: Problem) -> tuple[Bound, ...]:
    """Every bound that applies to the problem's objective, the largest first."""
    found = [group_bound(problem), load_bound(problem)]
    if problem.rules.objective == "latency":
        found.append(path_bound(problem))
    return tuple(sorted(found, key=lambda bound: -bound.value))
