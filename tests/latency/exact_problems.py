"""Tiny problems of all kinds for the exact solvers, and the published instances where they are present."""

import os
from pathlib import Path

from weftline.problem import Problem
from weftline.testing.generate import KINDS, placement_problems

__all__ = ["DATA", "KINDS", "problems"]

DATA = Path(os.environ.get("WEFTLINE_DATA", Path(__file__).resolve().parents[2] / "../shared/data")) / "moirai"
COUNT = 25
"""Problems of each kind: 200 in all."""


def problems(kind: str) -> list[Problem]:
    """Others than those of the conformance suite."""
    return placement_problems(kind, COUNT, 50_000)
