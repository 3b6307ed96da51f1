"""Proofs that a period is the least of its class: all repetends of U micro-batches.

In: a PeriodSearch with its best repetends. Out: CP-SAT's claim that no order has the next smaller ratio (periods of
orders are ratios with small denominators, so this refutes everything below), or a better repetend.
"""

from __future__ import annotations

from fractions import Fraction

from weftline.schedule.cyclic_cp_sat import cyclic_starts, most_repetitions
from weftline.schedule.cyclic_order import order_of_starts
from weftline.schedule.cyclic_rounds import PeriodSearch
from weftline.schedule.linear_pipeline import fraction_below

__all__ = ["prove_size"]


def prove_size(found: PeriodSearch, size: int, seconds: float | None, work: float | None) -> bool:
    """Prove the best repetend of a size, or find better ones first -> whether it is proved."""
    search, pattern = found.search, found.pattern(size)
    refuted = found.bound * size
    while size in found.best and not found.is_over:
        best = found.best[size]
        below = fraction_below(best.length, most_repetitions(pattern, found.bound * size))
        if below < found.bound * size:
            found.prove(size, "no cycle has a ratio between it and the bound")
            return True
        middle = Fraction((refuted + best.length) // 2)
        tried = middle if refuted < middle < best.length - 1 else below
        answer = cyclic_starts(
            search.blocks,
            pattern,
            tried,
            hint=best.starts,
            seconds=seconds,
            work=work,
            seed=search.seed,
            poll=lambda: found.is_over,
        )
        if answer.refuted and tried == below:
            found.prove(size, f"the least of all repetends of {size} micro-batches (claimed by CP-SAT)")
            return True
        if answer.refuted:
            refuted = tried
        elif answer.starts is None:
            return False
        else:
            found.offer_order(size, order_of_starts(pattern, answer.starts, tried))
            if found.best[size] is best:
                return False
    return False
