"""What the cost files share: found by a marker inside, read with a typed form, numbers checked, names made unique.

In: a path or a decoded value. Out: the value, or an `InputError` that says which one is wrong and where it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import TypeVar

import msgspec

from weftline.errors import InputError
from weftline.units import MAX_QUANTITY

__all__ = [
    "MAX_COST_FILE_BYTES",
    "checked",
    "checked_total",
    "contains",
    "decode",
    "numbered",
    "read_bytes",
    "unique_names",
]

MAX_COST_FILE_BYTES = 64 * 2**20
MAX_PREFIX = 900
"""Longer names are cut: a tensor's name is its producer's with a suffix, and the graph allows 1,000 characters."""

Form = TypeVar("Form")


def contains(path: Path, head: bytes, *markers: bytes) -> bool:
    """Is this a JSON object in which every marker stands somewhere? Reads on behind the head; never raises."""
    if head.lstrip()[:1] != b"{":
        return False
    if all(marker in head for marker in markers):
        return True
    try:
        if path.stat().st_size > MAX_COST_FILE_BYTES:
            return False
        data = path.read_bytes()
    except OSError:
        return False
    return all(marker in data for marker in markers)


def read_bytes(path: Path) -> bytes:
    """The whole file, if it is not larger than a cost file may be."""
    size = path.stat().st_size
    if size > MAX_COST_FILE_BYTES:
        raise InputError(f"{size} bytes is more than the limit of 64 MiB for a cost file")
    return path.read_bytes()


def decode(path: Path, form: type[Form]) -> Form:
    """A JSON file as a typed value; what does not fit is named with its path, or with line and column."""
    data = read_bytes(path)
    try:
        return msgspec.json.decode(data, type=form)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at ")
        raise InputError(what, where=place.strip("`") or "$") from error
    except RecursionError as error:
        raise InputError("the JSON is nested too deeply") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"not valid JSON: {error}", where=_line_and_column(data, str(error))) from error


def _line_and_column(data: bytes, message: str) -> str:
    found = re.search(r"\(byte (\d+)\)", message)
    if found is None and "truncated" not in message:
        return ""
    position = int(found.group(1)) if found else len(data)
    line = data.count(b"\n", 0, position) + 1
    column = position - data.rfind(b"\n", 0, position)
    return f"line {line}, column {column}"


def checked(value: float, what: str, where: str, limit: float = MAX_QUANTITY) -> float:
    """The value itself if it is finite and lies in 0..limit."""
    if not isfinite(value):
        raise InputError(f"{what} is {value}, not a finite number", where=where)
    if value < 0:
        raise InputError(f"{what} is negative: {value}", where=where)
    if value > limit:
        raise InputError(f"{what} is absurdly large: {value:.6g}", where=where, hint=f"the limit is {limit:.6g}")
    return value


def checked_total(values: Iterable[int], what: str) -> None:
    """Raise if the sum over the graph could leave 63 bits."""
    if sum(values) > MAX_QUANTITY:
        raise InputError(f"the sum of {what} is more than 2^60 ns", hint="check the unit of the times")


def numbered(ids: Sequence[int], what: str, path: str) -> dict[int, int]:
    """Id -> position; an id that two `what`s share is an error."""
    position: dict[int, int] = {}
    for i, identity in enumerate(ids):
        if identity in position:
            raise InputError(
                f"id {identity} is used twice, also by {path}[{position[identity]}]",
                where=f"{path}[{i}]",
                hint=f"every {what} needs an id of its own",
            )
        position[identity] = i
    return position


def unique_names(names: Sequence[str], ids: Sequence[int]) -> list[str]:
    """The given names, `node<id>` where one is empty, with `#<id>` appended where one was taken already."""
    wanted = [name[:MAX_PREFIX] or f"node{identity}" for name, identity in zip(names, ids, strict=True)]
    if len(set(wanted)) == len(wanted):
        return wanted
    taken = set(wanted)
    seen: set[str] = set()
    unique: list[str] = []
    for name, identity in zip(wanted, ids, strict=True):
        candidates = chain((name,), (f"{name}#{identity}{'+' * more}" for more in range(len(wanted))))
        choice = next(c for c in candidates if c not in seen and (c == name or c not in taken))
        seen.add(choice)
        unique.append(choice)
    return unique
