"""The sequential runtime as a labelling: a device per group; costs per group, per pair of groups, and per tensor with
several readers. What cannot be costs TOO_MUCH, which is more than all sums of times.

In: the embedded problem and a witness. Out: what it proves, by messages that move costs, or by the cheapest labelling.
Simplified: memory is only priced.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weftline.certify.problem import MAX_NUMBER, PlanProblem, group_times, groups_of, need, rows, whole

__all__ = ["Labelling", "elimination_witness", "messages_witness"]

TOO_MUCH = 2**200
MOST_ENTRIES = 2**24
Table = tuple[list[int], list[int]]
"""Variables, and a cost for each choice of their labels, the last variable fastest."""


class Labelling:
    """What a placement costs in the sequential runtime, in 1 / scale ns, with prices on memory; minus the rebate."""

    def __init__(self, problem: PlanProblem, witness: dict[str, Any]) -> None:
        sequential = problem.rule("objective", "latency") and problem.rule("runtime", "sequential")
        need(sequential, "witness", "a labelling bounds the sequential runtime alone")
        self.problem, self.scale, self.k = problem, whole(witness.get("scale", 1), "scale", 1), len(problem.ids)
        # What is on a device fits its memory, so a price on every byte beyond the capacity never adds to a plan's cost.
        prices = [whole(price, "price") for price in rows(witness.get("prices", [0] * self.k), "prices")]
        limits = list(zip(prices, problem.capacity, strict=True))
        need(all(limit is not None or p == 0 for p, limit in limits), "witness", "a price without a memory limit")
        self.rebate = sum(price * (limit or 0) for price, limit in limits)
        groups, static = groups_of(problem), problem.rule("memory", "static")
        self.unary: list[list[int]] = []
        for group in groups:
            size = sum(problem.weight[op] + (problem.workspace[op] if static else 0) for op in group)
            times = zip(group_times(problem, group), prices, strict=True)
            self.unary.append([self.scale * t + price * size if t >= 0 else TOO_MUCH for t, price in times])
        self.pairs: dict[tuple[int, int], list[int]] = {}
        """(smaller group, larger group) -> cost by device of the one and device of the other."""
        self.stars: dict[int, tuple[int, list[int]]] = {}
        """Tensor with several readers -> group that makes it, groups that read it."""
        node = {op: number for number, group in enumerate(groups) for op in group}
        self._known: dict[tuple[int, bool], list[int]] = {}
        """Of each distinct row of transfer times, and turned round: one table for all pairs that use it."""
        for t, maker in enumerate(problem.producer):
            readers = [node[op] for op in problem.consumers[t] if maker >= 0 and node[op] != node[maker]]
            if problem.rule("transfers", "per-tensor"):
                readers = sorted(set(readers))
                if len(readers) > 1:
                    self.stars[t] = (node[maker], readers)
                    continue
            for reader in readers:
                self._join(t, node[maker], reader)
        self._drop(rows(witness.get("dropped", []), "dropped"))

    def table(self, tensor: int, turned: bool = False) -> list[int]:
        """Cost of sending a tensor, by source and target, or by target and source."""
        key, k = (id(self.problem.transfer[tensor]), turned), self.k
        if key not in self._known:
            pairs = ((b, a) if turned else (a, b) for a in range(k) for b in range(k))
            found = [self.problem.length(tensor, a, b) for a, b in pairs]
            self._known[key] = [self.scale * length if length >= 0 else TOO_MUCH for length in found]
        return self._known[key]

    def lengths(self, tensor: int, home: int) -> list[int]:
        """Cost of sending a tensor from a device to each."""
        return self.table(tensor)[home * self.k : (home + 1) * self.k]

    def _join(self, tensor: int, maker: int, reader: int) -> None:
        table = self.table(tensor, maker > reader)
        pair = (min(maker, reader), max(maker, reader))
        known = self.pairs.get(pair)
        self.pairs[pair] = table if known is None else [x + y for x, y in zip(known, table, strict=True)]

    def _drop(self, dropped: Sequence[Any]) -> None:
        """Leave out devices, each with another that is never worse: all that is on the one may go to the other."""
        k, kept = self.k, list(range(self.k))
        sent = [self.table(tensor) for tensor in self.stars]
        tables = {id(table): table for table in (*sent, *self.pairs.values())}
        for row in dropped:
            need(len(rows(row, "dropped")) == 2, "witness", "a dropped device and the one instead of it")
            b, a = (whole(d, "dropped device", 0, k - 1) for d in row)
            need(a in kept and b in kept and a != b, "witness", f"device {b} cannot be dropped for {a}")
            kept.remove(b)
            others = [d for d in kept if d != a]
            worse = any(costs[a] > costs[b] for costs in self.unary) or any(
                table[a * k + d] > table[b * k + d] or table[d * k + a] > table[d * k + b]
                for table in tables.values()
                for d in others
            )
            need(not worse, "witness", f"device {b} is sometimes better than {a}")
        if len(kept) < k:
            self.unary = [[costs[d] for d in kept] for costs in self.unary]
            small = {key: [table[a * k + b] for a in kept for b in kept] for key, table in tables.items()}
            self.pairs = {pair: small[id(table)] for pair, table in self.pairs.items()}
            self._known = {key: small[id(table)] for key, table in self._known.items() if id(table) in small}
            self.k = len(kept)

    def bound(self, total: int) -> int:
        """A sum that no labelling is below, as a bound in ns."""
        need(total < TOO_MUCH // 2, "witness", "no placement is possible at all")
        return max(0, -((self.rebate - total) // self.scale))


def messages_witness(problem: PlanProblem, witness: dict[str, Any]) -> int:
    """Messages move cost between groups and what joins them: the sum of the least costs stays a lower bound."""
    model = Labelling(problem, witness)
    k, unary = model.k, [list(row) for row in model.unary]
    total = 0
    sent = _messages(witness["pairs"], k, {pair: list(pair) for pair in model.pairs}, 2)
    for (a, b), table in model.pairs.items():
        if (a, b) not in sent and any(
            max(costs) < TOO_MUCH for costs in zip(model.unary[a], model.unary[b], strict=True)
        ):
            continue  # both on one device: nothing
        first, second = sent.get((a, b)) or ([0] * k, [0] * k)
        able = [e for e in range(k) if model.unary[b][e] < TOO_MUCH]
        rests = [
            min(table[d * k + e] - second[e] for e in able) - first[d] for d in range(k) if model.unary[a][d] < TOO_MUCH
        ]
        total += min(rests)
        for group, message in ((a, first), (b, second)):
            unary[group] = [x + y for x, y in zip(unary[group], message, strict=True)]
    need(k <= 10 or not model.stars, "witness", "too many devices for tensors with several readers")
    sent = _messages(witness["stars"], k, {(t,): [home, *readers] for t, (home, readers) in model.stars.items()}, 1)
    sums: dict[tuple[int, int], list[int]] = {}
    for t, (home, readers) in model.stars.items():
        if (t,) not in sent and any(
            max(costs) < TOO_MUCH for costs in zip(*(model.unary[v] for v in (home, *readers)), strict=True)
        ):
            continue  # all on one device: nothing
        messages = sent.get((t,)) or [[0] * k] * (1 + len(readers))
        reach = [0] * (1 << k)
        for reader, message in zip(readers, messages[1:], strict=True):
            best = [TOO_MUCH]
            for m, own in zip(message, model.unary[reader], strict=True):
                here = -m if own < TOO_MUCH else TOO_MUCH
                best += [min(x, here) for x in best]
            reach = [x + y for x, y in zip(reach, best, strict=True)]
        least = TOO_MUCH
        for d in range(k):
            if model.unary[home][d] < TOO_MUCH:
                key = (id(problem.transfer[t]), d)
                if key not in sums:
                    sums[key] = _subset_sums(model.lengths(t, d))
                least = min(least, min(map(int.__add__, reach, sums[key])) - messages[0][d])
        total += least
        for group, message in zip((home, *readers), messages, strict=True):
            unary[group] = [x + y for x, y in zip(unary[group], message, strict=True)]
    able_rows = zip(unary, model.unary, strict=True)
    return model.bound(
        total + sum(min(x for x, own in zip(*pair, strict=True) if own < TOO_MUCH) for pair in able_rows)
    )


def _subset_sums(lengths: list[int]) -> list[int]:
    """Of every set of devices, by its bits."""
    sums = [0]
    for length in lengths:
        sums += [x + length for x in sums]
    return sums


def _messages(given: Any, k: int, parts: dict[Any, list[int]], keys: int) -> dict[tuple[int, ...], list[list[int]]]:
    """[numbers that name a part ..., a message per participant], each part at most once; a message has K numbers."""
    found: dict[tuple[int, ...], list[list[int]]] = {}
    for row in rows(given, "messages"):
        need(len(rows(row, "messages")) > keys, "witness", "messages without a place")
        key = tuple(whole(i, "place of messages") for i in row[:keys])
        need(key in parts and key not in found, "witness", f"messages for {key}, which do not exist or stand twice")
        found[key] = [
            [whole(m, "message", -MAX_NUMBER, MAX_NUMBER) for m in rows(one, "message")] for one in row[keys:]
        ]
        fits = len(found[key]) == len(parts[key]) and all(len(one) == k for one in found[key])
        need(fits, "witness", f"messages for {key} do not fit")
    return found


def elimination_witness(problem: PlanProblem, witness: dict[str, Any]) -> int:
    """The cheapest labelling, exactly: one variable after another is minimised away, in the order of the witness.

    Variables are the groups, then the tensors with several readers: where each is made, and which devices hold it.
    """
    model = Labelling(problem, witness)
    return model.bound(
        _least_cost(model, [[d for d in range(model.k) if row[d] < TOO_MUCH] for row in model.unary], witness)
    )


def _least_cost(model: Labelling, devices: list[list[int]], witness: dict[str, Any]) -> int:
    """Over all labellings that use these devices."""
    need(all(devices), "witness", "a group has no device left")
    sizes = [len(able) for able in devices]
    tables: list[Table] = [([v], [model.unary[v][d] for d in able]) for v, able in enumerate(devices)]
    for (a, b), costs in model.pairs.items():
        tables.append(([a, b], [costs[d * model.k + e] for d in devices[a] for e in devices[b]]))
    for t, (home, readers) in model.stars.items():
        labels = _star_labels(model, t, devices[home], [devices[reader] for reader in readers])
        v = len(sizes)
        sizes.append(len(labels))
        tables.append(([v], [cost for _, _, cost in labels]))
        tables.append(([home, v], [0 if at == d else TOO_MUCH for d in devices[home] for at, _, _ in labels]))
        for reader in readers:
            held = [0 if held >> d & 1 else TOO_MUCH for d in devices[reader] for _, held, _ in labels]
            tables.append(([reader, v], held))
    order = [whole(v, "variable", 0, len(sizes) - 1) for v in rows(witness["order"], "order")]
    need(sorted(order) == [v for v, size in enumerate(sizes) if size > 1], "witness", "the order has other variables")
    waiting: dict[int, list[Table]] = {v: [] for v in order}
    place = {v: i for i, v in enumerate(order)}
    total, left = 0, MOST_ENTRIES
    for scope, table in tables:
        open_ones = [v for v in scope if sizes[v] > 1]
        if open_ones:
            waiting[min(open_ones, key=place.__getitem__)].append((open_ones, table))
        else:
            total += table[0]
    for v in order:
        mine = waiting.pop(v)
        scope = sorted({u for own, _ in mine for u in own} - {v})
        left -= math.prod(sizes[u] for u in scope) * sizes[v]
        need(left >= 0, "witness", "this order of elimination takes too long")
        least = _minimised(mine, v, scope, sizes)
        if scope:
            waiting[min(scope, key=place.__getitem__)].append((scope, least))
        else:
            total += least[0]
    return total


def _minimised(mine: list[Table], v: int, scope: list[int], sizes: list[int]) -> list[int]:
    """The sum of tables, minimised over v: a table over the others."""
    columns: list[list[int]] = [[]] * sizes[v]
    for own, table in mine:
        step, steps = 1, dict[int, int]()
        for u in reversed(own):
            steps[u] = step
            step *= sizes[u]
        where = [0]
        for u in scope:
            stride = steps.get(u, 0)
            where = [i + stride * x for i in where for x in range(sizes[u])]
        for x in range(sizes[v]):
            shift = steps[v] * x
            here = [table[i + shift] for i in where]
            columns[x] = list(map(int.__add__, columns[x], here)) if columns[x] else here
    return list(map(min, *columns)) if len(columns) > 1 else columns[0]


def _star_labels(
    model: Labelling, tensor: int, homes: list[int], readers: list[list[int]]
) -> list[tuple[int, int, int]]:
    """Home of a tensor, devices that hold it (as bits), and the cost; what costs nothing to reach is always there."""
    useful = sorted({d for able in readers for d in able})
    labels = []
    for home in homes:
        row = model.lengths(tensor, home)
        free = sum(1 << d for d in useful if row[d] == 0) | 1 << home
        costly = [d for d in useful if 0 < row[d] < TOO_MUCH]
        need(len(costly) <= 10, "witness", "too many devices for tensors with several readers")
        for pick in range(1 << len(costly)):
            chosen = [d for i, d in enumerate(costly) if pick >> i & 1]
            if len(chosen) <= len(readers):
                labels.append((home, free | sum(1 << d for d in chosen), sum(row[d] for d in chosen)))
    return labels
