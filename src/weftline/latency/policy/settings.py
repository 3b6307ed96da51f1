"""Settings of the learned solvers: words as the user wrote them -> checked values; and PyTorch, when it is needed.

PyTorch is imported late and runs on one thread: the networks are small, and one thread gives the same bytes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from weftline.errors import InputError, MissingExtra, UsageError
from weftline.search import Search
from weftline.units import parse_time

__all__ = [
    "TrainingPlan",
    "load_torch",
    "one_thread",
    "prepare_torch",
    "read_choice",
    "read_path",
    "read_schedule",
    "read_whole",
    "read_word",
    "shorten",
]


def load_torch() -> Any:
    """The module, or an error that says what to install."""
    try:
        return import_module("torch")
    except ImportError as error:
        raise MissingExtra("torch", "torch") from error


def prepare_torch() -> None:
    """Import it before a clock runs."""
    load_torch()


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, PyTorch computes on one thread; afterwards on as many as before."""
    torch = load_torch()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


MOST_EPISODES = 10_000_000
PER_SAMPLE, PER_EPISODE, LEAST_EPISODES = 4, 250, 2
"""Under a work limit a sampled placement counts as so much work, an episode as at least so much; but some are made."""


@dataclass(frozen=True)
class TrainingPlan:
    """How long a network is trained, and what happens then."""

    episodes: int
    polish: float | None
    """Seconds of annealing afterwards; 0 = none, None = all the time that is left."""
    checkpoint: Path | None
    """Resumed from if it exists, and written."""


def read_word(options: Mapping[str, str], name: str, default: str) -> str:
    """As the user wrote it; one who calls from Python may have written something else."""
    word = options.get(name, default)
    if not isinstance(word, str):
        raise UsageError(f"{name}={word!r:.40} is not text: write settings as strings")
    return word


def read_path(options: Mapping[str, str], name: str) -> Path | None:
    """A path that the system can take; None where none is given."""
    word = read_word(options, name, "")
    try:
        valid = b"\0" not in os.fsencode(word)
    except UnicodeEncodeError:
        valid = False
    if not valid:
        raise UsageError(f"{name}={word!r:.40} is no path")
    return Path(word) if word else None


def read_choice(options: Mapping[str, str], name: str, choices: tuple[str, ...], default: str) -> str:
    """One of some words."""
    word = read_word(options, name, default)
    if word not in choices:
        raise UsageError(f"{name}={word!r:.40} is unknown; there are: {', '.join(choices)}")
    return word


def read_whole(options: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    """A whole number within low..high."""
    word = read_word(options, name, str(default))
    if not re.fullmatch(r"\d{1,9}", word) or not low <= int(word) <= high:
        raise UsageError(f"{name}={word!r:.40} is not a whole number between {low} and {high}")
    return int(word)


def read_schedule(search: Search, *, episodes: int, polish: str) -> TrainingPlan:
    """`episodes`, `polish` and `checkpoint`."""
    asked = read_whole(search.options, "episodes", episodes, 0, MOST_EPISODES)
    seconds = _seconds(read_word(search.options, "polish", polish))
    return TrainingPlan(asked, seconds, read_path(search.options, "checkpoint"))


def shorten(schedule: TrainingPlan, search: Search, samples: int) -> TrainingPlan:
    """A work limit makes fewer episodes of `samples` placements each, unless their number was asked for."""
    if search.work_limit is None or "episodes" in search.options:
        return schedule
    affordable = max(LEAST_EPISODES, search.work_limit // max(PER_SAMPLE * samples, PER_EPISODE))
    return replace(schedule, episodes=min(schedule.episodes, affordable))


def _seconds(word: str) -> float | None:
    if word in ("on", "off"):
        return None if word == "on" else 0.0
    try:
        return parse_time(f"{word} s" if re.fullmatch(r"[\d.]+", word) else word) / 1e9
    except InputError as error:
        raise UsageError(f"polish={word!r:.40}: write on, off or a time like 20 s") from error
