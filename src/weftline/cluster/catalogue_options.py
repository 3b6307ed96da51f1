"""What `--gpu`, `--cpu`, `--link` and `--ram` say, read: "2x RTX 3060 12GB@11GB" -> two cards, 11 GB of each for plans.

In: words of a user. Out: a `DeviceOption`; bytes. Simplified: sizes in names are those of products (12GB is 12 GiB, as
vendors write it); sizes after @ and --ram are taken as they are written.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from weftline.arguments import a_text
from weftline.cluster.catalogue import Accelerator, match_accelerator
from weftline.cluster.catalogue_names import read_size
from weftline.cluster.rules import MAX_DEVICES
from weftline.errors import InputError
from weftline.units import format_bytes

__all__ = ["DeviceOption", "read_device_option"]

_COUNT = re.compile(r"\s*(?!\d+\s*xtx?\b)(\d{1,6})\s*[x×*]\s*(?=\S)", re.IGNORECASE)
"""A number and an x; in "7900 XTX" both are the name."""


class DeviceOption(msgspec.Struct, frozen=True):
    """One `--gpu` or `--cpu`."""

    count: int
    accelerator: Accelerator
    memory_bytes: int | None
    """What plans may use of one of them: what was written after @, or what the product has (of unified memory what the
    system gives it); None where it uses the machine's memory and nobody said how much.
    """
    said: bool = False
    """`memory_bytes` was written after @."""
    notes: tuple[str, ...] = ()
    """What had to be assumed."""


def read_device_option(text: str, kind: Literal["gpu", "cpu"] = "gpu") -> DeviceOption:
    """`NAME`, `2x NAME`, `NAME@MEMORY`, `2x NAME@MEMORY`."""
    where = f"--{kind}"
    try:
        return _read(a_text(text, where), kind, where)
    except InputError as error:
        raise error if error.where else error.at(where) from error


def _read(text: str, kind: str, where: str) -> DeviceOption:
    count = _COUNT.match(text)
    name, at, size = (text[count.end() :] if count else text).partition("@")
    number = int(count[1]) if count else 1
    if not 1 <= number <= MAX_DEVICES:
        raise InputError(f"{number} devices in {text[:60]!r}", hint=f"a cluster has 1 to {MAX_DEVICES}")
    found, installed, assumed = match_accelerator(name, kind)
    notes = [assumed] if assumed else []
    if at:
        memory: int | None = read_size(size, where)
        _check_memory(found, memory or 0, where)
        return DeviceOption(number, found, memory, True, tuple(notes))
    if not found.memory_bytes:
        return DeviceOption(number, found, installed, installed is not None, tuple(notes))
    if installed is None and found.least_memory_bytes < found.memory_bytes:
        sold = f"{format_bytes(found.least_memory_bytes)} to {format_bytes(found.memory_bytes)}"
        short = re.sub(r" \(.*", "", found.name)
        notes.append(
            f"{found.name} is sold with {sold}: the largest is assumed; write {short!r} and a size for another"
        )
    memory = found.usable_bytes(installed or found.memory_bytes)
    return DeviceOption(number, found, memory, False, tuple(notes))


def _check_memory(found: Accelerator, memory: int, where: str) -> None:
    if found.memory_bytes and memory > found.memory_bytes:
        what = f"{found.name} has {format_bytes(found.memory_bytes)}, less than {format_bytes(memory)}"
        raise InputError(what, where=where, hint="after @ stands what plans may use of it")
