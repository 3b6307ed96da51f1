"""Terminal tables (rich)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.plan import Plan
from weftline.report.rows import Rows, comparison_rows, device_rows, placement_rows, stage_rows
from weftline.units import format_name

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["comparison_table", "device_table", "placement_table", "stage_table", "text_table"]


def comparison_table(plan: Plan) -> Table:
    """The plan against each baseline, with the bound."""
    return text_table("How good is it", *comparison_rows(plan))


def device_table(plan: Plan) -> Table:
    """What each device does."""
    return text_table("Devices", *device_rows(plan))


def stage_table(plan: Plan) -> Table:
    """The stages of a pipeline."""
    return text_table("Stages", *stage_rows(plan))


def placement_table(plan: Plan) -> Table:
    """Every op, where it runs, and how long."""
    return text_table("Placement", *placement_rows(plan))


def text_table(title: str, header: tuple[str, ...], rows: Rows) -> Table:
    """The first column to the left, numbers to the right."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", show_edge=False, pad_edge=False)
    for number, name in enumerate(header):
        table.add_column(name, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*(Text(format_name(cell, keep="\n")) for cell in row))  # Text: names from files are never markup
    return table
