"""The sequential runtime as a labelling problem: every group of ops gets a device, and what it costs is a sum.

In: a Problem. Out: `LabelCosts`: a time per group and device, a table per pair of groups that share tensors, and a star
per tensor that several groups read (sent once to each device that needs it). The sum of all is the latency of the
sequential runtime, whatever the order; for the parallel runtime it is the work and communication of everything.
Memory may be added as prices per byte (`priced`), which keeps a lower bound valid.

`Messages` move cost between a group and the pairs and stars it stands in, so that a bound can be read off. Whatever
they are, no labelling costs less than: the least of (cost + messages) over devices, for every group, plus the least of
(cost - messages) of every pair and star. `certify/check.py` adds this up again in exact integers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from weftline.bounds import group_times
from weftline.graph.arrays import Indices, Ints
from weftline.problem import Problem
from weftline.simulate.kernels.jit import kernel, part

__all__ = [
    "IMPOSSIBLE_COST",
    "MOST_DEVICES",
    "LabelCosts",
    "Messages",
    "label_costs",
    "message_bound",
    "message_witness",
    "no_messages",
    "placement_of",
    "star_sums",
    "worst_cost",
]

IMPOSSIBLE_COST = 2**61
"""Cost of what cannot be: an absent time or link. Sums are cut off here, so that two of them fit 64 bits."""
LARGEST_COST = 2**60
FEW_TABLES = 2000
MOST_ENTRIES = 2**25
"""Of all tables between groups: 256 MiB."""


@dataclass(frozen=True, eq=False)
class LabelCosts:
    """G groups, K devices, P pairs, T stars; costs in units of 1 / scale ns."""

    unary: Ints
    """(G, K)"""
    pair: Ints
    """(P, 2): two groups, the smaller number first; ascending, each pair once."""
    pair_cost: Ints
    """(P, K, K): device of the first, device of the second."""
    star_tensor: Ints
    """(T,): the tensor, ascending."""
    star_home: Ints
    """(T,): the group that makes it."""
    star_ptr: Ints
    star_of: Ints
    """Star -> two or more groups that read it, ascending, without its home."""
    star_cost: Ints
    """(T, K, K): from device to device."""
    scale: int = 1
    prices: tuple[int, ...] = ()
    """Per byte and device, in the same units."""
    rebate: int = 0
    """What the prices add for memory that is there anyway: subtract it."""
    dropped: tuple[tuple[int, int], ...] = ()
    """Devices that were left out, in this order, each with one that is never worse."""

    @property
    def kept(self) -> Ints:
        """Label -> device."""
        gone = [device for device, _ in self.dropped]
        return np.setdiff1d(np.arange(self.unary.shape[1] + len(gone)), gone).astype(np.int64)

    def without_dominated(self) -> LabelCosts:
        """Leave out every device for which another is never worse: all that is on the one may move to the other."""
        left, dropped = list(range(self.unary.shape[1])), list[tuple[int, int]]()
        tables = np.concatenate([self.pair_cost, self.star_cost])
        tables = np.unique(tables, axis=0) if len(tables) < FEW_TABLES else tables
        for b in range(self.unary.shape[1]):
            for a in left:
                others = [d for d in left if d not in (a, b)]
                if (
                    a != b
                    and np.all(self.unary[:, a] <= self.unary[:, b])
                    and np.all(tables[:, a, others] <= tables[:, b, others])
                    and np.all(tables[:, others, a] <= tables[:, others, b])
                ):
                    left.remove(b)
                    dropped.append((b, a))
                    break
        if not dropped or self.dropped:
            return self
        return replace(
            self,
            unary=np.ascontiguousarray(self.unary[:, left]),
            pair_cost=np.ascontiguousarray(self.pair_cost[:, left][:, :, left]),
            star_cost=np.ascontiguousarray(self.star_cost[:, left][:, :, left]),
            dropped=tuple(dropped),
        )

    def cost(self, labels: Ints) -> int:
        """What one labelling costs, before the rebate; IMPOSSIBLE_COST or more if it cannot be."""
        total = sum(min(c, IMPOSSIBLE_COST) for c in self.unary[np.arange(len(labels)), labels].tolist())
        if len(self.pair):
            first, second = labels[self.pair[:, 0]], labels[self.pair[:, 1]]
            total += sum(self.pair_cost[np.arange(len(first)), first, second].tolist())
        if len(self.star_home):
            star = np.repeat(np.arange(len(self.star_home)), np.diff(self.star_ptr))
            sent = np.zeros((len(self.star_home), self.unary.shape[1]), np.bool_)
            sent[star, labels[self.star_of]] = True
            lengths = self.star_cost[np.arange(len(sent)), labels[self.star_home]]
            total += sum(lengths[sent].tolist())
        return int(total)

    def bound(self, total: int) -> int:
        """A lower bound of the costs as a lower bound in ns."""
        return max(0, -((self.rebate - total) // self.scale))

    def priced(self, scale: int, prices: tuple[int, ...], need: Ints, capacity: Ints) -> LabelCosts | None:
        """The costs (of scale 1) with a price on every byte; None where the numbers grow too large."""
        extra = need[:, None].astype(np.float64) * np.array(prices, np.float64)
        worst = float(worst_cost(self)) * scale + float(extra.max(axis=1, initial=0.0).sum())
        if not worst < LARGEST_COST:
            return None
        rebate = sum(price * int(limit) for price, limit in zip(prices, capacity.tolist(), strict=True) if price)
        held = need[:, None] * np.array(prices, np.int64)
        return replace(
            self,
            unary=np.where(
                self.unary < IMPOSSIBLE_COST, np.minimum(self.unary, LARGEST_COST) * scale + held, IMPOSSIBLE_COST
            ),
            pair_cost=_times(self.pair_cost, scale),
            star_cost=_times(self.star_cost, scale),
            scale=scale,
            prices=prices,
            rebate=rebate,
        )

    def scaled(self, factor: int) -> LabelCosts:
        """The same in finer units."""
        return replace(
            self,
            unary=_times(self.unary, factor),
            pair_cost=_times(self.pair_cost, factor),
            star_cost=_times(self.star_cost, factor),
            scale=self.scale * factor,
            prices=tuple(price * factor for price in self.prices),
            rebate=self.rebate * factor,
        )

    def restricted(self, allowed: np.ndarray[tuple[int, int], np.dtype[np.bool_]]) -> LabelCosts:
        """The same with fewer devices per group."""
        return replace(self, unary=np.where(allowed, self.unary, IMPOSSIBLE_COST))


def _times(table: Ints, scale: int) -> Ints:
    return np.where(table < IMPOSSIBLE_COST, np.minimum(table, LARGEST_COST) * scale, IMPOSSIBLE_COST)


def worst_cost(costs: LabelCosts) -> float:
    """No labelling that can be costs more."""
    k = costs.unary.shape[1]
    parts = (costs.unary, costs.pair_cost.reshape(-1, k * k), costs.star_cost.reshape(-1, k * k))
    tops = [np.where(part < IMPOSSIBLE_COST, part, 0).max(axis=1, initial=0).astype(np.float64).sum() for part in parts]
    return float(tops[0] + tops[1] + k * tops[2])


def label_costs(problem: Problem) -> LabelCosts | None:
    """None where the numbers are too large to be added safely, or the tables to be kept."""
    total, allowed = group_times(problem)
    arrays, k = problem.graph.arrays, len(problem.devices)
    tensor = np.repeat(np.arange(len(arrays.producer)), np.diff(arrays.consumer_ptr))
    inner = arrays.producer[tensor] >= 0
    tensor = tensor[inner]
    maker, reader = problem.group[arrays.producer[tensor]], problem.group[arrays.consumer_of[inner]]
    away = maker != reader
    tensor, maker, reader = tensor[away], maker[away].astype(np.int64), reader[away].astype(np.int64)
    if problem.rules.transfers == "per-tensor":  # a group needs a tensor once, however many of its ops read it
        _, first = np.unique(tensor * len(total) + reader, return_index=True)
        tensor, maker, reader = tensor[first], maker[first], reader[first]
        many = np.bincount(tensor, minlength=len(arrays.producer))[tensor] > 1
    else:
        many = np.zeros(len(tensor), np.bool_)
    length = np.where(problem.cost.transfer >= 0, problem.cost.transfer, IMPOSSIBLE_COST)
    row = problem.cost.transfer_row
    if len(tensor) * k * k > MOST_ENTRIES:
        return None
    longest = np.where(length < IMPOSSIBLE_COST, length, 0).max(axis=(1, 2), initial=0).astype(np.float64)
    if float(longest[row[tensor]].sum()) > LARGEST_COST:
        return None
    pair, pair_cost = _pairs(tensor[~many], maker[~many], reader[~many], length, row, len(total), k)
    stars, start = np.unique(tensor[many], return_index=True)
    found = LabelCosts(
        np.where(allowed, total, IMPOSSIBLE_COST),
        pair,
        pair_cost,
        stars.astype(np.int64),
        maker[many][start] if len(stars) else np.zeros(0, np.int64),
        np.append(start, int(many.sum())).astype(np.int64),
        reader[many],
        length[row[stars]] if len(stars) else np.zeros((0, k, k), np.int64),
    )
    return found if worst_cost(found) <= LARGEST_COST else None


def _pairs(
    tensor: Ints, maker: Ints, reader: Ints, length: Ints, row: Indices, groups: int, k: int
) -> tuple[Ints, Ints]:
    """All tensors between two groups as one table, in whichever direction they go."""
    key = np.minimum(maker, reader) * groups + np.maximum(maker, reader)
    keys, where = np.unique(key, return_inverse=True)
    cost, missing = np.zeros((len(keys), k, k), np.int64), np.zeros((len(keys), k, k), np.bool_)
    lengths = length[row[tensor]] if len(tensor) else np.zeros((0, k, k), np.int64)
    lengths = np.where((maker > reader)[:, None, None], lengths.transpose(0, 2, 1), lengths)
    np.add.at(cost, where.ravel(), np.where(lengths < IMPOSSIBLE_COST, lengths, 0))
    np.logical_or.at(missing, where.ravel(), lengths >= IMPOSSIBLE_COST)
    pair = np.stack([keys // groups, keys % groups], axis=1).astype(np.int64)
    return pair, np.where(missing, IMPOSSIBLE_COST, cost)


def placement_of(problem: Problem, labels: Ints) -> Indices:
    """A device per group -> a device per op."""
    return labels[problem.group].astype(np.int32)


MOST_DEVICES = 10
"""With more, sets of devices are too many to look at all of them for every star."""


class Messages(NamedTuple):
    """In the units of the costs."""

    pair: Ints
    """(P, 2, K)"""
    star: Ints
    """(T + readers, K): for each star its home, then its readers."""


def no_messages(costs: LabelCosts) -> Messages:
    """All 0."""
    k = costs.unary.shape[1]
    rows = len(costs.star_home) + len(costs.star_of)
    return Messages(np.zeros((len(costs.pair), 2, k), np.int64), np.zeros((rows, k), np.int64))


def message_witness(costs: LabelCosts, messages: Messages) -> dict[str, object]:
    """The messages that are not 0, as the checker reads them."""
    able = costs.unary < IMPOSSIBLE_COST
    pair = _plain(messages.pair, able[costs.pair])
    pairs = [
        [a, b, *rows] for (a, b), rows in zip(costs.pair.tolist(), pair.tolist(), strict=True) if any(map(any, rows))
    ]
    groups = np.insert(costs.star_of, costs.star_ptr[:-1], costs.star_home)
    star = _plain(messages.star, able[groups]).tolist()
    pointer = (costs.star_ptr + np.arange(len(costs.star_ptr))).tolist()
    stars = []
    for s, tensor in enumerate(costs.star_tensor.tolist()):
        rows = star[pointer[s] : pointer[s + 1]]
        if any(map(any, rows)):
            stars.append([tensor, *rows])
    witness: dict[str, object] = {"kind": "messages", "pairs": pairs, "stars": stars}
    return witness | price_witness(costs)


def price_witness(costs: LabelCosts) -> dict[str, object]:
    """Scale, prices and dropped devices, where there are any."""
    found: dict[str, object] = {}
    if costs.dropped:
        found["dropped"] = [list(pair) for pair in costs.dropped]
    if costs.scale != 1:
        found["scale"] = costs.scale
    if any(costs.prices):
        found["prices"] = list(costs.prices)
    return found


def _plain(messages: Ints, able: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Ints:
    """Shifted so that small numbers remain: a constant for all devices of a message changes nothing."""
    large = np.iinfo(np.int64).max
    least = np.where(able, messages, large).min(axis=-1, keepdims=True, initial=large)
    return np.where(able, messages - least, 0)


def message_bound(costs: LabelCosts, messages: Messages) -> int:
    """What they prove about the sum of all costs, in exact integers; for costs below 2^60 in all."""
    groups, k = costs.unary.shape
    able = costs.unary < IMPOSSIBLE_COST
    unary: list[list[int]] = [list(map(int, row)) for row in costs.unary.tolist()]
    sums, total = np.zeros((groups, k), np.int64), 0
    np.add.at(sums, costs.pair, messages.pair)
    members = np.insert(costs.star_of, costs.star_ptr[:-1], costs.star_home)
    np.add.at(sums, members, messages.star)
    for row, extra, yes in zip(unary, sums.tolist(), able.tolist(), strict=True):
        total += min(cost + more for cost, more, ok in zip(row, extra, yes, strict=True) if ok)
    both = able[costs.pair[:, 0]][:, :, None] & able[costs.pair[:, 1]][:, None, :] & (costs.pair_cost < IMPOSSIBLE_COST)
    rest = costs.pair_cost - messages.pair[:, 0, :, None] - messages.pair[:, 1, None, :]
    total += sum(np.where(both, rest, IMPOSSIBLE_COST).min(axis=(1, 2), initial=IMPOSSIBLE_COST).tolist())
    if len(costs.star_home):
        total += int(_star_rests(costs.star_ptr, costs.star_cost, able[members], messages.star).sum())
    return int(total)


@part
def star_sums(length: Ints, messages: Ints, able: np.ndarray, first: int, last: int, reach: Ints, base: Ints) -> None:
    """Of one star, for every set of devices: `reach` = readers at their best in it, `base` = the home's best with it.

    Rows first..last-1 of `messages` are the home and its readers. Costs are cut off at IMPOSSIBLE_COST.
    """
    k = length.shape[0]
    for chosen in range(1 << k):
        total = 0
        for row in range(first + 1, last):
            best = IMPOSSIBLE_COST
            for d in range(k):
                if chosen >> d & 1 and able[row, d]:
                    best = min(best, -messages[row, d])
            total = min(total + best, IMPOSSIBLE_COST)
        reach[chosen] = total
        least = IMPOSSIBLE_COST
        for home in range(k):
            if chosen >> home & 1 and able[first, home]:
                cost = -messages[first, home]
                for d in range(k):
                    if chosen >> d & 1:
                        cost = min(cost + length[home, d], IMPOSSIBLE_COST)
                least = min(least, cost)
        base[chosen] = least


@kernel
def _star_rests(pointer: Ints, length: Ints, able: np.ndarray, messages: Ints) -> Ints:
    """(T,): the least of what is left of each star."""
    k = length.shape[1]
    reach, base = np.zeros(1 << k, np.int64), np.zeros(1 << k, np.int64)
    rests = np.zeros(len(length), np.int64)
    for star in range(len(length)):
        star_sums(length[star], messages, able, pointer[star] + star, pointer[star + 1] + star + 1, reach, base)
        rests[star] = IMPOSSIBLE_COST
        for chosen in range(1 << k):
            rests[star] = min(rests[star], reach[chosen] + base[chosen], IMPOSSIBLE_COST)
    return rests
