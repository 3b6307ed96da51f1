"""Memory against period: schedules for several limits, and which of them no other beats in both."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from weftline.ask.scheduling import make_schedule
from weftline.errors import InfeasibleError, UsageError
from weftline.plans.schedule import Schedule
from weftline.problem import Blocks
from weftline.search import Termination

__all__ = ["MemoryRow", "MemorySweep", "read_limits", "sweep_memory"]

MOST_LIMITS = 200


@dataclass(frozen=True)
class MemoryRow:
    """One limit and its schedule, None where nothing fits."""

    memory: int
    schedule: Schedule | None
    best: bool
    """No smaller limit has so small a period: a point of the Pareto curve."""


@dataclass(frozen=True)
class MemorySweep:
    """The curve, limits ascending."""

    rows: tuple[MemoryRow, ...]

    @property
    def best(self) -> Schedule:
        """The shortest schedule; of equal ones that with the least memory."""
        found = [row.schedule for row in self.rows if row.schedule is not None]
        return min(found, key=lambda schedule: schedule.value)

    def to_json(self) -> bytes:
        """What `--json` prints: the curve without the actions."""
        rows = [
            {
                "memory": row.memory,
                "period": None if row.schedule is None else row.schedule.period,
                "period_exact": None if row.schedule is None else row.schedule.period_exact,
                "period_bound": None if row.schedule is None else row.schedule.period_bound,
                "period_proved": row.schedule is not None and row.schedule.period_proved,
                "makespan": None if row.schedule is None else row.schedule.makespan,
                "bound": None if row.schedule is None else row.schedule.bound,
                "pareto": row.best,
            }
            for row in self.rows
        ]
        return json.dumps({"rows": rows}).encode()


def read_limits(word: str) -> list[int]:
    """`2..8` or `2,4,8`."""
    span = re.fullmatch(r"(\d{1,15})\.\.(\d{1,15})", word)
    if span:
        low, high = int(span[1]), int(span[2])
        if low > high or high - low >= MOST_LIMITS:
            raise UsageError(f"--sweep-memory {word}: 1 to {MOST_LIMITS} limits, the smaller first")
        return list(range(low, high + 1))
    if not re.fullmatch(r"\d{1,18}(,\d{1,18}){0,199}", word):
        raise UsageError(f"--sweep-memory {word!r} is not A..B or M,M,...")
    return sorted({int(part) for part in word.split(",")})


def sweep_memory(
    blocks: Blocks, micro_batches: int, limits: str, *, time_limit: float | None = None, **options: Any
) -> MemorySweep:
    """A schedule for every limit; the time limit is for all of them together."""
    wanted = read_limits(limits)
    each = None if time_limit is None else time_limit / len(wanted)
    rows: list[MemoryRow] = []
    least: Fraction | None = None
    for limit in wanted:
        try:
            found = make_schedule(blocks.with_memory(limit), micro_batches, time_limit=each, **options)
        except InfeasibleError:
            rows.append(MemoryRow(limit, None, False))
            continue
        period = Fraction(found.period_exact)
        rows.append(MemoryRow(limit, found, least is None or period < least))
        least = period if least is None else min(least, period)
        if found.stopped_by == Termination.INTERRUPTED:
            break
    if least is None:
        raise InfeasibleError(f"nothing fits in memory {wanted[-1]}")
    return MemorySweep(tuple(rows))
