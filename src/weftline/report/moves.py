"""A table of moves for the terminal: an op on each device, and what the plan would be then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.plan import Move, OpStory
from weftline.report.tables import text_table
from weftline.units import format_bytes, format_time

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["moves_table"]


def moves_table(story: OpStory, objective: str) -> Table:
    """One row for each device."""
    word = "latency" if objective == "latency" else "period"
    here = next(move.value_ns or 0 for move in story.moves if move.here)
    header = ("on device", "its time", "ops moved", word, "change", "memory there", "")
    return text_table("If it stood elsewhere", header, [_row(move, here) for move in story.moves])


def _row(move: Move, value: int) -> tuple[str, ...]:
    own = "" if move.time_ns is None else format_time(move.time_ns)
    if move.value_ns is None:
        return (move.device, own, "", "", "", "", move.breaks[0])
    change = "" if move.here or not value else f"{move.value_ns / value - 1:+.2%}"
    limit = "" if move.memory_limit is None else f" of {format_bytes(move.memory_limit)}"
    memory = f"{format_bytes(move.memory_bytes or 0)}{limit}"
    says = "here" if move.here else "breaks: " + "; ".join(move.breaks) if move.breaks else ""
    return (move.device, own, "" if move.here else str(move.ops), format_time(move.value_ns), change, memory, says)
