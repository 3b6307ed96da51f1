"""The rate of a whole cluster: which requests ask for it, and their answer.

In: a resolved request for throughput. Out: a FleetPlan: lanes, beside single pipelines and whole copies, checked.
Simplified: of deployments that differ by less than 0.1 % the simplest is the answer.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import ceil
from time import monotonic
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np

from weftline import __version__, fleet, pipeline
from weftline.ask.answer import Resolved
from weftline.ask.clock import Clock, searching_time
from weftline.ask.planning import stop_rules
from weftline.bounds import Bound
from weftline.certify import check_fleet
from weftline.certify.check import Refusal
from weftline.errors import InfeasibleError, UsageError, VerificationError, near
from weftline.fleet import FleetSearch, FleetSolver
from weftline.fleet.columns import simplest
from weftline.fleet.rates import best_rates
from weftline.graph.arrays import Indices
from weftline.interrupts import Interruption, uninterrupted
from weftline.plans.fleet import FleetDevice, FleetInstance, FleetLane, FleetLimits, FleetPlan, hops_of
from weftline.plans.plan import BoundEntry, Provenance
from weftline.problem import Problem, check_feasible
from weftline.problem.feasible import some_devices
from weftline.problem.model import ProblemFile, problem_hash, problem_to_file
from weftline.search import Event, Search, Solver, Termination, check_names
from weftline.simulate.fleet import FULL_SECOND, RATE_UNITS, Deployment

__all__ = ["answer_fleet", "is_for_fleet", "make_fleet"]

PIPELINES = ("single-device", "even-split", "greedy", "auto")
"""Solvers of single pipelines: baselines, and lanes to begin with. The last one searches."""
PIPELINE_SHARE, REST_SHARE = 0.2, 0.7
"""Of the time or work, for the search of a single pipeline; and of the time that is left where lanes end early."""
LEAST_REST = 0.05
"""Share of the time limit that is worth another look."""
WIDE_GAP = 1e-3
"""A smaller gap is left as it is."""
SIMPLER_LOSS = 1e-3
"""Share of the rate that a simpler deployment may give less."""


CHECKER_WALKS = 2
"""How often the checker goes through everything: for the bound by itself, and for the whole plan."""


def is_for_fleet(found: Resolved) -> bool:
    """Whether a request asks for the rate of the whole cluster; `UsageError` if it does and does not.

    It does where throughput is asked for, unless it names one pipeline (copies 1, a number of stages, a solver or
    settings of pipelines), or the file brings its own costs and devices, as those of papers about one pipeline do.
    """
    request, rules, named = found.request, found.problem.rules, found.request.fleet_words
    if rules.objective != "throughput":
        if named:
            raise UsageError(f"{named} is for --objective throughput")
        return False
    if rules.stages and named:
        raise UsageError(f"{named} is for the whole cluster, but the number of stages in the file for one pipeline")
    if named:
        return True
    known = fleet.fleet_solvers() if isinstance(request.solver, str) else {}
    takes = known[request.solver].takes if request.solver in known else None
    one = request.copies == 1 or rules.stages or request.coarsen != "none" or request.reward != "simulated"
    own = request.cluster is None
    return not (one or own or takes is None or set(request.settings) - set(takes))


def answer_fleet(
    found: Resolved,
    *,
    start: Indices | None = None,
    begun: float | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> FleetPlan:
    """The rate of the whole cluster for a request."""
    request = found.request
    return make_fleet(
        found.problem,
        **request.limits,
        most_depth=request.max_depth,
        most_latency=request.latency_limit_ns,
        most_copies=request.most_copies,
        start=start,
        settings=request.settings,
        inputs=found.inputs,
        begun=begun,
        on_event=on_event,
    )


def make_fleet(
    problem: Problem,
    *,
    solver: str | Solver = "auto",
    gap: float | None = None,
    time_limit: float | None = None,
    work_limit: int | None = None,
    seed: int = 0,
    most_depth: int | None = None,
    most_latency: int | None = None,
    most_copies: int | None = None,
    start: Indices | None = None,
    settings: Mapping[str, str] = MappingProxyType({}),
    inputs: Mapping[str, str] = MappingProxyType({}),
    argv: Sequence[str] = (),
    begun: float | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> FleetPlan:
    """Solve and certify. Ctrl-C returns the best so far; `InfeasibleError` if there is none.

    `most_depth` and `most_latency` (ns) limit the way of an input, `most_copies` an op; `start` may be a lane.
    """
    clock = Clock(monotonic() if begun is None else begun, on_event)
    asked, (gap, time_limit) = gap, stop_rules(gap, time_limit, work_limit)
    _check(problem)
    chosen = _find(solver)
    check_names(chosen.name, chosen.takes, settings)
    with clock.preparing():
        fleet.prepare()
        pipeline.prepare()
    search = FleetSearch(
        problem,
        time_limit=_searching(problem, time_limit, clock),
        work_limit=work_limit,
        gap=gap,
        seed=seed,
        on_event=on_event,
        solver=chosen.name,
        options=settings,
        most_depth=most_depth,
        most_latency=most_latency,
        most_copies=most_copies,
        starts=() if start is None else (start,),
    )
    baselines: dict[str, float | None] = {}
    with Interruption(insist=True) as stop:
        _offer_pipelines(replace(search, best=None, on_event=None) if chosen.baseline else search, baselines)
        _solved(chosen, search)
        _use_the_rest(chosen, search, baselines)
    if search.best is None:
        if stop.ended:
            raise KeyboardInterrupt
        raise InfeasibleError(f"{chosen.name} found no deployment within the limits", conflicts=search.refused)
    ended = Termination.INTERRUPTED if stop.ended else search.stopped_by or Termination.DONE
    about: dict[str, Any] = {"seed": seed, "time_limit": time_limit, "work_limit": work_limit, "gap": gap}
    with uninterrupted():
        baselines["replicas"] = _offer_replicas(search)
        found = search.best if chosen.baseline else _simplest(search, baselines, asked)
        about["inputs"], about["argv"] = dict(inputs), tuple(argv)
        return _assemble(search, found, ended, baselines, about)


def _check(problem: Problem) -> None:
    if problem.rules.objective != "throughput" or problem.rules.stages:
        raise UsageError("copies are for the objective throughput, without a number of stages")
    check_feasible(problem)


def _searching(problem: Problem, time_limit: float | None, clock: Clock) -> float | None:
    """What the certificate leaves of a time limit."""
    entries = problem.cost.time.size + problem.cost.transfer.size
    return searching_time(
        time_limit,
        CHECKER_WALKS * len(problem.graph.ops),
        clock.spent,
        entries=CHECKER_WALKS * entries,
        slowness=clock.slowness,
    )


def _solved(chosen: FleetSolver, search: FleetSearch) -> None:
    """Solve; where nothing more is possible, what was found before stands."""
    try:
        chosen.solve(search)
    except InfeasibleError:
        if search.best is None:
            raise


def _find(given: str | Solver) -> FleetSolver:
    known, name = fleet.fleet_solvers(), given if isinstance(given, str) else getattr(given, "name", "")
    if name not in known:
        other = f"{name!r:.60} places one pipeline; add --copies 1" if name in pipeline.solvers() else ""
        raise UsageError(
            other or f"no fleet solver is called {name!r:.60}{near(name, known)}; there are {', '.join(known)}"
        )
    return known[name]


def _use_the_rest(chosen: FleetSolver, search: FleetSearch, rates: dict[str, float | None]) -> None:
    """Where lanes end early and far from their bound, as scarce memory may have it, the pipeline is searched on, and
    lanes are made from what that finds: with the same time none is better than the fleet.
    """
    while not chosen.baseline and search.best and search.time_limit is not None and search.work_limit is None:
        before, left = search.best, search.seconds_left or 0.0
        bound = 0 if search.bound is None else search.bound.value
        near = before.value - bound <= max(WIDE_GAP, search.gap) * before.value
        if search.stopped_by or near or left < LEAST_REST * search.time_limit:
            return
        _offer_pipeline(search, rates, PIPELINES[-1], REST_SHARE)
        if search.best is before:
            return
        _solved(chosen, search)


def _offer_pipelines(outer: FleetSearch, rates: dict[str, float | None]) -> None:
    """Single pipelines, as lanes to begin with: their rates, None for those that break a limit."""
    for name in PIPELINES:
        _offer_pipeline(outer, rates, name, PIPELINE_SHARE)
    if outer.most_copies is not None:
        _offer_side_by_side(outer)


def _offer_side_by_side(outer: FleetSearch) -> None:
    """Where copies are limited: pipelines of some devices each, side by side, fast and slow devices in each of them."""
    problem, most = outer.problem, min(outer.most_copies or 1, len(outer.problem.devices))
    time = problem.cost.time
    order = np.argsort(np.where(time < 0, 10**12, time).sum(axis=0), kind="stable").tolist()
    for parts in range(2, most + 1):
        rounds = [order[i : i + parts][:: 1 if i // parts % 2 == 0 else -1] for i in range(0, len(order), parts)]
        lanes = []
        for part in range(parts):
            members = sorted(row[part] for row in rounds if part < len(row))
            small = Search(
                some_devices(problem, members),
                time_limit=None if outer.seconds_left is None else PIPELINE_SHARE * max(outer.seconds_left, 0.0) / most,
                work_limit=None if outer.work_limit is None else ceil(PIPELINE_SHARE * outer.work_limit / most),
                seed=outer.seed,
                solver=PIPELINES[-1],
            )
            try:
                pipeline.solvers()[PIPELINES[-1]].solve(small)
            except InfeasibleError:
                continue
            lane = None if small.best is None else outer.add(np.array(members, np.int32)[small.best.placement])
            lanes += [] if lane is None else [lane]
        if lanes:
            outer.offer(lanes, best_rates(lanes).rates.tolist())


def _offer_pipeline(outer: FleetSearch, rates: dict[str, float | None], name: str, share: float) -> None:
    """What one solver of pipelines finds, from the best that others have found."""
    searches, key = name == PIPELINES[-1], "pipeline" if name == PIPELINES[-1] else name
    left = outer.seconds_left if searches else None
    search = Search(
        outer.problem,
        time_limit=None if left is None else share * max(left, 0.0),
        work_limit=None if outer.work_limit is None else ceil(share * outer.work_limit),
        gap=outer.gap,
        seed=outer.seed,
        on_event=outer.tell_of,
        solver=name,
    )
    known = rates.get(key)
    try:
        if known is not None:
            search.offer(outer.starts[-1])
        pipeline.solvers()[name].solve(search)
    except InfeasibleError:
        pass
    finally:  # of one that is interrupted, too
        found = _offer_lane(outer, search)
        rates[key] = max((rate for rate in (known, found) if rate is not None), default=None)


def _offer_lane(outer: FleetSearch, search: Search) -> float | None:
    """The rate of a pipeline as the only lane."""
    lane = None if search.best is None else outer.add(search.best.placement)
    if lane is None:
        return None
    outer.starts = (*outer.starts, lane.placement)
    found = outer.offer([lane], best_rates([lane]).rates.tolist())
    return None if found is None else found.rate / RATE_UNITS


def _offer_replicas(search: FleetSearch) -> float | None:
    other = replace(search, solver="replicas", best=None, bound=None, on_event=None)
    try:
        fleet.fleet_solvers()["replicas"].solve(other)
    except InfeasibleError:
        return None
    if other.best is None:
        return None
    search.offer(other.best.lanes, [rate / RATE_UNITS for rate in other.best.rates])
    return other.best.rate / RATE_UNITS


def _simplest(search: FleetSearch, baselines: Mapping[str, float | None], asked: float | None) -> Deployment:
    """A simpler deployment than the best, if there is one that gives nearly as much: no baseline gives more, and a gap
    that was asked for and reached still is.
    """
    best = search.best
    assert best is not None
    known = [round(rate * RATE_UNITS) for rate in baselines.values() if rate is not None]
    least = max(ceil(best.rate * (1 - SIMPLER_LOSS)), min(max(known, default=0), best.rate))
    bound = 0 if search.bound is None else search.bound.value
    found = simplest(search, least)
    if asked is not None and best.value - bound <= asked * best.value and found.value - bound > asked * found.value:
        return best
    return found


def _assemble(
    search: FleetSearch,
    found: Deployment,
    ended: Termination,
    baselines: dict[str, float | None],
    about: dict[str, Any],
    *,
    is_proved: bool = True,
) -> FleetPlan:
    """The plan as the checker accepts it, which looks once: at a bound that is called proved, and is a claim if not."""
    problem, limits, bound = search.problem, _limits(search), search.bound
    file = problem_to_file(problem)
    hoped = [] if bound is None else [BoundEntry(bound.by, bound.value, "proved", bound.witness)]
    bounds = hoped if is_proved or bound is None else [_entry(file, bound)]
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
        seconds=None if search.work_limit is not None else round(search.seconds, 3),
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
        limits=msgspec.UNSET if limits == FleetLimits() else limits,
    )
    try:
        check_fleet.check_fleet(msgspec.to_builtins(plan))
    except Refusal as refusal:
        if is_proved and bounds:
            return _assemble(search, found, ended, baselines, about, is_proved=False)
        raise VerificationError(f"the answer of solver {plan.solver} does not hold: {refusal}") from refusal
    return plan


def _limits(search: FleetSearch) -> FleetLimits:
    copies = msgspec.UNSET if search.most_copies is None else search.most_copies
    return FleetLimits(search.most_depth, search.most_latency, copies)


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
