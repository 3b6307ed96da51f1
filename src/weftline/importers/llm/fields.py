"""Fields of a configuration, read with suspicion.

In: an object of JSON. Out: whole numbers within limits, flags and texts; an `InputError` names the field. Simplified:
a field that is null counts as missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weftline.arguments import shown
from weftline.errors import InputError

__all__ = ["Fields"]

_MOST_LAYERS, _MOST_WIDTH, _MOST_WORDS, _MOST_EXPERTS, _MOST_TOKENS = 2000, 2**20, 2**24, 2**14, 2**40


class Fields:
    """Fields by name, with limits that no model comes near."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values, self.where = values, where

    def has(self, *names: str) -> bool:
        """Is one of them there, and not null?"""
        return any(self.values.get(name) is not None for name in names)

    def whole(self, *names: str, default: int | None = None, least: int = 0, most: int = _MOST_WIDTH) -> int:
        """The first of these fields that is there."""
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            if isinstance(value, bool) or not isinstance(value, int):
                raise self.wrong(name, f"must be a whole number, not {shown(value)}")
            if not least <= value <= most:
                raise self.wrong(name, f"must be from {least} to {most}, not {shown(value)}")
            return value
        if default is None:
            raise self.wrong(names[0], "is missing")
        return default

    def layers(self, *names: str, default: int | None = None, least: int = 0) -> int:
        """A number of layers."""
        return self.whole(*names, default=default, least=least, most=_MOST_LAYERS)

    def words(self, *names: str, default: int | None = None) -> int:
        """A size of a vocabulary."""
        return self.whole(*names, default=default, least=1, most=_MOST_WORDS)

    def tokens(self, *names: str, default: int | None = None) -> int:
        """A length of a context or a window."""
        return self.whole(*names, default=default, most=_MOST_TOKENS)

    def experts(self, *names: str, default: int | None = None) -> int:
        """A number of experts."""
        return self.whole(*names, default=default, most=_MOST_EXPERTS)

    def flag(self, name: str, default: bool = False) -> bool:
        """A flag."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, f"must be true or false, not {shown(value)}")
        return value

    def text(self, name: str, default: str = "", *, most: int = 200) -> str:
        """A short text."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.wrong(name, f"must be a text, not {shown(value)}")
        return value[:most]

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of short texts; none where there is no such field."""
        value = self.values.get(name)
        if value is None:
            return ()
        if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
            raise self.wrong(name, f"must be a list of texts, not {shown(value)}")
        return tuple(value[: _MOST_LAYERS + 1])

    def numbers(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers; none where there is no such field."""
        value = self.values.get(name)
        if value is None:
            return ()
        if not isinstance(value, list | tuple) or not all(type(one) is int for one in value):
            raise self.wrong(name, f"must be a list of whole numbers, not {shown(value)}")
        return tuple(value[: _MOST_LAYERS + 1])

    def inner(self, name: str) -> Fields:
        """The fields of an object within; of none where it is missing."""
        value = self.values.get(name)
        if value is None:
            return Fields({}, self.where)
        if not isinstance(value, dict):
            raise self.wrong(name, f"must be an object, not {shown(value)}")
        return Fields(value, f"{self.where}: {name}" if self.where else name)

    def wrong(self, name: str, what: str) -> InputError:
        """The error about a field."""
        return InputError(f"{name} {what}", where=self.where)
