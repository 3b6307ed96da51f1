"""Memory against period for a terminal: a table, a bar for each limit, and what follows in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.plan.schedule_sweep import MemorySweep
from weftline.report.rows import Rows
from weftline.report.tables import text_table

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["memory_table", "memory_words"]


def memory_table(sweep: MemorySweep) -> Table:
    """One line for each limit."""
    rows: Rows = []
    for row in sweep.rows:
        found = row.schedule
        if found is None:
            rows.append((str(row.memory), "does not fit", "", "", "", "", ""))
            continue
        rows.append(
            (
                str(row.memory),
                f"{found.period:g}",
                f"{found.period_bound:g}",
                "yes" if found.period_proved else "",
                str(found.makespan),
                f"{found.gap:.2%}",
                "less is slower" if row.best else "",
            )
        )
    titles = ("memory limit", "period", "its bound", "proved", "makespan", "its gap", "")
    return text_table("Memory against period, per micro-batch", titles, rows)


def memory_words(sweep: MemorySweep) -> list[str]:
    """Which memory is enough."""
    best = [row for row in sweep.rows if row.best]
    last = best[-1]
    assert last.schedule is not None
    words = [f"memory {last.memory} reaches the least period found, {last.schedule.period_exact}"]
    if len(best) > 1:
        first = best[0]
        assert first.schedule is not None
        slower = first.schedule.period / last.schedule.period
        words.append(f"memory {first.memory} is the least that fits; its period is {slower:.2f} times as long")
    return words
