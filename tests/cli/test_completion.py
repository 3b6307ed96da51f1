"""Completion in a shell: the script is shown, and verbs and options are completed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CODE = "import sys; sys.argv[0] = 'weftline'; from weftline.cli import main; main()"


def weftline(*words: str, **environment: str) -> str:
    """The command line, as a shell calls it."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, *words],
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1", **environment},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    ("shell", "word"), [("bash", "complete -o default"), ("zsh", "compdef"), ("fish", "complete ")]
)
def test_the_script(shell: str, word: str) -> None:
    """Tests that the script for each shell names our command."""
    text = weftline("--show-completion", shell)
    assert word in text
    assert "_WEFTLINE_COMPLETE" in text


@pytest.mark.parametrize(
    ("line", "at", "expected"),
    [
        ("weftline ex", "1", {"explain", "export"}),
        ("weftline explain --o", "2", {"--op"}),
        ("weftline cluster ", "2", {"presets", "show", "detect", "check", "devices", "make"}),
    ],
)
def test_what_is_completed(line: str, at: str, expected: set[str]) -> None:
    """Tests verbs, options and verbs of verbs."""
    told = weftline(_WEFTLINE_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=at)
    assert set(told.split()) == expected
