"""Messages: cost that is moved between a group and the pairs and stars it stands in, so that a bound can be read off.

Whatever the messages are, no labelling costs less than: the least of (cost + messages) over devices, for every group,
plus the least of (cost - messages) of every pair and star. `certify/check.py` adds this up again in exact integers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weftline.graph.arrays import Ints
from weftline.latency.sequential.label_costs import FAR, LabelCosts
from weftline.simulate.kernels.jit import kernel, part

__all__ = ["MOST_DEVICES", "Messages", "message_bound", "message_witness", "no_messages", "star_sums"]

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
    able = costs.unary < FAR
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
    able = costs.unary < FAR
    unary: list[list[int]] = [list(map(int, row)) for row in costs.unary.tolist()]
    sums, total = np.zeros((groups, k), np.int64), 0
    np.add.at(sums, costs.pair, messages.pair)
    members = np.insert(costs.star_of, costs.star_ptr[:-1], costs.star_home)
    np.add.at(sums, members, messages.star)
    for row, extra, yes in zip(unary, sums.tolist(), able.tolist(), strict=True):
        total += min(cost + more for cost, more, ok in zip(row, extra, yes, strict=True) if ok)
    both = able[costs.pair[:, 0]][:, :, None] & able[costs.pair[:, 1]][:, None, :] & (costs.pair_cost < FAR)
    rest = costs.pair_cost - messages.pair[:, 0, :, None] - messages.pair[:, 1, None, :]
    total += sum(np.where(both, rest, FAR).min(axis=(1, 2), initial=FAR).tolist())
    if len(costs.star_home):
        total += int(_star_rests(costs.star_ptr, costs.star_cost, able[members], messages.star).sum())
    return int(total)


@part
def star_sums(length: Ints, messages: Ints, able: np.ndarray, first: int, last: int, reach: Ints, base: Ints) -> None:
    """Of one star, for every set of devices: `reach` = readers at their best in it, `base` = the home's best with it.

    Rows first..last-1 of `messages` are the home and its readers. Costs of what cannot be are cut off at FAR.
    """
    k = length.shape[0]
    for chosen in range(1 << k):
        total = 0
        for row in range(first + 1, last):
            best = FAR
            for d in range(k):
                if chosen >> d & 1 and able[row, d]:
                    best = min(best, -messages[row, d])
            total = min(total + best, FAR)
        reach[chosen] = total
        least = FAR
        for home in range(k):
            if chosen >> home & 1 and able[first, home]:
                cost = -messages[first, home]
                for d in range(k):
                    if chosen >> d & 1:
                        cost = min(cost + length[home, d], FAR)
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
        rests[star] = FAR
        for chosen in range(1 << k):
            rests[star] = min(rests[star], reach[chosen] + base[chosen], FAR)
    return rests
