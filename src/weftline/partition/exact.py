"""The exact solver: CP-SAT looks for a pipeline better than the best known one, or shows that there is none.

Pieces are reduced, then contracted below the best known value, which also limits the model: a good start matters most.
The bound is claimed, since the checker cannot repeat the search. Memory of live activations is not in the model: a
pipeline that the simulator refuses for it is excluded, and the search goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from weftline.bounds import Bound
from weftline.coarsen import Pieces, contract_uncuttable, make_pieces, reduce_exactly
from weftline.cp_sat import run_cp_sat
from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices
from weftline.partition.model_equal import EqualModel, build_equal_model
from weftline.partition.model_unequal import UnequalModel, build_unequal_model
from weftline.partition.patience import is_over
from weftline.search import Search, Solver, best_of
from weftline.simulate import simulate_throughput

__all__ = ["SOLVER", "fits_model", "prove"]

PRECISION = 2**24
"""Costs are rounded down to about this share of the best known value."""
MOST_ENTRIES = 150_000
"""(piece, stage) and (tensor, stage) pairs that CP-SAT is asked to look at."""
BEGIN_AGAIN = 0.995
STARTS = ("single-device", "greedy", "even-split", "slice")


def _solve(search: Search) -> None:
    from weftline.partition import solvers

    best_of(search, solvers(), STARTS)
    if search.stopped_by and search.best is not None:
        return
    pieces = reduce_exactly(make_pieces(search.problem))
    if not fits_model(pieces):
        raise InfeasibleError(f"{len(pieces.time)} pieces are too many for an exact search")
    prove(search, pieces)


def fits_model(pieces: Pieces) -> bool:
    """False if the model would be too large to build."""
    stages = min(pieces.problem.stage_limit, len(pieces.problem.devices))
    pairs = stages if pieces.equal else len(pieces.problem.devices) ** 2
    return (len(pieces.time) + len(pieces.reader_of)) * pairs <= MOST_ENTRIES


def prove(
    search: Search,
    pieces: Pieces,
    *,
    seconds: float | None = None,
    work: float = 5.0,
    poll: Callable[[], bool] = lambda: False,
) -> None:
    """Search below the best known value until a stop rule fires, the time is over, or nothing better exists."""
    begun = search.seconds
    if not pieces.exact:
        pieces = make_pieces(search.problem, split=True)
    excluded: list[tuple[int, Indices]] = []
    while True:
        target = _worst(pieces) + 1 if search.best is None else search.best.value
        contracted = contract_uncuttable(pieces, target)
        build = build_equal_model if pieces.equal else build_unequal_model
        model = build(contracted, target, max(1, target // PRECISION), search.problem.capacity)
        if model is None:
            _nothing_below(search, contracted, target)
            return
        for device, ops in excluded:
            held = np.unique(contracted.of[ops])
            if len(ops) == contracted.size[held].sum():
                model.exclude(device, held)
        last: list[Indices] = []
        left = None if seconds is None else seconds - (search.seconds - begun)
        outcome = run_cp_sat(
            search,
            model.model,
            seconds=left,
            work=work,
            poll=partial(_much_better, search, target, poll),
            on_solution=partial(_offer, search, model, last),
            on_bound=partial(_claim, search, model),
        )
        if outcome.infeasible:
            _nothing_below(search, contracted, target)
            return
        _claim(search, model, outcome.bound)
        if is_over(search) or (left is not None and left <= 0.1):
            return
        if not outcome.optimal:
            if search.best is not None and search.best.value < BEGIN_AGAIN * target:
                continue
            return
        overflow = _overflows(search, last[-1]) if last else []
        if not overflow:
            return
        excluded += overflow


def _much_better(search: Search, target: int, poll: Callable[[], bool]) -> bool:
    """Look after others meanwhile; begin again if they have found something much better than the target."""
    return poll() or (search.best is not None and search.best.value < BEGIN_AGAIN * target)


def _offer(search: Search, model: EqualModel | UnequalModel, last: list[Indices], true: Any) -> None:
    placement = model.pieces.lift(model.placement(true))
    last[:] = [placement]
    search.offer(placement)


def _claim(search: Search, model: EqualModel | UnequalModel, bound: float) -> None:
    """Whole units of the model, back in ns."""
    from ortools import __version__

    value = model.pieces.lift_bound(int(np.ceil(bound - 1e-6)) * model.scale)
    search.offer_bound(Bound(value, f"exact (CP-SAT {__version__})", seconds=search.seconds))


def _nothing_below(search: Search, pieces: Pieces, target: int) -> None:
    from ortools import __version__

    if search.best is None:
        raise InfeasibleError(
            "no pipeline satisfies the limits",
            conflicts=("which devices can run which ops", "memory of the weights", "links", "the order of the stages"),
            proved=True,
        )
    value = pieces.lift_bound(target)
    search.offer_bound(Bound(value, f"exact (CP-SAT {__version__})", seconds=search.seconds))


def _overflows(search: Search, placement: Indices) -> list[tuple[int, Indices]]:
    """Devices whose memory a pipeline breaks, with the ops that stand on them."""
    peak = simulate_throughput(search.problem, placement).peak
    over = np.flatnonzero(peak > search.problem.capacity).tolist()
    return [(device, np.flatnonzero(placement == device).astype(np.int32)) for device in over]


def _worst(pieces: Pieces) -> int:
    """No pipeline costs more."""
    move = np.maximum(pieces.transfer, 0).max(axis=(1, 2), initial=0)[pieces.row]
    times = np.maximum(pieces.time, 0).max(axis=1).sum()
    return int(times + (move * (1 + np.diff(pieces.reader_ptr))).sum())


SOLVER = Solver("exact", "CP-SAT: the best pipeline, and the claim that none is better", _solve)
