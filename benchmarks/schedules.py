"""Schedules: periods and makespans of `cyclic` and `auto` beside Tessel's own algorithms and the classic schedules.

In: shapes and pipelines. Out: one row per case and method. Simplified: one seed; classics are only simulated.
"""

from __future__ import annotations

import sys
from functools import partial

from benchmarks.planned import Row
from benchmarks.results_file import Collector
from benchmarks.schedules_cases import Case, fine_cases, formula_cases, shape_cases
from benchmarks.schedules_search import schedule_row, warm_up_schedules
from weftline.schedule.classic.classic import classic_schedules
from weftline.schedule.shapes import make_shape
from weftline.simulate import schedule_violations, simulate_schedule

__all__ = ["measure_schedules", "schedule_settings"]

SIZES: dict[str, Row] = {
    "tiny": {
        "shapes": [],
        "cases": ["vshape 4, memory 4", "vshape 4, memory 20"],
        "fine": [],
        "formulas": [],
        "limit": 1.0,
        "tessel": 5.0,
    },
    "quick": {"shapes": [4, 8], "cases": [], "fine": [4], "formulas": [4], "limit": 5.0, "tessel": 30.0},
    "full": {"shapes": [4, 8, 16], "cases": [], "fine": [4, 8, 16], "formulas": [4, 8], "limit": 60.0, "tessel": 300.0},
}
SHORT = 10.0
"""Seconds for `cyclic` on a shape, and for `auto` on a shape: they are asked how fast they are."""


def schedule_settings(size: str, time_limit: float | None) -> Row:
    """Devices of each part, and seconds for our methods and for Tessel's."""
    chosen = SIZES[size]
    return {**chosen, "limit": time_limit or chosen["limit"], "tessel": time_limit or chosen["tessel"]}


def measure_schedules(settings: Row, collect: Collector) -> None:
    """All rows, part by part."""
    if settings["shapes"]:
        warm_up_schedules(make_shape("kshape", 4).with_memory(6), ("cyclic", "auto", "tessel-lazy", "tessel-fast"))
    limit = settings["limit"]
    cases = [case for case in shape_cases((4,)) if case.name in settings["cases"]]
    for case in [*cases, *shape_cases(tuple(settings["shapes"]))]:
        for method in ("cyclic", "auto"):
            most = min(limit, SHORT) if case.tessel else limit
            _measure(collect, "shapes", case, method, most)
        for method in case.tessel:
            _measure(collect, "shapes", case, method, settings["tessel"])
    for part, found in (
        ("formulas", formula_cases(tuple(settings["formulas"]))),
        ("fine", fine_cases(tuple(settings["fine"]))),
    ):
        for case in found:
            _measure(collect, part, case, "auto", limit)


def _measure(collect: Collector, part: str, case: Case, method: str, time_limit: float) -> None:
    print(f"schedules: {case.name}, {method}", file=sys.stderr, flush=True)
    key = {"part": part, "instance": case.name, "method": method}
    collect.measure(key, partial(_row, case, method, time_limit))


def _row(case: Case, method: str, time_limit: float) -> Row:
    blocks = case.blocks
    row = schedule_row(blocks, case.micro_batches, method, time_limit)
    about = {"blocks": blocks.n, "micro_batches": case.micro_batches, "limit": max(d.memory for d in blocks.devices)}
    return {**about, **row, "classics": _classics(case) if method == "auto" else {}}


def _classics(case: Case) -> dict[str, Row]:
    """Classic schedules that apply: makespan, device-span bubble, largest memory, whether it fits."""
    found: dict[str, Row] = {}
    for name, orders in classic_schedules(case.blocks, case.micro_batches).items():
        timetable = simulate_schedule(case.blocks, case.micro_batches, orders)
        found[name] = {
            "makespan": timetable.makespan,
            "device_span_bubble": timetable.device_span_bubble,
            "peak": max(timetable.peak_memory),
            "fits": not schedule_violations(timetable),
        }
    return found
