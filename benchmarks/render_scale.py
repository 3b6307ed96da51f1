"""The page's part on large graphs: value, bound, time and memory over the number of ops."""

from __future__ import annotations

from benchmarks.clock import exponent
from benchmarks.planned import Row, ratio
from benchmarks.render_paper import misses
from benchmarks.results_file import BestKnown
from benchmarks.table import table
from weftline.units import format_bytes, format_time

__all__ = ["scale_sections"]


def scale_sections(run: Row, best: BestKnown) -> list[str]:
    """Method, the table, growth of the slice solver."""
    rows = run["rows"]
    text = (
        "Synthetic graphs and deep GPTs as pipelines on eight equal devices (the GPU and NVLink of the preset "
        "eight-gpus, memory unlimited), each in a process of its own. Seconds are the whole call of `make_plan`; peak "
        "memory is the resident set of the process, which holds Python, all libraries, the graph and the plan. *Slice* "
        "is the slice solver alone: processor seconds, and its value / the plan's; > "
        "means that it was stopped after 40 s of wall time."
    )
    return [text, _table(rows, best), *misses(rows), *_growth(rows)]


def _table(rows: list[Row], best: BestKnown) -> str:
    header = (
        "graph",
        "ops",
        "edges",
        "limit s",
        "value",
        "bound / value",
        "by",
        "value / best known",
        "s",
        "peak memory",
        "slice s",
        "slice / plan",
    )
    return table(header, [_line(row, best) for row in rows])


def _line(row: Row, best: BestKnown) -> tuple[str, ...]:
    about = (row["kind"], f"{row['ops']:,}")
    if row["value_ns"] is None:
        return (*about, "-", f"{row['time_limit']:g}", f"none: {row['note']}", *["-"] * 7)
    return (
        *about,
        f"{row['edges']:,}",
        f"{row['time_limit']:g}",
        format_time(row["value_ns"]),
        f"{ratio(row):.4f}",
        row["bound_by"],
        best.compared(row),
        f"{row['seconds']:.1f}",
        format_bytes(row["peak_bytes"]),
        f"{'' if row.get('slice_done', True) else '> '}{row['slice_seconds']:.2f}",
        "-" if row["slice_ns"] is None else f"{row['slice_ns'] / row['value_ns']:.4f}",
    )


def _is_sliced(row: Row) -> bool:
    """A slice solver that was stopped says nothing about growth."""
    return bool(row["slice_seconds"] > 0 and row.get("slice_done", True))


def _growth(rows: list[Row]) -> list[str]:
    found = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        mine = [row for row in rows if row["kind"] == kind and row["value_ns"] is not None and _is_sliced(row)]
        if len(mine) > 1:
            slope = exponent([float(row["ops"]) for row in mine], [row["slice_seconds"] for row in mine])
            found.append(f"{kind} {slope:.2f}")
    text = "Fitted exponent of the slice solver's time against the number of ops (1 = linear)"
    return [f"{text}: {', '.join(found)}."] if found else []
