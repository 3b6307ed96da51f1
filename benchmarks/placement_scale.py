"""How placement for latency grows: 1,000 to 100,000 ops on four unequal devices, each in a process of its own.

In: kinds of graphs, sizes, seconds. Out: one row each with value, bound, seconds and peak memory, beside HEFT and the
best single device. Simplified: memory of the devices is unlimited, unless the kind says otherwise, since the larger
graphs fit nowhere; peak memory is the resident set of a whole Python process.
"""

from __future__ import annotations

import sys
from functools import partial

from benchmarks.own_process import row_of_process
from benchmarks.planned import Row
from benchmarks.results_file import Collector

__all__ = ["measure_placement_scale", "placement_scale_settings"]

SIZES: dict[str, Row] = {
    "tiny": {"kinds": ["layered"], "sizes": {"200": 0.5}},
    "quick": {"kinds": ["layered", "transformer_like"], "sizes": {"1000": 5.0, "10000": 10.0}},
    "full": {
        "kinds": ["layered", "transformer_like", "layered, memory limited"],
        "sizes": {"1000": 60.0, "3000": 60.0, "10000": 60.0, "30000": 60.0, "100000": 120.0},
    },
}


def placement_scale_settings(size: str, time_limit: float | None) -> Row:
    """Kinds of graphs, and seconds by number of ops."""
    chosen = SIZES[size]
    return {**chosen, "sizes": {ops: time_limit or seconds for ops, seconds in chosen["sizes"].items()}}


def measure_placement_scale(settings: Row, collect: Collector) -> None:
    """All rows, the small ones first."""
    for ops, seconds in settings["sizes"].items():
        for kind in settings["kinds"]:
            print(f"placement-scale: {kind}, {int(ops):,} ops", file=sys.stderr, flush=True)
            key = {"kind": kind, "asked_ops": int(ops), "instance": f"{kind} {ops} on four-unequal"}
            collect.measure(key, partial(row_of_process, "placement_scale_one", kind, int(ops), seconds))
