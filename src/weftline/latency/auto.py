"""The default: bounds, single devices, heuristics, annealing, and the exact method that fits, until a stop rule fires.

With a time limit the annealer works in a thread of its own while blocks are solved and bounds are proved beside it;
where blocks do not hold everything, it goes on from their plans. Where that ends early, a second annealer takes its
place and begins where the policy would. With a work limit everything runs in turn, each with a fixed amount of work, so
that the same call gives the same bytes. The sequential runtime is a problem of its own, solved by minimum cuts.

The threads are a PlacementCrew. The main thread alone offers plans to the search and hears Ctrl-C; plans that it finds
are handed to the annealers while the crew `gives`, and they go on from them. There is one at first; when the main
thread has no more to do, another may join. Nothing outlives `close`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Event, Thread

import numpy as np

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices
from weftline.interrupts import uninterrupted
from weftline.latency.anneal import anneal_starts, ask_helpers
from weftline.latency.anneal.annealer import Find, PlacementAnnealer, Start, new_find
from weftline.latency.blocks.chain import MOST_OPS, pick_hub, reach
from weftline.latency.blocks.decompose import chains, decompose
from weftline.latency.blocks.decomposition import BLOCK_PLAN, EXACT_SEARCH, FINE_BOUND, Decomposition
from weftline.latency.blocks.hub_search import Branching
from weftline.latency.policy import asked_weights, offer_policy
from weftline.latency.policy import prepare as prepare_policy
from weftline.search import Search, Solver, best_of
from weftline.simulate import Timeline
from weftline.simulate.sentinels import NEVER
from weftline.simulate.tables import tables

__all__ = ["SOLVER", "LatencyAutoParameters", "PlacementCrew"]

FIRST = ("single-device", "cpeft", "greedy", "heft", "even-split", "round-robin")
"""What is tried at once, of those that are registered."""
PORTION_OPS = 4_000_000
"""Ops that an annealer books between two looks at its letters, at most."""
MOST_STEPS = 20_000
POLL_SECONDS = 0.03


@dataclass(frozen=True)
class LatencyAutoParameters:
    """Numbers of the solver `auto`."""

    warm_up_share: float = 0.02
    """Share of the time in which only annealers work: bounds are better with a good plan to compare with."""
    least_warm_up_seconds: float = 0.5
    """If that is no more than a quarter of the time."""
    blocks_share: float = 0.45
    """Share of the time for plans of the blocks of one chain and what stands beside it, if there are others to try."""
    longest_seconds: float = 60.0
    """Without a time limit."""
    nearly_all_share: float = 0.93
    """A chain that holds less leaves much out: others search beside it, and hubs say more than blocks."""
    one_model_ops: int = 30
    """So few ops are one CP-SAT model at once."""


class PlacementCrew:
    """Annealers beside the main thread."""

    def __init__(self, search: Search, starts: list[Start]) -> None:
        self._search = search
        self._stop = np.zeros(1, np.int64)
        self._found: SimpleQueue[Find] = SimpleQueue()
        self._given: list[SimpleQueue[tuple[Indices, Indices]]] = []
        self._failed: list[BaseException] = []
        self._ended: list[Event] = []  # and not Thread.is_alive, which Ctrl-C inside Thread.join makes wrong
        self._shown = NEVER if search.best is None else search.best.value
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
        while not self.poll() and not self._ended[-1].wait(POLL_SECONDS):
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
        annealer = PlacementAnnealer(table, capacity=problem.capacity, group=problem.group, seed=seed, start=starts)
        steps, shown = max(1, min(MOST_STEPS, PORTION_OPS // len(table.time))), NEVER
        while not self._stop[0]:
            find = new_find(annealer, table, shown)  # of the starts at first, as `anneal` does
            if find is not None:
                shown = find.planned
                self._found.put(find)
            with suppress(Empty):
                annealer.give(*given.get_nowait(), stay=True)  # its walk is not over
            annealer.run(steps, self._stop)


def _solve(search: Search) -> None:
    from weftline.latency import solvers

    exact = ("min-cut",) if search.problem.rules.runtime == "sequential" else ()
    reasons = best_of(search, solvers(), (*exact, *FIRST))
    if search.best is None and not search.is_over:
        ask_helpers(search)
    if not search.is_over and len(search.problem.devices) > 1:
        if search.work_limit is None:
            _at_once(search)
        else:
            _in_turn(search)
    if search.best is None:
        raise InfeasibleError("no plan was found within the limits", conflicts=(*reasons, *search.refused))


def _in_turn(search: Search) -> None:
    """Everything once, with fixed amounts of work."""
    from weftline.latency import solvers

    best_of(search, solvers(), ("cpeft-64", "anneal"))
    if not search.is_over and _exact(search):
        few = len(search.problem.graph.ops) <= search.parameters(LatencyAutoParameters).one_model_ops
        best_of(search, solvers(), ("cp-sat",) if few else ("decompose",))


def _exact(search: Search) -> bool:
    """Blocks are for the parallel runtime and graphs that are not too large."""
    problem = search.problem
    return problem.rules.runtime == "parallel" and len(problem.graph.ops) <= MOST_OPS


def _at_once(search: Search) -> None:
    """Annealing in the background, exact methods beside it, until a stop rule fires."""
    from weftline.latency import solvers

    numbers, begun = search.parameters(LatencyAutoParameters), search.seconds
    limit = search.time_limit if search.time_limit is not None else numbers.longest_seconds
    left = limit - begun
    warm = begun + max(numbers.warm_up_share * left, min(numbers.least_warm_up_seconds, 0.25 * left))
    with _crew(search) as crew:
        if search.best is None or not _exact(search):
            crew.wait(warm - search.seconds)
        if _exact(search) and search.best is not None:
            if len(search.problem.graph.ops) <= numbers.one_model_ops:
                best_of(search, solvers(), ("cp-sat",))
            if not search.is_over:
                _by_blocks(search, crew, warm, limit)
        if not search.is_over and crew.size == 1:
            _second_annealer(search, crew)
        crew.wait(max(0.0, limit - search.seconds))


def _by_blocks(search: Search, crew: PlacementCrew, warm: float, limit: float) -> None:
    """Chains with larger and larger blocks, and what stands beside them; then these go on, the best first.

    Where blocks hold everything, the annealer does not hear of their plans, so as not to end behind itself alone.
    """
    problem, table, numbers = search.problem, tables(search.problem), search.parameters(LatencyAutoParameters)
    before = reach(table)
    found = [] if crew.poll() else chains(table, before)
    if crew.poll():
        return
    nearly_all = numbers.nearly_all_share
    if not any(chain.inside >= nearly_all or pick_hub(table, before, chain, most) for chain, most in found):
        _second_annealer(search, crew)
    crew.wait(warm - search.seconds)
    begun: list[Branching] = []
    until = limit

    def over() -> bool:
        return crew.poll() or search.seconds >= until

    for turn, (chain, most) in enumerate(found):
        work = Decomposition.of(table, problem.group, chain, search.seed)
        crew.gives = not work.complete
        until = limit
        if not work.complete:  # bounds first, as long as they take: what blocks hold is not all there is
            decompose(search, work, until=over, effort=FINE_BOUND)
            if turn < len(found) - 1:
                until = search.seconds + numbers.blocks_share * (limit - search.seconds)
            branching = None if search.is_over else Branching.of(search, before, work, most)
            if branching is not None:
                branching.until = over
                branching.bound_chain()
                if all(branching.bound + other.gain >= other.bound for other in begun):
                    branching.begin()
                    begun.append(branching)
        if not search.is_over:
            decompose(search, work, until=over, effort=EXACT_SEARCH if work.complete else BLOCK_PLAN)
        if search.is_over:
            return
    crew.gives = True
    for branching in sorted(begun, key=lambda each: (each.bound, each.work.chain.inside), reverse=True):
        branching.until = over
        branching.go_on()
        if search.is_over:
            return
        if _worth_it(search, branching.work):
            decompose(search, branching.work, until=over)
            branching.plan_known()
    if not begun and not work.complete and _worth_it(search, work):
        decompose(search, work, until=over)


def _worth_it(search: Search, work: Decomposition) -> bool:
    """Does the chain hold nearly all, or would half of the gap be gone if no block had a shorter plan than it has?"""
    known, best, bound = work.known_path(), search.best, search.bound
    nearly_all = search.parameters(LatencyAutoParameters).nearly_all_share
    if work.chain.inside >= nearly_all or known is None or best is None or bound is None:
        return True
    return 2 * known[1] >= bound.value + best.value


def _second_annealer(search: Search, crew: PlacementCrew) -> None:
    """Begins as `policy+polish` does, so as not to end behind it; large graphs take long to decode."""
    if len(search.problem.graph.ops) > MOST_OPS:
        crew.add(anneal_starts(search), (search.seed + 1) % 2**31)
        return
    begun = Search(search.problem, time_limit=search.seconds_left, seed=search.seed)
    with suppress(InfeasibleError):
        offer_policy(begun, asked_weights({}))
    if begun.best is not None:
        search.adopt(begun.best)
    crew.add(anneal_starts(begun), search.seed)


@contextmanager
def _crew(search: Search) -> Iterator[PlacementCrew]:
    crew = PlacementCrew(search, anneal_starts(search, best=False))  # as `anneal` begins, so as not to end behind it
    try:
        yield crew
    finally:
        crew.close()


SOLVER = Solver(
    "auto",
    "heuristics, annealing, exact blocks and bounds until good enough (default)",
    _solve,
    parameters=LatencyAutoParameters,
    prepare=prepare_policy,
)
