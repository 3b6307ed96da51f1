"""BRKGA with the paper's long preset."""

from __future__ import annotations

from weftline.partition.brkga import SOLVER_LONG as SOLVER

__all__ = ["SOLVER"]
