"""Values that others have proved, reached or not: the graphs published with Tarnawski et al. 2020.

In: the published files, where they are on this machine. Out: rows of two tables: the plain partition problem (no CPU,
no memory limit, no colours) for k = 2, 4, 8, 16, and the files' own problem. Simplified: the known optima are rounded
as they were published, in milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.instances import FIDDLE, data_folder
from benchmarks.measure import plan_row, say
from benchmarks.results import Collector, Row
from benchmarks.section import Column, Run, Section, Table, fields, verdict
from benchmarks.sections.paper import SHARED, shared_graph
from benchmarks.stats import misses, not_closed, over, ratio, scores
from weftline.problem import Problem, load_problem
from weftline.units import format_time

__all__ = ["SECTION"]

STAGES = (2, 4, 8, 16)
PLAIN = {
    "layer_bert24": (47.479, 24.917, 14.204, 7.1959),
    "layer_gnmt": (93.194, 47.161, 25.85, 24.788),
    "layer_resnet50": (101.28, 50.99, 26.761, 18.998),
    "op_bert_l-3": (33.257, 27.186, 27.186, 27.186),
    "op_bert_l-6": (46.285, 27.186, 27.186, 27.186),
    "op_resnet50": (165.88, 92.629, 89.311, 89.311),
}
"""Optima for k = 2, 4, 8, 16."""
THEIR_SECONDS = {
    "layer_bert24_inference": 0.01,
    "layer_bert24_training": 0.02,
    "layer_gnmt_inference": 29,
    "layer_resnet50_inference": 0.2,
    "op_bert_l-3_inference": 0.9,
    "op_bert_l-3_training": 40,
    "op_bert_l-6_inference": 20,
    "op_resnet50_inference": 0.8,
}
"""Of the authors' dynamic program, measured once on a core like ours."""
MILLISECOND = 10**6
REACHED = 0.0001
"""Relative; the references are published with four to six digits."""
GAP = 0.001
WHOLE: Row = {"plain": list(SHARED), "own": list(FIDDLE), "plain_limit": 20.0, "own_limit": 60.0}
TINY: Row = {"plain": ["layer_bert24"], "own": ["layer_bert24_inference"], "plain_limit": 2.0, "own_limit": 2.0}


def measure(settings: Row, collect: Collector) -> None:
    """All rows; nothing where the files are not on this machine."""
    folder = data_folder() / "fiddle" / "throughput"
    if not folder.is_dir():
        return
    for name in settings["plain"]:
        for stages, known in zip(STAGES, PLAIN[name], strict=True):
            say(f"fiddle: {name}, k = {stages}")
            key = {"table": "plain", "instance": name, "stages": stages}
            make = partial(shared_graph, folder / f"{name}_inference.json", stages)
            collect.measure(key, partial(_row, make, known, settings["plain_limit"]))
    for name in settings["own"]:
        say(f"fiddle: {name}, own limits")
        key = {"table": "own", "instance": name, "stages": 0}
        make = partial(_own, folder / f"{name}.json")
        collect.measure(key, partial(_row, make, FIDDLE[name], settings["own_limit"], THEIR_SECONDS[name]))


def _own(path: Path) -> Problem:
    return load_problem(path, rules={"objective": "throughput"})[0]


def _row(make: partial[Problem], known: float, time_limit: float, their_seconds: float | None = None) -> Row:
    about = {"reference_ns": round(known * MILLISECOND), "their_seconds": their_seconds}
    return {**plan_row(make(), time_limit=time_limit), **about}


def _is_reached(row: Row) -> bool:
    return row["value_ns"] is not None and bool(row["value_ns"] <= row["reference_ns"] * (1 + REACHED))


def _is_ok(row: Row) -> bool:
    """The plain problem also asks for the gap; the files' own problem for speed where theirs took over a second."""
    if not _is_reached(row) or row["seconds"] > row["time_limit"]:
        return False
    if row["table"] == "plain":
        return 1 - (ratio(row) or 0.0) <= GAP
    return bool(row["their_seconds"] <= 1 or row["seconds"] < row["their_seconds"])


def _verdict(row: Row) -> str:
    return "yes" if _is_ok(row) else "**no**, value reached" if _is_reached(row) else "**no**"


def _table(name: str, text: str) -> Table[Row]:
    own = name == "own"
    return Table(
        (
            Column("instance", "instance"),
            Column("used", lambda row: row.get("stages_used")) if own else Column("k", "stages"),
            Column("value", lambda row: row["value_ns"] or 0, lambda value: format_time(value) if value else "none"),
            Column("reference", "reference_ns", format_time),
            Column("value / reference", lambda row: over(row, "value_ns", "reference_ns"), ".5f"),
            Column("gap", lambda row: None if row["value_ns"] is None else 1 - (ratio(row) or 0.0), ".3%"),
            *fields("by=bound_by | proof | s=seconds:.2f"),
            *([Column("their s", "their_seconds", "g")] if own else []),
            Column("ok", _verdict),
        ),
        lambda run: run.of(table=name),
        text,
    )


def _count(name: str, run: Run) -> Iterator[str]:
    rows = run.of(table=name)
    if rows:
        yield f"ok on {sum(map(_is_ok, rows))} of {len(rows)}."


def _losses(run: Run) -> Iterator[str]:
    far = [f"{row['instance']}, {row['table']} k = {row['stages']}" for row in run.rows if not _is_reached(row)]
    yield from verdict("Known optimum not reached", far, most=4)
    slow = [
        f"{row['instance']} ({row['seconds']:.1f} s, theirs {row['their_seconds'] or 0:g} s)"
        for row in run.rows
        if _is_reached(row) and not _is_ok(row)
    ]
    yield from verdict("Reached, but with a gap or slower than theirs", slow, most=4)
    yield from not_closed(run)
    yield from misses(run.rows, most=3)


SECTION = Section(
    name="fiddle",
    title="Pipelines with known optima",
    chapter="throughput",
    asked="Reach the optima that are published with Tarnawski et al. 2020: the plain partition problem "
    "({plain_limit:g} s), and the files' own problem with CPUs, memory and colours ({own_limit:g} s).",
    sizes={"tiny": TINY, "quick": WHOLE, "full": WHOLE},
    measure=measure,
    screen=(scores("problem", "table"),),
    losses=_losses,
    blocks=(
        _table(
            "plain",
            "**The plain problem** (no CPU, memory limit or colours), {plain_limit:g} s. *Reached* = value within "
            f"0.01 % of the known optimum; *ok* = reached, gap at most {GAP:.1%}, time kept.",
        ),
        lambda run: _count("plain", run),
        _table(
            "own",
            "**The files' own problem** (accelerators, CPUs, memory and colours as published), {own_limit:g} s. The "
            "reference is optimal among contiguous partitions with one CPU, by the authors' dynamic program, whose "
            "seconds were measured once on a machine of this class.",
        ),
        lambda run: _count("own", run),
        lambda run: misses(run.rows),
    ),
    limits=("plain_limit", "own_limit"),
    empty="Left out, because the files are not on this machine (WEFTLINE_DATA names their folder).",
    long=False,
    warm=True,
)
