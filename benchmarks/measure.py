"""One problem planned or searched -> one row: value, bounds, seconds, what went wrong.

In: a problem and a solver, or all that a search needs. Out: rows; those of whole plans hold the hash of their problem,
so that best known values are compared only where the question is the same. A solver that breaks costs one row.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import msgspec

from benchmarks.results import Row
from weftline.ask import make_fleet, make_plan
from weftline.ask.questions import lower_bounds, search_coarse
from weftline.bounds import Bound
from weftline.certify import bound_of
from weftline.certify.check import PlanProblem
from weftline.certify.run import verify_bytes
from weftline.errors import VerificationError, WeftlineError
from weftline.graph.arrays import Indices
from weftline.plans.fleet import AnyFleet, fleet_to_json
from weftline.problem import Problem
from weftline.problem.model import problem_to_file
from weftline.search import Event, Search, Solver

__all__ = [
    "CLOSE",
    "ROOT",
    "Judge",
    "Searched",
    "first_line",
    "fleet_answer",
    "fleet_row",
    "plan_row",
    "row_of_process",
    "run_solver",
    "say",
    "searched",
    "warm_up",
]

ROOT = Path(__file__).resolve().parents[1]
CLOSE = 0.0001
"""The gap at which a search may stop, as in `plan`."""
LONGEST = 900.0
"""Seconds after which a process is ended, whatever its limit was."""


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


def first_line(error: Exception, most: int = 120) -> str:
    """What went wrong, short enough for a row."""
    return str(error).splitlines()[0][:most]


def plan_row(problem: Problem, *, time_limit: float, gap: float | None = None, solver: str = "auto") -> Row:
    """Plan with seed 0; `seconds` is the whole call, with first bounds, baselines and the plan's own check."""
    row: Row = {"ops": len(problem.graph.ops), "time_limit": time_limit, "value_ns": None, "note": ""}
    simple = lower_bounds(problem)[0]
    row |= {"simple_ns": int(simple.value), "simple_by": simple.by}
    begun = perf_counter()
    try:
        plan = make_plan(problem, solver=solver, time_limit=time_limit, gap=gap)
    except WeftlineError as error:
        row["note"] = first_line(error)
    except Exception as error:
        say(f"  crashed: {error!r}")
        row["note"] = f"crashed: {type(error).__name__}"
    else:
        row |= {
            "value_ns": plan.value_ns,
            "bound_ns": plan.bound_ns,
            "bound_by": plan.bound_by,
            "proof": plan.proof,
            "stopped_by": plan.stopped_by,
            "stages_used": len(plan.stages),
            "search_seconds": plan.seconds,
            "baselines": dict(plan.baselines),
            "problem": plan.provenance.problem_sha256[:16],
        }
    return {**row, "seconds": round(perf_counter() - begun, 3)}


def fleet_row(problem: Problem, *, time_limit: float) -> Row:
    """The rate of the whole cluster with seed 0, as `plan --copies auto` finds it; its file has gone to the checker."""
    return {"time_limit": time_limit, **fleet_answer(lambda: make_fleet(problem, time_limit=time_limit))}


def fleet_answer(ask: Callable[[], AnyFleet]) -> Row:
    """What a fleet plan of any kind says; `seconds` is the whole call, without the checker's process after it."""
    row: Row = {"value_ns": None, "note": "", "checked": False}
    begun = perf_counter()
    try:
        plan = ask()
    except WeftlineError as error:
        return {**row, "note": first_line(error), "seconds": round(perf_counter() - begun, 3)}
    except Exception as error:
        say(f"  crashed: {error!r}")
        return {**row, "note": f"crashed: {type(error).__name__}", "seconds": round(perf_counter() - begun, 3)}
    names = ["value_ns", "bound_ns", "gap", "proof", "bound_by", "rate", "rate_bound", "depth", "stopped_by"]
    row |= {name: getattr(plan, name) for name in names}
    row |= {"baselines": dict(plan.baselines), "lanes": len(plan.lanes), "seconds": round(perf_counter() - begun, 3)}
    row["problem"] = plan.provenance.problem_sha256[:16]
    try:
        row["checked"] = getattr(verify_bytes(fleet_to_json(plan)), "value_ns", None) == plan.value_ns
    except VerificationError as error:
        row["note"] = first_line(error)
    return row


def warm_up(problem: Problem, seconds: float = 3.0) -> None:
    """Kernels are compiled or loaded now, not on the clock of the first instance."""
    plan_row(problem, time_limit=seconds, gap=0.0)


def row_of_process(module: str, *words: object, ops: int, seconds: float) -> Row:
    """What `python -m benchmarks.MODULE WORDS` prints as JSON: its peak memory is its own, a crash costs one row."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, words)]
    failed: Row = {"ops": ops, "time_limit": seconds, "value_ns": None, "seconds": LONGEST}
    try:
        done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        return {**failed, "note": f"ended after {LONGEST:.0f} s"}
    except subprocess.CalledProcessError as error:
        return {**failed, "note": f"crashed: exit status {error.returncode}"}
    row: Row = json.loads(done.stdout)
    return row


@dataclass
class Searched:
    """A finished search."""

    search: Search
    seconds: float
    """Until it stopped."""
    note: str = ""
    """What went wrong."""
    found: list[tuple[float, int]] = field(default_factory=list)
    """Seconds and value, whenever the value became better."""

    def seconds_within(self, share: float) -> float | None:
        """When the value was first within `share` of the last one."""
        last = self.found[-1][1] if self.found else 0
        return next((seconds for seconds, value in self.found if value <= last * (1 + share)), None)


def run_solver(solver: Solver, search: Search, group: Indices | None = None) -> str:
    """Run it -> what went wrong, if anything did. With `group` it searches the coarser graph first."""
    try:
        if group is not None:
            search_coarse(search, solver, group)
        if search.best is None or not search.stopped_by:
            solver.solve(search)
    except WeftlineError as error:
        return first_line(error)
    except Exception as error:
        say(f"  {solver.name} crashed: {error!r}")
        return f"crashed: {type(error).__name__}"
    return "" if search.best is not None else "no plan"


def searched(
    problem: Problem, solver: Solver, *, time_limit: float, bound: Bound, group: Indices | None = None, seed: int = 0
) -> Searched:
    """Search with a first bound, as `plan` would but without the plan around it; when it found its values."""
    found: list[tuple[float, int]] = []

    def note_value(event: Event) -> None:
        if event.value is not None and (not found or event.value < found[-1][1]):
            found.append((event.seconds, event.value))

    search = Search(problem, time_limit=time_limit, gap=CLOSE, seed=seed, on_event=note_value, solver=solver.name)
    search.offer_bound(bound)
    note = run_solver(solver, search, group)
    return Searched(search, round(search.seconds, 4), note, found)


class Judge:
    """Says of a finished search how good its answer is, and whether the bound is proved."""

    def __init__(self, problem: Problem) -> None:
        self.first_bound = lower_bounds(problem)[0]
        self._checked = PlanProblem(msgspec.to_builtins(problem_to_file(problem)))
        self._proofs: dict[int, tuple[Bound, str]] = {}

    def verdict(self, search: Search) -> Row:
        """Value, bound, gap, proof."""
        bound = search.bound or self.first_bound
        value = None if search.best is None else int(search.best.value)
        return {
            "value_ns": value,
            "bound_ns": int(bound.value),
            "bound_by": bound.by,
            "proof": self._proof(bound),
            "gap": None if value is None else (value - bound.value) / value if value else 0.0,
            "stopped_by": search.stopped_by or "done",
        }

    def _proof(self, bound: Bound) -> str:
        if id(bound) not in self._proofs:  # the bound is kept beside the answer, so its id stays its own
            holds = bound.witness is not None and bound_of(self._checked, bound.witness) >= bound.value
            self._proofs[id(bound)] = (bound, "proved" if holds else "claimed")
        return self._proofs[id(bound)][1]
