"""The clock of a search: what is left of a time limit for it when everything else has had its share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic, process_time

from weftline.search import Event

__all__ = ["PER_OP", "Clock", "searching_time"]

BETWEEN_SECONDS = 1.0
"""Between two words about compiling."""
PER_OP = 1e-4
"""Seconds for the certificate of a large answer, for each op or operation in it."""


PER_ENTRY = 7e-7
"""The same for each entry of the tables of times: with dozens of devices they are the larger part of a plan."""
SEEN_SECONDS = 0.5
"""Less than this says nothing about how busy a machine is."""
MOST_SLOWNESS = 4.0


def searching_time(
    time_limit: float | None, operations: int, spent: float = 0.0, *, entries: int = 0, slowness: float = 1.0
) -> float | None:
    """What is left of a time limit for the search, half of it at least; `spent` seconds are over.

    On a machine that is busy with other things the certificate takes longer, too: `slowness` times.
    """
    if time_limit is None:
        return None
    return max(time_limit / 2, time_limit - spent - slowness * (PER_OP * operations + PER_ENTRY * entries))


@dataclass
class Clock:
    """Counts a time limit from `begun` (a reading of `time.monotonic`), but for the compilation of kernels."""

    begun: float
    on_event: Callable[[Event], None] | None
    began: float = field(default_factory=monotonic)
    """When this clock began to look: `begun` may be earlier."""
    worked: float = field(default_factory=process_time)
    """Seconds of CPU of this process until then."""

    @property
    def slowness(self) -> float:
        """How many seconds pass here while this process works for one, as seen so far: 1 where nothing else runs."""
        passed, worked = monotonic() - self.began, process_time() - self.worked
        if passed < SEEN_SECONDS:
            return 1.0
        return min(MOST_SLOWNESS, max(1.0, passed / max(worked, passed / MOST_SLOWNESS)))

    @property
    def spent(self) -> float:
        """Seconds of the limit that are over."""
        return max(0.0, monotonic() - self.begun)

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Kernels are loaded inside, which counts, or compiled, which happens once and does not."""
        from weftline.simulate.kernels.jit import Compilation

        told = -BETWEEN_SECONDS

        def tell(text: str) -> None:
            nonlocal told
            if self.on_event is not None and monotonic() - told >= BETWEEN_SECONDS:
                told = monotonic()
                self.on_event(Event(0.0, "", None, None, text))

        with Compilation(tell) as compiled:
            yield
        self.begun += compiled.seconds
