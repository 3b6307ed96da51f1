"""A block of a latency problem and a horizon: when can each op run, and where, if all of it must end in time?

A block is a set of ops with, perhaps, an op before it (`first`, which ended just now and takes no time) and an op after
it (`last`). Every plan of the whole problem, seen between the ends of these two, is a plan of the block: what else runs
there only occupies more. An item is what occupies a resource: an op its device; a transfer the send port, the receive
port and the bus. Items of 0 ns occupy nothing and are none.

Of every op i and device k: `head` (no plan within the horizon starts i on k earlier) and `tail` (from that start to the
end of the block). Both by paths: of an input whose maker may stand on several devices the least arrival counts. Then
- what has head + tail > horizon is struck out; ops that must stay together keep the devices that all of them have;
- an op whose weights do not fit beside what certainly stands on a device is struck out there;
- of two certain items x, y of one resource x cannot come first if head(x) + length(x) + length(y) + after(y) > horizon:
  then y ends before x begins. All that ends before x occupies its resource one after another, so x begins no earlier
  than these can be through; the same from behind.
This is repeated until nothing changes, at most so many times: every state on the way is valid.

In: the embedded problem, ops, devices of the ends, a horizon. Out: states, or that no plan meets the horizon.
Simplified: memory is weights alone; tied weights and activations are ignored, which only allows more plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest, nsmallest
from operator import itemgetter
from typing import NamedTuple

from weftline.certify.problem import NO_WAY, PlanProblem

__all__ = ["BlockItem", "BlockState", "ChainBlock", "begin_block", "shrink"]

MOST_ROUNDS = 60
"""Of one propagation: heads may creep."""


class BlockItem(NamedTuple):
    """Something that certainly occupies a resource."""

    name: int
    """The op, or n + tensor x K + target, or n + edge."""
    head: int
    length: int
    after: int
    """From its end to the end of the block, at least."""


class ChainBlock:
    """Ops with their ends, ascending and numbered anew, and all that counts about them."""

    def __init__(self, problem: PlanProblem, ops: Sequence[int], first: int = -1, last: int = -1) -> None:
        self.ops, self.k = list(ops), len(problem.ids)
        place = {op: i for i, op in enumerate(self.ops)}
        self.n, self.first, self.last = len(place), place.get(first, -1), place.get(last, -1)
        self.time = [problem.time[op] for op in self.ops]
        if self.first >= 0:
            self.time[self.first] = [min(t, 0) for t in self.time[self.first]]
        self.per_edge = problem.rule("transfers", "per-edge")
        self.edges: list[tuple[int, int, int]] = []
        """Tensor, maker, reader."""
        self.rows: list[list[int]] = []
        """Of each tensor, its times of transfer."""
        self.inputs: list[list[int]] = [[] for _ in self.ops]
        self.outputs: list[list[int]] = [[] for _ in self.ops]
        self.edges_of: list[list[int]] = []
        known: dict[int, int] = {}
        for op, i in place.items():
            for tensor in problem.inputs[op]:
                maker = place.get(problem.producer[tensor], -1)
                if maker >= 0:
                    self._join(known.setdefault(tensor, len(known)), maker, i, problem.transfer[tensor])
        self.group = self._groups(problem, place)
        self.members: dict[int, list[int]] = {}
        for i, leader in enumerate(self.group):
            self.members.setdefault(leader, []).append(i)
        static = problem.rule("memory", "static")
        limited = any(limit is not None for limit in problem.capacity)
        self.capacity = problem.capacity if limited else []
        sizes = [problem.weight[op] + (problem.workspace[op] if static else 0) for op in self.ops]
        self.size = sizes if limited else []
        names = sorted(set(problem.bus.values()))
        self.bus = {pair: 3 * self.k + names.index(name) for pair, name in problem.bus.items()}

    def _join(self, tensor: int, maker: int, reader: int, row: list[int]) -> None:
        if tensor == len(self.rows):
            self.rows.append(row)
            self.edges_of.append([])
        edge = len(self.edges)
        self.edges.append((tensor, maker, reader))
        self.edges_of[tensor].append(edge)
        self.inputs[reader].append(edge)
        self.outputs[maker].append(edge)

    def _groups(self, problem: PlanProblem, place: dict[int, int]) -> list[int]:
        """Of each op, the first op of its `together` set that the block has."""
        group = list(range(self.n))
        for together in problem.together:
            inside = [place[op] for op in together if op in place]
            for i in inside:
                group[i] = inside[0]
        return group

    @property
    def key(self) -> tuple[object, ...]:
        """Blocks with the same one are the same problem."""
        times, rows = (tuple(map(tuple, table)) for table in (self.time, self.rows))
        return times, rows, tuple(self.edges), tuple(self.group), tuple(self.size), self.first, self.last

    def length(self, tensor: int, source: int, target: int) -> int:
        """Time of a transfer; 0 inside a device, NO_WAY without a link."""
        if source == target:
            return 0
        length = self.rows[tensor][source * self.k + target]
        return length if length >= 0 else NO_WAY

    def sent(self, edge: int, target: int) -> int:
        """The name of a transfer whose maker has one device."""
        return self.n + (edge if self.per_edge else self.edges[edge][0] * self.k + target)

    def resources(self, source: int, target: int) -> list[int]:
        """What a transfer occupies: ports, and the bus if there is one."""
        ports = [self.k + source, 2 * self.k + target]
        return [*ports, self.bus[source, target]] if (source, target) in self.bus else ports


class BlockState:
    """What is known about all plans of a block within a horizon that obey some decisions."""

    __slots__ = ("able", "after", "begin", "head", "items", "orders", "tail")

    def __init__(self, able: list[tuple[int, ...]], orders: tuple[tuple[int, int], ...] = ()) -> None:
        self.able = able
        """Devices left, by op."""
        self.head: list[list[int]] = []
        self.tail: list[list[int]] = []
        self.begin: dict[int, int] = {}
        """Items that begin no earlier than this, because of others on their resource."""
        self.after: dict[int, int] = {}
        """Items after whose end there is still so much, for the same reason."""
        self.orders = orders
        """Pairs of items that were decided: the first ends before the second begins."""
        self.items: dict[int, list[BlockItem]] = {}
        """Certain items by resource."""

    def child(
        self, op: int | None = None, devices: Sequence[int] = (), order: tuple[int, int] | None = None
    ) -> BlockState:
        """One more decision: an op on some of its devices, or an order."""
        made = BlockState(list(self.able), self.orders if order is None else (*self.orders, order))
        made.begin, made.after = dict(self.begin), dict(self.after)
        if op is not None:
            made.able[op] = tuple(k for k in self.able[op] if k in devices)
        return made


def begin_block(block: ChainBlock, source: int | None, target: int | None) -> BlockState:
    """All plans whose ends stand on these devices."""
    able = [tuple(k for k, t in enumerate(row) if t >= 0) for row in block.time]
    for end, device in ((block.first, source), (block.last, target)):
        if end >= 0 and device is not None:
            able[end] = tuple(k for k in able[end] if k == device)
    return BlockState(able)


def shrink(block: ChainBlock, state: BlockState, horizon: int) -> bool:
    """Propagate; False if no plan within the horizon is left."""
    for _ in range(MOST_ROUNDS if all(state.able) else 0):
        _share(block, state)
        _heads(block, state)
        _tails(block, state)
        struck = _strike(block, state, horizon)
        if not struck and block.capacity:  # now all ops of a set have the same devices, and none is counted twice
            struck = _weigh(block, state)
        if not all(state.able):
            return False
        if struck:
            continue
        state.items = _certain(block, state)
        changed = _order(state, horizon)
        if changed is None:
            return False
        if not changed:
            return True
    _share(block, state)
    return all(state.able)


def _share(block: ChainBlock, state: BlockState) -> None:
    """What one op of a set has lost is lost for all of them."""
    for members in block.members.values():
        if len(members) > 1:
            left = set(state.able[members[0]]).intersection(*(state.able[i] for i in members[1:]))
            for i in members:
                if len(state.able[i]) > len(left):
                    state.able[i] = tuple(k for k in state.able[i] if k in left)


def _heads(block: ChainBlock, state: BlockState) -> None:
    able, k, begin = state.able, block.k, state.begin
    heads: list[list[int]] = []
    ends: list[list[int]] = []
    for i in range(block.n):
        row, end = [NO_WAY] * k, [NO_WAY] * k
        own = begin.get(i, 0)
        for d in able[i]:
            ready = own
            for e in block.inputs[i]:
                tensor, maker, _ = block.edges[e]
                lengths, there = block.rows[tensor], ends[maker]
                came = NO_WAY
                if block.group[maker] == block.group[i]:
                    came = there[d]
                else:
                    for a in able[maker]:
                        length = 0 if a == d else lengths[a * k + d]
                        if length >= 0 and there[a] + length < came:
                            came = there[a] + length
                    if begin and len(able[maker]) == 1 and able[maker][0] != d:
                        sent = begin.get(block.sent(e, d), 0)
                        came = max(came, sent + block.length(tensor, able[maker][0], d)) if sent else came
                ready = came if came > ready else ready
            row[d] = ready
            end[d] = ready + block.time[i][d]
        heads.append(row)
        ends.append(end)
    state.head = heads


def _tails(block: ChainBlock, state: BlockState) -> None:
    able, k, after = state.able, block.k, state.after
    tails: list[list[int]] = [[]] * block.n
    for i in range(block.n - 1, -1, -1):
        row = [NO_WAY] * k
        own = after.get(i, 0)
        for d in able[i]:
            left = own
            for e in block.outputs[i]:
                tensor, _, reader = block.edges[e]
                lengths, there = block.rows[tensor], tails[reader]
                least = NO_WAY
                if block.group[reader] == block.group[i]:
                    least = there[d]
                else:
                    for b in able[reader]:
                        length = 0 if b == d else lengths[d * k + b]
                        if length >= 0 and there[b] + length < least:
                            least = there[b] + length
                    if after and len(able[i]) == 1 and len(able[reader]) == 1 and able[reader][0] != d:
                        b = able[reader][0]
                        behind = after.get(block.sent(e, b), 0)
                        least = max(least, behind + block.length(tensor, d, b)) if behind else least
                left = least if least > left else left
            row[d] = left + block.time[i][d]
        tails[i] = row
    state.tail = tails


def _strike(block: ChainBlock, state: BlockState, horizon: int) -> bool:
    struck = False
    for i, (head, tail) in enumerate(zip(state.head, state.tail, strict=True)):
        for d in state.able[i]:
            if head[d] + tail[d] > horizon:
                state.able[i] = tuple(k for k in state.able[i] if head[k] + tail[k] <= horizon)
                struck = True
                break
    return struck


def _weigh(block: ChainBlock, state: BlockState) -> bool:
    """Strike out what does not fit beside what is certain."""
    room = list(block.capacity)
    for i, devices in enumerate(state.able):
        limit = room[devices[0]] if len(devices) == 1 else None
        if limit is not None:
            room[devices[0]] = limit - block.size[i]
    struck = False
    for d, limit in enumerate(room):
        if limit is None:
            continue
        for i, devices in enumerate(state.able):
            too_much = (
                limit < 0 if len(devices) == 1 else limit < sum(block.size[m] for m in block.members[block.group[i]])
            )
            if d in devices and too_much:
                state.able[i] = tuple(k for k in devices if k != d)
                struck = True
    return struck


def _certain(block: ChainBlock, state: BlockState) -> dict[int, list[BlockItem]]:
    """What certainly occupies each resource."""
    found: dict[int, list[BlockItem]] = {}
    for i, devices in enumerate(state.able):
        if len(devices) == 1:
            d = devices[0]
            length = block.time[i][d]
            if length > 0:
                found.setdefault(d, []).append(BlockItem(i, state.head[i][d], length, state.tail[i][d] - length))
    sent: dict[int, tuple[BlockItem, int, int]] = {}
    for e, (tensor, maker, reader) in enumerate(block.edges):
        if len(state.able[maker]) == 1 and len(state.able[reader]) == 1:
            a, b = state.able[maker][0], state.able[reader][0]
            length = block.length(tensor, a, b)
            if 0 < length < NO_WAY:
                name = block.sent(e, b)
                after = max(state.tail[reader][b], state.after.get(name, 0))
                if name in sent:
                    after = max(after, sent[name][0].after)
                head = max(state.head[maker][a] + block.time[maker][a], state.begin.get(name, 0))
                sent[name] = BlockItem(name, head, length, after), a, b
    for item, a, b in sent.values():
        for resource in block.resources(a, b):
            found.setdefault(resource, []).append(item)
    return found


def _order(state: BlockState, horizon: int) -> bool | None:
    """Heads and tails by forced orders; True if something changed, None if no order is possible."""
    changed = False
    decided_before: dict[int, list[int]] = {}
    decided_behind: dict[int, list[int]] = {}
    for first, second in state.orders:
        decided_before.setdefault(second, []).append(first)
        decided_behind.setdefault(first, []).append(second)
    for items in state.items.values():
        for item in items:
            if item.head + item.length + item.after > horizon:
                return None
        if len(items) < 2:
            continue
        by_head = sorted(items, key=lambda item: item.head)
        by_after = sorted(items, key=lambda item: item.after)
        late, early = _latest_ends(items), _earliest_starts(items, horizon)
        for x in items:
            name, end, start = x.name, x.head + x.length, horizon - x.length - x.after
            before, behind = decided_before.get(name, ()), decided_behind.get(name, ())
            if before or end > early[x is early[0][1]][0]:
                free = 0
                for y in by_head:
                    if y is not x and (end > horizon - y.length - y.after or y.name in before):
                        free = (free if free > y.head else y.head) + y.length
                if free > start:
                    return None
                if free > x.head and free > state.begin.get(name, 0):
                    state.begin[name] = free
                    changed = True
            if behind or late[x is late[0][1]][0] > start:
                left = 0
                for y in by_after:
                    if y is not x and (y.head + y.length > start or y.name in behind):
                        left = (left if left > y.after else y.after) + y.length
                if x.head + x.length + left > horizon:
                    return None
                if left > x.after and left > state.after.get(name, 0):
                    state.after[name] = left
                    changed = True
    return changed


def _latest_ends(items: list[BlockItem]) -> list[tuple[int, BlockItem]]:
    """The two items whose earliest ends are latest."""
    return nlargest(2, ((item.head + item.length, item) for item in items), itemgetter(0))


def _earliest_starts(items: list[BlockItem], horizon: int) -> list[tuple[int, BlockItem]]:
    """The two items whose latest starts are earliest."""
    return nsmallest(2, ((horizon - item.length - item.after, item) for item in items), itemgetter(0))
