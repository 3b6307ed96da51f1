"""Cyclic orders to start a search from: made at once, often without idle time but beyond the memory limits.

In: blocks, U, dice. Out: starts of U micro-batches for a given length of the repetition, in which edges hold but blocks
may overlap: only their order matters. Modulo placement puts block after block into the first free slot of the
repeating window; compaction fills the window without looking at edges and lets lags make good for that; projection
reads a few micro-batches from the middle of a finished schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from weftline.problem.blocks import Blocks
from weftline.schedule.list_rules import ListRun, list_variants
from weftline.simulate import Orders, Timetable, simulate_schedule

__all__ = ["compaction", "list_timetables", "modulo_placement", "projection"]

MOST_VARIANTS = 48
"""List rules that are tried."""
MOST_OPERATIONS = 6000
"""Of a schedule that is made to be projected."""
MOST_LOOKS = 64
"""Candidate slots that a block looks at before it overlaps."""


class Window:
    """The repeating window: per device the intervals that are taken, by their start."""

    def __init__(self, blocks: Blocks, length: int) -> None:
        self.length = length
        self.taken: list[list[tuple[int, int]]] = [[] for _ in blocks.devices]

    def first_free(self, devices: tuple[int, ...], span: int, ready: int) -> int | None:
        """The earliest start from `ready` on that overlaps nothing, within one length."""
        ends = {ready}
        for device in devices:
            for start, width in self.taken[device]:
                ends.add(ready + (start + width - ready) % self.length)
        for start in sorted(ends)[:MOST_LOOKS]:
            if all(self._is_free(device, span, start % self.length) for device in devices):
                return start
        return None

    def take(self, devices: tuple[int, ...], span: int, start: int) -> None:
        """Mark the slot as taken."""
        for device in devices:
            self.taken[device].append((start % self.length, span))

    def _is_free(self, device: int, span: int, phase: int) -> bool:
        for start, width in self.taken[device]:
            distance = (phase - start) % self.length
            if distance < width or distance + span > self.length:
                return False
        return True


def modulo_placement(blocks: Blocks, copies: int, length: int, dice: Random | None = None) -> list[float]:
    """Blocks in a topological order (of the dice, if any), each into the first free slot after what it waits for.

    Copy u begins u / copies of the length later.
    """
    window, n = Window(blocks, length), blocks.n
    starts = [0] * (copies * n)
    ready = [length * (item // n) // copies for item in range(copies * n)]
    table = blocks.table
    for block in _order(blocks, dice):
        for copy in range(copies):
            item = copy * n + block
            what = blocks.blocks[block]
            free = window.first_free(what.devices, what.span, ready[item])
            starts[item] = ready[item] if free is None else free
            window.take(what.devices, what.span, starts[item])
            for e in range(table.after_ptr[block], table.after_ptr[block + 1]):
                after = copy * n + int(table.after_of[e])
                ready[after] = max(ready[after], starts[item] + what.span + int(table.after_lag[e]))
    return [float(start) for start in starts]


def compaction(blocks: Blocks, copies: int, length: int, dice: Random) -> list[float]:
    """Blocks on many devices first, then the others in any order, without edges; then as few lags as edges need."""
    window, n = Window(blocks, length), blocks.n
    items = [(len(blocks.blocks[i % n].devices), dice.random(), i) for i in range(copies * n)]
    phase = [0] * (copies * n)
    for _, _, item in sorted(items, key=lambda row: (-row[0], row[1])):
        what = blocks.blocks[item % n]
        free = window.first_free(what.devices, what.span, 0)
        phase[item] = 0 if free is None else free % length
        window.take(what.devices, what.span, phase[item])
    starts = [float(p) for p in phase]
    table = blocks.table
    for block in reversed(table.order.tolist()):  # from the end, so that everything is as late as its successors allow
        for copy in range(copies):
            item, latest = copy * n + block, None
            for e in range(table.after_ptr[block], table.after_ptr[block + 1]):
                after = starts[copy * n + int(table.after_of[e])]
                limit = after - float(table.span[block]) - float(table.after_lag[e])
                latest = limit if latest is None else min(latest, limit)
            if latest is not None:
                starts[item] += length * ((latest - starts[item]) // length)
    return starts


def list_timetables(blocks: Blocks, most: int, is_over: Callable[[], bool]) -> list[Timetable]:
    """Long schedules of the best list rules, to be projected."""
    count = max(12, min(6 * len(blocks.devices) + 24, MOST_OPERATIONS // blocks.n))
    run = ListRun(blocks, count)
    made: dict[int, Orders] = {}
    variants = list_variants(blocks, count)
    for rules in variants[:: -(-len(variants) // MOST_VARIANTS)]:
        if is_over():
            break
        makespan = run.run(rules)
        if makespan >= 0:
            made.setdefault(makespan, run.orders())
    return [simulate_schedule(blocks, count, made[key]) for key in sorted(made)[:most]]


def projection(timetable: Timetable, copies: int, dice: Random) -> tuple[list[float], float] | None:
    """Starts of some micro-batches from the middle of a schedule, and the length that they suggest."""
    n, count = timetable.blocks.n, timetable.micro_batches
    if count < 4 * copies:
        return None
    first = (count - copies) // 3 + dice.randrange(1 + (count - copies) // 6)
    span = min(count - copies - first, copies * 4)
    starts = timetable.start.reshape(count, n)
    length = float(starts[first + span].mean() - starts[first].mean()) / span * copies if span else 0.0
    if length <= 0:
        return None
    return [float(s) for s in starts[first : first + copies].ravel()], length


def _order(blocks: Blocks, dice: Random | None) -> list[int]:
    """A topological order, of the numbers or of the dice."""
    if dice is None:
        return [int(i) for i in blocks.table.order]
    table = blocks.table
    waits = [int(table.before_ptr[i + 1] - table.before_ptr[i]) for i in range(blocks.n)]
    ready, order = [i for i in range(blocks.n) if not waits[i]], []
    while ready:
        order.append(ready.pop(dice.randrange(len(ready))))
        for e in range(table.after_ptr[order[-1]], table.after_ptr[order[-1] + 1]):
            after = int(table.after_of[e])
            waits[after] -= 1
            if not waits[after]:
                ready.append(after)
    return order
