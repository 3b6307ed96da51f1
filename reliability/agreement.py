"""Do solvers agree? On mid-size problems every lower bound must lie below every value, whoever says either.

In: how many problems. Out: a row per problem: its least value, its greatest bound, how many answers, and the violations
of these rules:

- every bound (proved or claimed, of every solver) <= every value;
- CP-SAT with and without its presolve: the same rule for both, and where both claim the optimum, the same one;
- split on one Boolean: an op pinned to one device, or forbidden there. The optimum is the lesser of the two parts, so
  the lesser of their bounds <= every value of the whole, and the bound of the whole <= every value of each part.

Simplified: short work limits, so most optima stay unknown and the rules are checked from both sides alone.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from time import monotonic
from typing import Any, Literal
from unittest.mock import patch

import numpy as np

from reliability.results_file import Results, Row
from weftline.ask.planning import solvers_for
from weftline.ask.questions import lower_bounds
from weftline.cluster import Cluster
from weftline.cost import NO_TIME
from weftline.errors import InfeasibleError
from weftline.problem import Problem, Rules, build_problem, check_feasible
from weftline.search import Search, cp_sat
from weftline.testing import SeededChooser, make_problem
from weftline.zoo.synthetic import FAMILIES, synthetic

__all__ = ["agreement", "instance", "judge"]

WORK = 60
CP_WORK = 0.1
"""Units of CP-SAT's deterministic time."""
PAIRS = 5
"""CP-SAT, with and without presolve, is asked about each problem whose number this divides."""
CLUSTERS = ("laptop", "two-gpus", "four-unequal", "edge")
LATENCY = ("single-device", "even-split", "greedy", "heft", "cpeft", "etf", "m-topo", "m-sct", "getf", "anneal")
SEQUENTIAL = ("single-device", "greedy", "anneal", "min-cut")
THROUGHPUT = ("single-device", "even-split", "greedy", "slice", "anneal", "ideals")
EXACT = {"latency": "cp-sat", "throughput": "exact"}


@dataclass
class Answers:
    """Of all solvers to one problem."""

    values: dict[str, int] = field(default_factory=dict)
    bounds: dict[str, int] = field(default_factory=dict)
    infeasible: list[str] = field(default_factory=list)
    """Solvers that claim that nothing fits."""

    def broken(self) -> Iterator[str]:
        """Bounds above values."""
        for who, bound in self.bounds.items():
            for other, value in self.values.items():
                if bound > value:
                    yield f"bound {bound} of {who} > value {value} of {other}"
        if self.infeasible and self.values:
            yield f"{self.infeasible[0]} proves that nothing fits, {next(iter(self.values))} has a plan"


def agreement(results: Results, *, count: int, until: float | None = None) -> bool:
    """So many problems."""
    for number in range(count):
        if str(number) in results.rows:
            continue
        if until is not None and monotonic() > until:
            results.save()
            return False
        results.rows[str(number)] = judge(instance(number), number)
        if number % 10 == 9:
            results.save()
            failed = sum(row["failed"] for row in results.rows.values())
            print(f"agreement: {number + 1} of {count}, {failed} violations", file=sys.stderr, flush=True)
    return True


def instance(number: int) -> Problem:
    """The problem of a number: a third from the generator of tests, the rest synthetic networks on real clusters."""
    dice = Random(f"agreement {number}")
    objective: Literal["latency", "throughput"] = "latency" if number % 2 == 0 else "throughput"
    if number % 3 == 0:
        return _generated(number, objective)
    family = sorted(FAMILIES)[number % len(FAMILIES)]
    graph = synthetic(family, ops=dice.randint(20, 60), seed=number)
    cluster = Cluster.preset(dice.choice(CLUSTERS))
    rules = Rules(
        objective=objective,
        runtime=dice.choice(("parallel", "parallel", "sequential")),
        transfers=dice.choice(("per-tensor", "per-edge")),
        communication=dice.choice(("added", "overlapped")),
    )
    return build_problem(graph, cluster, rules=rules)


def _generated(number: int, objective: str) -> Problem:
    """One that the simplest solver has a plan for; after many attempts, one without limits."""
    for attempt in range(1000):
        chooser = SeededChooser(number * 1000 + attempt)
        problem = make_problem(chooser, objective, max_ops=60, max_devices=4, limits=attempt < 100)  # type: ignore[arg-type]
        if len(problem.graph.ops) >= 20 and len(problem.devices) > 1:
            found = Answers()
            _ask(problem, "greedy", "greedy", number, found)
            if found.values:
                return problem
    raise AssertionError(f"no problem for {number}")


def judge(problem: Problem, number: int) -> Row:
    """Ask all solvers, and both parts of a split."""
    whole = _answers(problem, _solvers(problem), number)
    broken = list(whole.broken())
    rules = problem.rules
    paired = number % PAIRS == 0 and (rules.objective == "throughput" or rules.runtime == "parallel")
    if paired:
        broken += _presolve(problem, number, whole)
    split = _split(problem, number)
    if split is not None and whole.values:
        least = min(whole.values.values())
        parts = [_answers(part, ("greedy", "anneal"), number) for part in split]
        for part in parts:
            broken += list(part.broken())
            broken += [
                f"bound {bound} of {who} of the whole > value {value} of a part"
                for who, bound in whole.bounds.items()
                for value in part.values.values()
                if bound > value
            ]
        lower = [_most(part.bounds.values()) for part in parts if not part.infeasible]
        if lower and min(lower) > least:
            broken.append(f"bounds {lower} of the parts > value {least} of the whole")
    return {
        "objective": rules.objective,
        "runtime": rules.runtime if rules.objective == "latency" else "",
        "ops": len(problem.graph.ops),
        "devices": len(problem.devices),
        "answers": len(whole.values),
        "bounds": len(whole.bounds),
        "split": split is not None,
        "presolve": paired,
        "value": min(whole.values.values(), default=None),
        "bound": _most(whole.bounds.values()),
        "claims": dict(Counter(["infeasible"] * len(whole.infeasible))),
        "broken": broken[:5],
        "failed": len(broken),
    }


def _solvers(problem: Problem) -> tuple[str, ...]:
    if problem.rules.objective == "throughput":
        return THROUGHPUT
    return LATENCY if problem.rules.runtime == "parallel" else SEQUENTIAL


def _answers(problem: Problem, solvers: Iterable[str], seed: int) -> Answers:
    found = Answers()
    try:
        check_feasible(problem)
        found.bounds = {f"bounds: {bound.by}": bound.value for bound in lower_bounds(problem)}
    except InfeasibleError as error:
        if error.proved:
            found.infeasible.append("check_feasible")
        return found
    for name in solvers:
        _ask(problem, name, name, seed, found)
    return found


def _ask(problem: Problem, name: str, called: str, seed: int, found: Answers) -> None:
    """One solver, without a bound to begin with: it must not learn from the others."""
    search = Search(problem, work_limit=WORK, seed=seed, solver=name)
    try:
        solvers_for(problem.rules.objective)[name].solve(search)
    except InfeasibleError as error:
        if error.proved:
            found.infeasible.append(called)
    if search.best is not None:
        found.values[called] = search.best.value
    if search.bound is not None:
        found.bounds[f"{called}: {search.bound.by}"] = search.bound.value


def _presolve(problem: Problem, seed: int, whole: Answers) -> Iterator[str]:
    """CP-SAT with and without presolve -> where they differ; their answers join the others."""
    name, pair = EXACT[problem.rules.objective], []
    for presolve in (True, False):
        found = Answers()
        with _cp_sat(presolve):
            _ask(problem, name, f"{name}, presolve {'on' if presolve else 'off'}", seed, found)
        whole.values |= found.values
        whole.bounds |= found.bounds
        whole.infeasible += found.infeasible
        pair.append(found)
    yield from whole.broken()
    tight = [value for a in pair for value in a.values.values() if value in a.bounds.values()]
    if len(set(tight)) > 1:
        yield f"two optima with and without presolve: {tight}"


@contextmanager
def _cp_sat(presolve: bool) -> Iterator[None]:
    """CP-SAT with little work, and with or without presolve, for every model that is solved inside."""
    settings = {"cp_model_presolve": presolve}
    original = cp_sat.run_model

    def limited(model: object, **options: Any) -> object:
        given = {**options, "settings": {**options.get("settings", {}), **settings}}
        return partial(original, model)(**{**given, "work": CP_WORK, "seconds": None})

    from weftline.latency.exact import order_model

    with patch.object(cp_sat, "run_model", limited), patch.object(order_model, "run_model", limited):
        yield


def _split(problem: Problem, number: int) -> tuple[Problem, Problem] | None:
    """One op on one device, and the same op anywhere else."""
    time = problem.cost.time
    free = np.flatnonzero((time != NO_TIME).sum(axis=1) > 1)
    if not len(free):
        return None
    op = int(free[number % len(free)])
    able = np.flatnonzero(time[op] != NO_TIME)
    device = int(able[number % len(able)])
    here, elsewhere = time.copy(), time.copy()
    here[op, np.arange(len(problem.devices)) != device] = NO_TIME
    elsewhere[op, device] = NO_TIME
    return tuple(replace(problem, cost=problem.cost.with_time(part)) for part in (here, elsewhere))  # type: ignore[return-value]


def _most(values: Iterable[int]) -> int:
    return max(values, default=0)
