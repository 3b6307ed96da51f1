"""Words of the command line -> values: settings, shares, times."""

from __future__ import annotations

import re
from time import monotonic, time

from weftline.errors import InputError, UsageError
from weftline.units import parse_ratio, parse_time

__all__ = [
    "process_begun",
    "read_gap",
    "read_rule_and_runtimes",
    "read_runtimes",
    "read_seconds",
    "read_settings",
]


OLD_SECONDS = 20.0
"""Seconds; a process that is older was not started for one command."""


def read_settings(words: list[str], **named: str | None) -> dict[str, str]:
    """`levels=2` -> {"levels": "2"}, with those that have an option of their own."""
    return _pairs(words, "--set", "levels=2") | {name: value for name, value in named.items() if value is not None}


def read_runtimes(words: list[str]) -> dict[str, str]:
    """`gpu0=openvino:GPU.1` -> {"gpu0": "openvino:GPU.1"}."""
    return _pairs(words, "--runtime", "gpu0=openvino:GPU.1")


def read_rule_and_runtimes(words: list[str]) -> tuple[str | None, dict[str, str]]:
    """`sequential` and `gpu0=openvino:GPU.1` -> ("sequential", {"gpu0": "openvino:GPU.1"}); the last rule counts."""
    rules = [word for word in words if "=" not in word]
    for word in rules:
        if word not in ("parallel", "sequential"):
            raise UsageError(f"--runtime {word[:60]!r} is neither parallel, sequential, nor like gpu0=openvino:GPU.1")
    return rules[-1] if rules else None, read_runtimes([word for word in words if "=" in word])


def _pairs(words: list[str], option: str, example: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        name, _, value = word.partition("=")
        if not (name and value):
            raise UsageError(f"{option} {word!r} makes no sense; write it like {example}")
        found[name] = value
    return found


def read_seconds(word: str | None) -> float | None:
    """`60s`, `1.5 min`, or a bare number of seconds."""
    if word is None:
        return None
    try:
        return parse_time(f"{word} s" if re.fullmatch(r"[\d.]+", word) else word) / 1e9
    except InputError as error:
        raise UsageError(f"--time: {error}") from error


def read_gap(word: str | None) -> float | None:
    """`1%` or `0.01`."""
    try:
        found = None if word is None else parse_ratio(word)
    except InputError as error:
        raise UsageError(f"--gap: {error}") from error
    if found is not None and found >= 1:
        raise UsageError(f"--gap {word} is a gap of {found:.0%}; write 1% or 0.01 for one per cent")
    return found


def process_begun() -> float:
    """When this process was started, on the clock of `time.monotonic`: a time limit is for the whole command.

    Now, if that is so long ago that the process was not started for this command.
    """
    import psutil

    age = max(0.0, time() - float(psutil.Process().create_time()))
    return monotonic() - (age if age < OLD_SECONDS else 0.0)
