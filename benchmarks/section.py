"""What a section of the benchmarks is: one question, how it is measured, and its tables as data.

In: nothing. Out: `Section`, whose tables are columns (a title and a function of a row) and whose verdicts are functions
of a run; `benchmarks.render` makes pages of them. Simplified: a cell is text, and a table has no more than one heading.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from benchmarks.results import BestKnown, Collector, Row
from weftline.units import format_bytes, format_time

__all__ = ["Block", "Column", "Run", "Section", "Table", "fields", "verdict"]

T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """What was measured for one section, and what it depends on."""

    rows: list[Row]
    settings: Row = field(default_factory=dict)
    stamp: Row = field(default_factory=dict)
    more: Row = field(default_factory=dict)
    """What does not fit into rows."""
    best: BestKnown = field(default_factory=BestKnown)

    def of(self, **wanted: object) -> list[Row]:
        """The rows whose fields have these values."""
        return [row for row in self.rows if all(row.get(name) == value for name, value in wanted.items())]


@dataclass(frozen=True)
class Column(Generic[T]):
    """One column of a table: its title, and what stands in it for a row (or for whatever a line is made of)."""

    title: str
    cell: str | Callable[[T], object]
    """The name of a field, or a function; None becomes a dash."""
    form: str | Callable[[Any], str] = ""
    """As in `format`, or a function that makes text."""

    def text(self, thing: T) -> str:
        """The cell of one line."""
        row: Any = thing
        value = self.cell(thing) if callable(self.cell) else row.get(self.cell)
        if value is None:
            return "-"
        return self.form(value) if callable(self.form) else format(value, self.form)


FORMS: dict[str, Callable[[Any], str]] = {"time": format_time, "bytes": format_bytes}


def fields(text: str) -> tuple[Column[Any], ...]:
    """Columns that show fields, as a header: "instance | plan=value_ns:time | s=seconds:.1f" (title=field:format)."""
    found: list[Column[Any]] = []
    for part in text.split("|"):
        head, _, form = part.strip().partition(":")
        title, _, field_name = head.partition("=")
        found.append(Column(title, field_name or title, FORMS.get(form, form)))
    return tuple(found)


def _all_rows(run: Run) -> Iterable[Any]:
    return run.rows


@dataclass(frozen=True)
class Table(Generic[T]):
    """Columns, and the lines of a run that they are asked about; a table without lines is left out."""

    columns: Sequence[Column[T]] | Callable[[Run], Sequence[Column[T]]]
    lines: Callable[[Run], Iterable[T]] = _all_rows
    text: str = ""
    """Before the table; names in braces are settings of the run."""
    heading: str = ""


Block = str | Table[Any] | Callable[[Run], Iterable[str]]
"""A part of a page: text (names in braces are settings), a table, or a function that says something about a run."""


@dataclass(frozen=True)
class Section:
    """One question of the benchmarks."""

    name: str
    title: str
    chapter: str
    """A name of `benchmarks.render.CHAPTERS`."""
    asked: str
    """What was asked, in a sentence or two; names in braces are settings of the run."""
    sizes: Mapping[str, Row]
    """`tiny`, `quick` and `full`: what a run depends on, fit for JSON."""
    measure: Callable[[Row, Collector], Row | None]
    screen: tuple[Block, ...]
    """Its part of docs/benchmarks.md, a few lines."""
    losses: Callable[[Run], Iterable[str]]
    """Where we are behind, or missed a goal: sentences."""
    blocks: tuple[Block, ...]
    """Its own page, with all rows."""
    limits: tuple[str, ...] = ("time_limit",)
    """The settings that --time-limit replaces."""
    complete: Callable[[Row, Namespace], Row] | None = None
    """Changes the settings by what else was asked for."""
    long: bool = True
    """Too long for every day: a run of everything takes the quick subset."""
    empty: str = "Nothing was measured."
    """Stands for a run without rows."""
    unused: tuple[str, ...] = ()
    """Fields of rows that no page shows: they are not kept."""
    warm: bool = False
    """Kernels of pipelines are loaded before it is measured."""

    def settings(self, size: str, asked: Namespace) -> Row:
        """What a run of this size depends on."""
        chosen = dict(self.sizes[size])
        if asked.time_limit:
            chosen |= dict.fromkeys(self.limits, asked.time_limit)
        return self.complete(chosen, asked) if self.complete else chosen


def verdict(what: str, found: Sequence[str], *, most: int | None = None) -> list[str]:
    """One sentence that names what was found, at most so many of them; nothing if there is nothing."""
    if not found:
        return []
    shown = [*found] if most is None or len(found) <= most else [*found[:most], f"{len(found) - most} more"]
    return [f"**{what}:** {'; '.join(shown)}."]
