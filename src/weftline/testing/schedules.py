"""For tests of schedulers: small random blocks, exact optima by trying everything, one suite for every scheduler.

In: a `Chooser` or a seed. Out: `Blocks` with every option (several devices per block, links, unequal limits, changes of
memory of any sign, latencies, several sources and sinks). Numbers are small, so that ties and tight memory are common.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Ints
from weftline.problem.blocks import Block, Blocks, Lane
from weftline.schedule.bounds.makespan import device_span_bound, makespan_bound
from weftline.schedule.search import Scheduler, ScheduleSearch
from weftline.simulate import Timetable, schedule_violations, simulate_schedule
from weftline.testing.generate import Chooser, SeededChooser

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = [
    "block_dags",
    "brute_force_schedule",
    "check_scheduler",
    "make_blocks",
    "optimum",
    "random_blocks",
    "schedule_search",
]

_optima: WeakKeyDictionary[Blocks, dict[tuple[int, bool], int | None]] = WeakKeyDictionary()


def random_blocks(seed: int, *, max_blocks: int = 5, max_devices: int = 3, tight: bool | None = None) -> Blocks:
    """The blocks of a seed."""
    return make_blocks(SeededChooser(seed), max_blocks=max_blocks, max_devices=max_devices, tight=tight)


def block_dags(*, max_blocks: int = 5, max_devices: int = 3) -> SearchStrategy[Blocks]:
    """A hypothesis strategy: blocks as `make_blocks` makes them, which shrink."""
    from hypothesis import strategies as st

    from weftline.testing.strategies import DrawnChooser

    @st.composite
    def drawn(draw: st.DrawFn) -> Blocks:
        return make_blocks(DrawnChooser(draw), max_blocks=max_blocks, max_devices=max_devices)

    return drawn()


def make_blocks(chooser: Chooser, *, max_blocks: int = 5, max_devices: int = 3, tight: bool | None = None) -> Blocks:
    """Blocks of one of three kinds: forward and backward in pairs, inference, or anything at all."""
    devices = chooser.integer(1, max_devices)
    links = [devices > 1 and d > 0 and chooser.integer(0, 5) == 0 for d in range(devices)]
    count = chooser.integer(1, max_blocks)
    kind = chooser.pick(("pairs", "pairs", "infer", "any"))
    blocks: list[Block] = []
    for i in range(count):
        mirrored = kind == "pairs" and i >= (count + 1) // 2
        if mirrored:  # gives back what its forward block took, on the same devices
            first = blocks[count - 1 - i]
            last = Block(
                "B", chooser.integer(1, 4), first.devices, tuple(-m for m in first.memory), f"B{i}", count - 1 - i
            )
            blocks.append(last)
            continue
        several = chooser.integer(1, devices) if chooser.integer(0, 3) == 0 else 1
        rest = list(range(devices))
        chosen = tuple(sorted(rest.pop(chooser.integer(0, len(rest) - 1)) for _ in range(several)))
        low, high = {"pairs": (0, 3), "infer": (0, 0), "any": (-2, 3)}[kind]
        alone = kind == "pairs" and i == count - 1 - i
        memory = tuple(0 if links[d] or alone else chooser.integer(low, high) for d in chosen)
        letter = "C" if all(links[d] for d in chosen) else chooser.pick(("F", "F", "B", "W")) if kind == "any" else "F"
        blocks.append(Block(letter, chooser.integer(1, 4), chosen, memory, f"{letter}{i}", i))
    density = chooser.integer(0, 3)
    edges = [
        (a, b, chooser.pick((0, 0, 1, 3)))
        for b in range(count)
        for a in range(b)
        if chooser.integer(0, 3) < density or (kind == "pairs" and a == count - 1 - b)
    ]
    lanes = []
    for d in range(devices):
        needed = sum(max(0, m) for b in blocks for e, m in zip(b.devices, b.memory, strict=True) if e == d)
        narrow = chooser.integer(0, 1) == 0 if tight is None else tight
        limit = max(0, needed + chooser.integer(-1, 2)) if narrow else chooser.integer(4, 40)
        lanes.append(Lane(f"d{d}", link=True) if links[d] else Lane(f"d{d}", limit))
    return Blocks.of("random", lanes, blocks, edges)


def brute_force_schedule(blocks: Blocks, micro_batches: int, *, device_span: bool = False) -> int | None:
    """The least makespan (or device span) of all orders within memory, None if there is none.

    Every order is met once, as the sequence of its starts. Micro-batches of one block keep the order of their numbers:
    they are alike, so this loses nothing.
    """
    search = _Everything(blocks, micro_batches, device_span)
    search.go(0, -1, -1)
    return search.best


class _Everything:
    """Depth first, with times and memory of what has been appended so far."""

    def __init__(self, blocks: Blocks, micro_batches: int, device_span: bool) -> None:
        self.blocks, self.count, self.device_span = blocks, micro_batches, device_span
        self.before = [[(a, lag) for a, b, lag in blocks.edges if b == i] for i in range(blocks.n)]
        self.next = [0] * blocks.n
        self.end: dict[tuple[int, int], int] = {}
        lanes = len(blocks.devices)
        self.free, self.first, self.level = [0] * lanes, [-1] * lanes, [0] * lanes
        self.rest = [micro_batches * load for load in blocks.loads]
        self.best: int | None = None

    def go(self, done: int, last: int, last_op: int) -> None:
        """Append one more operation, not earlier than the last."""
        value = self._least()
        if self.best is not None and value >= self.best:
            return
        if done == self.count * self.blocks.n:
            self.best = value
            return
        for i, block in enumerate(self.blocks.blocks):
            micro = self.next[i]
            if micro == self.count or any((a, micro) not in self.end for a, _ in self.before[i]):
                continue
            start = max([self.free[d] for d in block.devices] + [self.end[a, micro] + lag for a, lag in self.before[i]])
            if (start, i) <= (last, last_op):
                continue
            pairs = list(zip(block.devices, block.memory, strict=True))
            lanes = self.blocks.devices
            if any(not lanes[d].link and self.level[d] + m > lanes[d].room for d, m in pairs):
                continue
            kept = [(self.free[d], self.first[d]) for d in block.devices]
            for d, m in pairs:
                self.level[d] += m
                self.free[d] = start + block.span
                self.first[d] = start if self.first[d] < 0 else self.first[d]
                self.rest[d] -= block.span
            self.end[i, micro] = start + block.span
            self.next[i] += 1
            self.go(done + 1, start, i)
            self.next[i] -= 1
            del self.end[i, micro]
            for (d, m), (free, first) in zip(pairs, kept, strict=True):
                self.level[d] -= m
                self.free[d], self.first[d] = free, first
                self.rest[d] += block.span

    def _least(self) -> int:
        """What the value is at least, whatever is appended."""
        if not self.device_span:
            return max(free + rest for free, rest in zip(self.free, self.rest, strict=True))
        lanes = zip(self.free, self.first, self.rest, self.blocks.devices, strict=True)
        return max(free - max(0, first) + rest for free, first, rest, lane in lanes if not lane.link)


def optimum(blocks: Blocks, micro_batches: int, *, device_span: bool = False) -> int | None:
    """`brute_force_schedule`, computed once per question."""
    known = _optima.setdefault(blocks, {})
    if (micro_batches, device_span) not in known:
        known[micro_batches, device_span] = brute_force_schedule(blocks, micro_batches, device_span=device_span)
    return known[micro_batches, device_span]


@dataclass
class _Watched(ScheduleSearch):
    """A search that counts the orders offered after it has an answer and a stop rule has fired."""

    late: int = 0

    def offer(self, orders: tuple[Ints, ...]) -> int | None:  # type: ignore[override]
        self.late += self.best is not None and bool(self.stopped_by)
        return ScheduleSearch.offer(self, orders)


def schedule_search(
    scheduler: Scheduler,
    blocks: Blocks,
    micro_batches: int,
    *,
    seed: int = 0,
    work_limit: int | None = 30,
    device_span: bool = False,
) -> tuple[_Watched, InfeasibleError | None]:
    """Run a scheduler with the general bound -> the search, and how it gave up if it did."""
    search = _Watched(
        blocks, micro_batches, work_limit=work_limit, seed=seed, solver=scheduler.name, device_span=device_span
    )
    search.offer_bound(*(device_span_bound if device_span else makespan_bound)(blocks, micro_batches))
    try:
        search.run(scheduler)
    except InfeasibleError as error:
        return search, error
    return search, None


def check_scheduler(
    scheduler: Scheduler,
    blocks: Blocks,
    micro_batches: int,
    *,
    device_span: bool = False,
    tiny: bool = False,
    same_seed: bool = True,
) -> None:
    """Limits, simulated again, bounds; with `tiny` also the optimum by brute force; an `AssertionError` says what."""
    search, error = schedule_search(scheduler, blocks, micro_batches, device_span=device_span)
    best = search.best

    def demand(holds: bool, what: str) -> None:
        if not holds:
            raise AssertionError(f"scheduler {scheduler.name!r} {what}\nfor {micro_batches} of {blocks}")

    demand((best is None) == (error is not None), f"has no answer and no error, or both: {error}")
    demand(search.late == 0, f"offers {search.late} of {search.offered} orders after {search.stopped_by}")
    if best is not None:
        _check_timetable(search, best, demand)
    if tiny:
        least = optimum(blocks, micro_batches, device_span=device_span)
        demand(best is None or least is not None, "has an answer where brute force finds none")
        if least is not None:
            demand(best is None or search.value(best) >= least, f"is better than the optimum {least}")
            demand(search.bound is None or search.bound <= least, f"has bound {search.bound}, the optimum is {least}")
            demand(error is None or not error.proved, f"proves that nothing fits, but the optimum is {least}")
    if same_seed:
        again = schedule_search(scheduler, blocks, micro_batches, device_span=device_span)[0]
        demand(_rows(again.best) == _rows(best) and again.bound == search.bound, "gives two answers for one seed")


def _check_timetable(search: ScheduleSearch, best: Timetable, demand: object) -> None:
    assert callable(demand)
    blocks, count = search.blocks, search.micro_batches
    again = simulate_schedule(blocks, count, best.orders)
    demand(np.array_equal(again.start, best.start), "has an answer that is different when simulated again")
    demand(not schedule_violations(again), f"breaks limits: {schedule_violations(again)}")
    demand(search.bound is None or search.bound <= search.value(best), "has a bound above its value")
    end = best.start + best.span
    for a, b, lag in blocks.edges:
        for micro in range(count):
            late = best.start[micro * blocks.n + b] >= end[micro * blocks.n + a] + lag
            demand(bool(late), f"starts block {b} of micro-batch {micro} before block {a} has arrived")
    for order in best.orders:
        demand(bool(np.all(best.start[order[1:]] >= end[order[:-1]])), "does two blocks at once on a device")


def _rows(timetable: Timetable | None) -> object:
    return None if timetable is None else [order.tolist() for order in timetable.orders]
