"""`answer_layers`: a request whose model is layers on devices with tables -> search, baselines, checker, LayerPlan."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec

from weftline import __version__
from weftline.arguments import a_path
from weftline.ask.clock import Clock
from weftline.ask.planning import stop_rules
from weftline.ask.request import PlanRequest
from weftline.certify import check_layers as checker
from weftline.certify.check import Refusal
from weftline.errors import InfeasibleError, InputError, UsageError, VerificationError, near
from weftline.fleet import FleetSolver, LayerSearch, fleet_solvers
from weftline.fleet.coverage import CoverageBound
from weftline.fleet.layers import layer_baselines, prepare
from weftline.interrupts import Interruption, uninterrupted
from weftline.plans.layers import HeldLayers, LayerBound, LayerFrontPoint, LayerPlan, per_second
from weftline.plans.plan import Provenance
from weftline.problem.layers import LayerInstance, LayerProblem, check_layers, layers_hash, read_layers
from weftline.search import Event, Termination, check_names
from weftline.simulate.layers import layer_violations, simulate_layers

if TYPE_CHECKING:
    from weftline.fleet.serving import ServingRow
    from weftline.problem.serving import Requests, ServingRules

__all__ = ["answer_layers", "make_layer_plan", "read_layer_problem", "serve_plan"]


CERTIFICATE_SECONDS = 0.3
"""For witnesses that are checked, and the file."""
LINK_SECONDS = 1e-5
"""The same for each link."""
SERVED_REQUESTS = 4_000
"""Drawn like those of a published trace, unless others are given."""


def read_layer_problem(model: object) -> tuple[LayerProblem, str] | None:
    """(problem, sha256 of its file) where a request's model is one, or a file of one; None for all others."""
    if isinstance(model, LayerProblem):
        return check_layers(model), ""
    if isinstance(model, str) and model.startswith("zoo:"):
        return None
    return read_layers(a_path(model, "model")) if isinstance(model, str) or hasattr(model, "__fspath__") else None


def answer_layers(
    request: PlanRequest,
    problem: LayerProblem,
    digest: str,
    *,
    begun: float | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> LayerPlan:
    """The highest rate of layers on the devices of a file."""
    if request.objective == "latency":
        raise UsageError("layers on devices with tables have a rate; ask for --objective throughput")
    given = {
        "--cluster": request.cluster is not None,
        "--gpu, --cpu, --link and --ram": request.names_devices,
        "--costs": request.costs is not None,
        "--stages": request.stages is not None,
        "--shape": bool(request.shapes),
        "--dim": bool(request.dims),
        "--keep": bool(request.keep),
        "--without": bool(request.without),
        "--runtime": request.runtime is not None,
        "--transfers": request.transfers is not None,
        "--communication": request.communication is not None,
        "--memory": request.memory is not None,
        "--latency-limit": request.latency_limit is not None,
        "--coarsen": request.coarsen != "none",
        "--reward": request.reward != "simulated",
    }
    if wrong := [name for name, is_given in given.items() if is_given]:
        raise UsageError(f"{problem.name} holds its own devices, layers and rates; leave {', '.join(wrong)} out")
    if request.max_depth is not None:
        depth = min(request.max_depth, problem.max_depth or request.max_depth, problem.layers)
        problem = msgspec.structs.replace(problem, max_depth=depth)
    if request.most_copies is not None:
        problem = msgspec.structs.replace(problem, max_copies=min(request.most_copies, problem.copies_limit))
    limits = request.limits
    return make_layer_plan(
        problem,
        **limits,
        settings=dict(request.settings),
        inputs={"model": digest} if digest else {},
        begun=begun,
        on_event=on_event,
    )


def make_layer_plan(
    problem: LayerProblem,
    *,
    solver: str | FleetSolver = "auto",
    gap: float | None = None,
    time_limit: float | None = None,
    work_limit: int | None = None,
    seed: int = 0,
    settings: dict[str, str] | None = None,
    inputs: dict[str, str] | None = None,
    argv: tuple[str, ...] = (),
    begun: float | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> LayerPlan:
    """Solve and certify. Ctrl-C returns the best so far; `InfeasibleError` if there is none."""
    clock = Clock(monotonic() if begun is None else begun, on_event)
    gap, time_limit = stop_rules(gap, time_limit, work_limit)
    chosen = _find(solver)
    check_names(chosen.name, chosen.takes, settings or {})
    with clock.preparing():
        prepare()
    search = LayerSearch(
        problem=problem,
        time_limit=None if time_limit is None else _searching(time_limit - clock.spent, clock.slowness, problem),
        work_limit=work_limit,
        gap=gap or 0.0,
        seed=seed,
        on_event=on_event,
        solver=chosen.name,
        options=settings or {},
    )
    baselines: dict[str, int | None] = {}
    with Interruption(insist=True) as stop:
        layer_baselines(search, baselines)
        chosen.solve(search)
    if search.best is None:
        if stop.ended:
            raise KeyboardInterrupt
        raise InfeasibleError(f"{chosen.name} found no deployment within the limits", conflicts=search.refused)
    ended = Termination.INTERRUPTED if stop.ended else search.stopped_by or Termination.DONE
    spent = None if work_limit is not None else round(search.seconds, 3)
    about: dict[str, Any] = {"seed": seed, "time_limit": time_limit, "work_limit": work_limit, "gap": gap}
    about |= {"inputs": dict(inputs or {}), "argv": tuple(argv), "version": __version__}
    with uninterrupted():
        return _assemble(search, str(ended), spent, {k: v and per_second(v) for k, v in baselines.items()}, about)


def _searching(left: float, slowness: float, problem: LayerProblem) -> float:
    """Seconds for the search, when so many are left for all."""
    certificate = CERTIFICATE_SECONDS + LINK_SECONDS * len(problem.links or ())
    return max(0.1, left / 2, left - slowness * certificate)


def _find(solver: str | FleetSolver) -> FleetSolver:
    if isinstance(solver, FleetSolver):
        return solver
    known = fleet_solvers(layers=True)
    if solver not in known:
        raise UsageError(
            f"no solver of layers is called {solver!r:.60}{near(str(solver), known)}; there are {', '.join(known)}"
        )
    return known[solver]


def _assemble(
    search: LayerSearch, ended: str, seconds: float | None, baselines: dict[str, float | None], about: dict[str, Any]
) -> LayerPlan:
    problem, found = search.problem, search.best
    assert found is not None
    form = msgspec.to_builtins(problem)
    entry = None if search.bound is None else _entry(form, search.bound)
    limit, names = search.limit, problem.device_names()
    plan = LayerPlan(
        format="weftline-layer-plan",
        version=1,
        objective="throughput",
        value_ns=-(-(10**15) // found.rate),
        bound_ns=0 if limit is None else -(-(10**15) // limit),
        gap=1.0 if limit is None else (limit - found.rate) / limit,
        proof="none" if entry is None else entry.proof,
        bound_by="" if entry is None else entry.by,
        rate=per_second(found.rate),
        rate_bound=None if limit is None else per_second(limit),
        depth=found.depth,
        solver=search.solver,
        seconds=seconds,
        stopped_by=ended,
        baselines=baselines,
        instances=tuple(
            HeldLayers(
                names[one.devices[0]],
                tuple(names[device] for device in one.devices),
                problem.units[one.unit].name,
                one.first,
                one.last,
                per_second(rate),
            )
            for one, rate in zip(found.instances, found.served, strict=True)
        ),
        lanes=found.lanes,
        front=tuple(_front_point(search, form, depth) for depth in sorted(search.front)),
        bounds=() if entry is None else (entry,),
        provenance=msgspec.convert({"problem_sha256": layers_hash(problem), **about}, Provenance),
        problem=problem,
    )
    try:
        checker.check_layer_plan(msgspec.to_builtins(plan))
    except Refusal as refusal:
        raise VerificationError(f"the answer of solver {plan.solver} does not hold: {refusal}") from refusal
    return plan


def _entry(form: dict[str, Any], bound: CoverageBound) -> LayerBound:
    """`proved` where the checker re-computes it; a witness that it refuses leaves a claim, with a warning."""
    proved = _refutes(form, bound)
    return LayerBound("coverage", per_second(bound.rate - 1), "proved" if proved else "claimed", bound.witness())


def _refutes(form: dict[str, Any], bound: CoverageBound) -> bool:
    try:
        return checker.refuted_rate(form, bound.witness()) == bound.rate
    except (Refusal, KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        warnings.warn(f"bound 'coverage' is only claimed: {error!s:.200}", RuntimeWarning, stacklevel=4)
        return False


def _front_point(search: LayerSearch, form: dict[str, Any], depth: int) -> LayerFrontPoint:
    point = search.front[depth]
    limit = min(depth, search.problem.max_depth or depth)
    good = point.bound is not None and _refutes({**form, "max_depth": limit}, point.bound)
    return LayerFrontPoint(
        depth,
        per_second(point.found.rate),
        per_second(point.bound.rate - 1) if good and point.bound is not None else None,
        "proved" if good else "none",
        tuple((one.unit, one.devices, one.first, one.last) for one in point.found.instances),
        point.found.lanes,
        point.bound.witness() if good and point.bound is not None else None,
    )


def serve_plan(
    plan: LayerPlan,
    profile: Path | str,
    *,
    model: str = "",
    requests: Requests | None = None,
    rules: ServingRules | None = None,
    simulated: int = 10,
) -> list[ServingRow]:
    """A plan and all points of its front, served for real requests: by Little's law, and the best by the simulator.

    `profile` is a file of what prompts and tokens take; `model` the name in it, where several fit. Lanes are crossed
    first: the same shares, shorter convoys.
    """
    from weftline.fleet.serving import crossed_lanes, serve_front
    from weftline.problem.serving import profile_for, read_serving, sample_requests

    problem = check_layers(plan.problem)
    layouts = [simulate_layers(problem, plan.placed(), plan.lanes)]
    for point in plan.front:
        instances = [LayerInstance(*one) for one in point.instances]
        found = simulate_layers(problem, instances, point.lanes)
        if all((found.depth, found.rate) != (one.depth, one.rate) for one in layouts):
            layouts.append(found)
    for one in layouts:
        if wrong := layer_violations(problem, one):
            raise InputError(f"the plan does not hold: {wrong[0]}", hint="weftline verify says more")
    crossed = [replace(one, lanes=crossed_lanes(problem, one)) for one in layouts]
    asked = requests or sample_requests(SERVED_REQUESTS)
    return serve_front(
        problem, crossed, profile_for(problem, read_serving(profile), model), asked, rules, simulated=simulated
    )
