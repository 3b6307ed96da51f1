"""Periods and makespans by memory: what a micro-batch holds, for as long as it must, and what stays empty for certain.

In: blocks and a witness for one device. Out: a number that no period (an exact fraction) or no makespan is below.
Simplified: one device by itself, and only where every micro-batch gives back all that it takes there.

**Held.** A transport plan pairs what is taken with what is given back: amounts x(i, j) > 0 with a path from block i to
block j, which use up every change exactly. A micro-batch then holds x(i, j) from the start of i to the start of j, so
in all, over time, at least H = sum of x(i, j) * longest path(i, j). Any plan is valid; the witness holds a good one.

**Period** (`memory`). Let block y follow block x on the device. While x runs, the level is at most room - max(what x
gives back, what y takes): before x and after the start of y it is at most room. In a pattern of U micro-batches who
follows whom is a permutation of U * n blocks, so at least U * E stays empty, E the cheapest assignment of cost(x, y) =
span(x) * max(0, given(x), taken(y)). Numbers u(x), v(y) with u + v <= cost everywhere show E >= sum of u + sum of v.
The pattern gives back all it takes, so over one repetition of length U * P: room * U * P >= U * H + U * E.

**Makespan** (`area`). From the first head of the device to the end M, the level is at most room, and there stay empty:
what a block gives back, while it runs; what the block before a taking block leaves beyond that, max(0, taken(y) -
given(x)) * span(x) for the cheapest x, for every taking operation but the first operation of all (another one pays for
each, as each operation is followed by one); and all of room from the start of the last operation on, whose block has no
follower on the device, until M, at least its span and its tail. So room * (M - head) >= N * (H + empty) - one + last.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from weftline.certify.allowance import Allowance
from weftline.certify.block_paths import blocks_of_device, longest_paths
from weftline.certify.problem import MAX_NUMBER, need, rows, whole
from weftline.certify.schedule_blocks import ScheduleBlocks

__all__ = ["area_bound", "memory_bound"]


def memory_bound(blocks: ScheduleBlocks, witness: dict[str, Any], allowance: Allowance) -> Fraction:
    """`{"kind": "memory", "device", "plan": [[take, give, amount], ...], "rows", "columns"}`"""
    device = whole(witness["device"], "device", 0, len(blocks.on) - 1)
    held = _held(blocks, device, witness["plan"], allowance)
    for other, mine in enumerate(blocks.on):
        balanced = sum(blocks.memory[i][other] for i in mine) == 0
        need(balanced, "witness", f"nothing repeats for ever: device {other} does not get back what it gives")
    mine, room = blocks.on[device], _room(blocks, device)
    u, v = ([whole(x, "dual", -MAX_NUMBER) for x in rows(witness[name], name)] for name in ("rows", "columns"))
    need(len(u) == len(v) == len(mine), "witness", "needs a number for every block of the device, twice")
    # alike blocks have one limit: the largest of their numbers must keep it
    most: dict[tuple[int, int], int] = {}
    next_most: dict[int, int] = {}
    for i, x, y in zip(mine, u, v, strict=True):
        change = blocks.memory[i][device]
        key = blocks.span[i], max(0, -change)
        most[key] = max(most.get(key, x), x)
        next_most[max(0, change)] = max(next_most.get(max(0, change), y), y)
    allowance.spend("steps", len(most) * len(next_most))
    for (span, given), x in most.items():
        for taken, y in next_most.items():
            need(x + y <= span * max(given, taken), "witness", "the numbers promise more than stays empty")
    return Fraction(held + max(0, sum(u) + sum(v)), room)


def area_bound(blocks: ScheduleBlocks, count: int, witness: dict[str, Any], allowance: Allowance, alone: bool) -> int:
    """`{"kind": "area", "device", "plan": [[take, give, amount], ...]}`"""
    device = whole(witness["device"], "device", 0, len(blocks.on) - 1)
    held, room = _held(blocks, device, witness["plan"], allowance), _room(blocks, device)
    own = blocks_of_device(blocks, device, allowance, alone=alone)
    need(own.between is not None, "witness", "too many blocks")
    assert own.between is not None
    given = [max(0, -change) for change in own.change]
    empty = sum(g * span for g, span in zip(given, own.span, strict=True))
    allowance.spend("steps", len(own.span) ** 2)
    before = [
        min(max(0, taken - g) * span for g, span in zip(given, own.span, strict=True))
        for taken in own.change
        if taken > 0
    ]
    last = [i for i, row in enumerate(own.between) if all(t <= 0 for t in row)]
    ends = min((room - given[i]) * own.span[i] + room * own.tail[i] for i in last)
    total = count * (held + empty + sum(before)) - max(before, default=0) + ends
    return min(own.head) + -(-total // room)


def _room(blocks: ScheduleBlocks, device: int) -> int:
    limit = blocks.limit[device]
    need(limit is not None and limit > blocks.reserved[device], "witness", f"device {device} has no limit, or no room")
    assert limit is not None
    return limit - blocks.reserved[device]


def _held(blocks: ScheduleBlocks, device: int, given: Any, allowance: Allowance) -> int:
    """Amounts times longest paths, and that they use up every change."""
    left = {i: blocks.memory[i][device] for i in blocks.on[device]}
    paths: dict[int, list[int]] = {}
    held = 0
    for row in rows(given, "plan"):
        need(len(rows(row, "plan")) == 3, "witness", "a row of the plan is [take, give, amount]")
        i, j = (whole(block, "block of the plan", 0, blocks.n - 1) for block in row[:2])
        amount = whole(row[2], "amount", 1)
        need(i in left and j in left, "witness", "a block of the plan is not on the device")
        if i not in paths:
            paths[i] = longest_paths(blocks, i, allowance)
        need(i != j and paths[i][j] >= 0, "witness", f"block {j} does not wait for block {i}")
        left[i] -= amount
        left[j] += amount
        held += amount * paths[i][j]
    changes = blocks.memory
    need(not any(left.values()), "witness", "the plan does not use up all changes of memory")
    takes = {row[0] for row in given}
    need(all(changes[i][device] > 0 for i in takes), "witness", "what gives back takes nothing")
    need(all(changes[row[1]][device] < 0 for row in given), "witness", "what takes gives nothing back")
    return held
