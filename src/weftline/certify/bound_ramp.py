"""Makespans by the work of one device: what it can do before a time, what it can do behind another, and all the rest.

In: blocks, N, the name of a device and two times. Out: a number that no makespan (or device span) is below.
Simplified: one device by itself.

**Load** (`head`, `tail`). Blocks of the device with a head of at least h and a tail of at least t run one after
another in every schedule, after h and until t before the end: makespan >= h + N * (sum of their spans) + t.

**Ramp** (`begin`, `end`). Let A be at least the work that can have started on the device before time t, and B that can
end within the last q. Then makespan M >= t + q + W - A - B, W = N * load, where W > A + B. *Proof.* If M >= t + q, what
does not start before t and does not end behind M - q runs in between, one after another: W - A - B <= M - t - q. If
M < t + q, an operation that starts at t or later ends behind M - q, so all of W is counted in A or B: W <= A + B.

**A**: of each micro-batch, the blocks that start before t have heads below t, and with a block the set holds all that
it waits for (they start earlier, and have smaller heads): a closed set S. All changes of memory of the N sets add up to
the level after the last of them has started, so to `room` at most. Work of the N sets is
- at most N * the spans of all blocks with heads below t (`{}`);
- at most floor(N * max over S of (work(S) - p/q memory(S)) + p/q room), for every price p/q >= 0 (`{"price": [p, q]}`);
- where no set has negative memory, the best filling of `room` with N sets, by dynamic programming (`"exact"`).
**B**: the same in reverse. What ends within the last q has a tail below q, and everything that waits for it does too.
The level before these sets is N * (all changes) less theirs, at most `room`: minus their changes <= room - N * all.
"""

from __future__ import annotations

from math import gcd
from typing import Any

from weftline.certify.allowance import Allowance
from weftline.certify.block_paths import DeviceBlocks, blocks_of_device
from weftline.certify.problem import need, rows, whole
from weftline.certify.schedule_blocks import ScheduleBlocks

__all__ = ["load_bound", "ramp_bound"]

MOST_SETS = 2_000
MOST_CELLS = 4_000_000
"""Closed sets, and cells of dynamic programming, that are looked at."""


def load_bound(blocks: ScheduleBlocks, count: int, witness: dict[str, Any], allowance: Allowance, alone: bool) -> int:
    """`{"kind": "load", "device", "head", "tail"}`"""
    device = whole(witness["device"], "device", 0, len(blocks.on) - 1)
    own = blocks_of_device(blocks, device, allowance, alone=alone)
    head, tail = whole(witness["head"], "head"), whole(witness["tail"], "tail")
    ends = zip(own.span, own.head, own.tail, strict=True)
    work = sum(span for span, before, behind in ends if before >= head and behind >= tail)
    need(work > 0, "witness", "no block has such a head and tail")
    return head + count * work + tail


def ramp_bound(blocks: ScheduleBlocks, count: int, witness: dict[str, Any], allowance: Allowance, alone: bool) -> int:
    """`{"kind": "ramp", "device", "begin": {"time", "price" or "exact"}, "end": {...}}`"""
    device = whole(witness["device"], "device", 0, len(blocks.on) - 1)
    own = blocks_of_device(blocks, device, allowance, alone=alone)
    need(own.between is not None and own.room is not None, "witness", "the device has no limit, or too many blocks")
    assert own.between is not None
    assert own.room is not None
    begin, end = (whole(witness[side]["time"], "time") for side in ("begin", "end"))
    early = [i for i, head in enumerate(own.head) if head < begin]
    late = [i for i, tail in enumerate(own.tail) if tail < end]
    above = {i: [j for j in early if j != i and own.between[j][i] >= 0] for i in early}
    below = {i: [j for j in late if j != i and own.between[i][j] >= 0] for i in late}
    first = _most_work(own, above, own.change, own.room, count, witness["begin"], allowance)
    given = [-change for change in own.change]
    last = _most_work(own, below, given, own.room - count * sum(own.change), count, witness["end"], allowance)
    work = count * sum(own.span)
    need(work > first + last, "witness", "all work can be done in the two parts")
    return begin + end + work - first - last


def _most_work(
    own: DeviceBlocks,
    needs: dict[int, list[int]],
    change: list[int],
    room: int,
    count: int,
    how: dict[str, Any],
    allowance: Allowance,
) -> int:
    """Of `count` closed sets whose changes add up to `room` at most."""
    everything = count * sum(own.span[i] for i in needs)
    if not {"price", "exact"} & how.keys():
        return everything
    pairs = _closed_sets(own, needs, change, allowance)
    if "exact" in how:
        return min(everything, _best_filling(pairs, room, count, allowance))
    need(len(rows(how["price"], "price")) == 2, "witness", "a price is a fraction")
    price, unit = whole(how["price"][0], "price"), whole(how["price"][1], "unit of the price", 1)
    most = max(unit * work - price * memory for memory, work in pairs)
    return min(everything, (count * most + price * room) // unit)


def _closed_sets(
    own: DeviceBlocks, needs: dict[int, list[int]], change: list[int], allowance: Allowance
) -> list[tuple[int, int]]:
    """(memory, work) of all sets that hold what their members need."""
    needed = {i: sum(1 << j for j in others) for i, others in needs.items()}
    found, front = {0: (0, 0)}, [0]
    while front:
        here = front.pop()
        memory, work = found[here]
        allowance.spend("steps", 1 + len(needed))
        for i, others in needed.items():
            larger = here | 1 << i
            if others & ~here == 0 and larger not in found:
                found[larger] = memory + change[i], work + own.span[i]
                front.append(larger)
                need(len(found) <= MOST_SETS, "witness-size", f"more than {MOST_SETS} closed sets")
    return list(found.values())


def _best_filling(pairs: list[tuple[int, int]], room: int, count: int, allowance: Allowance) -> int:
    """The most work of `count` sets within `room`, in whole units of memory."""
    need(room >= 0 <= min(memory for memory, _ in pairs), "witness", "a set gives memory back, or there is none")
    unit = gcd(*(memory for memory, _ in pairs))
    need(unit > 0, "witness", "no set takes memory")
    works: dict[int, int] = {}
    for memory, work in pairs:
        works[memory // unit] = max(works.get(memory // unit, 0), work)
    kept = _rising(sorted(works.items()))
    cells = room // unit + 1
    need(cells * count * len(kept) <= MOST_CELLS, "witness-size", "too many cells")
    best = [0] * cells
    for _ in range(count):
        allowance.look()
        better = list(best)
        for size, work in kept:
            better[size:] = map(max, better[size:], [most + work for most in best[: max(0, cells - size)]])
        best = better
    return max(best)


def _rising(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Without those that take more memory for no more work."""
    kept: list[tuple[int, int]] = []
    for size, work in pairs:
        if not kept or work > kept[-1][1]:
            kept.append((size, work))
    return kept
