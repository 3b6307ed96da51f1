"""The page's part on graphs whose optimum is known."""

from __future__ import annotations

from benchmarks.planned import Row, ratio
from benchmarks.render_paper import misses
from benchmarks.table import table
from weftline.units import format_time

__all__ = ["reference_sections"]

REACHED = 0.0001
"""Relative; the references are published with four to six digits."""
GAP = 0.001


def reference_sections(run: Row) -> list[str]:
    """The two tables."""
    rows, settings = run["rows"], run["settings"]
    if not rows:
        return ["Left out, because the files are not on this machine (WEFTLINE_DATA names their folder)."]
    plain = (
        f"**The plain problem** (no CPU, memory limit or colours), {settings['plain_limit']:g} s. *Reached* = value "
        f"within 0.01 % of the known optimum; *ok* = reached, gap at most {GAP:.1%}, time kept."
    )
    own = (
        f"**The files' own problem** (accelerators, CPUs, memory and colours as published), {settings['own_limit']:g} "
        "s. The reference is optimal among contiguous partitions with one CPU, by the authors' dynamic program, whose "
        "seconds were measured once on a machine of this class."
    )
    tables = [(text, [row for row in rows if row["table"] == name]) for text, name in ((plain, "plain"), (own, "own"))]
    return [*(f"{text}\n\n{_table(mine)}" for text, mine in tables if mine), *misses(rows)]


def _table(rows: list[Row]) -> str:
    own = rows[0]["table"] == "own"
    header = ["instance", "used" if own else "k", "value", "reference", "value / reference", "gap", "by", "proof", "s"]
    good = sum(_is_ok(row) for row in rows)
    lines = [[*_cells(row), *([f"{row['their_seconds']:g}"] if own else []), _verdict(row)] for row in rows]
    verdict = f"ok on {good} of {len(rows)}"
    return f"{table([*header, *(['their s'] if own else []), 'ok'], lines)}\n\n{verdict}."


def _cells(row: Row) -> list[str]:
    stages = str(row["stages"] or row.get("stages_used", "-"))
    if row["value_ns"] is None:
        known = format_time(row["reference_ns"])
        return [row["instance"], stages, "none", known, "-", "-", "-", "-", f"{row['seconds']:.1f}"]
    return [
        row["instance"],
        stages,
        format_time(row["value_ns"]),
        format_time(row["reference_ns"]),
        f"{row['value_ns'] / row['reference_ns']:.5f}",
        f"{1 - (ratio(row) or 0.0):.3%}",
        row["bound_by"],
        row["proof"],
        f"{row['seconds']:.2f}",
    ]


def _is_reached(row: Row) -> bool:
    return row["value_ns"] is not None and bool(row["value_ns"] <= row["reference_ns"] * (1 + REACHED))


def _is_ok(row: Row) -> bool:
    """The plain problem also asks for the gap; the files' own problem for speed where theirs took over a second."""
    if not _is_reached(row) or row["seconds"] > row["time_limit"]:
        return False
    if row["table"] == "plain":
        return 1 - (ratio(row) or 0.0) <= GAP
    return row["their_seconds"] <= 1 or row["seconds"] < row["their_seconds"]


def _verdict(row: Row) -> str:
    if _is_ok(row):
        return "yes"
    return "**no**, value reached" if _is_reached(row) else "**no**"
