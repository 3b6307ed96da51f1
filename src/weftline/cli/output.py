"""What verbs share: printing data, tables and progress in the right place."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from weftline.search import Event

__all__ = ["JsonFlag", "console", "print_json", "progress", "show"]

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout instead of text.")]


def print_json(value: Any) -> None:
    """One JSON object on stdout."""
    typer.echo(value.decode() if isinstance(value, bytes) else json.dumps(value, allow_nan=False))


def console(*, stderr: bool = False) -> Console:
    """A rich console that never cuts a table when its output is piped."""
    from rich.console import Console

    class Quiet(Console):
        """Leaves quietly when the reader of its output has left."""

        def on_broken_pipe(self) -> None:
            """Say nothing more."""
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(0)

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _columns()
    return Quiet(stderr=stderr, width=width, highlight=False, emoji=False, markup=False)


def _columns() -> int:
    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isascii() and given.isdigit() and 20 <= int(given) <= 1000 else 120


def show(*parts: RenderableType) -> None:
    """Text and tables on stdout."""
    from weftline.report.text import printable

    out = console()
    for part in parts:
        out.print(printable(part) if isinstance(part, str) else part)


@contextmanager
def progress(title: str) -> Iterator[Callable[[Event], None]]:
    """A live line on stderr with the best value and bound; silent where stderr is not a terminal."""
    from weftline.units import format_time

    out = console(stderr=True)
    if not out.is_terminal:
        yield lambda event: None
        return
    with out.status(title) as status:

        def tell(event: Event) -> None:
            value = "no plan yet" if event.value is None else f"value {format_time(event.value)}"
            bound = "" if event.bound is None else f", bound {format_time(event.bound)}"
            status.update(f"{title}: {value}{bound} ({event.seconds:.1f} s) {event.message}")

        yield tell
