"""Words of the command line -> values: shapes, shares, times, clusters."""

from __future__ import annotations

import re
from pathlib import Path
from time import monotonic, time
from typing import TYPE_CHECKING

from weftline.errors import InputError, UsageError, near
from weftline.units import parse_ratio, parse_time

if TYPE_CHECKING:
    from weftline.cluster import Cluster

__all__ = [
    "find_cluster",
    "process_begun",
    "read_gap",
    "read_rule_and_runtimes",
    "read_runtimes",
    "read_seconds",
    "read_settings",
    "read_shapes",
]


OLD = 20.0
"""Seconds; a process that is older was not started for one command."""


def read_shapes(words: list[str]) -> dict[str, tuple[int, ...]]:
    """`input=1x3x224x224` -> {"input": (1, 3, 224, 224)}."""
    shapes: dict[str, tuple[int, ...]] = {}
    for word in words:
        match = re.fullmatch(r"(.+)=(\d{1,12}(?:x\d{1,12})*|)", word)
        if match is None:
            raise UsageError(f"--shape {word!r} is not a shape; write it like input=1x3x224x224")
        name, dimensions = match.groups()
        shapes[name] = tuple(int(part) for part in dimensions.split("x") if part)
        if 0 in shapes[name]:
            raise UsageError(f"--shape {word!r}: a dimension of 0 leaves nothing to plan")
    return shapes


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
    return monotonic() - (age if age < OLD else 0.0)


def find_cluster(word: str) -> tuple[Cluster, str]:
    """A preset's name or a TOML file -> the cluster and the sha256 of its text."""
    import hashlib

    from weftline.cluster import Cluster, preset_names, preset_text

    if word in preset_names():
        return Cluster.preset(word), hashlib.sha256(preset_text(word).encode()).hexdigest()
    path = Path(word)
    if not path.exists():
        raise InputError(
            f"neither a file nor a preset{near(word, preset_names())}",
            where=word,
            hint=f"the presets are {', '.join(preset_names())}",
        )
    cluster = Cluster.load(path)
    return cluster, hashlib.sha256(path.read_bytes()).hexdigest()
