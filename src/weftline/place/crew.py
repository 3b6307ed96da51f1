"""Crew: annealers in threads of their own, while the main thread proves bounds and finds plans of other kinds.

The main thread alone offers plans to the search and hears Ctrl-C; plans that it finds are handed to the annealers
while it `gives`, and they go on from them. There is one at first; when the main thread has no more to do, another may
join. Nothing outlives `close`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Event, Thread

import numpy as np

from weftline.graph.arrays import Indices
from weftline.interrupts import uninterrupted
from weftline.place.annealer import Annealer, Start
from weftline.place.finds import Find, new_find
from weftline.search import Search
from weftline.simulate import Timeline
from weftline.simulate.tables import tables

__all__ = ["Crew"]

PORTION = 4_000_000
"""Ops that an annealer books between two looks at its letters, at most."""
MOST_STEPS = 20_000
POLL = 0.03


class Crew:
    """Annealers beside the main thread."""

    def __init__(self, search: Search, starts: list[Start]) -> None:
        self._search = search
        self._stop = np.zeros(1, np.int64)
        self._found: SimpleQueue[Find] = SimpleQueue()
        self._given: list[SimpleQueue[tuple[Indices, Indices]]] = []
        self._failed: list[BaseException] = []
        self._ended: list[Event] = []  # and not Thread.is_alive, which Ctrl-C inside Thread.join makes wrong
        self._shown = 2**62 if search.best is None else search.best.value
        self.gives = True
        """What others find is handed to the annealers."""
        self.add(starts, search.seed)

    def add(self, starts: list[Start], seed: int) -> None:
        """One more annealer."""
        given, ended = SimpleQueue[tuple[Indices, Indices]](), Event()
        Thread(target=self._run, args=(seed, starts, given, ended), daemon=True).start()
        self._given.append(given)  # only now: nobody waits for the end of what could not start
        self._ended.append(ended)

    @property
    def size(self) -> int:
        """How many annealers there are."""
        return len(self._ended)

    def poll(self) -> bool:
        """Offer what annealers have found since, give them what others have found -> True if the search is over."""
        if self._failed:
            raise self._failed[0]
        search = self._search
        found = min(self._finds(), key=lambda find: find.value, default=None)
        if found is not None and not search.is_over and (search.best is None or found.value < search.best.value):
            found.offer(search)
            self._shown = min(self._shown, found.value)  # its own: to give it back would only end its walk
        best = search.best
        if self.gives and isinstance(best, Timeline) and best.value < self._shown:
            self._shown = best.value
            for given in self._given:
                given.put((best.placement, best.order))
        return search.is_over

    def _finds(self) -> Iterator[Find]:
        with suppress(Empty):
            while True:
                yield self._found.get_nowait()

    def wait(self, seconds: float | None = None) -> None:
        """Let the annealers work alone."""
        until = None if seconds is None else self._search.seconds + seconds
        while not self.poll() and not self._ended[-1].wait(POLL):
            if until is not None and self._search.seconds >= until:
                return

    def close(self) -> None:
        """Stop the annealers."""
        self._stop[0] = 1
        with uninterrupted():
            for ended in self._ended:
                ended.wait()

    def _run(self, seed: int, starts: list[Start], given: SimpleQueue[tuple[Indices, Indices]], ended: Event) -> None:
        try:
            self._anneal(seed, starts, given)
        except BaseException as error:  # handed to the main thread, which raises it
            self._failed.append(error)
        finally:
            ended.set()

    def _anneal(self, seed: int, starts: list[Start], given: SimpleQueue[tuple[Indices, Indices]]) -> None:
        problem, table = self._search.problem, tables(self._search.problem)
        annealer = Annealer(table, capacity=problem.capacity, group=problem.group, seed=seed, start=starts)
        steps, shown = max(1, min(MOST_STEPS, PORTION // len(table.time))), 2**62
        while not self._stop[0]:
            find = new_find(annealer, table, shown)  # of the starts at first, as `anneal` does
            if find is not None:
                shown = find.planned
                self._found.put(find)
            with suppress(Empty):
                annealer.give(*given.get_nowait(), stay=True)  # its walk is not over
            annealer.run(steps, self._stop)
