"""`answer_fleet`: a request with copies -> lanes, baselines, the checker; then everything into one FleetPlan."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import monotonic
from types import MappingProxyType
from typing import Any

import msgspec

from weftline import __version__, fleet, pipeline
from weftline.ask.answer import resolve
from weftline.ask.clock import Clock, searching_time
from weftline.ask.planning import stop_rules
from weftline.ask.request import PlanRequest
from weftline.bounds import Bound
from weftline.certify import check_fleet
from weftline.certify.check import Refusal
from weftline.errors import InfeasibleError, UsageError, VerificationError, near
from weftline.fleet import FleetSearch, FleetSolver
from weftline.graph.arrays import Indices
from weftline.interrupts import Interruption, uninterrupted
from weftline.plans.fleet import FleetDevice, FleetInstance, FleetLane, FleetPlan, hops_of
from weftline.plans.plan import BoundEntry, Provenance
from weftline.problem import Problem, check_feasible
from weftline.problem.model import ProblemFile, problem_hash, problem_to_file
from weftline.search import Event, Search, Termination, check_names
from weftline.simulate.fleet import FULL_SECOND, RATE_UNITS, Deployment

__all__ = ["answer_fleet", "make_fleet"]

PIPELINES = ("single-device", "even-split", "greedy", "slice")
"""Pipelines that are quickly found: baselines, and lanes to begin with."""
PIPELINE_SHARE = 0.2
"""Of the time, for all of them."""


def answer_fleet(
    request: PlanRequest,
    *,
    begun: float | None = None,
    on_event: Callable[[Event], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> FleetPlan:
    """The rate of the whole cluster for a request; it is one for throughput, without a number of stages."""
    if request.objective == "latency" or request.stages is not None:
        raise UsageError("copies are for --objective throughput, without --stages")
    if request.coarsen != "none":
        raise UsageError("copies are searched op by op; leave --coarsen out")
    found = resolve(replace(request, objective="throughput"), say=say)
    return make_fleet(
        found.problem,
        **request.limits,
        most_depth=request.max_depth,
        settings=request.settings,
        inputs=found.inputs,
        begun=begun,
        on_event=on_event,
    )


def make_fleet(
    problem: Problem,
    *,
    solver: str = "auto",
    gap: float | None = None,
    time_limit: float | None = None,
    work_limit: int | None = None,
    seed: int = 0,
    most_depth: int | None = None,
    settings: Mapping[str, str] = MappingProxyType({}),
    inputs: Mapping[str, str] = MappingProxyType({}),
    argv: Sequence[str] = (),
    begun: float | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> FleetPlan:
    """Solve and certify. Ctrl-C returns the best so far; `InfeasibleError` if there is none."""
    clock = Clock(monotonic() if begun is None else begun, on_event)
    gap, time_limit = stop_rules(gap, time_limit, work_limit)
    if problem.rules.objective != "throughput" or problem.rules.stages:
        raise UsageError("copies are for the objective throughput, without a number of stages")
    check_feasible(problem)
    chosen = _find(solver)
    check_names(chosen.name, chosen.takes, settings)
    with clock.preparing():
        fleet.prepare()
        pipeline.prepare()
    seconds = searching_time(time_limit, len(problem.graph.ops), clock.spent)
    search = FleetSearch(
        problem,
        time_limit=seconds,
        work_limit=work_limit,
        gap=gap,
        seed=seed,
        on_event=on_event,
        solver=solver,
        options=settings,
        most_depth=most_depth,
    )
    with Interruption(insist=True) as stop:
        baselines, starts = _pipelines(problem, search, most_depth)
        search.starts = starts
        try:
            chosen.solve(search)
        except InfeasibleError:
            if search.best is None:
                raise
    if search.best is None:
        if stop.ended:
            raise KeyboardInterrupt
        raise InfeasibleError(f"{solver} found no deployment within the limits", conflicts=search.refused)
    ended = Termination.INTERRUPTED if stop.ended else search.stopped_by or Termination.DONE
    spent = None if work_limit is not None else round(search.seconds, 3)
    baselines["replicas"] = _replicas(problem, most_depth)
    with uninterrupted():
        about = {"seed": seed, "time_limit": time_limit, "work_limit": work_limit, "gap": gap}
        return _assemble(search, ended, spent, baselines, {**about, "inputs": dict(inputs), "argv": tuple(argv)})


def _find(name: str) -> FleetSolver:
    known = fleet.fleet_solvers()
    if name not in known:
        raise UsageError(f"no fleet solver is called {name!r:.60}{near(name, known)}; there are {', '.join(known)}")
    return known[name]


def _pipelines(
    problem: Problem, outer: FleetSearch, most_depth: int | None
) -> tuple[dict[str, float | None], tuple[Indices, ...]]:
    """Rates of simple pipelines, and their placements."""
    rates: dict[str, float | None] = {}
    starts = []
    left = outer.seconds_left
    for name in PIPELINES:
        seconds = None if left is None else PIPELINE_SHARE * left / len(PIPELINES)
        search = Search(problem, time_limit=seconds, work_limit=outer.work_limit, seed=outer.seed, solver=name)
        try:
            pipeline.solvers()[name].solve(search)
        except InfeasibleError:
            rates[name] = None
            continue
        allowed = search.best is not None and (most_depth is None or len(search.best.stages) <= most_depth)  # type: ignore[union-attr]
        rates[name] = 1e9 / max(search.best.value, 1) if allowed and search.best is not None else None
        if search.best is not None:
            starts.append(search.best.placement)
    return rates, tuple(starts)


def _replicas(problem: Problem, most_depth: int | None) -> float | None:
    search = FleetSearch(problem, most_depth=most_depth)
    try:
        fleet.fleet_solvers()["replicas"].solve(search)
    except InfeasibleError:
        return None
    return None if search.best is None else search.best.rate / RATE_UNITS


def _assemble(
    search: FleetSearch,
    ended: Termination,
    seconds: float | None,
    baselines: dict[str, float | None],
    about: dict[str, Any],
) -> FleetPlan:
    problem, found = search.problem, search.best
    assert found is not None
    file = problem_to_file(problem)
    bounds = [_entry(file, bound) for bound in (search.bound,) if bound is not None]
    best = max((bound.value_ns for bound in bounds), default=0)
    top = next((bound for bound in bounds if bound.value_ns == best), None)
    plan = FleetPlan(
        format="weftline-fleet",
        version=1,
        objective="throughput",
        value_ns=found.value,
        bound_ns=best,
        gap=(found.value - best) / found.value,
        proof="none" if top is None or best == 0 else top.proof,
        bound_by="" if top is None else top.by,
        rate=found.rate / RATE_UNITS,
        rate_bound=None if best <= 1 else 10**9 / (best - 1),
        depth=found.depth,
        solver=search.solver,
        seconds=seconds,
        stopped_by=str(ended),
        baselines=baselines,
        devices={
            device.id: FleetDevice(found.busy[d] / FULL_SECOND, int(found.peak[d]), device.capacity)
            for d, device in enumerate(problem.devices)
        },
        instances=_instances(problem, found),
        lanes=tuple(
            FleetLane(rate, lane.depth, hops_of(lane.placement))
            for lane, rate in zip(found.lanes, found.rates, strict=True)
        ),
        bounds=tuple(bounds),
        provenance=msgspec.convert({"version": __version__, "problem_sha256": problem_hash(file), **about}, Provenance),
        problem=file,
    )
    try:
        check_fleet.check_fleet(msgspec.to_builtins(plan))
    except Refusal as refusal:
        raise VerificationError(f"the answer of solver {plan.solver} does not hold: {refusal}") from refusal
    return plan


def _entry(file: ProblemFile, bound: Bound) -> BoundEntry:
    """`proved` where the checker re-computes it; a witness that it refuses leaves a claim, with a warning."""
    try:
        proved = check_fleet.fleet_bound_of(msgspec.to_builtins(file), bound.witness) >= bound.value
    except (Refusal, KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        warnings.warn(f"bound {bound.by!r} is only claimed: {error!s:.200}", RuntimeWarning, stacklevel=3)
        proved = False
    return BoundEntry(bound.by, bound.value, "proved" if proved else "claimed", bound.witness)


def _instances(problem: Problem, found: Deployment) -> tuple[FleetInstance, ...]:
    held = [
        {op for lane in found.lanes for op, on in enumerate(lane.placement.tolist()) if on == d}
        for d in range(len(problem.devices))
    ]
    return tuple(FleetInstance(device.id, len(ops)) for device, ops in zip(problem.devices, held, strict=True) if ops)
