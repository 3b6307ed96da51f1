"""The questions by objective: their solvers, their bounds, what they compile, and what their plans are compared with.

In: an objective. Out: a `Question`; for a plan the values of the simple solvers of its family and, for throughput, of
replicas of the whole model. `search_coarse` searches a contracted problem first, with part of the time or work: its
best plan, lifted to the ops, is where the search on the whole graph begins; its bounds do not hold and are not used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from weftline import latency, pipeline
from weftline.bounds import Bound
from weftline.errors import InfeasibleError, UsageError
from weftline.graph.arrays import Indices
from weftline.latency import bounds as latency_bounds
from weftline.latency.prepare import prepare as prepare_latency
from weftline.pipeline import bounds as pipeline_bounds
from weftline.problem import Problem
from weftline.reduce.contract import acyclic, contract
from weftline.search import Search, Solver
from weftline.simulate import Timeline
from weftline.simulate.throughput import replica_periods

__all__ = [
    "QUESTIONS",
    "Question",
    "baseline_values",
    "check_other_questions",
    "lower_bounds",
    "search_coarse",
]


@dataclass(frozen=True)
class Question:
    """What the path from request to answer needs to know of a room."""

    solvers: Callable[[], dict[str, Solver]]
    """The registry."""
    lower_bounds: Callable[[Problem], tuple[Bound, ...]]
    """Quick bounds with witnesses, the largest first."""
    prepare: Callable[[], None]
    """Compiles or loads the kernels of the room, and no others."""


QUESTIONS = {
    "latency": Question(latency.solvers, latency_bounds.lower_bounds, prepare_latency),
    "throughput": Question(pipeline.solvers, pipeline_bounds.lower_bounds, pipeline.prepare),
}


def check_other_questions(name: str, asked: str) -> None:
    """An error if a solver is for another question than `asked`: latency, throughput or schedule."""
    from weftline.schedule import schedulers

    for objective, question in QUESTIONS.items():
        if objective != asked and name in question.solvers():
            raise UsageError(
                f"{name!r} is a solver for {objective}, not for {asked}: try weftline plan MODEL --objective "
                f"{objective} --solver {name}; --solver help lists those for {asked}"
            )
    if asked != "schedule" and name in schedulers():
        raise UsageError(
            f"{name!r} orders micro-batches, it does not place ops: try weftline schedule --plan plan.json --solver "
            f"{name}; --solver help lists the solvers for {asked}"
        )


def lower_bounds(problem: Problem) -> tuple[Bound, ...]:
    """Every quick bound that applies to the problem's objective, the largest first."""
    return QUESTIONS[problem.rules.objective].lower_bounds(problem)


BASELINE_GRACE_SECONDS = 1.0
"""Seconds after the time limit in which baselines may still begin."""
_ORDER = {name: place for place, name in enumerate(("single-device", "even-split", "round-robin", "greedy"))}
"""The order in which files name baselines, whatever room registers them."""


def baseline_values(
    problem: Problem, solvers: dict[str, Solver], seed: int, done: Search, *, adopt: bool = False
) -> dict[str, int | None]:
    """Name -> value, None where the baseline breaks a limit.

    What the search has reached already is not computed again; once its time is over, the rest is left out. With
    `adopt` the search takes what a baseline finds, if it is better: it may have been too short to look for itself.
    """
    values: dict[str, int | None] = {}
    for solver in sorted(solvers.values(), key=lambda solver: _ORDER.get(solver.name, len(_ORDER))):
        if solver.baseline and solver.name in done.reached:
            values[solver.name] = done.reached[solver.name]
        elif solver.baseline and (done.time_limit is None or done.seconds < done.time_limit + BASELINE_GRACE_SECONDS):
            search = Search(problem, seed=seed, solver=solver.name)
            try:
                solver.solve(search)
            except InfeasibleError:
                values[solver.name] = None
                continue
            values[solver.name] = None if search.best is None else search.best.value
            if adopt and search.best is not None:
                done.adopt(search.best)
    if problem.rules.objective == "throughput":
        values["replicas"] = _replicas(problem)
    return values


def _replicas(problem: Problem) -> int | None:
    """The whole model on every device that can hold it, at most as many as stages are allowed: rates add up."""
    fastest = replica_periods(problem)
    if not fastest:
        return None
    return 0 if fastest[0] == 0 else ceil(1 / sum(Fraction(1, period) for period in fastest))


COARSE_SHARE = 0.3
"""Of the time, or of the work."""


def search_coarse(search: Search, solver: Solver, group: Indices) -> None:
    """Offer what the solver finds on the contracted problem; nothing if it finds nothing."""
    contracted = contract(search.problem, acyclic(search.problem, group))
    left = search.seconds_left
    coarse = Search(
        contracted.small,
        time_limit=None if left is None else COARSE_SHARE * left,
        work_limit=None if search.work_limit is None else max(1, int(COARSE_SHARE * search.work_limit)),
        seed=search.seed,
        solver=f"{search.solver} (coarse)",
    )
    try:
        solver.solve(coarse)
    except InfeasibleError:
        return
    if isinstance(coarse.best, Timeline):
        order = contracted.lift_order(coarse.best.order)
        search.offer(contracted.lift(coarse.best.placement), order=order)
