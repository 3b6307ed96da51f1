"""Tests of the live line: what it says, and that it is silent where nobody watches."""

from __future__ import annotations

import io
import sys

import pytest

from weftline.cli.output import progress, progress_text
from weftline.search import Event


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (None, "planning x: beginning (3.2 s)"),
        (Event(1.0, "auto", None, None), "planning x: no plan yet (3.2 s)"),
        (Event(1.0, "auto", None, 50), "planning x: no plan yet, bound 50 ns (3.2 s)"),
        (Event(1.0, "auto", 100, 50, "4 stages"), "planning x: value 100 ns, bound 50 ns, gap 50.00% (3.2 s) 4 stages"),
        (Event(1.0, "auto", 0, 0), "planning x: value 0 ns, bound 0 ns (3.2 s)"),
        (Event(1.0, "auto", 1, None, "\x1b[2J"), "planning x: value 1 ns (3.2 s) \\x1b[2J"),
    ],
)
def test_the_line(event: Event | None, text: str) -> None:
    """Tests value, bound, gap, seconds and the solver's message, which cannot drive the terminal."""
    assert progress_text("planning x", event, 3.21) == text


def test_silent_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that nothing is written where stderr is no terminal."""
    err = io.StringIO()
    monkeypatch.setattr(sys, "stderr", err)
    with progress("planning") as tell:
        tell(Event(1.0, "auto", 100, 50))
    assert err.getvalue() == ""


def test_drawn_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that the line is drawn on a terminal."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    err = Terminal()
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with progress("planning") as tell:
        tell(Event(1.0, "auto", 100, 50))
    assert "planning" in err.getvalue()
