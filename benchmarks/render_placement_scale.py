"""The page's part on large placements: value, bound, time and memory beside HEFT and the best single device."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.planned import Row, ratio
from benchmarks.render_paper import misses
from benchmarks.results_file import BestKnown
from benchmarks.table import table
from weftline.units import format_bytes, format_time

__all__ = ["placement_scale_sections"]

RIVALS = {"heft": "HEFT", "single": "the best single device"}


def placement_scale_sections(run: Row, best: BestKnown) -> list[str]:
    """Method, verdicts, the table."""
    rows = run["rows"]
    text = (
        "Synthetic graphs on the preset four-unequal, objective latency, parallel runtime, `auto`, each in a process "
        "of its own. The devices' memory is unlimited (the largest graphs fit on no device, some not even on all), "
        "except where the kind says *memory limited*. *Search* is the search with its bounds; *call* is the whole of "
        "`make_plan`, with baselines, the plan and, up to 5,000 ops, its check. Peak memory is the resident set of the "
        "process, which holds Python, all libraries, the graph and the plan. HEFT and single devices run by themselves "
        "afterwards; their columns are their value / the plan's: above 1 the plan is better."
    )
    return [text, *_verdicts(rows), *misses(rows), _table(rows, best)]


def _verdicts(rows: list[Row]) -> Iterator[str]:
    solved = [row for row in rows if row["value_ns"] is not None]
    for column, name in RIVALS.items():
        both = [row for row in solved if row[f"{column}_ns"] is not None]
        better = sum(row["value_ns"] < row[f"{column}_ns"] for row in both)
        equal = sum(row["value_ns"] == row[f"{column}_ns"] for row in both)
        worse = [row["instance"] for row in both if row["value_ns"] > row[f"{column}_ns"]]
        alone = f", {name} has no plan on {len(solved) - len(both)} more" if len(both) < len(solved) else ""
        lost = f"**worse on {len(worse)}: {', '.join(worse)}**" if worse else "worse on none"
        yield f"Against {name}: better on {better} of {len(both)}, equal on {equal}, {lost}{alone}."


def _table(rows: list[Row], best: BestKnown) -> str:
    header = (
        "graph",
        "ops",
        "edges",
        "limit s",
        "value",
        "bound",
        "bound / value",
        "by",
        "proof",
        "value / best known",
        "heft / plan",
        "single / plan",
        "search s",
        "call s",
        "peak memory",
        "heft s",
    )
    return table(header, [_line(row, best) for row in rows])


def _line(row: Row, best: BestKnown) -> tuple[str, ...]:
    about = (row["kind"], f"{row['ops']:,}")
    if row["value_ns"] is None:
        return (*about, "-", f"{row['time_limit']:g}", f"none: {row['note']}", *["-"] * 11)
    return (
        *about,
        f"{row['edges']:,}",
        f"{row['time_limit']:g}",
        format_time(row["value_ns"]),
        format_time(row["bound_ns"]),
        f"{ratio(row):.4f}",
        row["bound_by"],
        row["proof"],
        best.compared(row),
        *(_factor(row[f"{column}_ns"], row["value_ns"]) for column in RIVALS),
        "-" if row["search_seconds"] is None else f"{row['search_seconds']:.1f}",
        f"{row['seconds']:.1f}",
        format_bytes(row["peak_bytes"]),
        f"{row['heft_seconds']:.2f}",
    )


def _factor(other: int | None, value: int) -> str:
    return "no plan" if other is None else f"{other / value:.3f}" if value else "-"
