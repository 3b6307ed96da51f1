"""Tessel's evaluation in simulation: throughput of training and latency of inference, `auto` beside the classics.

In: the models of the evaluation at their sizes. Out: one row per model, number of GPUs, task and method. Each classic
runs on the placement it was made for; `auto` runs on the one made for the model and on those of the classics.
Simplified: times come from datasheets, nothing is run; a unit of Chimera's two pipelines is two micro-batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from math import ceil
from time import perf_counter

from benchmarks.measure import first_line, say
from benchmarks.render import pivot
from benchmarks.results import Collector, Row
from benchmarks.section import Column, Run, Section, Table, fields, verdict
from benchmarks.sections.schedules_cases import warm_up_schedules
from benchmarks.stats import geometric_mean
from weftline.errors import InfeasibleError, WeftlineError
from weftline.papers.tessel.model_blocks import MODELS, V100, make_network
from weftline.papers.tessel.placements import place_network
from weftline.problem.blocks import Blocks
from weftline.schedule import ScheduleSearch, schedulers
from weftline.schedule.cp_sat import with_arrivals
from weftline.schedule.make_blocks import make_shape
from weftline.simulate import Timetable

__all__ = ["METHODS", "SECTION", "SERVING"]

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


def measure(settings: Row, collect: Collector) -> None:
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
                        say(f"tessel: {key['instance']}, {method} {placement}")
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
        return {"makespan": None, "note": first_line(error), "seconds": round(perf_counter() - begun, 3)}
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
    return int(times[len(times) // 2])


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


OURS = ("auto", "least-latency")
Line = dict[tuple[str, str], Row]
"""Method and placement -> row, of one model on so many GPUs."""


def _lines(run: Run, task: str) -> dict[str, Line]:
    found: dict[str, Line] = {}
    for row in run.of(task=task):
        if row["makespan"] is not None:
            found.setdefault(f"{row['model']} {row['gpus']}", {})[row["method"], row["placement"]] = row
    return found


def _least(line: Line, field: str, *, classic: bool = False) -> int | None:
    return min((row[field] for (name, _), row in line.items() if (name not in OURS) == classic), default=None)


def _title(method: tuple[str, str]) -> str:
    placement = "model-aware" if method[1] == "aware" else method[1]
    return f"{method[0]}, {placement}" if method[0] in OURS else method[0]


def _matrix(task: str, run: Run) -> Iterator[str]:
    """Throughput, or latency in serving, beside the factor to our best."""
    rows, field = run.of(task=task), "latency" if task == "serving" else "makespan"
    best = {name: _least(line, field) for name, line in _lines(run, task).items()}

    def cell(row: Row, _: object) -> str:
        if row["makespan"] is None:
            return "-"
        speed = f"{run.settings['batch'] * 1e9 / row['makespan']:.2f}"
        text = f"{row['latency'] / 1e6:.0f} / {row['alone'] / 1e6:.0f}" if task == "serving" else speed
        ours = best[f"{row['model']} {row['gpus']}"]
        return text if row["method"] in OURS or ours is None else f"{text} ({row[field] / ours:.2f})"

    if rows:
        yield SERVED if task == "serving" else f"**{task.capitalize()}**, micro-batches per second:"
        columns = {method: _title(method) for method in TASKS[task]}
        key = lambda row: (row["method"], row["placement"])  # noqa: E731
        yield pivot("model, GPUs", rows, lambda row: f"{row['model']} {row['gpus']}", columns, key, cell)


def _best(task: str, run: Run) -> Iterator[str]:
    """How much faster than the fastest classic."""
    words = []
    for name, line in _lines(run, task).items():
        ours, theirs = _least(line, "makespan"), _least(line, "makespan", classic=True)
        if ours is not None:
            words.append(f"{name} {theirs / ours:.2f}" if theirs is not None else f"{name} (no classic fits)")
    if words:
        yield f"`auto` on its best placement against the fastest classic: {', '.join(words)}."


def _shorter(run: Run) -> Iterator[str]:
    words = []
    for name, line in _lines(run, "serving").items():
        ours, plain = _least(line, "latency"), line.get(("1f1b", "staged"))
        if ours is not None and plain is not None:
            words.append(f"{name} {100 * (1 - ours / plain['latency']):.0f} %")
    if words:
        yield f"Shorter than 1F1B on the staged pipeline: {', '.join(words)}."


def _summary(run: Run) -> list[Row]:
    """One line per task: the best classic / our best."""
    found = []
    for task in TASKS:
        field, lines = "latency" if task == "serving" else "makespan", _lines(run, task)
        pairs = {n: (_least(line, field), _least(line, field, classic=True)) for n, line in lines.items()}
        factors = {name: theirs / ours for name, (ours, theirs) in pairs.items() if ours and theirs}
        bounds = [
            min(row["bound"] / row["makespan"] for row in line.values() if row["method"] in OURS and row["bound"])
            for line in lines.values()
            if any(row["method"] in OURS and row["bound"] for row in line.values())
        ]
        if factors:
            found.append(
                {
                    "task": task,
                    "count": len(pairs),
                    "alone": sum(bool(ours) and not theirs for ours, theirs in pairs.values()),
                    "factors": factors,
                    "mean": geometric_mean(factors.values()),
                    "bound": min(bounds, default=None),
                    "seconds": max(row["seconds"] for row in run.of(task=task)),
                }
            )
    return found


def _losses(run: Run) -> Iterator[str]:
    even = []
    for line in _summary(run):
        worse = [f"{name} {factor:.3f}" for name, factor in line["factors"].items() if factor < 1]
        yield from verdict(f"A classic is better in {line['task']} (best classic / ours)", worse, most=4)
        if count := sum(factor < 1.005 for factor in line["factors"].values()) - len(worse):
            even.append(f"{line['task']} {count} of {len(line['factors'])}")
    if even:
        yield f"No more than 0.5 % better than the best classic: {', '.join(even)}."


SERVED = (
    "**Serving**: requests arrive one by one, the same for all methods: every "
    f"{SPARE} times the load of the busiest device of the slowest placement. Milliseconds from arrival to answer "
    "(median / longest chain of blocks, which no order can shorten), and in brackets times as long as `least-latency` "
    "on its best placement:"
)
SECTION = Section(
    name="tessel",
    title="Tessel's evaluation, simulated",
    chapter="schedule",
    asked="Tessel's models on 4 to 32 equal GPUs, simulated: training and inference of {batch} micro-batches, and "
    "serving of single requests, beside the classics on the placements they were made for.",
    sizes=SIZES,
    measure=measure,
    screen=(
        Table(
            (
                *fields("task | models x GPUs=count | only ours fits=alone | best classic / ours=mean:.3f"),
                Column("least", lambda line: min(line["factors"].values()), ".3f"),
                Column("most", lambda line: max(line["factors"].values()), ".2f"),
                *fields("worst bound / ours=bound:.3f | max s=seconds:.1f"),
            ),
            _summary,
        ),
    ),
    losses=_losses,
    blocks=(
        f"Simulated on equal GPUs: {V100.name}. Nothing was run. *model-aware* is the placement made for the model "
        "(embedding or joined part on all devices), *staged* a plain pipeline with the embedding in its first stage, "
        "made by a dynamic program that may give a stage several GPUs. Numbers in brackets are times as fast as that "
        "method is `auto`'s best. A dash means that the weights or the activations do not fit, or that the schedule "
        "does not apply.",
        partial(_matrix, "training"),
        partial(_best, "training"),
        partial(_matrix, "inference"),
        partial(_best, "inference"),
        partial(_matrix, "serving"),
        _shorter,
    ),
    limits=("limit",),
)
