"""Why no plan of a block meets a horizon: a tree of decisions, and a small argument at each of its leaves.

The tree is a flat list of nodes, every node followed by what stands below it:
- `["b", op, [devices], [devices], ...]`: the op stands on some of these; the sets must cover the devices that it has
  left in the checker's own state. `["o", x, y]`: of two items that certainly use one resource, x before y, then y
  before x.
- `["w"]`: propagation leaves no plan (`chain_block`).
- `["e", resource, h, t]`: the certain items of the resource with head >= h and after >= t run one after another, all
  inside the horizon: least head + sum of lengths + least after > horizon.
- `["d", rows, shares, messages]`, rows `[resource, h, t, y]` with integers y > 0. **Row theorem.** Take all items of
  the resource, certain or possible, with head >= h and after >= t; a, b their least head and after. In every plan
  within the horizon the lengths of those present sum to at most horizon - a - b: they run one after another inside
  [a, horizon - b]; and if none is present, horizon - a - b is not negative, since what could not be present in time by
  itself (head + length + after > horizon) was left out before. The rows, each times its y, bound the sum of prices of
  what is present by their room. That sum is a labelling: of ops by devices, of edges by pairs of devices. A transfer
  that several readers share is present if any of them is there, so its price may be divided into `shares`, one for each
  edge. Integers that are moved between edges and ops (`messages`) leave the sum as it is, so the least of every part
  may be taken. If that is more than the room, no plan is left. Any integers are sound.

In: a block, a horizon, a tree. Out: whether it leaves no plan. Simplified: shares beyond a price are cut, messages of
devices that are gone are ignored, so that a checker that propagates more still takes old trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weftline.certify.allowance import Allowance
from weftline.certify.chain_block import BlockState, ChainBlock, begin_block, shrink
from weftline.certify.problem import MAX_NUMBER, NO_WAY, need, rows, whole

__all__ = ["Possible", "PossibleItem", "RowLeaf", "is_refuted", "set_is_full"]

MOST_DEPTH = 400


def is_refuted(
    block: ChainBlock, ends: tuple[int | None, int | None], horizon: int, tree: Any, allowance: Allowance
) -> bool:
    """Does the tree leave no plan of the block within the horizon?"""
    nodes = iter(rows(tree, "tree"))
    waiting = [(0, begin_block(block, *ends))]
    while waiting:
        depth, state = waiting.pop()
        allowance.spend("nodes")
        allowance.look()
        need(depth <= MOST_DEPTH, "witness-size", f"a tree deeper than {MOST_DEPTH}")
        node = rows(next(nodes, ()), "node")
        need(len(node) > 0, "witness", "the tree ends too early")
        if not shrink(block, state, horizon):
            if node[0] in ("b", "o"):  # an older tree goes on: what stands below has nothing to say
                below = len(node) - 2 if node[0] == "b" else 2
                waiting += [(depth + 1, _nothing_left(block))] * below
            continue
        children = _children(block, state, node)
        if children is None:
            if not _leaf(block, state, horizon, node):
                return False
        else:
            waiting += [(depth + 1, child) for child in reversed(children)]
    need(next(nodes, None) is None, "witness", "the tree has more nodes than branches")
    return True


def _nothing_left(block: ChainBlock) -> BlockState:
    return BlockState([()] * block.n)


def _children(block: ChainBlock, state: BlockState, node: Sequence[Any]) -> list[BlockState] | None:
    """The cases of a branch, None if the node is a leaf."""
    if node[0] == "b":
        op = whole(node[1], "op of a branch", 0, block.n - 1)
        sets = [[whole(d, "device", 0, block.k - 1) for d in rows(devices, "devices")] for devices in node[2:]]
        need(len(sets) <= block.k, "witness", "a branch has more sets than there are devices")
        covered = {d for devices in sets for d in devices}
        need(covered >= set(state.able[op]), "witness", f"a branch forgets a device of op {block.ops[op]}")
        return [state.child(op, devices) for devices in sets]
    if node[0] == "o":
        x, y = (whole(item, "item of an order") for item in node[1:3])
        shared = any({x, y} <= {item.name for item in items} for items in state.items.values())
        need(x != y and shared, "witness", f"items {x} and {y} do not certainly share a resource")
        return [state.child(order=(x, y)), state.child(order=(y, x))]
    return None


def _leaf(block: ChainBlock, state: BlockState, horizon: int, node: Sequence[Any]) -> bool:
    if node[0] == "e":
        resource, head, after = (whole(number, "leaf") for number in node[1:4])
        return set_is_full(state, horizon, resource, head, after)
    if node[0] == "d":
        leaf = RowLeaf(Possible(block, state, horizon))
        for row in rows(node[1], "rows"):
            resource, head, after = (whole(number, "row") for number in row[:3])
            leaf.add_row(resource, head, after, whole(row[3], "multiplier", 1))
        return leaf.is_too_much(node[2], node[3])
    return False


def set_is_full(state: BlockState, horizon: int, resource: int, head: int, after: int) -> bool:
    """Do the certain items of a resource with these levels not fit?"""
    inside = [item for item in state.items.get(resource, ()) if item.head >= head and item.after >= after]
    if not inside:
        return False
    least = min(item.head for item in inside) + min(item.after for item in inside)
    return least + sum(item.length for item in inside) > horizon


class PossibleItem:
    """Something that may occupy resources, and what it costs if it does."""

    __slots__ = ("after", "edges", "head", "length", "price", "resources", "where")

    def __init__(self, where: tuple[int, int, int], resources: list[int], head: int, length: int, after: int) -> None:
        self.where = where
        """Op, device, -1; or maker, source, target."""
        self.resources, self.head, self.length, self.after = resources, head, length, after
        self.edges: list[int] = []
        """That use this transfer."""
        self.price = 0


class Possible:
    """All items of a state, and which pairs of devices an edge may have."""

    def __init__(self, block: ChainBlock, state: BlockState, horizon: int) -> None:
        self.block, self.state, self.horizon = block, state, horizon
        self.items: list[PossibleItem] = []
        self.excluded: list[tuple[int, int, int]] = []
        """Edge, source, target: no plan within the horizon has this."""
        self.sent: dict[tuple[int, int, int], PossibleItem] = {}
        """Edge (or tensor), source, target."""
        for i, devices in enumerate(state.able):
            for d in devices:
                length = block.time[i][d]
                if length > 0:
                    after = state.tail[i][d] - length
                    self.items.append(PossibleItem((i, d, -1), [d], state.head[i][d], length, after))
        for edge in range(len(block.edges)):
            self._transfers(edge)
        self.by_resource: dict[int, list[PossibleItem]] = {}
        for item in self.items:
            for resource in item.resources:
                self.by_resource.setdefault(resource, []).append(item)

    def _transfers(self, edge: int) -> None:
        block, state = self.block, self.state
        tensor, maker, reader = block.edges[edge]
        if block.group[maker] == block.group[reader]:
            return
        certain = len(state.able[maker]) == 1 == len(state.able[reader])
        single = len(state.able[maker]) == 1
        for a in state.able[maker]:
            end = state.head[maker][a] + block.time[maker][a]
            for b in state.able[reader]:
                length, after = block.length(tensor, a, b), state.tail[reader][b]
                if end + length + after > self.horizon:
                    self.excluded.append((edge, a, b))
                    continue
                if length == 0:
                    continue
                head = end
                if certain:
                    after = max(after, state.after.get(block.sent(edge, b), 0))
                if certain or (single and not block.per_edge):
                    head = max(end, state.begin.get(block.sent(edge, b), 0))
                    if head + length + after > self.horizon:
                        self.excluded.append((edge, a, b))
                        continue
                self._join(edge, a, b, PossibleItem((maker, a, b), block.resources(a, b), head, length, after), certain)

    def _join(self, edge: int, a: int, b: int, item: PossibleItem, certain: bool) -> None:
        """Readers share a transfer; certain ones need it as early as they say, of others any may be there."""
        key = (edge if self.block.per_edge else self.block.edges[edge][0], a, b)
        known = self.sent.get(key)
        if known is None:
            self.sent[key] = item
            self.items.append(item)
            item.edges = [edge]
            return
        known.head = max(known.head, item.head)
        others = [self.is_certain(other) for other in known.edges]
        if certain:
            known.after = max(known.after, item.after) if any(others) else item.after
        elif not any(others):
            known.after = min(known.after, item.after)
        known.edges.append(edge)

    def is_certain(self, edge: int) -> bool:
        """Have both of its ops one device?"""
        _, maker, reader = self.block.edges[edge]
        return len(self.state.able[maker]) == 1 == len(self.state.able[reader])


Costs = dict[tuple[int, int], int]
"""Of pairs of devices; those that are missing cost nothing."""


class RowLeaf:
    """Prices of rows, and the least that a labelling pays."""

    def __init__(self, possible: Possible) -> None:
        self.possible, self.block, self.able = possible, possible.block, possible.state.able
        self.room = 0
        for item in possible.items:
            item.price = 0

    def add_row(self, resource: int, head: int, after: int, times: int) -> None:
        """All items of a resource with these levels, so many times."""
        inside = [i for i in self.possible.by_resource.get(resource, ()) if i.head >= head and i.after >= after]
        if inside:
            least = min(item.head for item in inside) + min(item.after for item in inside)
            self.room += times * (self.possible.horizon - least)
            for item in inside:
                item.price += times * item.length

    def is_too_much(self, shares: Any, messages: Any) -> bool:
        """Is the least sum of prices more than the room?"""
        self.unary = {leader: [0] * self.block.k for leader in self.block.members}
        self.pairs: dict[tuple[int, int], Costs] = {}
        self.certain = 0
        for item in self.possible.items:
            if item.where[2] < 0 and item.price:
                self.unary[self.block.group[item.where[0]]][item.where[1]] += item.price
        self._share(shares)
        for edge, a, b in self.possible.excluded:
            self._charge(edge, a, b, NO_WAY)
        total = self.certain
        sent = self._messages(messages)
        for (u, v), costs in self.pairs.items():
            mine, yours = sent.get((u, v)) or ([0] * self.block.k, [0] * self.block.k)
            total += min(costs.get((a, b), 0) - mine[a] - yours[b] for a in self.able[u] for b in self.able[v])
            for leader, message in ((u, mine), (v, yours)):
                self.unary[leader] = [x + y for x, y in zip(self.unary[leader], message, strict=True)]
        return total + sum(min(row[d] for d in self.able[u]) for u, row in self.unary.items()) > self.room

    def _share(self, shares: Any) -> None:
        """The price of a transfer, divided among the edges that may need it."""
        left = {key: item.price for key, item in self.possible.sent.items() if item.price}
        needed: dict[tuple[int, int, int], list[int]] = {}
        """The edges that may need it; where one certainly does, that one alone."""
        for key in left:
            edges = self.possible.sent[key].edges
            needed[key] = [edge for edge in edges if self.possible.is_certain(edge)][:1] or edges
        for row in rows(shares, "shares"):
            edge = whole(row[0], "edge of a share", 0, len(self.block.edges) - 1)
            a, b = (whole(d, "device of a share", 0, self.block.k - 1) for d in row[1:3])
            key = (edge if self.block.per_edge else self.block.edges[edge][0], a, b)
            if edge in needed.get(key, ()):
                part = min(left[key], whole(row[3], "share"))
                left[key] -= part
                self._charge(edge, a, b, part)
        for key, rest in left.items():
            if rest:
                self._charge(needed[key][0], key[1], key[2], rest)

    def _charge(self, edge: int, a: int, b: int, price: int) -> None:
        """What it costs that the ends of an edge stand on two devices."""
        _, maker, reader = self.block.edges[edge]
        u, v = self.block.group[maker], self.block.group[reader]
        if len(self.able[u]) == 1 and len(self.able[v]) == 1:
            self.certain += price
        elif len(self.able[u]) == 1:
            self.unary[v][b] += price
        elif len(self.able[v]) == 1:
            self.unary[u][a] += price
        elif u < v:
            costs = self.pairs.setdefault((u, v), {})
            costs[a, b] = costs.get((a, b), 0) + price
        else:
            costs = self.pairs.setdefault((v, u), {})
            costs[b, a] = costs.get((b, a), 0) + price

    def _messages(self, given: Any) -> dict[tuple[int, int], tuple[list[int], list[int]]]:
        """[one op, another, a number per device of the one, of the other]; of ops with one device they say nothing."""
        found: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
        for row in rows(given, "messages"):
            numbers = (rows(row[i], "message") for i in (2, 3))
            mine, yours = ([whole(m, "message", -MAX_NUMBER, MAX_NUMBER) for m in each] for each in numbers)
            need(len(mine) == len(yours) == self.block.k, "witness", "a message has a number per device")
            u, v = (whole(row[i], "op of a message", 0, self.block.n - 1) for i in (0, 1))
            if u < v and u in self.unary and v in self.unary and min(len(self.able[u]), len(self.able[v])) > 1:
                self.pairs.setdefault((u, v), {})
                found[u, v] = mine, yours
        return found
