"""The page's part on Tessel's evaluation: throughput and latency by model, task and method."""

from __future__ import annotations

from typing import Any

from benchmarks.planned import Row
from benchmarks.table import table
from benchmarks.tessel_eval import METHODS, SERVING, SPARE
from weftline.papers.tessel.model_blocks import V100

__all__ = ["tessel_eval_sections"]

OURS = ("auto", "least-latency")
EXPLAIN = (
    f"Simulated on equal GPUs: {V100.name}. Steps of {{batch}} micro-batches; nothing was run. *model-aware* is the "
    "placement made for the model (embedding or joined part on all devices), *staged* a plain pipeline with the "
    "embedding in its first stage, made by a dynamic program that may give a stage several GPUs. The classics run on "
    "the placements they were made for. Numbers in brackets are times as fast as that method is `auto`'s best. "
    "A dash means that the weights or the activations do not fit, or that the schedule does not apply."
)


SERVED = (
    "**Serving**: requests arrive one by one, the same for all methods: every "
    f"{SPARE} times the load of the busiest device of the slowest placement. Milliseconds from arrival to answer "
    "(median / longest chain of blocks, which no order can shorten), and in brackets times as long as `least-latency` "
    "on its best placement:"
)


def tessel_eval_sections(run: dict[str, Any]) -> list[str]:
    """Throughput of training and of inference, latency of serving."""
    found = [EXPLAIN.format(batch=run["settings"]["batch"])]
    for task in ("training", "inference"):
        rows = [row for row in run["rows"] if row["task"] == task]
        if rows:
            found += [
                f"**{task.capitalize()}**, micro-batches per second:",
                _throughput(rows, run["settings"]["batch"]),
            ]
            found += [_best(rows)]
    served = [row for row in run["rows"] if row["task"] == "serving"]
    return [*found, SERVED, _latency(served), _shorter(served)] if served else found


def _by_instance(rows: list[Row]) -> dict[str, dict[tuple[str, str], Row]]:
    found: dict[str, dict[tuple[str, str], Row]] = {}
    for row in rows:
        found.setdefault(f"{row['model']} {row['gpus']}", {})[row["method"], row["placement"]] = row
    return found


def _title(method: tuple[str, str]) -> str:
    placement = "model-aware" if method[1] == "aware" else method[1]
    return f"{method[0]}, {placement}" if method[0] in OURS else method[0]


def _throughput(rows: list[Row], batch: int) -> str:
    lines = []
    for name, mine in _by_instance(rows).items():
        best = _fastest(mine)
        cells = [name]
        for method in METHODS:
            row = mine.get(method)
            if row is None or row["makespan"] is None:
                cells.append("-")
                continue
            speed = f"{batch * 1e9 / row['makespan']:.2f}"
            cells.append(speed if method[0] in OURS or best is None else f"{speed} ({row['makespan'] / best:.2f})")
        lines.append(cells)
    return table(("model, GPUs", *map(_title, METHODS)), lines)


def _fastest(mine: dict[tuple[str, str], Row], *, classic: bool = False) -> int | None:
    found = [
        r["makespan"] for (name, _), r in mine.items() if (name not in OURS) == classic and r["makespan"] is not None
    ]
    return min(found, default=None)


def _best(rows: list[Row]) -> str:
    """How much faster than the fastest and than the slowest classic."""
    words = []
    for name, mine in _by_instance(rows).items():
        ours, theirs = _fastest(mine), _fastest(mine, classic=True)
        if ours is not None:
            words.append(f"{name} {theirs / ours:.2f}" if theirs is not None else f"{name} (no classic fits)")
    return f"`auto` on its best placement against the fastest classic: {', '.join(words)}."


def _latency(rows: list[Row]) -> str:
    lines = []
    for name, mine in _by_instance(rows).items():
        best = _shortest(mine)
        cells = [name]
        for method in SERVING:
            row = mine.get(method)
            if row is None or row["makespan"] is None:
                cells.append("-")
                continue
            cell = f"{row['latency'] / 1e6:.0f} / {row['alone'] / 1e6:.0f}"
            cells.append(cell if method[0] in OURS or best is None else f"{cell} ({row['latency'] / best:.2f})")
        lines.append(cells)
    return table(("model, GPUs", *map(_title, SERVING)), lines)


def _shortest(mine: dict[tuple[str, str], Row], *, classic: bool = False) -> int | None:
    found = [r["latency"] for (name, _), r in mine.items() if (name not in OURS) == classic and r["makespan"]]
    return min(found, default=None)


def _shorter(rows: list[Row]) -> str:
    words = []
    for name, mine in _by_instance(rows).items():
        ours, plain = _shortest(mine), mine.get(("1f1b", "staged"))
        if ours is not None and plain is not None and plain["makespan"]:
            words.append(f"{name} {100 * (1 - ours / plain['latency']):.0f} %")
    return f"Shorter than 1F1B on the staged pipeline: {', '.join(words)}." if words else ""
