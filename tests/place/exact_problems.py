"""Tiny problems of all kinds for the exact solvers, and the published instances where they are present."""

import os
from dataclasses import replace
from functools import cache
from pathlib import Path

import msgspec

from weftline.problem import Problem
from weftline.problem.feasible import least_memory
from weftline.testing.generate import random_problem

DATA = Path(os.environ.get("WEFTLINE_DATA", Path(__file__).resolve().parents[2] / "../shared/data")) / "moirai"

KINDS: dict[str, dict[str, object]] = {
    "any": {},
    "parallel per-tensor": {"runtime": "parallel", "transfers": "per-tensor"},
    "parallel per-edge": {"runtime": "parallel", "transfers": "per-edge"},
    "sequential": {"runtime": "sequential"},
    "static memory": {"memory": "static"},
    "tight memory": {},
    "tight static memory": {"memory": "static"},
    "no limits": {"limits": False},
}
COUNT = 25
"""Problems of each kind: 200 in all."""


@cache
def problems(kind: str) -> list[Problem]:
    """Absent times and links, buses, tied weights and `together` are in most of them."""
    first = 50_000 + 1000 * list(KINDS).index(kind)
    found = [random_problem(seed, "latency", max_ops=5, **KINDS[kind]) for seed in range(first, first + COUNT)]  # type: ignore[arg-type]
    return [_tight(problem) for problem in found] if "tight" in kind else found


def _tight(problem: Problem) -> Problem:
    """Every device holds about its share of the memory that everything needs."""
    need = int(least_memory(problem).sum()) + sum(t.bytes for t in problem.graph.tensors if t.producer >= 0) // 2
    share = max(1, need * 5 // (4 * len(problem.devices)))
    return replace(problem, devices=tuple(msgspec.structs.replace(d, memory=share) for d in problem.devices))
