"""The page's part on encoder-decoders with one op per head."""

from __future__ import annotations

from benchmarks.placement_summary import grouped
from benchmarks.planned import Row, ratio
from benchmarks.table import table
from weftline.units import format_time

__all__ = ["heads_sections"]


def heads_sections(run: Row) -> list[str]:
    """Method and table."""
    limit = run["settings"]["time_limit"]
    text = (
        "Drawn instances in Moirai's form (`weftline/papers/moirai/heads.py`): encoder-decoders with an op for every "
        "projection, product and softmax of every head, on four unequal devices, one transfer per edge. The encoder's "
        "output feeds every layer of the decoder, so that no chain of ops cuts the graph. Every solver has "
        f"{limit:g} s on two cores, seed 0. *Single* is the best single device / the plan."
    )
    return [text, _table(run["rows"])]


def _table(rows: list[Row]) -> str:
    header = ("instance", "ops", "solver", "value", "bound", "gap", "by", "single", "s")
    lines = []
    for mine in grouped(rows, "instance").values():
        alone = [row["value_ns"] for row in mine if row["solver"] == "single-device" and row["value_ns"]]
        single = min(alone, default=0)
        lines += [_line(row, single) for row in mine]
    return table(header, lines)


def _line(row: Row, single: int) -> tuple[str, ...]:
    about = (row["instance"], f"{row['ops']:,}", row["solver"])
    if row["value_ns"] is None:
        return (*about, f"none: {row['note']}", *["-"] * 5)
    gap = 1.0 - (ratio(row) or 0.0)
    value = format_time(row["value_ns"])
    factor = f"{single / row['value_ns']:.3f}" if row["value_ns"] else "-"
    return (*about, value, format_time(row["bound_ns"]), f"{gap:.2%}", row["bound_by"], factor, f"{row['seconds']:.1f}")
