"""One problem planned as a user would plan it -> one row: value, bounds, seconds, baselines, what went wrong.

The row holds the hash of its problem, so that best known values are compared only where the question is the same.
"""

from __future__ import annotations

import sys
from time import perf_counter
from typing import Any

from weftline.ask import make_plan
from weftline.ask.questions import lower_bounds
from weftline.errors import WeftlineError
from weftline.problem import Problem

__all__ = ["CLOSED", "GRACE", "Row", "is_closed", "is_late", "plan_row", "ratio", "simple_ratio", "warm_up"]

Row = dict[str, Any]
GRACE = 2.0
"""Seconds after its limit by which every solver promises to have stopped."""
CLOSED = 0.0001
"""The default gap of a throughput search: closer than this counts as optimal."""


def plan_row(problem: Problem, *, time_limit: float, gap: float | None = None, solver: str = "auto") -> Row:
    """Plan with seed 0; `seconds` is the whole call, with first bounds, baselines and the plan's own check."""
    row: Row = {"ops": len(problem.graph.ops), "time_limit": time_limit, "value_ns": None, "note": ""}
    simple = lower_bounds(problem)[0]
    row |= {"simple_ns": int(simple.value), "simple_by": simple.by}
    begun = perf_counter()
    try:
        plan = make_plan(problem, solver=solver, time_limit=time_limit, gap=gap)
    except WeftlineError as error:
        row["note"] = str(error).splitlines()[0][:120]
    except Exception as error:
        print(f"  crashed: {error!r}", file=sys.stderr)
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


def warm_up(problem: Problem, seconds: float = 3.0) -> None:
    """Kernels are compiled or loaded now, not on the clock of the first instance."""
    plan_row(problem, time_limit=seconds, gap=0.0)


def ratio(row: Row) -> float | None:
    """Best bound / value."""
    return None if row["value_ns"] is None else row["bound_ns"] / row["value_ns"] if row["value_ns"] else 1.0


def simple_ratio(row: Row) -> float | None:
    """Simple bound / value."""
    return None if row["value_ns"] is None else row["simple_ns"] / row["value_ns"] if row["value_ns"] else 1.0


def is_closed(row: Row) -> bool:
    """Value and bound agree up to the default gap."""
    found = ratio(row)
    return found is not None and 1 - found <= CLOSED


def is_late(row: Row) -> bool:
    """Still running two seconds after the limit."""
    return bool(row["seconds"] > row["time_limit"] + GRACE)
