"""Instances x solvers x seeds -> rows: value, lower bound, gap, who says so, seconds, ratio to the instance's best.

Every solver gets the same time limit, only `auto` for throughput has its own; the value is the simulator's, and the
bound is `proved` only where the independent checker re-computes it from its witness. Replicas of the whole model are no
pipeline: they have a row without bound and without ratio.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import msgspec

from benchmarks.instances import Instance
from benchmarks.searched import CLOSE, run_solver
from weftline.ask.baselines import baseline_values
from weftline.ask.planning import solvers_for
from weftline.ask.questions import lower_bounds
from weftline.bounds import Bound
from weftline.certify import bound_of
from weftline.certify.check import Problem as CheckedProblem
from weftline.problem import Problem
from weftline.problem.json_form import problem_to_file
from weftline.search import Search, Solver

__all__ = ["REPLICAS", "Judge", "measure_quality", "share_of_budget"]

REPLICAS = "replicas"
OBJECTIVES = ("latency", "throughput")

Row = dict[str, Any]


def share_of_budget(chosen: list[Instance], budget: float) -> float:
    """Seconds for one run of a solver that searches: an equal share, but neither absurdly short nor long."""
    searching = {name: sum(not s.baseline for s in _asked(name).values()) for name in OBJECTIVES}
    runs = sum(searching[_objective(instance)] for instance in chosen)
    return round(min(10.0, max(0.3, budget / max(runs, 1))), 1)


def _objective(instance: Instance) -> str:
    return "latency" if instance.family == "moirai" or instance.family.endswith("-latency") else "throughput"


def measure_quality(
    chosen: Iterable[Instance], *, seeds: int, time_limit: float, auto_limit: float | None = None
) -> list[Row]:
    """All rows, instance by instance; `auto_limit` is for `auto` as a pipeline solver, which searches until it ends."""
    rows: list[Row] = []
    warm: set[str] = set()
    for instance in chosen:
        problem = instance.make()
        objective = problem.rules.objective
        if objective not in warm:  # compiled kernels load now, not on somebody's clock
            warm.add(objective)
            _ask(instance, problem, _asked(objective), range(1), 0.3, 0.3)
        print(f"{instance.family}: {instance.name}", file=sys.stderr, flush=True)
        rows += _ask(instance, problem, _asked(objective), range(seeds), time_limit, auto_limit or time_limit)
    return rows


def _asked(objective: str) -> dict[str, Solver]:
    """All but those with networks, which have a section of their own."""
    return {name: solver for name, solver in solvers_for(objective).items() if not solver.learned}


def _ask(
    instance: Instance,
    problem: Problem,
    solvers: dict[str, Solver],
    seeds: range,
    time_limit: float,
    auto_limit: float,
) -> list[Row]:
    """The rows of one instance."""
    judge = Judge(problem)
    start = judge.first_bound
    shape = {
        "family": instance.family,
        "instance": instance.name,
        "objective": problem.rules.objective,
        "ops": len(problem.graph.ops),
        "devices": len(problem.devices),
        "reference_ns": instance.reference_ns,
    }
    rows = []
    for solver in solvers.values():
        for seed in seeds[:1] if solver.baseline else seeds:
            longer = solver.name == "auto" and problem.rules.objective == "throughput"
            limit = auto_limit if longer else time_limit
            search = Search(problem, time_limit=limit, gap=CLOSE, seed=seed, solver=solver.name)
            search.offer_bound(start)
            note = run_solver(solver, search)
            row = {**shape, "solver": solver.name, "baseline": solver.baseline, "seed": seed, "time_limit": limit}
            rows.append({**row, "seconds": round(search.seconds, 4), "note": note, **judge.verdict(search)})
    rows += [{**shape, **row} for row in _replicas(problem)]
    values = [row["value_ns"] for row in rows if row["value_ns"] is not None and row["solver"] != REPLICAS]
    best = min(values, default=None)
    for row in rows:
        counts = row["value_ns"] is not None and row["solver"] != REPLICAS
        row["ratio"] = (row["value_ns"] / best if best else 1.0) if counts else None
    return rows


class Judge:
    """Says of a finished search how good its answer is, and whether the bound is proved."""

    def __init__(self, problem: Problem) -> None:
        self.first_bound = lower_bounds(problem)[0]
        self._checked = CheckedProblem(msgspec.to_builtins(problem_to_file(problem)))
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


def _replicas(problem: Problem) -> list[Row]:
    if problem.rules.objective != "throughput":
        return []
    row: Row = {
        "solver": REPLICAS,
        "baseline": True,
        "seed": 0,
        "time_limit": 0.0,
        "seconds": None,
        "bound_ns": None,
        "bound_by": "",
    }
    value = baseline_values(problem, {}, 0, Search(problem))[REPLICAS]
    note = "" if value is not None else "no device holds the whole model"
    return [{**row, "value_ns": value, "proof": "none", "gap": None, "stopped_by": "done", "note": note}]
