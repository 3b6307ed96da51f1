"""What verbs share: printing data, tables and progress in the right place."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
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

__all__ = [
    "OUTPUT_PANEL",
    "FileCommand",
    "JsonFlag",
    "console",
    "print_json",
    "progress",
    "progress_text",
    "show",
    "show_names",
    "telling",
]

SELDOM_SECONDS = 15.0
OUTPUT_PANEL = "Output"
JsonFlag = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object on stdout instead of text.", rich_help_panel=OUTPUT_PANEL),
]


class _Stdout:
    """What prints where."""

    is_taken = False
    """By a file that is written to it: text goes to stderr."""


_MEANT = (
    (
        ("--batch", "--batch-size", "-b", "--bs", "--seq", "--seq-len", "--sequence", "--sequence-length"),
        "--dim",
        "The sizes of inputs are those of the model; what it leaves open is set by --dim batch=8 or --shape "
        "input=8x3x224x224, and an architecture of the zoo is built for another size by: weftline zoo build.",
    ),
    (
        ("--precision", "--dtype", "--fp16", "--half", "--bf16", "--int8", "--quantize"),
        "--dim",
        "The precision is that of the model file: convert the file first.",
    ),
    (
        ("--gpus", "--device", "--devices", "--num-gpus", "--world-size"),
        "--gpu",
        "Devices are named by --gpu '2x RTX 3060 12GB', or described by --cluster FILE or a preset.",
    ),
    (
        ("--gpus", "--gpu", "--device", "--devices", "--num-gpus", "--world-size"),
        "--cluster",
        "Devices are described by --cluster FILE or a preset: weftline cluster presets.",
    ),
    (("--model", "-m", "--onnx"), "--cluster", "The model is given without an option: weftline plan model.onnx."),
    (("--timeout", "--limit", "--time-limit", "-t"), "--time", "The time limit is --time 60s."),
    (("--train", "--training"), "--dim", "Training is scheduled after planning: weftline schedule --plan plan.json."),
    (("--pipeline", "--throughput", "--latency"), "--stages", "Write --objective throughput or --objective latency."),
    (("--json-output", "--out"), "--output", "Write -o FILE."),
)
"""Options that people try, an option that a verb has for which the hint holds, and the hint."""


class FileCommand(TyperCommand):
    """A verb that looks at its output before it begins: it must be a regular file, and none of its inputs."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The words of a call; mistakes that many make get a hint."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            message, option = getattr(error, "message", None), getattr(error, "option_name", "")
            if isinstance(message, str):
                error.message = message.replace("Value error, ", "", 1)  # type: ignore[attr-defined]
                known = {word for param in self.params for word in param.opts}
                hint = next((hint for words, needs, hint in _MEANT if option in words and needs in known), "")
                if hint and "No such option" in message:
                    error.message += f" {hint}"  # type: ignore[attr-defined]
            raise

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then options in groups; those that belong to none, such as --help, come last."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        panels = {getattr(param, "rich_help_panel", None) or "" for param in self.params}
        grouped = len(panels - {"", OUTPUT_PANEL}) > 1  # few options stay together
        last = "Other" if grouped else "Options"
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            panel = (getattr(param, "rich_help_panel", None) if grouped else None) or last
            if record is not None:
                groups.setdefault("Arguments" if param.param_type_name == "argument" else panel, []).append(record)
        groups[last] = groups.pop(last, [])
        for name, records in groups.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)

    def invoke(self, ctx: Any) -> Any:
        """Run the verb."""
        kinds = {param.name: (getattr(param, "metavar", None) or "").split("|") for param in self.params}
        targets = {
            name: value for name, value in ctx.params.items() if name in ("output", "trace") and isinstance(value, Path)
        }
        given = [word for name, value in ctx.params.items() if name not in targets for word in _words(value)]
        _Stdout.is_taken = any("FILE" in kinds[name] and is_stdout(path) for name, path in targets.items())
        if _Stdout.is_taken and ctx.params.get("json"):
            raise UsageError("--json prints on stdout, so the file cannot go there, too")
        weights = [Path(word).with_suffix(".bin") for word in given if word.endswith(".xml")]
        with protected([*given, *weights]):
            for name, path in targets.items():
                if kinds[name] == ["FILE"]:  # what may be a folder, too, is looked at when it is written
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


def show_names(entries: Mapping[str, str]) -> None:
    """Names and what each is; long descriptions go on below themselves."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1))
    table.add_column(min_width=16, no_wrap=True)
    table.add_column()
    for name, description in entries.items():
        table.add_row(Text(name), Text(description))
    show(table)


@contextmanager
def progress(title: str, *, bare: bool = False) -> Iterator[Callable[[Event], None]]:
    """A live line on stderr with the best value, bound and gap; elsewhere only what takes long before a search.

    With `bare` the numbers are in units of the question's own, such as those of a named shape, and no times.
    """
    out = console(stderr=True)
    if not out.is_terminal:
        yield _seldom(lambda text: out.print(f"{title}: {text}", markup=False))
        return
    line = ProgressLine(title, bare=bare)
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

    def __init__(self, title: str, *, bare: bool = False) -> None:
        self._title, self._begun, self._bare = title, monotonic(), bare
        self._event: Event | None = None

    def tell(self, event: Event) -> None:
        """Something is known better, or a solver has something to say."""
        self._event = event

    def __rich__(self) -> Text:
        """Drawn several times a second."""
        from rich.text import Text

        text = progress_text(self._title, self._event, monotonic() - self._begun, bare=self._bare)
        return Text(text, no_wrap=True)


def progress_text(title: str, event: Event | None, seconds: float, *, bare: bool = False) -> str:
    """`planning bert: value 2.18 ms, bound 1.755 ms, gap 19.50% (3.2 s) 4 stages`."""
    from weftline.units import format_name, format_time

    told = str if bare else format_time
    known = []
    if event is not None:
        if event.value is not None or event.solver:
            known.append("no plan yet" if event.value is None else f"value {told(event.value)}")
        if event.bound is not None:
            known.append(f"bound {told(event.bound)}")
            if event.value:
                known.append(f"gap {(event.value - event.bound) / event.value:.2%}")
    said = event.message if event is not None else ""
    return format_name(f"{title}: {', '.join(known) or 'beginning'} ({seconds:.1f} s) {said}".rstrip())
