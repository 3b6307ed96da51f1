"""The default, an anytime loop: slices, annealing, exact search, bounds; each better plan helps every later bound.

With a time limit, the annealer works in one thread and the proofs in another (`PipelineCrew`), until a stop rule fires.
The main thread only looks after them: it alone offers plans and bounds to the search, hears Ctrl-C, and raises the stop
flags that kernels poll. Nothing outlives `close`. With a work limit everything runs in turn, each with a fixed amount
of work, so that the same call gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Event, Thread

import numpy as np
from numpy.typing import NDArray

from weftline.bounds import Bound
from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.pipeline.anneal import PipelineAnnealer
from weftline.pipeline.bounds import bottleneck, convex_cut_bound, guess, node_cover_bound
from weftline.pipeline.convex.convex_set import ConvexSetParameters, convex_set_bound
from weftline.pipeline.convex.graph import MOST_PIECES
from weftline.pipeline.exact import fits_model, prove
from weftline.pipeline.ideals import IdealChain, over_ideals, take
from weftline.pipeline.pieces import Pieces, make_pieces
from weftline.pipeline.reduce import reduce_exactly, shrink
from weftline.pipeline.simple import FIRST_SOLVERS, overflow_of
from weftline.search import Search, Solver, best_of

__all__ = ["SOLVER", "AutoParameters", "PipelineCrew"]


@dataclass(frozen=True)
class AutoParameters(ConvexSetParameters):
    """Numbers of `auto`: those of the convex-set bound, and who works when."""

    anneal_portion_steps: int = field(default=200_000, metadata={"least": 1})
    """Of the annealer between two looks at what is asked of it."""
    poll_seconds: float = field(default=0.03, metadata={"least": 0.001, "most": 10.0})
    """Between two looks at the threads."""
    longest_seconds: float = 60.0
    """Where no limit at all is given."""
    warm_up_until: float = 0.01
    """Share of the time limit at which annealing alone ends."""
    first_ideals_until: float = 0.15
    node_cover_until: float = 0.08
    first_exact_until: float = 0.15
    few_pieces: int = 40
    """So few are more for exact search than for bounds by sets."""
    small_exact_until: float = 0.5
    """As `first_exact_until`, for so few pieces."""
    more_ideals_until: float = 0.5
    convex_until: float = 0.97
    superblocks_until: float = 0.3
    convex_nodes: int = 20_000
    """Of the convex-set bound under a work limit."""
    exact_work_seconds: float = 3.0
    """Deterministic seconds of the exact search under a work limit."""
    most_superblock_entries: int = 20_000
    """Pieces and readers of tensors for which superblocks are tried."""
    superblock_guesses: int = 4


class PipelineCrew:
    """An annealer from the best known plan, and one task at a time beside it."""

    def __init__(self, search: Search, pieces: Pieces, parameters: AutoParameters) -> None:
        self.search, self.pieces, self.parameters = search, pieces, parameters
        self._stop = np.zeros(1, np.int64)
        self._found: SimpleQueue[Indices] = SimpleQueue()
        self._orders: SimpleQueue[Ints] = SimpleQueue()
        self._failed: list[BaseException] = []
        self._ended = Event()  # and not Thread.is_alive, which Ctrl-C inside Thread.join makes wrong
        self._start = None if search.best is None else pieces.nearest(search.best.placement)
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
        while not until() and not self.poll() and not self._ended.wait(self.parameters.poll_seconds):
            pass

    def attend(self, task: Callable[[Ints, Callable[[Bound], None]], None], seconds: float) -> None:
        """Run a task in a thread for so long; it gets a stop flag, and a function to hand bounds over."""
        until = self.search.seconds + seconds
        stop = np.zeros(1, np.int64)
        bounds: SimpleQueue[Bound] = SimpleQueue()
        ended = Event()
        Thread(target=self._guard, args=(lambda: task(stop, bounds.put), ended), daemon=True).start()
        try:
            while not ended.wait(self.parameters.poll_seconds):
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
        annealer = PipelineAnnealer(self.pieces, seed=self.search.seed, start=self._start, stop=self._stop)
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
            annealer.run(self.parameters.anneal_portion_steps, self._stop)


def _solve(search: Search) -> None:
    from weftline.pipeline import solvers

    reasons = best_of(search, solvers(), FIRST_SOLVERS)
    if search.is_over:
        return
    pieces, parameters = reduce_exactly(make_pieces(search.problem)), search.parameters(AutoParameters)
    if search.work_limit is None:
        _at_once(search, pieces, parameters)
    else:
        _in_turn(search, pieces, parameters)
    if search.best is None and not search.is_over:
        search.run(solvers()["pack"])
    if search.best is None:
        raise InfeasibleError("no pipeline was found within the limits", conflicts=(*reasons, *search.refused))


def _in_turn(search: Search, pieces: Pieces, parameters: AutoParameters) -> None:
    """Everything once, with fixed amounts of work."""
    from weftline.pipeline import solvers

    search.run(solvers()["anneal"])
    never = np.zeros(1, np.int64)
    if not search.is_over:
        chain = over_ideals(pieces, search.best, never, known=0 if search.bound is None else search.bound.value)
        if not isinstance(chain, str):
            take(search, chain)
    if not search.is_over and fits_model(pieces):
        prove(search, pieces, work=parameters.exact_work_seconds)
    if not search.is_over and _bounded_by_sets(pieces) and search.best is not None:
        found: list[Bound] = []
        _convex(search, pieces, parameters, never, found.append, work=parameters.convex_nodes)
        for bound in found:
            search.offer_bound(bound)


def _at_once(search: Search, pieces: Pieces, parameters: AutoParameters) -> None:
    """Annealing in the background, proofs beside it, until a stop rule fires."""
    limit = search.time_limit if search.time_limit is not None else parameters.longest_seconds
    begun = search.seconds

    def until(share: float) -> float:
        return max(0.1, begun + share * (limit - begun) - search.seconds)

    with _crew(search, pieces, parameters) as crew:
        warm = search.seconds + until(parameters.warm_up_until)
        crew.wait(lambda: search.seconds >= warm)
        too_long = _ideals(search, pieces, crew, until(parameters.first_ideals_until))
        sets = _bounded_by_sets(pieces)
        if sets and not search.is_over and search.best is not None:
            end = parameters.node_cover_until
            crew.attend(lambda stop, tell: _cover(search, pieces, stop, tell, until(end)), until(end))
        if not search.is_over and fits_model(pieces):
            small = len(pieces.time) <= parameters.few_pieces
            share = parameters.small_exact_until if small else parameters.first_exact_until
            share = share if sets else 1.0
            prove(search, pieces, seconds=until(share), poll=crew.poll)
        if too_long:
            _ideals(search, pieces, crew, until(parameters.more_ideals_until))
        if sets and not search.is_over and search.best is not None:
            end = parameters.convex_until
            crew.attend(
                lambda stop, tell: _convex(search, pieces, parameters, stop, tell, seconds=until(end)), until(end)
            )
        elif not search.is_over and _bounded_by_superblocks(pieces, parameters) and search.best is not None:
            seconds, guesses = until(parameters.superblocks_until), parameters.superblock_guesses
            _superblocks(search, pieces, guesses, seconds, crew.poll)
        if not search.is_over and fits_model(pieces):
            prove(search, pieces, seconds=until(1.0), poll=crew.poll)
        if search.best is not None:
            crew.wait(lambda: search.seconds >= limit)


def _ideals(search: Search, pieces: Pieces, crew: PipelineCrew, seconds: float) -> bool:
    """Offer what the program over ideals finds -> True if it could not end in time."""
    if search.is_over:
        return False
    found: list[IdealChain | str] = []
    known = 0 if search.bound is None else search.bound.value
    crew.attend(lambda stop, _: found.append(over_ideals(pieces, search.best, stop, known=known)), seconds)
    ended = True
    for chain in found:
        if not isinstance(chain, str) and not search.is_over:
            ended = chain.ended
            take(search, chain)
    return not ended


@contextmanager
def _crew(search: Search, pieces: Pieces, parameters: AutoParameters) -> Iterator[PipelineCrew]:
    crew = PipelineCrew(search, pieces, parameters)
    try:
        yield crew
    finally:
        crew.close()


def _bounded_by_superblocks(pieces: Pieces, parameters: AutoParameters) -> bool:
    """Three superblocks are for equal devices, added communication, and not too many pieces."""
    return _alike(pieces) and len(pieces.time) + len(pieces.reader_of) <= parameters.most_superblock_entries


def _superblocks(search: Search, pieces: Pieces, guesses: int, seconds: float, poll: Callable[[], bool]) -> None:
    """The middle stage, the cheapest with its share of the work, then stages further and further from the middle."""
    contracted = shrink(pieces, search.best.value) if search.best is not None else pieces
    stages = min(pieces.problem.stage_limit, len(pieces.stage_devices))
    until = search.seconds + seconds
    around = sorted(range(stages), key=lambda b: abs(2 * b - stages + 1))[:guesses]
    for turn, before in enumerate([*around[:1], None, *around[1:]]):
        left = (until - search.seconds) / (len(around) + 1 - turn)
        if search.is_over or left < 0.2:
            return
        if before is None:
            bottleneck(search, contracted, seconds=left, poll=poll)
        else:
            guess(search, contracted, before, seconds=left, poll=poll)


def _bounded_by_sets(pieces: Pieces) -> bool:
    """The convex-set bound is for equal devices, added communication, and not too many pieces."""
    return _alike(pieces) and len(pieces.time) <= MOST_PIECES


def _alike(pieces: Pieces) -> bool:
    problem = pieces.problem
    return pieces.equal and not problem.host.any() and problem.rules.communication == "added"


def _cover(search: Search, pieces: Pieces, stop: Ints, tell: Callable[[Bound], None], seconds: float) -> None:
    """The piece whose cheapest stage is costliest."""
    assert search.best is not None
    whole = make_pieces(search.problem)
    if len(whole.time) <= MOST_PIECES:
        cut = convex_cut_bound(whole, 0 if search.bound is None else search.bound.value)
        if cut is not None:
            tell(cut)
            if cut.value >= search.best.value:
                return
    contracted, value = shrink(pieces, search.best.value), search.best.value

    def on_bound(bound: int, witness: dict[str, object]) -> None:
        tell(Bound(contracted.lift_bound(bound), "node-cover", seconds=search.seconds))

    stages = min(pieces.problem.stage_limit, len(pieces.stage_devices))
    node_cover_bound(contracted, stages, lambda: value, stop=stop, seconds=seconds, on_bound=on_bound)


def _convex(
    search: Search,
    pieces: Pieces,
    parameters: AutoParameters,
    stop: Ints,
    tell: Callable[[Bound], None],
    *,
    seconds: float | None = None,
    work: int | None = None,
) -> None:
    assert search.best is not None
    stages = min(pieces.problem.stage_limit, len(pieces.stage_devices))
    contracted = shrink(pieces, search.best.value)
    device = contracted.nearest(search.best.placement)
    sets: list[NDArray[np.bool_]] = [device == d for d in np.unique(device)]

    def upper() -> int:
        assert search.best is not None
        return search.best.value

    def on_bound(value: int, witness: dict[str, object]) -> None:
        bound = contracted.lift_bound(value)
        if contracted.problem is search.problem:  # the weights, for a proof: of a piece, on the first of its ops
            search.notes["convex-set"] = [bound, np.unique(contracted.of, return_index=True)[1], witness["weights"]]
        tell(Bound(bound, "convex-set", seconds=search.seconds))

    convex_set_bound(
        contracted,
        stages,
        upper,
        start_sets=sets,
        stop=stop,
        work=work,
        seconds=seconds,
        seed=search.seed,
        on_bound=on_bound,
        parameters=parameters,
    )


SOLVER = Solver(
    "auto",
    "slices, annealing, exact search and bounds until good enough (default)",
    _solve,
    parameters=AutoParameters,
)
