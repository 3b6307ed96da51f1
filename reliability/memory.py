"""Is anything better, or nothing so good, where memory is scarce? A second model answers, written from the docs alone.

In: how many problems. Out: a row per problem of 10 to 40 ops on 2 to 4 devices: the independent optimum (or what is
known of it), every value and bound of weftline, and the violations of these rules:

- a plan of weftline is accepted by the independent checker, with the same value;
- no plan is better than the independent bound; no bound, proved or claimed, lies above the independent plan;
- where both claim the optimum it is the same, and nobody claims that nothing fits where the other has a plan.

Simplified: both have a limit of work, so many optima stay unknown; then the rules hold from both sides alone.
"""

from __future__ import annotations

import sys
from random import Random
from time import monotonic
from typing import Any

from reliability.memory_check import Broken, Question, Sent, append, pipeline
from reliability.memory_latency import Optimum, least_latency
from reliability.memory_pipeline import least_period
from reliability.results_file import Results, Row
from weftline.ask.planning import solvers_for
from weftline.ask.questions import lower_bounds
from weftline.errors import InfeasibleError
from weftline.problem import Problem, check_feasible
from weftline.search import Search
from weftline.simulate import Loads, Timeline
from weftline.testing.generate import Feed, problem_of

__all__ = ["instance", "judge", "memory", "recompute"]

WORK, MOST_SECONDS = 40, 1.5
"""Of each solver. Without a plan a limit of work ends nothing, so there is one of time, too."""
CP_WORK = 3.0
"""Units of CP-SAT's deterministic time, for each of the two independent models."""
SOLVERS = {
    ("latency", "parallel"): ("greedy", "heft", "m-sct", "anneal", "decompose", "cp-sat", "auto"),
    ("latency", "sequential"): ("greedy", "anneal", "min-cut", "cp-sat", "auto"),
    ("throughput", "parallel"): ("greedy", "slice", "anneal", "ideals", "exact", "auto"),
}
KINDS = ("latency parallel", "latency parallel", "latency sequential", "throughput added", "throughput overlapped")


def memory(results: Results, *, count: int, until: float | None = None) -> bool:
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
            print(f"memory: {number + 1} of {count}, {failed} violations", file=sys.stderr, flush=True)
    return True


def instance(number: int) -> Problem:
    """The problem of a number: branches and joins, some ops of 0 ns, memory between too little and enough."""
    dice = Random(f"memory {number}")
    kind = KINDS[number % len(KINDS)]
    n = dice.choice((10, 10, 11, 12, 13, 14, 16, 20, 28, 40))
    k = dice.choice((2, 2, 2, 3, 3, 4))
    time = [[dice.randint(0, 9) if dice.random() < 0.12 else dice.randint(3, 30) for _ in range(k)] for _ in range(n)]
    for row in time:
        if dice.random() < 0.15:
            row[dice.randrange(k)] = -1
    rules: dict[str, Any] = {
        "memory": "static" if dice.random() < 0.25 else "dynamic",
        "transfers": dice.choice(("per-tensor", "per-edge")),
        "communication": "overlapped" if kind.endswith("overlapped") else "added",
        "runtime": "sequential" if kind.endswith("sequential") else "parallel",
        "objective": kind.split()[0],
        "stages": dice.choice((0, 0, min(2, k))) if kind.startswith("throughput") else 0,
    }
    training = rules["objective"] == "throughput" and dice.random() < 0.2
    shape: dict[str, Any] = {
        "weights": [dice.choice((0, dice.randint(0, 20))) for _ in range(n)],
        "workspace": [dice.choice((0, 0, dice.randint(0, 12))) for _ in range(n)],
        "tied": [(dice.randint(1, 20), tuple(sorted(dice.sample(range(n), 2))))] if dice.random() < 0.25 else [],
        "hosts": [dice.randrange(k)] if rules["objective"] == "throughput" and dice.random() < 0.2 else [],
        "backward": range(n // 2, n) if training else (),
        "together": (tuple(sorted(dice.sample(range(n), 2))),) if dice.random() < 0.3 else (),
        "buses": tuple((a, b, "x") for a in range(k) for b in range(k) if a != b and dice.random() < 0.2),
    }
    wires = _wires(dice, n, k)
    loose = problem_of(time, wires, **shape, **rules)
    need = sum(shape["weights"]) + sum(wire.bytes for wire in wires) // 2
    share = dice.choice((0.5, 0.7, 1.0, 1.3)) * need / (k if dice.random() < 0.7 else 1)
    top = max(_running(loose).values())
    room = [None if dice.random() < 0.1 else max(top, round(share * dice.uniform(0.7, 1.5))) for _ in range(k)]
    return problem_of(time, wires, capacity=room, **shape, **rules)


def _wires(dice: Random, n: int, k: int) -> list[Feed]:
    wires = []
    for maker in range(-1, n):
        for _ in range(dice.choice((1, 1, 1, 2)) if maker >= 0 else 2):
            later = range(maker + 1, min(n, maker + 6))
            users = {dice.choice(later) for _ in range(dice.choice((1, 1, 2, 3)))} if later else set[int]()
            output = maker >= 0 and (not users or dice.random() < 0.05)
            length = [[0 if dice.random() < 0.1 else dice.randint(1, 12) for _ in range(k)] for _ in range(k)]
            if dice.random() < 0.08:
                length[dice.randrange(k)][dice.randrange(k)] = -1
            wires.append(Feed(maker, tuple(sorted(users)), length, dice.randint(0, 15), output))
    return wires


def _running(problem: Problem) -> dict[int, int]:
    """Op -> what its device holds at least while it runs: with less there is nothing to ask."""
    need = {op: one.weight_bytes + one.workspace_bytes for op, one in enumerate(problem.graph.ops)}
    for tensor in problem.graph.tensors:
        for op in {tensor.producer, *tensor.consumers} - {-1}:
            need[op] += tensor.bytes
    return need


def judge(problem: Problem, number: int, work: float = CP_WORK) -> Row:
    """Both models, and who contradicts whom."""
    q, rules = Question.of(problem), problem.rules
    best = (least_period if rules.objective == "throughput" else least_latency)(q, work)
    values, bounds, nothing, broken = _ours(problem, q, number)
    if best.bound is None:
        broken += [f"{who} has a plan, nothing fits by the model" for who in values]
    else:
        broken += [f"value {v} of {who} < bound {best.bound}" for who, v in values.items() if v < best.bound]
    if best.value is not None:
        broken += [f"bound {b} of {who} > plan {best.value}" for who, b in bounds.items() if b > best.value]
        broken += [f"{who} proves that nothing fits, the model has a plan" for who in nothing]
    least, most = min(values.values(), default=None), max(bounds.values(), default=0)
    return {
        "kind": KINDS[number % len(KINDS)],
        "memory": rules.memory,
        "ops": len(problem.graph.ops),
        "devices": len(problem.devices),
        "values": len(values),
        "bounds": len(bounds),
        "model": _state(best),
        "ours": "none fits" if nothing else "optimal" if least == most else "plan" if values else "unknown",
        "same": least is not None and least == most == best.value == best.bound,
        "broken": broken[:5],
        "failed": len(broken),
    }


def _state(best: Optimum) -> str:
    if best.bound is None:
        return "none fits"
    return "optimal" if best.value == best.bound else "unknown" if best.value is None else "plan"


def _ours(problem: Problem, q: Question, seed: int) -> tuple[dict[str, int], dict[str, int], list[str], list[str]]:
    """Values by solver, bounds by method, who proves that nothing fits, and plans that do not hold."""
    values: dict[str, int] = {}
    bounds: dict[str, int] = {}
    nothing: list[str] = []
    broken: list[str] = []
    try:
        check_feasible(problem)
        bounds = {f"bounds: {bound.by}": bound.value for bound in lower_bounds(problem)}
    except InfeasibleError as error:
        return values, bounds, ["check_feasible"] if error.proved else [], broken
    rules = problem.rules
    runtime = rules.runtime if rules.objective == "latency" else "parallel"
    for name in SOLVERS[rules.objective, runtime]:
        search = Search(problem, work_limit=WORK, time_limit=MOST_SECONDS, seed=seed, solver=name)
        try:
            solvers_for(rules.objective)[name].solve(search)
        except InfeasibleError as error:
            if error.proved:
                nothing.append(name)
        if search.bound is not None:
            bounds[f"{name}: {search.bound.by}"] = search.bound.value
        if search.best is not None:
            values[name] = search.best.value
            try:
                again = recompute(problem, q, search.best)
                if again != search.best.value:
                    broken.append(f"{name} says {search.best.value}, it is {again}")
            except Broken as error:
                broken.append(f"{name}: {error}")
    return values, bounds, nothing, broken


def recompute(problem: Problem, q: Question, found: Timeline | Loads) -> int:
    """The value by the independent checker, or `Broken`."""
    placement = found.placement.tolist()
    if isinstance(found, Loads):
        return pipeline(q, placement)
    rows = found.actions(problem.graph.arrays.producer).tolist()
    return append(q, placement, [what if to < 0 else Sent(what, to, reader) for what, to, reader in rows])
