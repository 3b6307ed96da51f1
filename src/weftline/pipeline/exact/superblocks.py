"""Bounds from three superblocks in CP-SAT (Archer et al.): what comes before a stage S, S itself, what comes behind it.

`bottleneck`: some stage has work >= W / k, so no pipeline is better than the cheapest contiguous S with that much work.
`guess(b)`: for every b, the stage with b stages before it costs at most t, what comes before it (work and what leaves)
at most b * t, and what comes behind at most (k - 1 - b) * t; the least such t bounds every pipeline. Exact for k <= 3.
Both are for equal devices with added communication; claimed, like every bound of a solver.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weftline.bounds import Bound
from weftline.graph.arrays import Ints
from weftline.pipeline.exact.equal import keep_order, place_on_levels
from weftline.pipeline.pieces import Pieces
from weftline.search import Search
from weftline.search.cp_sat import run_cp_sat

__all__ = ["bottleneck", "guess"]

PRECISION = 2**24


def bottleneck(
    search: Search,
    pieces: Pieces,
    *,
    seconds: float | None,
    work: float = 2.0,
    poll: Callable[[], bool] = lambda: False,
) -> int:
    """Offer the bound of the cheapest contiguous stage with an equal share of the work -> its value in ns."""
    return _solve(search, pieces, None, seconds, work, poll)


def guess(
    search: Search,
    pieces: Pieces,
    before: int,
    *,
    seconds: float | None,
    work: float = 2.0,
    poll: Callable[[], bool] = lambda: False,
) -> int:
    """Offer the bound of the stage with `before` stages before it -> its value in ns."""
    return _solve(search, pieces, before, seconds, work, poll)


def _solve(
    search: Search, pieces: Pieces, before: int | None, seconds: float | None, work: float, poll: Callable[[], bool]
) -> int:
    from ortools import __version__
    from ortools.sat.python import cp_model

    assert search.best is not None
    target = search.best.value
    scale = max(1, target // PRECISION)
    stages = min(pieces.problem.stage_limit, len(pieces.stage_devices))
    times = np.maximum(pieces.time[:, pieces.stage_devices[0]], 0)
    model = cp_model.CpModel()
    t = model.new_int_var(0, target // scale, "")
    levels = np.zeros(len(times), np.int64)
    at, up_to = place_on_levels(model, levels, levels + 2)
    keep_order(model, pieces, up_to, levels, levels + 2)
    inside = _stage(model, pieces, at, 1, times // scale, scale)
    if before is None:
        share = -(-int(times.sum()) // stages)
        model.add(sum(int(x) * at[v, 1] for v, x in enumerate(times.tolist()) if x) >= share)
        model.add(inside <= t)
    else:
        model.add(inside <= t)
        model.add(_stage(model, pieces, at, 0, times // scale, scale) <= before * t)
        model.add(_stage(model, pieces, at, 2, times // scale, scale) <= (stages - 1 - before) * t)
    model.minimize(t)
    name = f"{'bottleneck' if before is None else f'guess({before})'} (CP-SAT {__version__})"
    outcome = run_cp_sat(search, model, seconds=seconds, work=work, poll=poll, on_solution=lambda true: None)
    units = target if outcome.infeasible else int(np.ceil(outcome.bound - 1e-6)) * scale
    value = pieces.lift_bound(min(units, target))
    search.offer_bound(Bound(value, name, seconds=search.seconds))
    return value


def _stage(model: Any, pieces: Pieces, at: dict[tuple[int, int], Any], level: int, work: Ints, scale: int) -> Any:
    """Work of a superblock and every tensor across its border, once."""
    terms = [int(x) * at[v, level] for v, x in enumerate(work.tolist()) if x]
    for t, cost in enumerate((pieces.transfer_time // scale).tolist()):
        if cost == 0:
            continue
        made, crosses = at[int(pieces.maker[t]), level], model.new_bool_var("")
        for q in pieces.reader_of[pieces.reader_ptr[t] : pieces.reader_ptr[t + 1]].tolist():
            model.add_bool_or(~made, at[q, level], crosses)
            model.add_bool_or(made, ~at[q, level], crosses)
        terms.append(cost * crosses)
    return sum(terms)
