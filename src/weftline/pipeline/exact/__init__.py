"""Exact cuts by CP-SAT: a threshold is asked again and again.

In: a Search. Out: candidates and claimed bounds. Simplified: times are rounded to the grid of the model.

CP-SAT as a solver: the best pipeline (`exact`), or one that merely fits (`pack`).

`exact` looks for a pipeline better than the best known one, or shows that there is none. Pieces are reduced, then
contracted below the best known value, which also limits the model: a good start matters most. The bound is claimed,
since the checker cannot repeat the search. Memory of live activations is not in the model: a pipeline that the
simulator refuses for it is excluded, and the search goes on.

`pack` is for memory so tight that the heuristics run into a wall: a pipeline that fits, with little compute. Exact for
the memory of weights and for the order of stages; transfers are not in its objective. Where activations overflow a
device, it packs again with room for them. Proves infeasibility of the first packing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from weftline.bounds import Bound
from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.pipeline.exact.equal import EqualModel, build_equal_model
from weftline.pipeline.exact.unequal import UnequalModel, build_unequal_model, limit_stages, orders_of_devices
from weftline.pipeline.pieces import Pieces, make_pieces
from weftline.pipeline.reduce import contract_uncuttable, reduce_exactly
from weftline.pipeline.simple import FIRST_SOLVERS, overflow_of
from weftline.problem import Problem
from weftline.search import Search, Solver, best_of
from weftline.search.cp_sat import PACKING_SECONDS, run_cp_sat, solve_packing
from weftline.simulate import simulate_throughput

__all__ = ["SOLVERS", "ExactParameters", "PipelinePackParameters", "fits_model", "prove"]

LIMITS_OF_PIPELINES = ("which devices can run which ops", "memory of the weights", "links", "the order of the stages")


@dataclass(frozen=True)
class ExactParameters:
    """Numbers of `exact`."""

    precision: int = field(default=2**24, metadata={"least": 1})
    """Costs are rounded down to about this share of the best known value."""
    most_entries: int = 150_000
    """(piece, stage) and (tensor, stage) pairs that CP-SAT is asked to look at."""
    begin_again_below: float = 0.995
    """Build the model anew when others have found a value below this share of its target."""
    most_orders: int = 100
    """Of unequal devices: each is a case of its own, or all are one case where there are more."""
    most_rounds: int = 30
    """Through the cases."""
    most_refused: int = 200
    """Under a limit of work: pipelines of one case that only the simulator refuses, until the search gives up."""
    build_seconds_per_entry: float = 1e-4
    """At most: a model is not begun when the time is over before its end."""


def _solve(search: Search) -> None:
    from weftline.pipeline import solvers

    best_of(search, solvers(), FIRST_SOLVERS)
    if search.stopped_by and search.best is not None:
        return
    pieces = reduce_exactly(make_pieces(search.problem))
    parameters = search.parameters(ExactParameters)
    if not fits_model(pieces, parameters):
        raise InfeasibleError(f"{len(pieces.time)} pieces are too many for an exact search")
    prove(search, pieces, parameters=parameters)


def fits_model(pieces: Pieces, parameters: ExactParameters = ExactParameters()) -> bool:
    """False if the model would be too large to build."""
    return _entries(pieces) <= parameters.most_entries


def _entries(pieces: Pieces) -> int:
    stages = min(pieces.problem.stage_limit, len(pieces.problem.devices))
    pairs = stages if pieces.equal else len(pieces.problem.devices) ** 2
    return (len(pieces.time) + len(pieces.reader_of)) * pairs


def prove(
    search: Search,
    pieces: Pieces,
    *,
    seconds: float | None = None,
    work: float = 5.0,
    poll: Callable[[], bool] = lambda: False,
    parameters: ExactParameters = ExactParameters(),
) -> None:
    """Search below the best known value until a stop rule fires, the time is over, or nothing better exists.

    Equal devices are one case; unequal ones are a case for each order along the pipeline, where these are few.
    """
    if not pieces.exact:
        pieces = make_pieces(search.problem, split=True)
    orders = None if pieces.equal or search.problem.host.any() else orders_of_devices(pieces, parameters.most_orders)
    proof = _Proof(search, pieces, [_Case(order) for order in orders or [()]], poll, parameters)
    until = None if seconds is None else search.seconds + seconds
    building = parameters.build_seconds_per_entry * _entries(pieces)
    share = None if seconds is None else seconds if len(proof.cases) == 1 else max(1.0, seconds / 6)
    for _ in range(parameters.most_rounds):
        for case in [case for case in proof.cases if not case.closed]:
            left = None if until is None else min(share or 0.0, until - search.seconds)
            if search.is_over or (left is not None and left < 0.05 + building):
                return
            proof.look(case, left, work / len(proof.cases))
        if all(case.closed for case in proof.cases):
            break
        if search.work_limit is not None:
            return
        share = None if share is None else 2 * share
    if search.best is None and all(case.closed for case in proof.cases):
        raise InfeasibleError(
            "no pipeline satisfies the limits",
            conflicts=LIMITS_OF_PIPELINES,
            proved=True,
        )


@dataclass
class _Case:
    """Pipelines along one order of the devices (none: any order)."""

    order: tuple[int, ...]
    bound: int = 0
    """No pipeline of this case has a value below it."""
    closed: bool = False


@dataclass
class _Proof:
    search: Search
    pieces: Pieces
    cases: list[_Case]
    poll: Callable[[], bool]
    parameters: ExactParameters
    excluded: list[tuple[int, Indices]] = field(default_factory=list)
    """(device, ops) that do not fit its memory together with what they hold while they run."""

    def look(self, case: _Case, seconds: float | None, work: float) -> None:
        """Search one case for a while, beginning again after every pipeline that only the simulator refuses."""
        search, begun, refused = self.search, self.search.seconds, 0
        while not search.is_over:
            target = _worst(self.pieces) + 1 if search.best is None else search.best.value
            model = self._model(case, target)
            if model is None:
                self._close(case, self.pieces.lift_bound(target))
                return
            last: list[Indices] = []
            left = None if seconds is None else max(0.05, seconds - (search.seconds - begun))
            outcome = run_cp_sat(
                search,
                model.model,
                seconds=left,
                work=work,
                poll=partial(self._look_around, target),
                on_solution=partial(_offer, search, model, last),
                on_bound=partial(self._raise, case, model),
            )
            if outcome.infeasible:
                self._close(case, model.pieces.lift_bound(target))
                return
            self._raise(case, model, outcome.bound)
            overflow = _overflows(search, last[-1]) if last and outcome.optimal else []
            self.excluded += overflow
            if outcome.optimal and not overflow:
                self._close(case, case.bound)
                return
            if not overflow and not self._is_behind(target):
                return
            if seconds is not None and search.seconds - begun >= seconds:
                return
            refused += bool(overflow)
            if search.work_limit is not None and refused >= self.parameters.most_refused:
                return

    def _model(self, case: _Case, target: int) -> EqualModel | UnequalModel | None:
        contracted, scale, room = (
            contract_uncuttable(self.pieces, target),
            max(1, target // self.parameters.precision),
            self.search.problem.capacity,
        )
        model: EqualModel | UnequalModel | None
        if self.pieces.equal:
            model = build_equal_model(contracted, target, scale, room)
        else:
            model = build_unequal_model(contracted, target, scale, room, case.order)
        for device, ops in self.excluded if model is not None else ():
            held = np.unique(contracted.of[ops])
            if model is not None and len(ops) == contracted.size[held].sum():
                model.exclude(device, held)
        return model

    def _look_around(self, target: int) -> bool:
        """Look after others meanwhile; begin again if they have found something much better than the target."""
        return self.poll() or self._is_behind(target)

    def _is_behind(self, target: int) -> bool:
        best = self.search.best
        return best is not None and best.value < self.parameters.begin_again_below * target

    def _raise(self, case: _Case, model: EqualModel | UnequalModel, bound: float) -> None:
        """Whole units of the model, back in ns."""
        case.bound = max(case.bound, model.pieces.lift_bound(int(np.ceil(bound - 1e-6)) * model.scale))
        self._claim()

    def _close(self, case: _Case, bound: int) -> None:
        case.bound, case.closed = max(case.bound, bound), True
        self._claim()

    def _claim(self) -> None:
        from ortools import __version__

        least = min(case.bound for case in self.cases)
        if self.search.best is not None:
            least = min(least, self.search.best.value)
        self.search.offer_bound(Bound(least, f"exact (CP-SAT {__version__})", seconds=self.search.seconds))


def _offer(search: Search, model: EqualModel | UnequalModel, last: list[Indices], true: Any) -> None:
    placement = model.pieces.lift(model.placement(true))
    last[:] = [placement]
    search.offer(placement)


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


SOLVER_EXACT = Solver(
    "exact", "CP-SAT: the best pipeline, and the claim that none is better", _solve, parameters=ExactParameters
)


@dataclass(frozen=True)
class PipelinePackParameters:
    """Numbers of `pack`."""

    most_pairs: int = 100_000
    """(piece, device) pairs that CP-SAT is asked to look at."""
    most_attempts: int = 8
    """Times that it packs with less room, because activations overflowed a device."""


def _solve_pack(search: Search) -> None:
    problem, parameters = search.problem, search.parameters(PipelinePackParameters)
    pieces = make_pieces(problem)
    if (pieces.time >= 0).sum() > parameters.most_pairs:
        raise InfeasibleError(f"packing {len(pieces.size)} pieces exactly is too large")
    room, begun = problem.capacity.copy(), search.seconds
    for attempt in range(parameters.most_attempts):
        placement = _pack(search, pieces, room, begun, proof=attempt == 0)
        if placement is None or search.offer(placement) is not None or search.stopped_by:
            return
        overflow = overflow_of(problem, placement)
        spent = search.work_limit is None and search.seconds > begun + PACKING_SECONDS
        if spent or not overflow.any():
            return
        room -= overflow


def _pack(search: Search, pieces: Pieces, room: Ints, begun: float, *, proof: bool) -> Indices | None:
    """A pipeline whose weights fit into `room`; None or, for a `proof`, an error if there is none."""
    from ortools.sat.python import cp_model

    problem = search.problem
    model = cp_model.CpModel()
    chosen = {(u, d): model.new_bool_var("") for u, d in np.argwhere(pieces.time >= 0).tolist()}
    for u in range(len(pieces.size)):
        model.add_exactly_one(chosen[u, d] for d in range(len(problem.devices)) if (u, d) in chosen)
    _order_stages(model, problem, pieces, chosen)
    limit_stages(model, pieces, chosen)
    _fit_memory(model, problem, pieces, chosen, room)
    _respect_links(model, problem, pieces, chosen)
    longest = model.new_int_var(0, int(pieces.time.max(axis=1, initial=0).sum()), "")
    for d in range(len(problem.devices)):
        model.add(sum(int(pieces.time[u, d]) * choice for (u, e), choice in chosen.items() if e == d) <= longest)
    model.minimize(longest)
    solver, status = solve_packing(search, model, begun)
    if status == cp_model.INFEASIBLE and proof:
        raise InfeasibleError(
            "no pipeline satisfies the limits",
            conflicts=LIMITS_OF_PIPELINES,
            proved=True,
        )
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    device = np.zeros(len(pieces.size), np.int32)
    for (u, d), choice in chosen.items():
        if solver.boolean_value(choice):
            device[u] = d
    return pieces.lift(device)


def _order_stages(model: Any, problem: Problem, pieces: Pieces, chosen: dict[tuple[int, int], Any]) -> None:
    """Every contiguous device has an even place of its own, every piece on a host an odd one; edges never go back."""
    k = len(problem.devices)
    position = [model.new_int_var(0, k - 1, "") for _ in range(k)]
    model.add_all_different(position)
    place = [model.new_int_var(-1, 2 * k - 1, "") for _ in pieces.size]
    for (u, d), choice in chosen.items():
        if not problem.host[d]:
            model.add(place[u] == 2 * position[d]).only_enforce_if(choice)
        else:
            half = model.new_int_var(0, k, "")
            model.add(place[u] == 2 * half - 1).only_enforce_if(choice)
    for a, b in zip(*(side.tolist() for side in pieces.edges), strict=True):
        model.add(place[a] <= place[b])


def _fit_memory(model: Any, problem: Problem, pieces: Pieces, chosen: dict[tuple[int, int], Any], room: Ints) -> None:
    for d in (d for d, device in enumerate(problem.devices) if device.capacity is not None):
        load = [int(pieces.weight[u]) * choice for (u, e), choice in chosen.items() if e == d and pieces.weight[u]]
        for tied in problem.graph.tied:
            held = model.new_bool_var("")
            for u in {int(pieces.of[op]) for op in tied.ops}:
                if (u, d) in chosen:
                    model.add_implication(chosen[u, d], held)
            load.append(tied.bytes * held)
        model.add(sum(load) <= int(room[d]))


def _respect_links(model: Any, problem: Problem, pieces: Pieces, chosen: dict[tuple[int, int], Any]) -> None:
    source, target, tensor = problem.graph.arrays.edges()
    missing = problem.cost.transfer[problem.cost.transfer_row[tensor]] < 0
    for e in np.flatnonzero(missing.any(axis=(1, 2))).tolist():
        a, b = int(pieces.of[source[e]]), int(pieces.of[target[e]])
        for x, y in np.argwhere(missing[e]).tolist():
            if a != b and (a, x) in chosen and (b, y) in chosen:
                model.add_bool_or(~chosen[a, x], ~chosen[b, y])


SOLVER_PACK = Solver(
    "pack",
    "a pipeline that fits memory (CP-SAT), for when memory is tight",
    _solve_pack,
    parameters=PipelinePackParameters,
)
SOLVERS = (SOLVER_EXACT, SOLVER_PACK)
