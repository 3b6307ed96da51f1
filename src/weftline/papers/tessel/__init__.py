"""Tessel, lazy and fast, with z3; and the blocks of its model zoo.

In: a ScheduleSearch. Out: repetends. Simplified: see README.md.

Tessel's two searches: lazy (Lin et al., HPCA 2024) and fast (TPDS 2024); both order by z3.

Lazy: enumerate the repetend's micro-batch indices, order each by z3. Indices never grow along one topological order and
use every number below `count`. Each vector is solved for the least period below the best so far; of a better one only
the *satisfiability* of warmup and cooldown is asked, and their least makespan only for the winner. One thing is kinder
than published: a period that equals the largest load ends the search, also where another device has a smaller load.

Fast: compact each device without a look at dependencies, then give indices backwards. 1. Device by device, blocks go to
the first free step; every other device in reverse order. 2. From the end, each block gets the largest index of its
successors, one more where the compaction broke the edge. 3. Memory is only checked afterwards: there is no repair. 4.
z3 orders warmup and cooldown until they are good enough (early accept), and the simulator moves all to the left
(tighten). Kinder than published: free steps are looked for on all devices of a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from weftline.errors import InfeasibleError
from weftline.papers.tessel.z3 import (
    Operation,
    Phase,
    as_repetend,
    composed,
    cooldown,
    held_memory,
    load_z3,
    need_balance,
    warmup,
)
from weftline.problem.blocks import Blocks
from weftline.problem.model import NO_LIMIT
from weftline.schedule.search import Scheduler, ScheduleSearch

__all__ = [
    "SCHEDULER_FAST",
    "SCHEDULER_LAZY",
    "SolvedRepetend",
    "backward_indices",
    "compact",
    "index_vectors",
    "lazy_search",
]


@dataclass(frozen=True)
class TesselLazyParameters:
    """Of the lazy search."""

    most_work: int = 3_000
    """Vectors * blocks that a search without time limit looks at."""


@dataclass(frozen=True)
class TesselFastParameters:
    """A warmup or cooldown is good enough at its work + 5 % of 128 periods."""

    accept_share: float = 0.05
    accept_periods: int = 128


@dataclass(frozen=True)
class SolvedRepetend:
    """A repetend: index and start of each block, and its period."""

    index: tuple[int, ...]
    start: tuple[int, ...]
    period: int


def lazy_search(search: ScheduleSearch, counts: Sequence[int]) -> SolvedRepetend | None:
    """The best repetend with so many micro-batch indices; what is found is offered."""
    blocks, best = search.blocks, None
    looked, most = 0, search.parameters(TesselLazyParameters).most_work
    for count in counts:
        for index in index_vectors(blocks, count):
            looked += 1
            if _is_over(search) or (search.time_limit is None and looked * blocks.n > most):
                break
            found = _solve_vector(search, index, None if best is None else best.period - 1)
            if found is not None and _completes(search, index):
                best = found
                search.offer_repetend(as_repetend(blocks, index, found.start, found.period))
                if best.period == max(blocks.loads):
                    break
        if best is not None and best.period == max(blocks.loads):
            break
    if best is not None:
        orders = composed(search, best.index, best.start)
        if orders is not None:
            search.offer(orders)
    return best


def index_vectors(blocks: Blocks, count: int) -> Iterator[tuple[int, ...]]:
    """Vectors of indices count-1 .. 0, not growing along the chain of blocks, each index used."""
    chain = _chain(blocks)
    for cuts in combinations(range(1, blocks.n), count - 1):
        index = [0] * blocks.n
        for place, block in enumerate(chain):
            index[block] = sum(place < cut for cut in cuts)
        yield tuple(index)


def _chain(blocks: Blocks) -> list[int]:
    """Blocks by earliest start, then first device: one topological order."""
    early = [0] * blocks.n
    table = blocks.table
    for i in table.order.tolist():
        for e in range(table.before_ptr[i], table.before_ptr[i + 1]):
            before = int(table.before_of[e])
            early[i] = max(early[i], early[before] + blocks.blocks[before].span + int(table.before_lag[e]))
    return sorted(range(blocks.n), key=lambda i: (early[i], blocks.blocks[i].devices[0], i))


def _solve_vector(search: ScheduleSearch, index: tuple[int, ...], most: int | None) -> SolvedRepetend | None:
    """The least period of a vector that is at most `most`, by bisection."""
    blocks = search.blocks
    held = held_memory(blocks, index)
    if any(h > lane.room for h, lane in zip(held, blocks.devices, strict=True) if not lane.link):
        return None
    phase = Phase(search, list(enumerate(index)), held)
    period = phase.integer("period")
    for device in range(len(blocks.devices)):
        mine = [i for i, block in enumerate(blocks.blocks) if device in block.devices]
        first = phase.integer(f"first{device}")
        phase.solver.add([phase.start[i, index[i]] >= first for i in mine])
        phase.solver.add([phase.end((i, index[i])) - first <= period for i in mine])
    for source, target, lag in blocks.edges:
        back = index[source] - index[target]
        if back > 0:
            begin = phase.start[target, index[target]]
            phase.solver.add(begin + back * period >= phase.end((source, index[source])) + lag)
    _add_stride(phase)
    low = max(blocks.loads)
    high = sum(block.span for block in blocks.blocks) + sum(lag for _, _, lag in blocks.edges)
    high = high if most is None else min(most, high)
    best, top = None, high
    while low <= top and not _is_over(search):
        middle = top if best is None else (low + top) // 2
        found = phase.check(period <= middle)
        if found is None:
            if best is None:
                return None
            low = middle + 1
        else:
            start = tuple(found[i, index[i]] for i in range(blocks.n))
            best = SolvedRepetend(index, start, _period(blocks, index, start))
            top = best.period - 1
    return best


def _add_stride(phase: Phase) -> None:
    """No step inside the repetend where all devices idle; with latencies such a step may be needed."""
    if any(lag for _, _, lag in phase.blocks.edges):
        return
    for op, start in phase.start.items():
        running = [phase.z3.And(other < start, start <= phase.end(j)) for j, other in phase.start.items() if j != op]
        phase.solver.add(phase.z3.Or(start == 0, *running))


def _period(blocks: Blocks, index: Sequence[int], start: Sequence[int]) -> int:
    """The least period with which these starts repeat."""
    period = 1
    for device in range(len(blocks.devices)):
        mine = [i for i, block in enumerate(blocks.blocks) if device in block.devices]
        if mine:
            last = max(start[i] + blocks.blocks[i].span for i in mine)
            period = max(period, last - min(start[i] for i in mine))
    for source, target, lag in blocks.edges:
        back = index[source] - index[target]
        if back > 0:
            late = start[source] + blocks.blocks[source].span + lag - start[target]
            period = max(period, -(-late // back))
    return period


def _completes(search: ScheduleSearch, index: Sequence[int]) -> bool:
    """Whether warmup and cooldown can be ordered within memory at all."""
    held = held_memory(search.blocks, index)
    if Phase(search, warmup(index), [0] * len(held)).check() is None:
        return False
    return Phase(search, cooldown(index), held).check() is not None


def _counts(search: ScheduleSearch) -> range:
    """Numbers of indices to try: not more than blocks, or than a device could hold of its smallest change."""
    most = min(search.blocks.n, search.micro_batches)
    for device, lane in enumerate(search.blocks.devices):
        taken = [
            change
            for block in search.blocks.blocks
            for d, change in zip(block.devices, block.memory, strict=True)
            if d == device and change > 0
        ]
        if taken and not lane.link and lane.room < NO_LIMIT:
            most = min(most, max(1, -(-lane.room // min(taken))))
    return range(1, most + 1)


def _is_over(search: ScheduleSearch) -> bool:
    left = search.seconds_left
    return left is not None and left <= 0


def _solve_lazy(search: ScheduleSearch) -> None:
    need_balance(search.blocks)
    if lazy_search(search, _counts(search)) is None:
        raise InfeasibleError("Tessel's lazy search found no repetend within the limits", conflicts=search.refused)


def compact(blocks: Blocks) -> list[int]:
    """Block -> its start in the repetend, dependencies ignored."""
    rank = {int(i): k for k, i in enumerate(blocks.table.order)}
    busy: list[list[tuple[int, int]]] = [[] for _ in blocks.devices]
    start: dict[int, int] = {}
    for device in range(len(blocks.devices)):
        mine = [i for i, block in enumerate(blocks.blocks) if device in block.devices]
        mine.sort(key=lambda i: (_side(blocks, i), rank[i]), reverse=device % 2 == 1)
        for i in mine:
            if i not in start:
                taken = sorted(pair for d in blocks.blocks[i].devices for pair in busy[d])
                start[i] = _first_free(taken, blocks.blocks[i].span)
                for d in blocks.blocks[i].devices:
                    busy[d].append((start[i], start[i] + blocks.blocks[i].span))
    return [start[i] for i in range(blocks.n)]


def _side(blocks: Blocks, i: int) -> int:
    """Forward blocks on several devices first, backward blocks on several devices last."""
    block = blocks.blocks[i]
    return 0 if len(block.devices) == 1 else -1 if block.kind == "F" else 1


def _first_free(taken: list[tuple[int, int]], span: int) -> int:
    free = 0
    for begin, end in taken:
        if begin >= free + span:
            break
        free = max(free, end)
    return free


def backward_indices(blocks: Blocks, start: list[int], period: int) -> list[int]:
    """Block -> its micro-batch index: as many more than a successor as periods are missing between the two."""
    table = blocks.table
    index = [0] * blocks.n
    for i in reversed(table.order.tolist()):
        for e in range(table.after_ptr[i], table.after_ptr[i + 1]):
            after = int(table.after_of[e])
            late = start[i] + blocks.blocks[i].span + int(table.after_lag[e]) - start[after]
            index[i] = max(index[i], index[after] + max(0, -(-late // period)))
    return index


def _work(blocks: Blocks, operations: list[Operation]) -> int:
    spans = [0] * len(blocks.devices)
    for i, _ in operations:
        for device in blocks.blocks[i].devices:
            spans[device] += blocks.blocks[i].span
    return max(spans)


def _solve_fast(search: ScheduleSearch) -> None:
    blocks = search.blocks
    need_balance(blocks)
    load_z3()
    start = compact(blocks)
    period = max(begin + block.span for begin, block in zip(start, blocks.blocks, strict=True))
    index = backward_indices(blocks, start, period)
    parameters = search.parameters(TesselFastParameters)
    slack = parameters.accept_share * period * parameters.accept_periods
    good = (_work(blocks, warmup(index)) + slack, _work(blocks, cooldown(index)) + slack)
    orders = composed(search, index, start, good) if max(index) < search.micro_batches else None
    if orders is not None:
        search.offer(orders)
    if search.offer_repetend(as_repetend(blocks, index, start, period)) is None:
        raise InfeasibleError(
            "Tessel-fast compacts without a look at memory, and it does not fit", conflicts=search.refused
        )


SCHEDULER_LAZY = Scheduler(
    "tessel-lazy",
    "Tessel (HPCA 2024): repetend enumeration and lazy completion by z3",
    _solve_lazy,
    parameters=TesselLazyParameters,
)
SCHEDULER_FAST = Scheduler(
    "tessel-fast",
    "Tessel-fast (TPDS 2024): compaction, indices backwards, early accept by z3",
    _solve_fast,
    parameters=TesselFastParameters,
)
SCHEDULERS = (SCHEDULER_LAZY, SCHEDULER_FAST)
