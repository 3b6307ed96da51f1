"""Checks a plan file with the standard library alone: `python check.pyz plan.json` (exit 0, 3 unreadable, 6 refused).

It re-computes the value from placement and timeline, memory from the intervals, and each proved bound from its witness.
It knows the rules of time and memory (docs/concepts.md) and nothing about how a plan was found. A kind of
witness has a line in `WITNESSES` and a file that holds its theorem.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from weftline.certify.allowance import Allowance
from weftline.certify.bound_chain import refute_chain
from weftline.certify.bound_convex import refute_by_convex_sets
from weftline.certify.bound_cuts import refute_by_trees
from weftline.certify.bound_flow import cut_witness
from weftline.certify.bound_labelling import elimination_witness, messages_witness
from weftline.certify.bound_pipeline import refute_pipelines
from weftline.certify.bound_simple import group_witness, load_witness, path_witness, work_witness
from weftline.certify.bound_unequal import refute_unequal
from weftline.certify.problem import (
    PlanProblem,
    Refusal,
    Unreadable,
    need,
    read_plan,
    rows,
    run_checker,
    same,
    whole,
)
from weftline.certify.stages import check_stages, peaks, stage_intervals
from weftline.certify.timeline import PlanTimeline

__all__ = ["PlanProblem", "Refusal", "Unreadable", "Verdict", "bound_of", "check_plan", "main", "read_plan"]

FIELDS = {
    "format",
    "version",
    "objective",
    "value_ns",
    "bound_ns",
    "gap",
    "proof",
    "bound_by",
    "solver",
    "seconds",
    "stopped_by",
    "baselines",
    "devices",
    "placement",
    "stages",
    "timeline",
    "bounds",
    "provenance",
    "problem",
}
MEASURED = {"backend", "count", "failures", "reference", "ratio", "spread", "rounds", "seconds", "reference_seconds"}
PROVENANCE = {"version", "problem_sha256", "inputs", "argv", "seed", "time_limit", "work_limit", "gap"}
CHECKS = ("problem hash", "placement", "order and exclusivity", "memory", "value", "bound")


class Verdict(NamedTuple):
    """What was re-computed."""

    objective: str
    value_ns: int
    proved_bound_ns: int
    bound_ns: int
    """The plan's own; where it lies above the proved one it is a claim, which was not checked."""
    checks: tuple[str, ...]
    guessed_ops: int = 0
    """Ops whose costs are a guess: where there are any, value and bounds hold for these guessed costs."""


def check_plan(plan: dict[str, Any]) -> Verdict:
    """Raise `Refusal` at the first thing that does not hold."""
    try:
        return _check(plan)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise Refusal("structure", f"the plan's structure is broken: {type(error).__name__} {error!s:.200}") from error


def _check(plan: dict[str, Any]) -> Verdict:
    text = json.dumps(plan["problem"], sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    digest, given = hashlib.sha256(text.encode()).hexdigest(), plan["provenance"]["problem_sha256"]
    shown = f"its sha256 is {digest:.8}..., not {given!s:.8}..."
    need(digest == given, "hash", f"the embedded problem is not the one that was planned: {shown}")
    _check_form(plan)
    problem = PlanProblem(plan["problem"])
    _check_guessed(problem, plan.get("guessed"))
    objective = plan["objective"]
    need(problem.rule("objective", objective), "objective", "the plan answers another question than its problem")
    placement = _placement(problem, plan["placement"])
    if objective == "latency":
        stages = len(rows(plan["stages"], "stages"))
        need(stages == 0, "parts", f"a latency plan has no stages, this one has {stages}")
        need(isinstance(plan["timeline"], dict), "parts", "a latency plan has a timeline")
        timeline = PlanTimeline(problem, placement, plan["timeline"])
        value, load, held = max(timeline.end), timeline.loads(), timeline.intervals()
    else:
        need(plan["timeline"] is None, "parts", "a throughput plan has no timeline")
        load = check_stages(problem, placement, rows(plan["stages"], "stages"))
        value, held = max(load), stage_intervals(problem, placement)
    _check_devices(problem, plan["devices"], load, peaks(problem, placement, held))
    need(whole(plan["value_ns"], "value_ns") == value, "value", f"value_ns is {plan['value_ns']}, re-computed {value}")
    return Verdict(
        objective, value, _check_bounds(problem, plan, value), plan["bound_ns"], CHECKS, len(problem.guessed)
    )


def _check_form(plan: dict[str, Any]) -> None:
    """What is not re-computed still has its form: every field, no other, baselines that are times or null."""
    forms = [
        ("plan", plan, FIELDS | (plan.keys() & {"measured", "progress", "guessed", "advice"})),
        ("provenance", plan["provenance"], PROVENANCE),
    ]
    if "measured" in plan:
        forms.append(("measured", plan["measured"], MEASURED))
    for name, form, fields in forms:
        need(form.keys() == fields, "fields", f"{name}: wrong fields {sorted(form.keys() ^ fields)!s:.200}")
    if "measured" in plan:
        _check_measured(plan["measured"], plan["devices"])
    if "progress" in plan:
        _check_progress(plan["progress"])
    for name in ("solver", "stopped_by", "bound_by", *(plan.keys() & {"advice"})):
        need(isinstance(plan[name], str), "fields", f"{name} must be text")
    for name, value in plan["baselines"].items():
        need(value is None or whole(value, f"baseline {name}") >= 0, "baselines", f"baseline {name} is no time")
    whole(plan["provenance"]["seed"], "seed")
    seconds = plan["seconds"]
    need(
        seconds is None or (type(seconds) in (int, float) and seconds >= 0), "fields", "seconds must be a time or null"
    )
    timeline = plan["timeline"]
    need(timeline is None or timeline.keys() == {"ops", "transfers"}, "fields", "timeline: only ops and transfers")


def _check_guessed(problem: PlanProblem, said: object) -> None:
    """A plan whose costs are partly guessed says so, and no other does."""
    found = problem.guessed
    true = {"ops": len(found), "first": found[0][0], "kind": found[0][1]} if found else None
    need(said == true, "guessed", f"the plan says {said!s:.80} about guessed costs, its problem {true!s:.200}")


def _check_measured(found: dict[str, Any], devices: dict[str, Any]) -> None:
    """Nobody can measure again here; but counts are counts, times are times, and the reference is a device."""
    need(isinstance(found["backend"], str) and found["reference"] in devices, "measured", "measured: by whom?")
    count, failures = whole(found["count"], "measured count"), whole(found["failures"], "measured failures")
    need(0 <= failures < count and whole(found["rounds"], "rounds") > 0, "measured", "measured: wrong counts")
    for name in ("ratio", "spread", "seconds", "reference_seconds"):
        value = found[name]
        good = type(value) in (int, float) and 0 <= value < float("inf")
        need(good, "measured", f"measured {name} is no number that was measured")


def _check_progress(found: Any) -> None:
    """How the search went cannot be repeated; but seconds go up, and values and bounds are times."""
    before = 0.0
    for seconds, value, bound in rows(found, "progress"):
        good = type(seconds) in (int, float) and before <= seconds < float("inf")
        need(good, "progress", "progress: seconds must not go down")
        for known in (value, bound):
            need(known is None or whole(known, "progress") >= 0, "progress", "progress: no time")
        before = seconds


def _placement(problem: PlanProblem, given: dict[str, str]) -> list[int]:
    """Device number of every op: it exists, it can run the op, and sets stay together."""
    number = {name: i for i, name in enumerate(problem.ids)}
    placement = []
    for op, name in enumerate(problem.names):
        need(name in given, "missing-op", f"op {name!r} has no device")
        need(given[name] in number, "unknown-device", f"op {name!r} stands on unknown device {given[name]!r:.80}")
        device = number[given[name]]
        need(problem.time[op][device] >= 0, "forbidden", f"device {given[name]} cannot run op {name!r}")
        placement.append(device)
    need(len(given) == len(placement), "unknown-op", "the placement holds ops that the graph does not have")
    for group in problem.together:
        names = [problem.names[op] for op in group[:4]]
        need(len({placement[op] for op in group}) <= 1, "together", f"ops that must share a device do not: {names}")
    return placement


def _check_devices(problem: PlanProblem, given: dict[str, Any], load: list[int], peak: list[int]) -> None:
    need(set(given) == set(problem.ids), "devices", f"the devices {list(given)[:9]} are not those of the problem")
    for d, name in enumerate(problem.ids):
        limit = problem.capacity[d]
        need(limit is None or peak[d] <= limit, "memory", f"device {name} needs {peak[d]} bytes but holds {limit}")
        again = {"load_ns": load[d], "memory_bytes": peak[d], "memory_limit": limit}
        same(given[name], again, "device", f"device {name}")


def _check_bounds(problem: PlanProblem, plan: dict[str, Any], value: int) -> int:
    """Every proved bound again; -> the best proved one."""
    best, proved, by = 0, 0, {""}
    for bound in rows(plan["bounds"], "bounds"):
        claim, name, proof = whole(bound["value_ns"], "bound"), bound["by"], bound["proof"]
        need(claim <= value, "bound-too-high", f"bound {name} = {claim} lies above the value {value}")
        need(proof in ("proved", "claimed"), "bound-proof", f"bound {name}: unknown proof {proof!r:.60}")
        if proof == "proved":
            need(isinstance(bound["witness"], dict), "no-witness", f"bound {name} is called proved without a witness")
            again = bound_of(problem, bound["witness"])
            need(again >= claim, "bound-unproved", f"the witness of bound {name} proves {again}, not {claim}")
            proved = max(proved, claim)
        by = {name} if claim > best else by | {name} if claim == best else by
        best = max(best, claim)
    given = whole(plan["bound_ns"], "bound_ns")
    need(given == best, "best-bound", f"bound_ns is {given}, the best of the bounds is {best}")
    proof = "none" if best == 0 else "proved" if proved == best else "claimed"
    need(plan["proof"] == proof, "proof", f"the plan says {plan['proof']!r:.60}, but its bound is {proof}")
    need(plan["bound_by"] in by, "bound-by", f"the best bound is not by {plan['bound_by']!r:.60}")
    gap = (value - best) / value if value else 0.0
    close = isinstance(plan["gap"], float) and abs(plan["gap"] - gap) < 1e-9
    need(close, "gap", f"gap is {plan['gap']!r:.60}, re-computed {gap}")
    return proved


def bound_of(problem: PlanProblem, witness: dict[str, Any], allowance: Allowance | None = None) -> int:
    """What a witness proves, in exact integers."""
    kind = witness["kind"]
    if isinstance(kind, str) and kind in REFUTATIONS:
        target = whole(witness["target"], "target", 1)
        refuted = REFUTATIONS[kind](problem, witness, target, allowance or Allowance())
        need(refuted, "witness", f"it does not show that no plan is below {target}")
        return target
    need(kind in WITNESSES, "witness-kind", f"unknown kind of witness {kind!r:.60}")
    return WITNESSES[kind](problem, witness)


WITNESSES: dict[str, Callable[[PlanProblem, dict[str, Any]], int]] = {
    "path": path_witness,
    "load": load_witness,
    "work": work_witness,
    "group": group_witness,
    "cut": cut_witness,
    "messages": messages_witness,
    "elimination": elimination_witness,
}
"""Kinds whose number is computed."""
REFUTATIONS: dict[str, Callable[[PlanProblem, dict[str, Any], int, Allowance], bool]] = {
    "pipeline": refute_pipelines,
    "cut-trees": refute_by_trees,
    "convex-set": refute_by_convex_sets,
    "unequal": refute_unequal,
    "chain": refute_chain,
}
"""Kinds that hold their number: "no plan has a value below `target`". True if that is shown."""


def main(arguments: list[str]) -> int:
    """Print one JSON object; exit 0, 3 or 6."""
    return run_checker("plan.json", lambda path: check_plan(read_plan(path)), arguments)
