"""Schedules that were searched, trained for real on local processes: gradients against one process, time of a step.

The example's transformer is cut in the stages of each shape. Simulated is the one simulator with the measured time of
every block and of a small message, so the ratio says what the order itself costs on this machine. Four processes share
the machine's cores: where they are fewer, blocks of different devices wait for each other and the ratio shows it.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from benchmarks.planned import Row
from benchmarks.results_file import Collector
from weftline.errors import WeftlineError
from weftline.schedule import ScheduleSearch, schedulers
from weftline.schedule.shapes import make_shape

__all__ = ["measure_steps", "steps_settings"]

MODEL = f"{Path(__file__).parent.parent / 'examples' / 'train_transformer.py'}:transformer"
CASES = (
    ("linear", 2, 4, "torch"), ("zigzag", 2, 8, "torch"), ("interleaved", 2, 10, "torch"), ("linear", 2, 4, "weftline"),
    ("zigzag", 2, 8, "weftline"), ("linear", 4, 8, "torch"), ("mshape", 4, 6, "weftline"), ("kshape", 4, 6, "weftline"),
)  # fmt: skip
"""Shape, processes, memory, engine."""
SIZES: dict[str, Row] = {
    "tiny": {"cases": 1, "seeds": 1, "steps": 2, "limit": 1.0},
    "quick": {"cases": len(CASES), "seeds": 2, "steps": 5, "limit": 3.0},
    "full": {"cases": len(CASES), "seeds": 20, "steps": 5, "limit": 5.0},
}
PER_DEVICE = 4
"""Micro-batches."""


def steps_settings(size: str, time_limit: float | None) -> Row:
    """How many cases, seeds and steps; seconds for the search of an order."""
    chosen = SIZES[size]
    return {**chosen, "limit": time_limit or chosen["limit"]}


def measure_steps(settings: Row, collect: Collector) -> None:
    """One row per case."""
    for shape, devices, memory, engine in CASES[: settings["cases"]]:
        key = {"shape": shape, "devices": devices, "memory": memory, "engine": engine}
        print(f"steps: {shape} {devices}, {engine}", file=sys.stderr, flush=True)
        collect.measure(key, partial(_row, key, settings))


def _row(key: Row, settings: Row) -> Row:
    from weftline.run import run_schedule

    blocks = make_shape(key["shape"], key["devices"]).with_memory(key["memory"])
    search = ScheduleSearch(blocks, PER_DEVICE * key["devices"], time_limit=settings["limit"])
    try:
        search.run(schedulers()["auto"])
        assert search.best is not None
        done = run_schedule(
            search.best, model=MODEL, engine=key["engine"], steps=settings["steps"], seeds=settings["seeds"]
        )
    except WeftlineError as error:
        return {"note": str(error).splitlines()[0][:120]}
    return {
        "note": "",
        "micro_batches": done.micro_batches,
        "seeds": len(done.seeds),
        "difference": done.max_gradient_difference,
        "measured": done.measured_seconds,
        "simulated": done.simulated_seconds,
        "busy": max(rank.busy_seconds for rank in done.ranks),
    }
