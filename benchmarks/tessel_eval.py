"""Tessel's evaluation in simulation: throughput of training and latency of inference, `auto` beside the classics.

In: the models of the evaluation at their sizes. Out: one row per model, number of GPUs, task and method. Each classic
runs on the placement it was made for; `auto` runs on the one made for the model and on those of the classics.
Simplified: times come from datasheets, nothing is run; a unit of Chimera's two pipelines is two micro-batches.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial
from math import ceil
from time import perf_counter

from benchmarks.planned import Row
from benchmarks.results_file import Collector
from benchmarks.schedules_search import warm_up_schedules
from weftline.errors import InfeasibleError, WeftlineError
from weftline.papers.tessel.model_blocks import MODELS, V100, make_network
from weftline.papers.tessel.placements import place_network
from weftline.problem.blocks import Blocks
from weftline.schedule import ScheduleSearch, schedulers
from weftline.schedule.least_latency import with_arrivals
from weftline.schedule.shapes import make_shape
from weftline.simulate import Timetable

__all__ = ["METHODS", "SERVING", "measure_tessel_eval", "tessel_eval_settings"]

BATCH = 128
"""Micro-batches of a step, of one sequence or image each."""
METHODS = (
    ("auto", "aware"), ("auto", "staged"), ("auto", "interleaved"), ("auto", "bidirectional"),
    ("1f1b", "staged"), ("gpipe", "staged"),
    ("interleaved-1f1b", "interleaved"), ("chimera", "bidirectional"), ("1f1b-plus", "aware"),
)  # fmt: skip
"""Scheduler and placement."""
SERVING = (
    ("least-latency", "aware"), ("least-latency", "staged"), ("1f1b", "staged"),
    ("interleaved-1f1b", "interleaved"), ("1f1b-plus", "aware"),
)  # fmt: skip
"""The same where requests arrive one by one and the latency counts."""
TASKS = {"training": METHODS, "inference": METHODS, "serving": SERVING}
SPARE = 1.05
"""Serving: time between requests / load of the busiest device of the slowest placement."""
SIZES: dict[str, Row] = {
    "tiny": {"gpus": [4], "models": ["flava"], "limit": 1.0, "batch": 8},
    "quick": {"gpus": [4, 8], "models": list(MODELS), "limit": 4.0, "batch": BATCH},
    "full": {"gpus": [4, 8, 16, 32], "models": list(MODELS), "limit": 30.0, "batch": BATCH},
}


def tessel_eval_settings(size: str, time_limit: float | None) -> Row:
    """Models, GPUs and seconds for `auto`."""
    chosen = SIZES[size]
    return {**chosen, "limit": time_limit or chosen["limit"]}


def measure_tessel_eval(settings: Row, collect: Collector) -> None:
    """All rows, model by model."""
    if settings["batch"] == BATCH:
        warm_up_schedules(make_shape("kshape", 4).with_memory(6), ("auto",))
    for model in settings["models"]:
        for gpus in MODELS[model]:
            for task, methods in TASKS.items():
                for method, placement in methods:
                    if gpus in settings["gpus"]:
                        key = {"model": model, "gpus": gpus, "task": task, "method": method, "placement": placement}
                        key["instance"] = f"{model} {gpus} {task}"
                        print(f"tessel: {key['instance']}, {method} {placement}", file=sys.stderr, flush=True)
                        collect.measure(key, partial(_row, key, settings["batch"], settings["limit"]))


def _row(key: Row, batch: int, time_limit: float) -> Row:
    """Makespan of the whole batch; in serving also how long a request takes from its arrival."""
    begun = perf_counter()
    try:
        blocks, period = _question(key)
        count = batch // 2 if key["placement"] == "bidirectional" else batch
        search = ScheduleSearch(blocks, count, time_limit=time_limit)
        search.run(schedulers()[key["method"]])
    except WeftlineError as error:
        return {"makespan": None, "note": str(error).splitlines()[0][:120], "seconds": round(perf_counter() - begun, 3)}
    found = search.best
    assert found is not None
    limits = [lane.memory for lane in blocks.devices]
    return {
        "makespan": found.makespan,
        "bound": search.bound,
        "load": max(blocks.loads) * count,
        "arrival": period,
        "latency": _latency(found) - period,
        "alone": _alone(blocks) - period,
        "period": None if search.repetend is None else float(search.repetend.period),
        "memory_used": max(peak / limit for peak, limit in zip(found.peak_memory, limits, strict=True)),
        "note": "",
        "seconds": round(perf_counter() - begun, 3),
    }


def _question(key: Row) -> tuple[Blocks, int]:
    """Blocks, and the time between requests (0 where all are there at once)."""
    network, gpus, train = make_network(key["model"], key["gpus"]), key["gpus"], key["task"] == "training"
    blocks = place_network(network, V100, gpus, key["placement"], train=train)
    if key["task"] != "serving":
        return blocks, 0
    loads = []
    for placement in dict.fromkeys(placement for _, placement in SERVING):
        with suppress(InfeasibleError):
            loads.append(max(place_network(network, V100, gpus, placement, train=False).loads))
    period = ceil(SPARE * max(loads))
    return with_arrivals(blocks, period), period


def _latency(timetable: Timetable) -> int:
    """Median over the micro-batches."""
    shape = timetable.micro_batches, timetable.blocks.n
    ends, starts = timetable.end.reshape(shape), timetable.start.reshape(shape)
    times = sorted((ends.max(axis=1) - starts.min(axis=1)).tolist())
    return times[len(times) // 2]


def _alone(blocks: Blocks) -> int:
    """Longest path: the latency of a micro-batch that meets no other."""
    table = blocks.table
    end = [0] * blocks.n
    for i in table.order.tolist():
        ready = [
            end[table.before_of[e]] + int(table.before_lag[e])
            for e in range(table.before_ptr[i], table.before_ptr[i + 1])
        ]
        end[i] = max(ready, default=0) + int(table.span[i])
    return max(end)
