"""What callers of the Python API give, held to what a verb takes: one `UsageError` instead of somebody's TypeError.

In: any object, and the name of the argument. Out: the value as rooms expect it: paths, whole numbers, seconds ("5s",
"1.5 min", 5), shares ("1%", 0.01), words, mappings. Simplified: what a value means is checked where it is used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

from weftline.errors import InputError, UsageError, near
from weftline.units import parse_duration, parse_ratio

__all__ = [
    "a_choice",
    "a_flag",
    "a_function",
    "a_mapping",
    "a_number",
    "a_path",
    "a_share",
    "a_text",
    "a_whole_number",
    "seconds",
    "several",
    "shown",
]

_Value = TypeVar("_Value")


def shown(value: object) -> str:
    """A value in a message, cut; one that cannot even be shown is its type."""
    try:
        return f"{value!r:.60}" if len(text := repr(value)) <= 60 else f"{text[:60]}..."
    except Exception:
        return f"an object of type {type(value).__name__}"


def seconds(value: float | str | None, name: str = "time_limit") -> float | None:
    """A time limit: a number of seconds, or text with a unit (a bare number in it is seconds); None stays."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return parse_duration(value)
        except InputError as error:
            raise UsageError(f"{name}: {error}") from error
    return a_number(value, name, hint="write 5, or '5s'")


def a_share(value: float | str | None, name: str = "gap") -> float | None:
    """A number from 0 to 1, or text like "1%"; None stays."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return parse_ratio(value)
        except InputError as error:
            raise UsageError(f"{name}: {error}") from error
    number = a_number(value, name, hint="write 0.01, or '1%'")
    if not 0 <= number <= 1:
        raise UsageError(f"a {name} lies between 0 and 1, not {shown(value)}")
    return number


def a_number(value: object, name: str, *, hint: str = "") -> float:
    """A number that is neither negative nor without end."""
    try:
        number = float("nan") if isinstance(value, bool | str | bytes) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not isfinite(number) or number < 0:
        raise UsageError(f"{name} is a number from 0, not {shown(value)}{f' ({hint})' if hint else ''}")
    return number


def a_whole_number(value: object, name: str, least: int, most: int) -> int:
    """An integer (numpy's, too) in a range."""
    try:
        number = None if isinstance(value, bool) else int(value.__index__())  # type: ignore[attr-defined]
    except (AttributeError, TypeError):
        number = None
    if number is None or not least <= number <= most:
        raise UsageError(f"{name} is a whole number from {least} to {most}, not {shown(value)}")
    return number


def a_flag(value: object, name: str) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise UsageError(f"{name} is True or False, not {shown(value)}")
    return value


def a_text(value: object, name: str) -> str:
    """Text."""
    if not isinstance(value, str):
        raise UsageError(f"{name} is text, not {shown(value)}")
    return value


def a_choice(value: object, name: str, choices: Collection[str]) -> str:
    """One of some words."""
    if not isinstance(value, str) or value not in choices:
        meant = near(value, choices) if isinstance(value, str) else ""
        raise UsageError(f"{name} is one of {', '.join(choices)}, not {shown(value)}{meant}")
    return value


def a_path(value: object, name: str) -> Path:
    """The path of a file or folder."""
    if isinstance(value, str | os.PathLike) and isinstance(text := os.fspath(value), str):
        if not text or "\0" in text:
            raise InputError(f"{name}: {shown(text)} is not a path")
        return Path(text)
    raise UsageError(f"{name} is a path, not {shown(value)}")


def a_function(value: _Value, name: str) -> _Value:
    """Something that can be called, or None."""
    if value is not None and not callable(value):
        raise UsageError(f"{name} is a function, not {shown(value)}")
    return value


def a_mapping(value: object, name: str, read: Callable[[Any, str], Any], example: str) -> dict[str, Any]:
    """A mapping from text to something; `read` holds each value to its rules."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise UsageError(f"{name} is a mapping like {example}, not {shown(value)}")
    return {key: read(item, f"{name}[{key[:60]!r}]") for key, item in value.items()}


def several(value: object, name: str, read: Callable[[Any, str], Any], example: str) -> tuple[Any, ...]:
    """A list or the like; text is none, though it has letters."""
    if isinstance(value, str | bytes | Mapping | os.PathLike) or not isinstance(value, Iterable):
        raise UsageError(f"{name} is a list like {example}, not {shown(value)}")
    return tuple(read(item, f"{name}[{number}]") for number, item in enumerate(value))
