"""Cyclic orders to start a search from: made at once, often without idle time but beyond the memory limits.

In: blocks, U, dice. Out: starts of U micro-batches for a given length of the repetition, in which edges hold but blocks
may overlap: only their order matters. Modulo placement puts block after block into the first free slot of the
repeating window; compaction fills the window without looking at edges and lets lags make good for that; projection
reads a few micro-batches from the middle of a finished schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.problem.blocks import Blocks
from weftline.schedule.cyclic_window import compact, place_in_order
from weftline.schedule.list_rules import ListRun, list_variants
from weftline.simulate import Orders, Timetable, simulate_schedule

__all__ = ["compaction", "list_timetables", "modulo_placement", "projection"]

MOST_VARIANTS = 48
"""List rules that are tried."""
MOST_OPERATIONS = 6000
"""Of a schedule that is made to be projected."""


def modulo_placement(blocks: Blocks, copies: int, length: int, dice: Random | None = None) -> Ints:
    """Blocks in a topological order (of the dice, if any), each into the first free slot after what it waits for.

    Copy u begins u / copies of the length later.
    """
    return place_in_order(blocks.table, _order(blocks, dice), copies, length)


def compaction(blocks: Blocks, copies: int, length: int, dice: Random) -> Ints:
    """Blocks on many devices first, then the others in any order, without edges; then as few lags as edges need."""
    n = blocks.n
    items = [(-len(blocks.blocks[i % n].devices), dice.random(), i) for i in range(copies * n)]
    return compact(blocks.table, np.array([item for *_, item in sorted(items)]), copies, length)


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


def _order(blocks: Blocks, dice: Random | None) -> Indices:
    """A topological order, of the numbers or of the dice."""
    table = blocks.table
    if dice is None:
        return table.order
    waits = [int(table.before_ptr[i + 1] - table.before_ptr[i]) for i in range(blocks.n)]
    ready, order = [i for i in range(blocks.n) if not waits[i]], []
    while ready:
        order.append(ready.pop(dice.randrange(len(ready))))
        for e in range(table.after_ptr[order[-1]], table.after_ptr[order[-1] + 1]):
            after = int(table.after_of[e])
            waits[after] -= 1
            if not waits[after]:
                ready.append(after)
    return np.array(order, np.int32)
