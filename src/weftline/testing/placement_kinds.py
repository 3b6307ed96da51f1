"""Tiny placement problems by kind: both runtimes, both ways of sending, both models of memory, with room and without.

In: a kind and a range of seeds. Out: problems, the same list each time. Absent times and links, buses, tied weights and
`together` are in most of them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import msgspec

from weftline.problem import Problem
from weftline.problem.feasible import least_memory
from weftline.testing.generate import random_problem

__all__ = ["KINDS", "placement_problems"]

KINDS: dict[str, dict[str, Any]] = {
    "any": {},
    "parallel per-tensor": {"runtime": "parallel", "transfers": "per-tensor"},
    "parallel per-edge": {"runtime": "parallel", "transfers": "per-edge"},
    "sequential": {"runtime": "sequential"},
    "static memory": {"memory": "static"},
    "tight memory": {},
    "tight static memory": {"memory": "static"},
    "no limits": {"limits": False},
}
APART = 1000
"""Seeds from one kind to the next."""


@cache
def placement_problems(kind: str, count: int, first: int = 0) -> list[Problem]:
    """`count` problems of a kind; another `first` gives others."""
    begin = first + APART * list(KINDS).index(kind)
    found = [random_problem(seed, "latency", max_ops=5, **KINDS[kind]) for seed in range(begin, begin + count)]
    return [_tight(problem) for problem in found] if "tight" in kind else found


def _tight(problem: Problem) -> Problem:
    """Every device holds about its share of the memory that everything needs."""
    need = int(least_memory(problem).sum()) + sum(t.bytes for t in problem.graph.tensors if t.producer >= 0) // 2
    share = max(1, need * 5 // (4 * len(problem.devices)))
    return replace(problem, devices=tuple(msgspec.structs.replace(d, memory=share) for d in problem.devices))
