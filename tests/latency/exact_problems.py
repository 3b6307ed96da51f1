"""Tiny problems of all kinds for the exact solvers."""

from weftline.problem import Problem
from weftline.testing.generate import KINDS, placement_problems

__all__ = ["KINDS", "problems"]

COUNT = 25
"""Problems of each kind: 200 in all."""


def problems(kind: str) -> list[Problem]:
    """Others than those of the conformance suite."""
    return placement_problems(kind, COUNT, 50_000)
