"""Tests that a line of a shell is read back as the words that were meant."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weftline.errors import InputError
from weftline.plans.launch import LaunchLine, quoted

HOSTILE = ["$(touch hit)", "`id`", "a; rm -rf /", "x' && y", '"', "--help", "~", "*", "a b", "", "$HOME", "\\", "!x"]


@given(st.lists(st.text(st.characters(exclude_categories=("C", "Z")), max_size=20), max_size=6))
def test_words_come_back(words: list[str]) -> None:
    """Tests that any words that can be printed pass through a shell unchanged."""
    line = LaunchLine(("program", *words), (("NAME_1", " ".join(words)),))
    assert shlex.split(line.shell()) == [f"NAME_1={' '.join(words)}", "program", *words]


def test_a_shell_runs_none_of_it() -> None:
    """Tests hostile names in a real shell: they are printed, not run."""
    line = LaunchLine(("printf", "%s\\n", *HOSTILE), (("MODEL", "$(id)"),))
    done = subprocess.run(["sh", "-c", line.shell()], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == HOSTILE


@pytest.mark.parametrize("word", ["a\nb", "a\rb", "\x1b[2J", "\u202egpj", "\0"])
def test_what_hides_is_refused(word: str) -> None:
    """Tests that control characters come into no command."""
    with pytest.raises(InputError, match="cannot be printed"):
        quoted(word)
    with pytest.raises(InputError, match="no name of a variable"):
        LaunchLine(("x",), ((word, "1"),)).shell()
