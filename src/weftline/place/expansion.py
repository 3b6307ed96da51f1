"""Better labellings for more than two devices: let any set of groups move to one device at once.

In: LabelCosts and labels. Out: labels that cost no more. Each move is a minimum cut: keep the device, or move to device
`a`. Transfer times are no metric, and a tensor with several readers is paid once: so the cut works on a simplified
cost, and a move is made only if the true cost falls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from weftline.bounds.label_costs import FAR, LabelCosts
from weftline.bounds.two_devices import minimum_cut
from weftline.graph.arrays import Ints

__all__ = ["expand"]

ROUNDS = 8


def expand(costs: LabelCosts, labels: Ints, *, stop: Callable[[], bool]) -> Ints:
    """From these labels, and from every group on one device where that can be."""
    k = costs.unary.shape[1]
    starts = [labels] + [np.full(len(labels), d, np.int64) for d in range(k)]
    best = min(
        (_improved(costs, start, stop) for start in starts if costs.cost(start) < FAR), key=costs.cost, default=None
    )
    return labels if best is None else best


def _improved(costs: LabelCosts, labels: Ints, stop: Callable[[], bool]) -> Ints:
    k, value = costs.unary.shape[1], costs.cost(labels)
    for _ in range(ROUNDS):
        before = value
        for device in range(k):
            if stop():
                return labels
            moved = _move(costs, labels, device)
            cost = FAR if moved is None else costs.cost(moved)
            if moved is not None and cost < value:
                labels, value = moved, cost
        if value == before:
            break
    return labels


def _move(costs: LabelCosts, labels: Ints, device: int) -> Ints | None:
    """Keep (0) or move to the device (1): the cheapest choice of the simplified cost."""
    every = np.arange(len(labels))
    unary = np.stack([costs.unary[every, labels], costs.unary[:, device]], axis=1)
    pair, table = _all_pairs(costs, labels)
    first, second = labels[pair[:, 0]], labels[pair[:, 1]]
    rows = np.arange(len(pair))
    stay = table[rows, first, second]
    there, back = table[rows, first, device], table[rows, device, second]
    # stay + 0 <= there + back, or else `stay` is cut down to it; then it is shared out to leave a pair of arcs.
    stay = np.minimum(stay, np.minimum(there + back, FAR))
    cost = np.zeros((len(pair), 2, 2), np.int64)
    taken = np.minimum(stay, there)
    open_ones = stay < FAR
    np.add.at(unary[:, 0], pair[open_ones, 0], taken[open_ones])
    np.add.at(unary[:, 0], pair[open_ones, 1], (stay - taken)[open_ones])
    cost[:, 0, 1] = np.where(there < FAR, there - np.where(open_ones, taken, 0), FAR)
    cost[:, 1, 0] = np.where(back < FAR, back - np.where(open_ones, stay - taken, 0), FAR)
    unary = np.minimum(unary, FAR)
    empty = np.zeros(0, np.int64)
    cut = minimum_cut(
        replace(
            costs,
            unary=unary,
            pair=pair,
            pair_cost=cost,
            star_tensor=empty,
            star_home=empty,
            star_ptr=np.zeros(1, np.int64),
            star_of=empty,
            star_cost=np.zeros((0, 2, 2), np.int64),
        )
    )
    return None if cut is None else np.where(cut.labels == 1, device, labels)


def _all_pairs(costs: LabelCosts, labels: Ints) -> tuple[Ints, Ints]:
    """Pairs, and for every reader of a star one more: readers on one device share the cost of a transfer."""
    sizes = np.diff(costs.star_ptr)
    star = np.repeat(np.arange(len(sizes)), sizes)
    key = star * costs.unary.shape[1] + labels[costs.star_of]
    sharing = np.bincount(key, minlength=1)[key] if len(key) else key
    cost = costs.star_cost[star]
    cost = np.where(cost < FAR, cost // np.maximum(sharing, 1)[:, None, None], FAR)
    pair = np.concatenate([costs.pair, np.stack([costs.star_home[star], costs.star_of], axis=1)])
    return pair, np.concatenate([costs.pair_cost, cost])
