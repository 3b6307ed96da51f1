"""The exception tree and the exit codes that the command line promises."""

from __future__ import annotations

import pytest

from weftline import errors
from weftline.errors import InfeasibleError, InputError, MissingExtra, WeftlineError

EXIT_CODES = {
    "UsageError": 2,
    "InputError": 3,
    "InfeasibleError": 4,
    "LimitReached": 5,
    "VerificationError": 6,
    "ExecutionMismatch": 7,
    "MissingExtra": 2,
}


def test_every_error_is_in_the_tree() -> None:
    """Tests that all public errors derive from one root and have the documented exit codes."""
    found = {name: getattr(errors, name) for name in errors.__all__ if name[0].isupper()}
    assert all(issubclass(error, WeftlineError) for error in found.values())
    assert {name: error.exit_code for name, error in found.items() if name != "WeftlineError"} == EXIT_CODES


def test_the_drawn_tree_is_the_tree() -> None:
    """Tests that the picture at the top of the module names every error with its exit code."""
    lines = (errors.__doc__ or "").splitlines()
    for name, code in EXIT_CODES.items():
        line = next(line for line in lines if f"─ {name} " in line)
        assert f" {code} " in line


@pytest.mark.parametrize(
    ("where", "hint", "text"),
    [
        ("", "", "is wrong"),
        ("a.json", "", "a.json: is wrong"),
        ("", "try b", "is wrong (try b)"),
        ("a.json", "try b", "a.json: is wrong (try b)"),
    ],
)
def test_input_error_says_what_where_and_what_to_try(where: str, hint: str, text: str) -> None:
    """Tests that the parts stand in the message and in the fields."""
    error = InputError("is wrong", where=where, hint=hint)
    assert str(error) == text
    assert (error.what, error.where, error.hint) == ("is wrong", where, hint)


def test_input_error_seen_from_outside() -> None:
    """Tests that each caller can put its place in front."""
    error = InputError("is wrong", hint="try b").at("ops[3]").at("a.json")
    assert str(error) == "a.json: ops[3]: is wrong (try b)"


def test_infeasible_error_lists_conflicts() -> None:
    """Tests that the limits that conflict are lines of the message."""
    error = InfeasibleError("no plan", conflicts=("pin x", "forbid x"), proved=True)
    assert str(error) == "no plan\n  - pin x\n  - forbid x"
    assert error.proved
    assert not InfeasibleError("no plan").proved


def test_missing_extra_says_how_to_install() -> None:
    """Tests that the message is a command that helps."""
    assert "pip install 'weftline[torch]'" in str(MissingExtra("torch", "torch"))
