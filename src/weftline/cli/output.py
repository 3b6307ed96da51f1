"""What verbs share: printing data, tables and progress in the right place."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from weftline.errors import UsageError
from weftline.files import check_writable, is_stdout, protected

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    from weftline.search import Event

__all__ = ["FileCommand", "JsonFlag", "console", "print_json", "progress", "progress_text", "show", "telling"]

SELDOM_SECONDS = 15.0
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout instead of text.")]


class _Stdout:
    """What prints where."""

    is_taken = False
    """By a file that is written to it: text goes to stderr."""


class FileCommand(TyperCommand):
    """A verb that looks at its output before it begins: it must be a regular file, and none of its inputs."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb."""
        files = {param.name for param in self.params if getattr(param, "metavar", None) == "FILE"}
        targets = {
            name: value for name, value in ctx.params.items() if name in ("output", "trace") and isinstance(value, Path)
        }
        given = [word for name, value in ctx.params.items() if name not in targets for word in _words(value)]
        _Stdout.is_taken = any(name in files and is_stdout(path) for name, path in targets.items())
        if _Stdout.is_taken and ctx.params.get("json"):
            raise UsageError("--json prints on stdout, so the file cannot go there, too")
        weights = [Path(word).with_suffix(".bin") for word in given if word.endswith(".xml")]
        with protected([*given, *weights]):
            for name, path in targets.items():
                if name in files:
                    check_writable(path)
            return super().invoke(ctx)


def _words(value: object) -> list[str]:
    """What may name a file in an argument: itself, and what stands before or after a sign in it."""
    if isinstance(value, list | tuple):
        return [word for part in value for word in _words(part)]
    if not isinstance(value, str | Path):
        return []
    word = str(value)
    return [word, *re.split(r"[=:]", word), *word.split("=", 1)[1:], word.rsplit(":", 1)[0]]


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

    stderr = stderr or _Stdout.is_taken
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _columns()
    return Quiet(stderr=stderr, width=width, highlight=False, emoji=False, markup=False)


def _columns() -> int:
    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isascii() and given.isdigit() and 20 <= int(given) <= 1000 else 120


def show(*parts: RenderableType) -> None:
    """Text and tables on stdout."""
    from weftline.units import format_name

    out = console()
    for part in parts:
        out.print(format_name(part, keep="\n") if isinstance(part, str) else part)


@contextmanager
def progress(title: str) -> Iterator[Callable[[Event], None]]:
    """A live line on stderr with the best value, bound and gap; elsewhere only what takes long before a search."""
    out = console(stderr=True)
    if not out.is_terminal:
        yield _seldom(lambda text: out.print(f"{title}: {text}", markup=False))
        return
    line = ProgressLine(title)
    with out.status(line):
        yield line.tell


def _seldom(say: Callable[[str], None]) -> Callable[[Event], None]:
    """For logs: what happens before a search, and the same again only after a while."""
    said: dict[str, float] = {}

    def tell(event: Event) -> None:
        about, now = event.message[:9], monotonic()
        if not event.solver and now - said.get(about, -SELDOM_SECONDS) >= SELDOM_SECONDS:
            said[about] = now
            say(event.message)

    return tell


@contextmanager
def telling(title: str) -> Iterator[Callable[[str], None]]:
    """A live line on stderr with what is being done; nothing where stderr is no terminal."""
    out = console(stderr=True)
    if not out.is_terminal:
        yield lambda text: None
        return
    with out.status(title) as status:
        yield lambda text: status.update(f"{title}: {text}")


class ProgressLine:
    """What is known so far in one line; its seconds go on between two events."""

    def __init__(self, title: str) -> None:
        self._title, self._begun = title, monotonic()
        self._event: Event | None = None

    def tell(self, event: Event) -> None:
        """Something is known better, or a solver has something to say."""
        self._event = event

    def __rich__(self) -> Text:
        """Drawn several times a second."""
        from rich.text import Text

        return Text(progress_text(self._title, self._event, monotonic() - self._begun), no_wrap=True)


def progress_text(title: str, event: Event | None, seconds: float) -> str:
    """`planning bert: value 2.18 ms, bound 1.755 ms, gap 19.50% (3.2 s) 4 stages`."""
    from weftline.units import format_name, format_time

    known = []
    if event is not None:
        if event.value is not None or event.solver:
            known.append("no plan yet" if event.value is None else f"value {format_time(event.value)}")
        if event.bound is not None:
            known.append(f"bound {format_time(event.bound)}")
            if event.value:
                known.append(f"gap {(event.value - event.bound) / event.value:.2%}")
    said = event.message if event is not None else ""
    return format_name(f"{title}: {', '.join(known) or 'beginning'} ({seconds:.1f} s) {said}".rstrip())
