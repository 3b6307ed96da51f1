"""`make_plan`: bounds, the solver, the baselines, the checker; then everything into one Plan."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import monotonic
from types import MappingProxyType

import msgspec

from weftline import __version__
from weftline.ask.clock import Clock, searching_time
from weftline.ask.measured import best_measured, check_measurable, measured_file
from weftline.ask.proofs import ProofTask, proof_seconds, prove_more
from weftline.ask.questions import QUESTIONS, baseline_values, check_other_questions, lower_bounds, search_coarse
from weftline.bounds import Bound
from weftline.certify import check
from weftline.errors import InfeasibleError, LimitReached, UsageError, VerificationError, WeftlineError
from weftline.graph import Graph
from weftline.graph.arrays import Indices
from weftline.interrupts import Interruption, uninterrupted
from weftline.latency.measured import solve_measured
from weftline.latency.measured.measurements import Backend, Measurements
from weftline.plans.plan import BoundEntry, GuessedFile, Plan, Progress, ProgressRow, Provenance
from weftline.plans.score import device_uses, placement_names, stage_list, timeline_file
from weftline.problem import Problem, check_feasible
from weftline.problem.model import ProblemFile, problem_hash, problem_to_file
from weftline.search import Event, Search, Solver, Termination, check_names, find_solver
from weftline.simulate import Loads, Timeline

__all__ = ["DEFAULT_GAP", "DEFAULT_SECONDS", "checked_bounds", "make_plan", "solvers_for", "stop_rules"]

DEFAULT_SECONDS = 60.0
"""Time limit of a search for which neither time nor work was limited."""
MEASURED_SECONDS = 600.0
"""The same for one whose candidates are run for real."""
DEFAULT_GAP = 0.0001
"""What is close enough for a search that was not asked for a gap: models for integer solvers are rounded, so the last
thousandths of a percent may never close."""
SELF_CHECKED = 5_000
"""Larger plans are not checked whole at once, which would take longer than a short time limit; `verify` does it."""
MAX_SEED = 2**31 - 1


def solvers_for(objective: str) -> dict[str, Solver]:
    """The registry of an objective's family."""
    return QUESTIONS[objective].solvers()


def stop_rules(gap: float | None, time_limit: float | None, work_limit: int | None) -> tuple[float, float | None]:
    """The gap and the time limit that hold, given what was asked; `UsageError` if it makes no sense."""
    if (time_limit is not None and not time_limit >= 0) or (work_limit is not None and work_limit < 1):
        raise UsageError("a time limit is at least 0 s, a work limit at least 1")
    if gap is not None and not 0 <= gap <= 1:
        raise UsageError("a gap lies between 0 and 1")
    if time_limit is None and work_limit is None:
        time_limit = DEFAULT_SECONDS
    return DEFAULT_GAP if gap is None else gap, time_limit


def make_plan(
    problem: Problem,
    *,
    solver: str | Solver = "auto",
    gap: float | None = None,
    time_limit: float | None = None,
    work_limit: int | None = None,
    seed: int = 0,
    start: Indices | None = None,
    coarsen: Indices | None = None,
    settings: Mapping[str, str] = MappingProxyType({}),
    inputs: Mapping[str, str] = MappingProxyType({}),
    argv: Sequence[str] = (),
    begun: float | None = None,
    backend: Backend | None = None,
    proof: float | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> Plan:
    """Solve and certify. Ctrl-C returns the best so far; `InfeasibleError` if there is none.

    `start` is a placement that the search is offered before its solver begins, so the plan is no worse. `coarsen` is a
    group for every op: latency is searched with whole groups first, then op by op from there. `settings` are the
    solver's own. The time limit is for the whole call, or counts from `begun` (a reading of `time.monotonic`). With a
    `backend` candidates are run for real, and the plan is the best measured; its value is still the simulator's. After
    the search, `proof` more seconds go to witnesses that the checker can repeat (default: at most 10; 0: none).
    """
    name = solver if isinstance(solver, str) else getattr(solver, "name", "")
    asked = _Asked(name, gap, time_limit, work_limit, seed, start, coarsen, settings, inputs, argv, backend, proof)
    work = _prepare(problem, solver, asked, begun, on_event)
    with Interruption(insist=work.measured is None) as stop:
        try:
            _bound(work)
            _search(work)
        except InfeasibleError as error:
            if work.search.best is None:
                raise _too_late(work.search, error) from error
    _conclude(work, interrupted=stop.ended)
    if not stop.ended:
        _compare(work)
    if not stop.ended:
        _prove(work)
    with uninterrupted():
        return _certify(work, _assemble(work))


@dataclass(frozen=True)
class _Asked:
    """The options of `make_plan`; after `_prepare` with the gap and the time limit that hold."""

    solver: str
    gap: float | None
    time_limit: float | None
    work_limit: int | None
    seed: int
    start: Indices | None
    coarsen: Indices | None
    settings: Mapping[str, str]
    inputs: Mapping[str, str]
    argv: Sequence[str]
    backend: Backend | None
    proof: float | None


@dataclass
class _Work:
    """A plan in the making: what each step passes on to the next."""

    problem: Problem
    asked: _Asked
    solver: Solver
    search: Search
    heard: Progress
    measured: Measurements | None
    """None where the simulator decides."""
    bounds: list[Bound] = field(default_factory=list)
    baselines: dict[str, int | None] = field(default_factory=dict)
    seconds: float | None = None
    """Of the search; None under a work limit, so that the bytes repeat."""
    stopped_by: Termination = Termination.NONE
    accepted: list[Bound] = field(default_factory=list)
    """Bounds whose witness the checker has accepted already."""

    @cached_property
    def file(self) -> ProblemFile:
        """The problem as it stands in the plan."""
        return problem_to_file(self.problem)

    @cached_property
    def form(self) -> check.PlanProblem:
        """The same as the checker reads it."""
        return check.PlanProblem(msgspec.to_builtins(self.file))

    @property
    def result(self) -> Timeline | Loads:
        """The best decisions, simulated."""
        assert self.search.best is not None
        return self.search.best

    def stop_watch(self) -> None:
        """The search has ended just now."""
        self.seconds = None if self.asked.work_limit is not None else round(self.search.seconds, 3)


def _prepare(
    problem: Problem,
    given: str | Solver,
    asked: _Asked,
    begun: float | None,
    on_event: Callable[[Event], None] | None,
) -> _Work:
    """Check what was asked, load the kernels, open the search."""
    time_limit = asked.time_limit
    if asked.backend is not None:
        check_measurable(problem, gap=asked.gap, work_limit=asked.work_limit, coarsen=asked.coarsen, start=asked.start)
        time_limit = MEASURED_SECONDS if time_limit is None else time_limit
    clock = Clock(monotonic() if begun is None else begun, on_event)
    gap, time_limit = stop_rules(asked.gap, time_limit, asked.work_limit)
    if not 0 <= asked.seed <= MAX_SEED:
        raise UsageError(f"a seed lies between 0 and {MAX_SEED}")
    check_feasible(problem)
    registry = solvers_for(problem.rules.objective)
    if isinstance(given, str) and given not in registry:
        check_other_questions(given, problem.rules.objective)
    solver = find_solver(registry, given)
    check_names(solver.name, solver.takes, asked.settings)
    with clock.preparing():
        QUESTIONS[problem.rules.objective].prepare()
        if solver.prepare is not None:
            solver.prepare()
    heard = Progress(on_event)
    entries = problem.cost.time.size + problem.cost.transfer.size
    search = Search(
        problem,
        time_limit=searching_time(
            time_limit, len(problem.graph.ops), clock.spent, entries=entries, slowness=clock.slowness
        ),
        work_limit=asked.work_limit,
        gap=gap,
        seed=asked.seed,
        on_event=heard,
        solver=asked.solver,
        options=asked.settings,
    )
    measured = None if asked.backend is None else Measurements(search, asked.backend)
    return _Work(problem, replace(asked, gap=gap, time_limit=time_limit), solver, search, heard, measured)


def _bound(work: _Work) -> None:
    """The quick bounds, before the search."""
    work.bounds += lower_bounds(work.problem)


def _search(work: _Work) -> None:
    """Candidates that are measured, or the start, whole groups, then op by op."""
    search, asked = work.search, work.asked
    if work.measured is not None:
        solve_measured(search, work.solver, work.measured)
        return
    search.offer_bound(work.bounds[0])
    if asked.start is not None:
        search.offer(asked.start)
    if asked.coarsen is not None and not search.is_over:
        search_coarse(search, work.solver, asked.coarsen)
    if search.best is None or not search.stopped_by:
        search.run(work.solver)


def _conclude(work: _Work, *, interrupted: bool) -> None:
    """The best of the search, why it ended and when; an error where nothing was found."""
    search, measured = work.search, work.measured
    if measured is not None:
        search.best = best_measured(measured, interrupted=interrupted)
    if search.best is None:
        if interrupted:
            raise KeyboardInterrupt
        raise InfeasibleError(f"{work.asked.solver} found no plan within the limits", conflicts=search.refused)
    rule = search.stopped_by if measured is None else measured.stopped_by
    work.stopped_by = Termination.INTERRUPTED if interrupted else rule or Termination.DONE
    work.stop_watch()


def _compare(work: _Work) -> None:
    """The values of the baselines; `auto` takes one that is better for its own."""
    search, asked, found = work.search, work.asked, work.search.best
    with Interruption(insist=True) as late:
        # a placement that was measured, or given to be kept, is not exchanged for another
        adopt = asked.solver == "auto" and work.measured is None and asked.start is None
        registry = solvers_for(work.problem.rules.objective)
        work.baselines = baseline_values(work.problem, registry, asked.seed, search, adopt=adopt)
    if late.ended:
        work.stopped_by = Termination.INTERRUPTED
    if search.best is not found:
        if work.stopped_by != Termination.INTERRUPTED and search.stopped_by.is_close:
            work.stopped_by = search.stopped_by
        work.stop_watch()


def _prove(work: _Work) -> None:
    """Witnesses for what was claimed, and for more where the checker can show more; Ctrl-C ends it."""
    search, asked = work.search, work.asked
    seconds = proof_seconds(asked.proof, asked.time_limit, asked.work_limit)
    if seconds == 0:
        return
    if search.bound is not None and search.bound not in work.bounds:
        work.bounds.append(search.bound)

    def say(text: str) -> None:
        work.heard(Event(search.seconds, "proof", None, None, text))

    with Interruption(insist=True):
        work.accepted += [bound for bound in work.bounds if _is_proved(work.form, bound)]
        claimed, proved = (max((b.value for b in each), default=0) for each in (work.bounds, work.accepted))
        task = ProofTask(work.problem, work.form, work.result.value, claimed, proved, seconds, say, search.notes)
        found = prove_more(task)
        work.bounds += found
        work.accepted += found


def _too_late(search: Search, error: InfeasibleError) -> WeftlineError:
    """A solver that was stopped before it offered anything has not shown that nothing fits."""
    if error.proved or search.refused or search.stopped_by != Termination.TIME:
        return error
    return LimitReached("the time was over before there was a plan. Try a larger time limit, or the solver greedy")


def _assemble(work: _Work) -> Plan:
    """Everything into one Plan."""
    problem, search, result = work.problem, work.search, work.result
    if search.bound is not None and search.bound not in work.bounds:
        work.bounds.append(search.bound)
    file = work.file
    entries = checked_bounds(file, work.bounds, work.form, accepted=work.accepted)
    best, value = entries[0], result.value
    measured = None if work.measured is None else measured_file(work.measured)
    return Plan(
        format="weftline-plan",
        version=1,
        objective=problem.rules.objective,
        value_ns=value,
        bound_ns=best.value_ns,
        gap=(value - best.value_ns) / value if value else 0.0,
        proof="none" if best.value_ns == 0 else best.proof,
        bound_by=best.by,
        solver=work.asked.solver,
        seconds=work.seconds,
        stopped_by=str(work.stopped_by),
        baselines=work.baselines,
        devices=device_uses(problem, result),
        placement=placement_names(problem, result.placement),
        stages=stage_list(problem, result) if isinstance(result, Loads) else (),
        timeline=timeline_file(result) if isinstance(result, Timeline) else None,
        bounds=tuple(entries),
        provenance=_provenance(work.asked, problem_hash(file)),
        problem=file,
        measured=msgspec.UNSET if measured is None else measured,
        progress=_progress(work),
        guessed=_guessed(problem.graph),
    )


def _guessed(graph: Graph) -> GuessedFile | msgspec.UnsetType:
    ops = graph.guessed
    return GuessedFile(len(ops), ops[0].name, ops[0].kind) if ops else msgspec.UNSET


def _certify(work: _Work, plan: Plan) -> Plan:
    """A plan that its own checker refuses never leaves this room."""
    if len(work.problem.graph.ops) > SELF_CHECKED:
        return plan
    try:
        check.check_plan(msgspec.to_builtins(plan))
    except check.Refusal as refusal:
        raise VerificationError(f"the answer of solver {plan.solver} does not hold: {refusal}") from refusal
    return plan


def _provenance(asked: _Asked, problem_sha256: str) -> Provenance:
    return msgspec.convert(
        {
            "version": __version__,
            "inputs": dict(asked.inputs),
            "argv": tuple(asked.argv),
            "seed": asked.seed,
            "time_limit": asked.time_limit,
            "work_limit": asked.work_limit,
            "gap": asked.gap,
            "problem_sha256": problem_sha256,
        },
        Provenance,
    )


def _progress(work: _Work) -> tuple[ProgressRow, ...] | msgspec.UnsetType:
    """How the search went; nothing under a work limit, or where placements were measured."""
    if work.seconds is None or work.measured is not None:
        return msgspec.UNSET
    largest = max((bound.value for bound in work.bounds), default=0)
    return work.heard.rows(work.seconds, work.result.value, largest)


def checked_bounds(
    file: ProblemFile,
    bounds: Sequence[Bound],
    form: check.PlanProblem | None = None,
    *,
    accepted: Sequence[Bound] = (),
) -> list[BoundEntry]:
    """The bounds, best first, `proved` where the checker re-computes them from the witness; proved before claimed.

    `form` is the problem as the checker reads it, if that is known; `accepted` are bounds that it has accepted before.
    """
    problem = check.PlanProblem(msgspec.to_builtins(file)) if form is None else form
    known = {id(bound) for bound in accepted}
    entries = []
    for bound in bounds:
        proved = id(bound) in known or _is_proved(problem, bound)
        entries.append(BoundEntry(bound.by, bound.value, "proved" if proved else "claimed", bound.witness))
    return sorted(entries, key=lambda entry: (-entry.value_ns, entry.proof != "proved"))


def _is_proved(problem: check.PlanProblem, bound: Bound) -> bool:
    """A witness that the checker refuses leaves a claim, with a warning: no plan is lost by it."""
    if bound.witness is None:
        return False
    try:
        return check.bound_of(problem, bound.witness) >= bound.value
    except (check.Refusal, KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        why = f"{type(error).__name__}: {error!s:.200}"
        warnings.warn(f"bound {bound.by!r} is only claimed, not proved: {why}", RuntimeWarning, stacklevel=3)
        return False
