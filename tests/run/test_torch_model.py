"""Tests of how a user's model is found and told about the schedule."""

from __future__ import annotations

from pathlib import Path

import pytest

from weftline.errors import InputError
from weftline.run import Layout
from weftline.run.train.model import load_model, model_reference

FILE = str(Path(__file__).parent / "small_model.py")


def test_a_function_of_a_file_or_module() -> None:
    """Tests that both spellings give the function, and that a function can name itself."""
    found = load_model(f"{FILE}:small")
    assert found.__name__ == "small"
    assert load_model("json:loads").__name__ == "loads"
    assert model_reference(found) == f"{FILE}:small"
    assert model_reference("a.py:b") == "a.py:b"


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("small_model", "does not name a function"),
        (":small", "does not name a function"),
        (f"{FILE}:", "does not name a function"),
        (f"{FILE}:tiny", "no function 'tiny'"),
        (f"{FILE}:WIDTH", "no function 'WIDTH'"),
        ("nowhere/model.py:small", "no such file"),
        ("no_such_module_at_all:small", "cannot be imported: ModuleNotFoundError"),
    ],
)
def test_what_is_not_there_is_named(reference: str, why: str) -> None:
    """Tests that every way to misspell a model is an input error."""
    with pytest.raises(InputError, match=why):
        load_model(reference)


def test_a_file_that_fails(tmp_path: Path) -> None:
    """Tests that an error inside the user's file is told with its kind."""
    (tmp_path / "bad.py").write_text("1 / 0\n")
    with pytest.raises(InputError, match="ZeroDivisionError"):
        load_model(f"{tmp_path}/bad.py:model")


def test_functions_that_other_processes_cannot_find() -> None:
    """Tests that a lambda or an inner function is refused."""
    with pytest.raises(InputError, match="top of a file"):
        model_reference(lambda layout, seed: None)


def test_sources_and_sinks() -> None:
    """Tests what a layout says about a diamond with two ends."""
    layout = Layout(2, ((), (0,), (0,), (1, 2), (2,)), (1,) * 5, (True,) * 5)
    assert (layout.stages, layout.sources, layout.sinks) == (5, (0,), (3, 4))
