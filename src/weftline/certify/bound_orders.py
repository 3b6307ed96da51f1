"""Makespans by a tree over orders: no schedule of N micro-batches ends before a target, whoever goes first.

In: blocks, N, a target, a tree. Out: whether the tree leaves no schedule. Simplified: makespans alone, and few
operations; memory counts through the order of operations on a device.

**Alike.** Micro-batches do not differ, so it is enough to look at schedules in which each block starts them in the
order of their numbers: sort the starts of every block. An edge a -> b holds for the sorted starts too (the k-th
smallest start of b is at least the k-th smallest of a plus the wait), and devices and memory do not see numbers.

**A state** is a set of decided orders "x ends before y starts". Let H = target - 1. All of these hold in every schedule
that keeps the orders and ends within H, so a state in which one fails has no schedule:
- head(y) >= head(x) + span(x) + latency along edges; and on a device of y, of all operations that must come before it
  there, those with heads of at least h run one after another: head(y) >= h + their spans. Tails in reverse.
- head + span + tail <= H; and of operations of a device with heads >= h and tails >= t: h + their spans + t <= H.
- x and y of one device: if head(x) + span(x) + span(y) + tail(y) > H, x is not first, so y is.
- Memory: when y takes, the level is its change, those of all operations that must come before it, and of some of those
  that may. With all that give back among these it is least; that must fit. Where it does not fit without one that
  gives, that one comes before y; where it does not fit with one more that takes, that one comes behind y.

**A tree** is a list in preorder: `[x, y]`, two operations (micro-batch * blocks + block) of one device: x first, then y
first; `0`: the rules above already leave nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weftline.certify.allowance import Allowance
from weftline.certify.problem import need, rows, whole
from weftline.certify.schedule_blocks import ScheduleBlocks

__all__ = ["OrderState", "first_state", "orders_bound"]

MOST_OPERATIONS = 400


class OrderState:
    """Decided orders, with heads and tails; `ends_within` draws conclusions until nothing changes."""

    def __init__(self, blocks: ScheduleBlocks, count: int, horizon: int) -> None:
        self.blocks, self.n, self.size, self.horizon = blocks, blocks.n, blocks.n * count, horizon
        self.span = [blocks.span[op % self.n] for op in range(self.size)]
        self.on = [[k * self.n + i for k in range(count) for i in mine] for mine in blocks.on]
        """Device -> its operations."""
        self.masks = [sum(1 << op for op in mine) for mine in self.on]
        self.devices: list[list[int]] = [[] for _ in range(self.size)]
        for device, mine in enumerate(self.on):
            for op in mine:
                self.devices[op].append(device)
        self.enters: list[list[tuple[int, int]]] = [[] for _ in range(self.size)]
        self.leaves: list[list[tuple[int, int]]] = [[] for _ in range(self.size)]
        self.above, self.below = [0] * self.size, [0] * self.size
        """Operation -> those that must come before it, and behind it, as bits."""
        self.head, self.tail = [0] * self.size, [0] * self.size

    def copy(self) -> OrderState:
        """To be changed apart from this one."""
        other = object.__new__(OrderState)
        other.__dict__.update(self.__dict__)
        other.above, other.below = list(self.above), list(self.below)
        other.head, other.tail = list(self.head), list(self.tail)
        return other

    def put(self, x: int, y: int) -> bool:
        """x before y, with all that follows; false if y is before x already."""
        if self.below[x] >> y & 1:
            return True
        if x == y or self.below[y] >> x & 1:
            return False
        first, last = self.above[x] | 1 << x, self.below[y] | 1 << y
        for op in _bits(last):
            self.above[op] |= first
        for op in _bits(first):
            self.below[op] |= last
        return True

    def ends_within(self, allowance: Allowance) -> bool:
        """False: no schedule keeps these orders and ends within the horizon."""
        changed = True
        while changed:
            allowance.spend("steps", self.size)
            allowance.look()
            if not self._times():
                return False
            changed = False
            for device, mine in enumerate(self.on):
                if not self._is_full(mine):
                    return False
                for new in (self._forced(mine), self._by_memory(device, mine)):
                    if new is None or not all(self.put(x, y) for x, y in new):
                        return False
                    changed = changed or bool(new)
        return True

    def _times(self) -> bool:
        """Heads and tails."""
        order = sorted(range(self.size), key=lambda op: self.above[op].bit_count())
        for op in order:
            self._raise(op, self.head, self.enters[op], self.above[op])
        for op in sorted(range(self.size), key=lambda op: self.below[op].bit_count()):
            self._raise(op, self.tail, self.leaves[op], self.below[op])
        return all(h + s + t <= self.horizon for h, s, t in zip(self.head, self.span, self.tail, strict=True))

    def _raise(self, op: int, times: list[int], edges: list[tuple[int, int]], others: int) -> None:
        best = times[op]
        for other, lag in edges:
            best = max(best, times[other] + self.span[other] + lag)
        for device in self.devices[op]:
            work = 0
            there = _bits(others & self.masks[device])
            for other in sorted(there, key=times.__getitem__, reverse=True):
                work += self.span[other]
                best = max(best, times[other] + work)
        times[op] = best

    def _is_full(self, mine: list[int]) -> bool:
        """Do operations with late heads and long tails find room?"""
        by_tail = sorted(mine, key=lambda op: -self.tail[op])
        for head in {self.head[op] for op in mine}:
            work = 0
            for op in by_tail:
                if self.head[op] >= head:
                    work += self.span[op]
                    if head + work + self.tail[op] > self.horizon:
                        return False
        return True

    def _forced(self, mine: list[int]) -> list[tuple[int, int]] | None:
        """Pairs of which only one order is left; None if none is left of some."""
        found = []
        for place, x in enumerate(mine):
            known = self.above[x] | self.below[x]
            for y in mine[place + 1 :]:
                if known >> y & 1:
                    continue
                both = self.span[x] + self.span[y] - self.horizon
                x_first = self.head[x] + both + self.tail[y] <= 0
                y_first = self.head[y] + both + self.tail[x] <= 0
                if not x_first and not y_first:
                    return None
                if not x_first or not y_first:
                    found.append((x, y) if x_first else (y, x))
        return found

    def _by_memory(self, device: int, mine: list[int]) -> list[tuple[int, int]] | None:
        """Orders without which memory does not suffice; None if it never does."""
        limit = self.blocks.limit[device]
        if limit is None:
            return []
        room = limit - self.blocks.reserved[device]
        change = {op: self.blocks.memory[op % self.n][device] for op in mine}
        found = []
        for y in mine:
            if change[y] <= 0:
                continue
            before, open_ones = 0, []
            for x in mine:
                if self.above[y] >> x & 1:
                    before += change[x]
                elif x != y and not self.below[y] >> x & 1 and change[x]:
                    open_ones.append(x)
            least = before + change[y] + sum(min(0, change[x]) for x in open_ones)
            if least > room:
                return None
            for x in open_ones:
                if least + abs(change[x]) > room:
                    found.append((x, y) if change[x] < 0 else (y, x))
        return found


def first_state(blocks: ScheduleBlocks, count: int, horizon: int) -> OrderState:
    """Edges, and micro-batches of a block in the order of their numbers."""
    need(blocks.n * count <= MOST_OPERATIONS, "witness-size", f"more than {MOST_OPERATIONS} operations")
    state = OrderState(blocks, count, horizon)
    for first in range(0, state.size, blocks.n):
        for a in blocks.order:
            for b, lag in blocks.after[a]:
                state.put(first + a, first + b)
                state.enters[first + b].append((first + a, lag))
                state.leaves[first + a].append((first + b, lag))
            if first:
                state.put(first - blocks.n + a, first + a)
    return state


def _bits(mask: int) -> list[int]:
    """Numbers of the bits that are set."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def orders_bound(blocks: ScheduleBlocks, count: int, witness: dict[str, Any], allowance: Allowance, alone: bool) -> int:
    """`{"kind": "orders", "target", "tree"}`"""
    need(not alone, "witness", "orders are for makespans")
    target = whole(witness["target"], "target", 1)
    waiting: list[Callable[[], OrderState | None]] = [lambda: first_state(blocks, count, target - 1)]
    for node in rows(witness["tree"], "tree"):
        allowance.spend("nodes")
        need(bool(waiting), "witness", "the tree goes on behind its end")
        state = waiting.pop()()
        leaves = state is None or not state.ends_within(allowance)
        if node == 0 and type(node) is int:
            need(leaves, "witness", "a leaf leaves a schedule")
            continue
        x, y = (whole(op, "operation", 0, blocks.n * count - 1) for op in rows(node, "node"))
        shared = x != y and set(blocks.memory[x % blocks.n]) & set(blocks.memory[y % blocks.n])
        need(bool(shared), "witness", "two operations of a node share no device")
        waiting += [_then(state, y, x), _then(state, x, y)]
    need(not waiting, "witness", "the tree ends early")
    return target


def _then(state: OrderState | None, x: int, y: int) -> Callable[[], OrderState | None]:
    """The state with one more order, made when its turn comes."""

    def made() -> OrderState | None:
        other = None if state is None else state.copy()
        return other if other is not None and other.put(x, y) else None

    return made
