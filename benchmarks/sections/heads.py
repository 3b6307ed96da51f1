"""Encoder-decoders with one op per head: `auto` beside its parts, all with the same time, on instances drawn by seed.

In: seeds, how dear transfers are, seconds. Out: one row per instance and solver: value, bound, seconds. One op feeds
most of the decoder here, so that no chain of ops cuts the graph. Simplified: costs are drawn, per-edge transfers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec

from benchmarks.measure import say
from benchmarks.results import Collector, Row
from benchmarks.section import Column, Run, Section, Table, fields, verdict
from benchmarks.sections.placement import Question, placement_row
from benchmarks.stats import grouped, kept, not_closed, ratio, scores
from weftline.latency import solvers
from weftline.latency.prepare import prepare
from weftline.papers.moirai.heads import heads_file
from weftline.problem import Problem, load_problem
from weftline.units import format_time

__all__ = ["SECTION"]

SOLVERS = ("auto", "anneal", "heft", "single-device")
INSTANCES: dict[str, Row] = {
    "dear transfers": {"seed": 11, "activation": 0.9},
    "cheap transfers": {"seed": 13, "activation": 0.45},
    "keys and values of the encoder": {"seed": 15, "activation": 0.9, "queries_from_encoder": False},
}
SIZES: dict[str, Row] = {
    "tiny": {"instances": {"small": {"seed": 1, "layers": 1, "heads": 2}}, "time_limit": 0.5},
    "quick": {"instances": {"dear transfers": INSTANCES["dear transfers"]}, "time_limit": 30.0},
    "full": {"instances": INSTANCES, "time_limit": 120.0},
}


def measure(settings: Row, collect: Collector) -> None:
    """All rows, instance by instance."""
    prepare()
    for name, options in settings["instances"].items():
        say(f"heads: {name}")
        question = Question("drawn", name, partial(_problem, options))
        for solver in SOLVERS:
            key = {"instance": name, "solver": solver}
            collect.measure(key, partial(placement_row, question, solvers()[solver], settings["time_limit"]))


def _problem(options: Row) -> Problem:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "heads.json"
        path.write_bytes(msgspec.json.encode(heads_file(**options)))
        return load_problem(path, rules={"objective": "latency"})[0]


def _single(run: Run) -> list[Row]:
    """Rows with what a single device could do."""
    found = []
    for rows in grouped(run.rows, "instance").values():
        alone = min((row["value_ns"] for row in kept(rows) if row["solver"] == "single-device"), default=0)
        found += [{**row, "single": alone / row["value_ns"] if row["value_ns"] and alone else None} for row in rows]
    return found


def _losses(run: Run) -> Iterator[str]:
    behind = []
    for instance, rows in grouped(kept(run.rows), "instance").items():
        best = min(rows, key=lambda row: row["value_ns"])
        mine = next((row["value_ns"] for row in rows if row["solver"] == "auto"), None)
        if mine is not None and best["value_ns"] < mine:
            behind.append(f"{instance}: {best['solver']} by {mine / best['value_ns'] - 1:.2%}")
    yield from verdict("`auto` is behind", behind)
    yield from not_closed(run, "auto")


SECTION = Section(
    name="heads",
    title="Placement of encoder-decoders, one op per head",
    chapter="latency",
    asked="Place drawn encoder-decoders whose encoder feeds every layer of the decoder, so that no chain of ops cuts "
    "the graph, on four unequal devices; every solver has {time_limit:g} s.",
    sizes=SIZES,
    measure=measure,
    screen=(scores("instance", "instance", solver="auto", in_all=True),),
    losses=_losses,
    blocks=(
        "Drawn instances in Moirai's form (`weftline.papers.moirai.heads.heads_file`): an op for every projection, "
        "product and softmax of every head, one transfer per edge, two cores, seed 0. *Single* is the best single "
        "device / the plan.",
        Table(
            (
                *fields("instance | ops:, | solver"),
                Column(
                    "value", lambda r: f"none: {r['note']}" if r["value_ns"] is None else format_time(r["value_ns"])
                ),
                Column("bound", "bound_ns", format_time),
                Column("gap", lambda row: None if row["value_ns"] is None else 1 - (ratio(row) or 0.0), ".2%"),
                *fields("by=bound_by | single:.3f | s=seconds:.1f"),
            ),
            _single,
        ),
    ),
)
