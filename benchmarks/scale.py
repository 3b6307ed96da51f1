"""How planning grows: 1,000 to 100,000 ops as pipelines on eight equal devices, each in a process of its own.

In: kinds of graphs, sizes, seconds. Out: one row each with value, bound, seconds, peak memory of the process and the
time of the slice solver alone. Simplified: peak memory is the resident set of a whole Python process.
"""

from __future__ import annotations

import sys
from functools import partial

from benchmarks.own_process import row_of_process
from benchmarks.planned import Row
from benchmarks.results_file import Collector

__all__ = ["measure_scale", "scale_settings"]

KINDS = ["layered", "gpt"]
SIZES: dict[str, Row] = {
    "tiny": {"kinds": ["layered"], "sizes": {"300": 1.0}},
    "quick": {"kinds": ["layered", "gpt"], "sizes": {"1000": 8.0, "10000": 15.0}},
    "full": {
        "kinds": KINDS,
        "sizes": {"1000": 30.0, "3000": 30.0, "10000": 30.0, "30000": 30.0, "100000": 120.0},
    },
}


def scale_settings(size: str, time_limit: float | None) -> Row:
    """Kinds of graphs, and seconds by number of ops."""
    chosen = SIZES[size]
    return {**chosen, "sizes": {ops: time_limit or seconds for ops, seconds in chosen["sizes"].items()}}


def measure_scale(settings: Row, collect: Collector) -> None:
    """All rows, the small ones first."""
    for ops, seconds in settings["sizes"].items():
        for kind in settings["kinds"]:
            print(f"scale: {kind}, {int(ops):,} ops", file=sys.stderr, flush=True)
            key = {"kind": kind, "asked_ops": int(ops), "instance": f"{kind} {ops}"}
            collect.measure(key, partial(row_of_process, "scale_one", kind, int(ops), seconds))
