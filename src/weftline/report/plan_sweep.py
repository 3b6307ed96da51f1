"""A sweep over many questions for a terminal: a table with a line for each, and how it went in words."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from weftline.execute.sweep import PlanSweep
from weftline.execute.sweep_job import Row
from weftline.report.rows import Rows
from weftline.report.tables import text_table
from weftline.units import format_name, format_time

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["plan_sweep_rows", "plan_sweep_table", "plan_sweep_words"]

MOST_NAME = 40


def plan_sweep_table(sweep: PlanSweep) -> Table:
    """One line for each finished question."""
    return text_table("Plans", *plan_sweep_rows(sweep))


def plan_sweep_rows(sweep: PlanSweep) -> tuple[tuple[str, ...], Rows]:
    """What was asked, value, bound, gap, proof, and why the search ended or what went wrong."""
    asked = ("model", "cluster", "objective", "stages", "solver", "seed")
    header = (*asked, "value", "bound", "gap", "proof", "stopped by")
    return header, [_row(row) for row in sweep.rows]


def plan_sweep_words(sweep: PlanSweep) -> list[str]:
    """How many are finished, and where the answers are."""
    without = Counter(row.error.text for row in sweep.rows if row.error is not None)
    lines = [f"{text} ({'1 question' if count == 1 else f'{count} questions'})" for text, count in without.items()]
    before = f", {sweep.repeated} of them before" if sweep.repeated else ""
    lines.append(f"{len(sweep.rows)} of {sweep.asked} finished{before}; {without.total()} without a plan.")
    if sweep.interrupted:
        lines.append("Interrupted: the same call goes on from here.")
    return [*lines, f"written to {sweep.folder}"]


def _row(row: Row) -> tuple[str, ...]:
    asked = (
        _short(row.model),
        _short(row.cluster or ""),
        row.objective,
        str(row.stages or ""),
        row.solver,
        str(row.seed),
    )
    if row.error is not None or row.value_ns is None or row.bound_ns is None or row.gap is None:
        return (*asked, "", "", "", "", row.error.kind if row.error is not None else "")
    bound = format_time(row.bound_ns) if row.bound_ns else ""
    return (*asked, format_time(row.value_ns), bound, f"{row.gap:.2%}", row.proof or "", row.stopped_by or "")


def _short(word: str) -> str:
    """The end of a long path, which says more than its beginning."""
    word = format_name(word)
    return word if len(word) <= MOST_NAME else f"...{word[3 - MOST_NAME :]}"
