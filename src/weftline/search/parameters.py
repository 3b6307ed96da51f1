"""A solver's numbers: one frozen dataclass per solver, its defaults, and `--set name=value` on top of them.

In: the class and what the user wrote. Out: its object, every value of the field's own type and within its range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import Field, fields
from typing import Any, TypeVar

from weftline.errors import UsageError

__all__ = ["check_names", "field_names", "read_parameters"]

Parameters = TypeVar("Parameters")
_TIMES_DEFAULT = 1_000
"""A number may be so many times its default, where its field says nothing else."""
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def field_names(kind: type | None) -> tuple[str, ...]:
    """Names that `--set` takes for a class of parameters."""
    return () if kind is None else tuple(field.name for field in fields(kind))


def check_names(solver: str, known: tuple[str, ...], options: Mapping[str, str]) -> None:
    """An error that lists what exists, for a setting that the solver does not have."""
    for name in options:
        if name not in known:
            there = f"it takes {', '.join(known)}" if known else "it takes none"
            raise UsageError(f"solver {solver!r} has no setting {name!r}; {there}")


def read_parameters(kind: type[Parameters], options: Mapping[str, str]) -> Parameters:
    """The defaults of a class of parameters, with what the options say instead; other options are not looked at.

    Fields are int, float, bool or str. Numbers are finite, not negative and at most 1,000 times the default; a field's
    metadata may say `least`, `most` or `choices`.
    """
    return kind(**{f.name: _read(f, options[f.name]) for f in fields(kind) if f.name in options})  # type: ignore[arg-type]


def _read(field: Field[Any], word: str) -> int | float | bool | str:
    if not isinstance(word, str):
        raise UsageError(f"{field.name}={word!r:.40} is not text: write settings as strings")
    name = field.type if isinstance(field.type, str) else field.type.__name__
    if name == "str":
        choices = field.metadata.get("choices", (word,))
        if word not in choices:
            raise UsageError(f"{field.name}={word!r:.40} is unknown; there are: {', '.join(choices)}")
        return word
    if name == "bool":
        if word.lower() not in _WORDS:
            raise UsageError(f"{field.name}={word!r:.40}: write true or false")
        return _WORDS[word.lower()]
    return _number(field, word, whole=name == "int")


def _number(field: Field[Any], word: str, *, whole: bool) -> int | float:
    least = field.metadata.get("least", 0)
    default: Any = field.default
    most = field.metadata.get("most", _TIMES_DEFAULT * max(default, 1))
    wanted = f"a {'whole ' if whole else ''}number between {least} and {most}"
    try:
        value = int(word) if whole and word.isdigit() and len(word) < 20 else float(word)
    except ValueError:
        value = math.nan
    plain = word.isascii() and not set(word) & set(" _+")
    if not plain or math.isnan(value) or not least <= value <= most or (whole and not isinstance(value, int)):
        raise UsageError(f"{field.name}={word!r:.40} is not {wanted}; the default is {field.default}")
    return value
