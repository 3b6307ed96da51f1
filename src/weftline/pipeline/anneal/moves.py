"""Moves of an annealer: which there are, what they change, and how they are made. Parts of one kernel.

Where transfers are flat a move changes two blocks, in time proportional to the piece's degree; where links differ it
may change any block.
"""

from __future__ import annotations

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.pipeline.anneal.state import (
    BEFORE,
    COLUMN,
    COMPUTE,
    DEVICE,
    ENTER,
    HELD,
    LEAVE,
    LEVEL,
    LOOSE,
    MAKES,
    MORE_ENTER,
    MORE_LEAVE,
    MORE_LINKS,
    NEXT,
    NUMBER,
    READS,
    SIZE,
    SPOT,
    USED,
    block_cost,
)
from weftline.simulate.kernels.jit import part

__all__ = ["energy_of", "levels_of", "loosen", "loosen_around", "shift", "tighten", "weigh_flat", "weigh_links"]


@part
def energy_of(cost: int, held: int, room: int, target: float) -> float:
    """How much a block is above the target, and above its memory."""
    result = 0.0
    x = cost / target - 1.0
    if x > 0.0:
        result = 1e4 * x * x + 10.0 * x
    if held > room:
        y = (held - room) / np.float64(max(room, 1))
        result += 1e4 * y * y + 10.0 * y + 1.0
    return result


@part
def levels_of(span: Indices, near: Indices, who: Indices, p: int, top: int) -> tuple[int, int]:
    """The levels between a piece's predecessors and its successors."""
    low, high = 0, top
    for e in range(span[p, BEFORE], span[p, BEFORE + 1]):
        low = max(low, who[near[e], LEVEL])
    for e in range(span[p, NEXT], span[p, NEXT + 1]):
        high = min(high, who[near[e], LEVEL])
    return low, high


@part
def weigh_flat(
    span: Indices, near: Indices, wire: Ints, readers: Indices, who: Indices, block: Ints, p: int, a: int, b: int
) -> None:
    """Write down what enters and leaves more in columns a and b when a piece moves from a to b."""
    columns = len(block)
    enter_a, enter_b, leave_a, leave_b = 0, 0, 0, 0
    for e in range(span[p, MAKES], span[p, MAKES + 1]):
        t = near[e]
        time, spread = wire[t], readers[t, columns]
        in_a, in_b = readers[t, a] > 0, readers[t, b] > 0
        if in_b:
            enter_b -= time
            spread_b = spread - 1
        else:
            spread_b = spread
        if in_a:
            enter_a += time
            spread -= 1
        if spread > 0:
            leave_a -= time
        if spread_b > 0:
            leave_b += time
    for e in range(span[p, READS], span[p, READS + 1]):
        t = near[e]
        time, spread = wire[t], readers[t, columns]
        home = who[readers[t, columns + 1], COLUMN]
        if home == a:
            if spread == 1:
                leave_a += time
        elif readers[t, a] == 1:
            enter_a -= time
        if home == b:
            if readers[t, a] == 1 and spread == (2 if readers[t, b] > 0 else 1):
                leave_b -= time
        elif readers[t, b] == 0:
            enter_b += time
    block[a, MORE_ENTER] = enter_a
    block[b, MORE_ENTER] = enter_b
    block[a, MORE_LEAVE] = leave_a
    block[b, MORE_LEAVE] = leave_b


@part
def weigh_links(
    span: Indices,
    near: Indices,
    kind: Indices,
    transfer: Ints,
    readers: Indices,
    who: Indices,
    block: Ints,
    counts: Ints,
    p: int,
    a: int,
    b: int,
) -> None:
    """The same for all columns, where links differ."""
    columns = len(block)
    for c in range(columns):
        block[c, MORE_ENTER] = 0
        block[c, MORE_LEAVE] = 0
    counts[MORE_LINKS] = 0
    for e in range(span[p, MAKES], span[p, MAKES + 1]):
        t = near[e]
        _add_tensor(transfer[kind[t]], readers[t], block, counts, a, -1)
        _add_tensor(transfer[kind[t]], readers[t], block, counts, b, 1)
    for e in range(span[p, READS], span[p, READS + 1]):
        t = near[e]
        home = who[readers[t, columns + 1], COLUMN]
        _add_tensor(transfer[kind[t]], readers[t], block, counts, home, -1)
        readers[t, a] -= 1
        readers[t, b] += 1
        _add_tensor(transfer[kind[t]], readers[t], block, counts, home, 1)
        readers[t, a] += 1
        readers[t, b] -= 1


@part
def _add_tensor(time: Ints, readers: Indices, block: Ints, counts: Ints, home: int, sign: int) -> None:
    """Count one tensor made in column `home` among the changes."""
    dearest = 0
    for c in range(len(block)):
        if c != home and readers[c] > 0:
            length = time[block[home, DEVICE], block[c, DEVICE]]
            if length < 0:
                counts[MORE_LINKS] += sign
                length = 0
            block[c, MORE_ENTER] += sign * length
            dearest = max(dearest, length)
    block[home, MORE_LEAVE] += sign * dearest


@part
def changed_energy(
    block: Ints, room: Ints, c: int, time: int, held: int, paid: bool, overlapped: bool, target: float
) -> float:
    """Energy of a column after the weighed changes, some compute and some bytes more."""
    enter, leave = block[c, ENTER] + block[c, MORE_ENTER], block[c, LEAVE] + block[c, MORE_LEAVE]
    cost = block_cost(paid, overlapped, block[c, COMPUTE] + time, enter, leave)
    return energy_of(cost, block[c, HELD] + held, room[block[c, DEVICE]], target)


@part
def shift(
    span: Indices,
    near: Indices,
    cost: Ints,
    readers: Indices,
    who: Indices,
    block: Ints,
    member: Indices,
    counts: Ints,
    p: int,
    b: int,
    level: int,
    gone: int,
    come: int,
) -> None:
    """Make the weighed move of a piece; `gone` and `come` are bytes that leave one block and enter the other."""
    columns, a = len(block), who[p, COLUMN]
    counts[USED] += (1 if block[b, SIZE] == 0 else 0) - (1 if block[a, SIZE] == 1 else 0)
    block[a, HELD] -= gone
    block[b, HELD] += come
    block[a, ENTER] += block[a, MORE_ENTER]
    block[a, LEAVE] += block[a, MORE_LEAVE]
    block[b, ENTER] += block[b, MORE_ENTER]
    block[b, LEAVE] += block[b, MORE_LEAVE]
    who[p, COLUMN] = b
    who[p, LEVEL] = level
    block[a, COMPUTE] -= cost[p, block[a, DEVICE]]
    block[b, COMPUTE] += cost[p, block[b, DEVICE]]
    block[a, SIZE] -= 1
    last = member[a, block[a, SIZE]]
    member[a, who[p, SPOT]] = last
    who[last, SPOT] = who[p, SPOT]
    member[b, block[b, SIZE]] = p
    who[p, SPOT] = block[b, SIZE]
    block[b, SIZE] += 1
    for e in range(span[p, READS], span[p, READS + 1]):
        t = near[e]
        readers[t, a] -= 1
        if readers[t, a] == 0:
            readers[t, columns] -= 1
        if readers[t, b] == 0:
            readers[t, columns] += 1
        readers[t, b] += 1


@part
def loosen(who: Indices, loose: Indices, counts: Ints, p: int) -> None:
    """A piece may be able to move again."""
    if who[p, LOOSE] < 0:
        loose[counts[NUMBER]] = p
        who[p, LOOSE] = counts[NUMBER]
        counts[NUMBER] += 1


@part
def loosen_around(span: Indices, near: Indices, who: Indices, loose: Indices, counts: Ints, p: int) -> None:
    """A piece that moved, and all whose levels it limits."""
    loosen(who, loose, counts, p)
    for e in range(span[p, BEFORE], span[p, NEXT - 1]):
        loosen(who, loose, counts, near[e])
    for e in range(span[p, NEXT], span[p, NEXT + 1]):
        loosen(who, loose, counts, near[e])


@part
def tighten(who: Indices, loose: Indices, counts: Ints, p: int) -> None:
    """A piece cannot move."""
    spot = who[p, LOOSE]
    counts[NUMBER] -= 1
    last = loose[counts[NUMBER]]
    loose[spot] = last
    who[last, LOOSE] = spot
    who[p, LOOSE] = -1
