"""Latency: on which device does each op run, and in what order, so that one input is fast?

In: a Search on a Problem with objective latency. Out: candidates, costed by the simulator; the search keeps the best.
Simplified: contention and order are exact; kernels of a device that overlap, and noise of its times, are not there.
"""

from functools import cache

from weftline.search import Solver, load_solvers

__all__ = ["solvers"]

_BUILT_IN = (
    "auto",
    "single_device",
    "even_split",
    "round_robin",
    "greedy",
    "heft",
    "cpeft",
    "cpeft_random",
    "etf",
    "m_topo",
    "m_etf",
    "m_sct",
    "getf",
    "placeto_greedy",
    "anneal",
    "moirai_milp",
    "cp_sat",
    "decompose",
    "min_cut",
    "pack",
    "learned.policy",
    "learned.policy_polish",
    "learned.hsdag",
    "learned.placeto",
    "learned.rnn",
)


@cache
def solvers() -> dict[str, Solver]:
    """All placement solvers by name."""
    return load_solvers("place", _BUILT_IN)
