"""One scheduler on one question -> one row: period, makespan, bounds, and after how much processor time it had them.

Processor time is that of this process and of those it started, so that others on the machine disturb it least and
threads count. Kernels are warm; importing z3 is not on the clock.
"""

from __future__ import annotations

import sys
from os import times
from time import perf_counter, process_time

from benchmarks.planned import Row
from weftline.errors import WeftlineError
from weftline.problem.blocks import Blocks
from weftline.schedule import ScheduleSearch, schedulers
from weftline.schedule.bounds.period import period_bound
from weftline.search import Event

__all__ = ["cpu_until", "schedule_row", "warm_up_schedules"]


def schedule_row(blocks: Blocks, micro_batches: int, method: str, time_limit: float, *, seed: int = 0) -> Row:
    """Run a scheduler; `trail` has (processor seconds, period, makespan) whenever one of the two became better."""
    trail: list[tuple[float, float | None, int | None]] = []
    begun, cpu = perf_counter(), _cpu()

    def note(_: Event) -> None:
        period = None if search.repetend is None else float(search.repetend.period)
        makespan = None if search.best is None else search.best.makespan
        if not trail or trail[-1][1:] != (period, makespan):
            trail.append((round(_cpu() - cpu, 4), period, makespan))

    search = ScheduleSearch(blocks, micro_batches, time_limit=time_limit, seed=seed, on_event=note)
    problem = ""
    try:
        search.run(schedulers()[method])
    except WeftlineError as error:
        problem = str(error).splitlines()[0][:120]
    except Exception as error:
        print(f"  {method} crashed: {error!r}", file=sys.stderr)
        problem = f"crashed: {type(error).__name__}"
    spent = _cpu() - cpu
    best, repetend = search.best, search.repetend
    return {
        "period": None if repetend is None else float(repetend.period),
        "micro_batches_of_repetend": None if repetend is None else repetend.micro_batches,
        "period_bound": float(period_bound(blocks)[0] if search.period_bound is None else search.period_bound),
        "period_proved": search.period_proved,
        "load": max(blocks.loads),
        "makespan": None if best is None else best.makespan,
        "bound": search.bound,
        "device_span_bubble": None if best is None else best.device_span_bubble,
        "peak": None if best is None else max(best.peak_memory),
        "trail": trail,
        "cpu": round(spent, 4),
        "seconds": round(perf_counter() - begun, 3),
        "time_limit": time_limit,
        "note": problem,
    }


def cpu_until(row: Row, period: float, makespan: int) -> float | None:
    """Processor seconds until a row was at least so good in both; None if it never was."""
    for cpu, p, m in row["trail"]:
        if p is not None and m is not None and p <= period + 1e-9 and m <= makespan:
            return float(cpu)
    return None


def warm_up_schedules(blocks: Blocks, methods: tuple[str, ...]) -> None:
    """Kernels are compiled or loaded now, not on the clock of the first row."""
    for method in methods:
        schedule_row(blocks, 6, method, 5.0)


def _cpu() -> float:
    ended = times()
    return process_time() + ended.children_user + ended.children_system
