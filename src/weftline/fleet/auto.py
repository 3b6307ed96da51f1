"""`auto`: the lanes of `columns.py`, which hold whole copies and pipelines among them."""

from __future__ import annotations

from weftline.fleet.columns import SOLVERS, LanesParameters
from weftline.fleet.search import FleetSolver

__all__ = ["SOLVER"]

SOLVER = FleetSolver("auto", "the best that is known: lanes", SOLVERS[0].solve, parameters=LanesParameters)
