"""Crew: the threads of one search. An annealer works in the background while bounds are proved in another thread.

The main thread only looks after them: it alone offers plans and bounds to the search, hears Ctrl-C, and raises the stop
flags that kernels poll. Nothing outlives `close`.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Event, Thread

import numpy as np

from weftline.bounds import Bound
from weftline.coarsen import Pieces
from weftline.graph.arrays import Indices, Ints
from weftline.partition.annealer import Annealer
from weftline.partition.overflow import overflow_of
from weftline.search import Search

__all__ = ["Crew"]

PORTION = 200_000
POLL = 0.03


class Crew:
    """An annealer from the best known plan, and one task at a time beside it."""

    def __init__(self, search: Search, pieces: Pieces) -> None:
        self.search, self.pieces = search, pieces
        self._stop = np.zeros(1, np.int64)
        self._found: SimpleQueue[Indices] = SimpleQueue()
        self._orders: SimpleQueue[Ints] = SimpleQueue()
        self._failed: list[BaseException] = []
        self._ended = Event()  # and not Thread.is_alive, which Ctrl-C inside Thread.join makes wrong
        self._start = None if search.best is None else pieces.lower(search.best.placement)
        Thread(target=self._guard, args=(self._anneal, self._ended), daemon=True).start()

    def poll(self) -> bool:
        """Offer what the annealer has found since -> True if the search is over."""
        if self._failed:
            raise self._failed[0]
        newest = None
        while True:
            try:
                newest = self._found.get_nowait()
            except Empty:
                break
        if newest is not None and not self.search.is_over:
            placement = self.pieces.lift(newest)
            if self.search.offer(placement) is None:
                self._orders.put(overflow_of(self.search.problem, placement))
        return self.search.is_over

    def wait(self, until: Callable[[], bool]) -> None:
        """Let the annealer work alone."""
        while not until() and not self.poll() and not self._ended.wait(POLL):
            pass

    def attend(self, task: Callable[[Ints, Callable[[Bound], None]], None], seconds: float) -> None:
        """Run a task in a thread for so long; it gets a stop flag and a way to hand bounds over."""
        until = self.search.seconds + seconds
        stop = np.zeros(1, np.int64)
        bounds: SimpleQueue[Bound] = SimpleQueue()
        ended = Event()
        Thread(target=self._guard, args=(lambda: task(stop, bounds.put), ended), daemon=True).start()
        try:
            while not ended.wait(POLL):
                self._take(bounds)
                if self.poll() or self.search.seconds >= until:
                    stop[0] = 1
        finally:
            stop[0] = 1
            ended.wait()
        self._take(bounds)
        self.poll()

    def close(self) -> None:
        """Stop the annealer."""
        self._stop[0] = 1
        self._ended.wait()

    def _take(self, bounds: SimpleQueue[Bound]) -> None:
        while True:
            try:
                self.search.offer_bound(bounds.get_nowait())
            except Empty:
                return

    def _guard(self, task: Callable[[], None], ended: Event) -> None:
        try:
            task()
        except BaseException as error:  # handed to the main thread, which raises it
            self._failed.append(error)
        finally:
            ended.set()

    def _anneal(self) -> None:
        annealer = Annealer(self.pieces, seed=self.search.seed, start=self._start, stop=self._stop)
        shown = None if self._start is None or annealer.best is None else annealer.best[1]
        while not self._stop[0]:
            best = annealer.best
            if best is not None and (shown is None or best[1] < shown):
                shown = best[1]
                self._found.put(best[0])
            try:
                annealer.shrink(self._orders.get_nowait())
                shown = None
            except Empty:
                pass
            if not annealer.alive:
                return
            annealer.run(PORTION, self._stop)
