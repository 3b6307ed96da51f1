"""Schedules that were searched, trained for real on local processes: gradients against one process, time of a step.

In: shapes, seeds, steps. Out: one row per shape and engine. The example's transformer is cut in the stages of each
shape. Simulated is the one simulator with the measured time of every block and of a small message, so the ratio says
what the order itself costs on this machine. Four processes share the machine's cores: where they are fewer, blocks of
different devices wait for each other and the ratio shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.measure import ROOT, first_line, say
from benchmarks.results import Collector, Row
from benchmarks.section import Column, Run, Section, Table, fields, verdict
from benchmarks.stats import grouped, mean_of
from weftline.errors import WeftlineError
from weftline.schedule import ScheduleSearch, schedulers
from weftline.schedule.make_blocks import make_shape

__all__ = ["SECTION"]

MODEL = f"{ROOT / 'examples' / 'train_transformer.py'}:transformer"
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


def measure(settings: Row, collect: Collector) -> None:
    """One row per case."""
    for shape, devices, memory, engine in CASES[: settings["cases"]]:
        key = {"shape": shape, "devices": devices, "memory": memory, "engine": engine}
        say(f"steps: {shape} {devices}, {engine}")
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
        return {"note": first_line(error)}
    return {
        "note": "",
        "micro_batches": done.micro_batches,
        "seeds": len(done.seeds),
        "difference": done.max_gradient_difference,
        "measured": done.measured_seconds,
        "simulated": done.simulated_seconds,
        "busy": max(rank.busy_seconds for rank in done.ranks),
    }


def _ms(field: str) -> Callable[[Row], object]:
    return lambda row: None if row["note"] else row[field] * 1e3


def _ratio(row: Row) -> float | None:
    return None if row["note"] else row["measured"] / row["simulated"]


def _name(row: Row) -> str:
    return f"{row['shape']} {row['devices']}, memory {row['memory']}"


def _losses(run: Run) -> Iterator[str]:
    ratios = [(found, row) for row in run.rows if (found := _ratio(row)) is not None]
    slow = [f"{_name(row)}, {row['engine']} {found:.2f}" for found, row in ratios if found > 1.25]
    yield from verdict("Slower than simulated by more than a quarter (measured / simulated)", slow, most=4)
    yield from verdict("Failed", [f"{_name(row)}: {row['note']}" for row in run.rows if row["note"]])


TABLE: Table[Row] = Table(
    (
        Column("schedule", _name),
        Column("engine", "engine"),
        Column("micro-batches", lambda row: row["note"] or row["micro_batches"]),
        *fields("seeds | largest difference of a gradient=difference:.1e"),
        Column("measured step, ms", _ms("measured"), ".2f"),
        Column("simulated, ms", _ms("simulated"), ".2f"),
        Column("ratio", _ratio, ".2f"),
    )
)
BY_ENGINE: Table[tuple[str, list[Row]]] = Table(
    (
        Column("engine", lambda group: group[0]),
        Column("schedules", lambda group: len(group[1])),
        Column("seeds of each", lambda group: min(row["seeds"] for row in group[1])),
        Column("largest difference of a gradient", lambda group: max(row["difference"] for row in group[1]), ".1e"),
        Column("measured / simulated step", lambda group: mean_of(map(_ratio, group[1])), ".2f"),
        Column("least", lambda group: min(_ratio(row) or 0.0 for row in group[1]), ".2f"),
        Column("most", lambda group: max(_ratio(row) or 0.0 for row in group[1]), ".2f"),
    ),
    lambda run: grouped([row for row in run.rows if not row["note"]], "engine").items(),
)
SECTION = Section(
    name="steps",
    title="Schedules, trained for real",
    chapter="real",
    asked="Do searched orders train the same gradients as one process, and how long is a step beside the simulated "
    "one? {seeds} seeds, {steps} steps, local processes.",
    sizes=SIZES,
    measure=measure,
    screen=(BY_ENGINE,),
    losses=_losses,
    blocks=(
        "Orders found by `auto`, trained for real: the transformer of `examples/train_transformer.py` (gloo, one "
        "thread each), 4 micro-batches per process. Gradients are compared with one process for every seed and step. "
        "*simulated* is the simulator with the measured time of every block and of a small message. On a machine with "
        "fewer cores than processes, blocks that the simulator runs side by side wait for a core.",
        TABLE,
    ),
    limits=("limit",),
)
