"""Terminal tables (rich)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.plan import Plan
from weftline.report.rows import Rows, comparison_rows, device_rows, stage_rows
from weftline.report.text import printable

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["comparison_table", "device_table", "stage_table"]


def comparison_table(plan: Plan) -> Table:
    """The plan against each baseline, with the bound."""
    return _table("How good is it", *comparison_rows(plan))


def device_table(plan: Plan) -> Table:
    """What each device does."""
    return _table("Devices", *device_rows(plan))


def stage_table(plan: Plan) -> Table:
    """The stages of a pipeline."""
    return _table("Stages", *stage_rows(plan))


def _table(title: str, header: tuple[str, ...], rows: Rows) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", show_edge=False, pad_edge=False)
    for number, name in enumerate(header):
        table.add_column(name, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))  # Text: names from files are never markup
    return table
