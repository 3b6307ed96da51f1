"""Which numbers of stages a sweep tries, and the problem of each.

In: words ("auto", "1..8", "1,2,4,8") and a way to load the problem for a number of stages. Out: `StageProblems`.
A problem file with accelerators has as many of them as stages are asked for; any other problem keeps its devices and
may use at most so many of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from weftline.errors import UsageError
from weftline.graph.arrays import Indices
from weftline.problem import Problem
from weftline.problem.load import ACCELERATOR, MAX_STAGES

__all__ = [
    "AUTO",
    "StageProblems",
    "check_counts",
    "parse_counts",
    "same_placement",
    "sensible_counts",
    "stage_problems",
]

AUTO = "auto"
EVERY_UP_TO = 16
"""`auto` tries every number of stages up to this one, then doubles."""
MAX_COUNTS = 64
"""Most numbers of stages in one sweep."""


@dataclass(frozen=True, eq=False)
class StageProblems:
    """The same question for several numbers of stages."""

    counts: tuple[int, ...]
    """What is to be tried, ascending."""
    most: int
    """How many stages could be asked for at all."""
    top: Problem
    """The problem of the largest count."""
    load: Callable[[int], Problem] | None
    """Where the number of devices follows the number of stages: the problem of any number."""

    def at(self, stages: int) -> Problem:
        """The problem for at most so many stages. Raises `InfeasibleError` if its limits conflict."""
        if stages == self.counts[-1]:
            return self.top
        if self.load is not None:
            return self.load(stages)
        return self.top.with_rules(msgspec.structs.replace(self.top.rules, stages=stages))


def parse_counts(text: str) -> tuple[int, ...]:
    """`1..8` or `1,2,4,8` -> the numbers, ascending."""
    if match := re.fullmatch(r"(\d{1,4})\.\.(\d{1,4})", text):
        first, last = int(match[1]), int(match[2])
        counts = tuple(range(first, min(last, first + MAX_COUNTS) + 1))
    elif re.fullmatch(r"\d{1,4}(,\d{1,4})*", text):
        counts = tuple(int(word) for word in text.split(","))
    else:
        raise UsageError(f"{text[:40]!r} does not say which numbers of stages; write it like 1..8 or 1,2,4,8")
    return check_counts(counts)


def check_counts(counts: Sequence[int]) -> tuple[int, ...]:
    """The numbers ascending, each once; `UsageError` if they make no sense."""
    found = tuple(sorted(set(counts)))
    if not found or not 1 <= found[0] <= found[-1] <= MAX_STAGES or len(found) > MAX_COUNTS:
        raise UsageError(f"ask for 1 to {MAX_COUNTS} numbers of stages, each from 1 to {MAX_STAGES}")
    return found


def stage_problems(load: Callable[[int | None], Problem], counts: str | Sequence[int]) -> StageProblems:
    """`load(k)` gives the problem with k stages asked for, `load(None)` the one where nothing is asked.

    The largest number is loaded at once, so what cannot be asked for is found before anything is planned.
    """
    if counts == AUTO:
        return _all_problems(load)
    counts = parse_counts(counts) if isinstance(counts, str) else check_counts(counts)
    top = _pipeline(load(counts[-1]))
    return _with_top(load, counts, top)


def _all_problems(load: Callable[[int | None], Problem]) -> StageProblems:
    """Every device, or every accelerator of a file that has them."""
    top = _pipeline(load(None))
    accelerators = sum(device.kind == ACCELERATOR for device in top.devices)
    if accelerators:
        asked = load(accelerators)
        if asked.rules.stages == 0:
            return _with_top(load, sensible_counts(accelerators), asked)
    stages = len(top.devices)
    top = top.with_rules(msgspec.structs.replace(top.rules, stages=stages))
    return _with_top(load, sensible_counts(stages), top)


def _with_top(load: Callable[[int | None], Problem], counts: tuple[int, ...], top: Problem) -> StageProblems:
    """A loaded problem without a limit of stages has got that many devices instead."""
    grows = top.rules.stages == 0
    return StageProblems(counts, MAX_STAGES if grows else len(top.devices), top, load if grows else None)


def _pipeline(problem: Problem) -> Problem:
    if problem.rules.objective != "throughput":
        raise UsageError("numbers of stages can only be compared for --objective throughput")
    return problem


def sensible_counts(most: int) -> tuple[int, ...]:
    """1, 2 ... 16, 32, 64 ... and the last."""
    found = list(range(1, min(most, EVERY_UP_TO) + 1))
    while found[-1] * 2 < most:
        found.append(found[-1] * 2)
    return tuple(found) if found[-1] == most else (*found, most)


def same_placement(placement: Indices, before: Problem, after: Problem) -> Indices | None:
    """A placement by the devices of another problem: the n-th of a kind stays the n-th of that kind."""
    if before.devices == after.devices:
        return placement
    places: dict[tuple[str, int], int] = {}
    seen: dict[str, int] = {}
    for index, device in enumerate(after.devices):
        number = seen[device.kind] = seen.get(device.kind, -1) + 1
        places[device.kind, number] = index
    seen.clear()
    moved: list[int] = []
    for device in before.devices:
        number = seen[device.kind] = seen.get(device.kind, -1) + 1
        moved.append(places.get((device.kind, number), -1))
    found = np.array(moved, np.int32)[placement]
    return None if (found < 0).any() else found
