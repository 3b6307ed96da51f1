"""Plan again with a plan at hand: by its late starts instead of the optimistic costs, with a price on busy links.

In: a Decoder and a Timeline of its problem. Out: another Timeline, which may be worse: whoever asks keeps the best.
`booked_again` keeps the placement and only books it anew, in the order of its late starts (forward-backward improvement
of Li and Willis 1992, with transfers). `look_back` also chooses devices anew: what follows an op is what follows it in
the plan, and a transfer costs, beside its time, its length times the square of how busy its port or bus is there.
Parallel runtime only; where everything waits for its turn, both give back what they got.
"""

from __future__ import annotations

import numpy as np

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.place.backfill import backfill
from weftline.place.decoder import Decoder, Floats
from weftline.place.late_starts import late_tails
from weftline.place.optimistic import DEAD_END
from weftline.problem import Problem
from weftline.simulate import Timeline
from weftline.simulate.jit import kernel
from weftline.simulate.tables import Tables, tables

__all__ = ["booked_again", "link_use", "look_back"]


def booked_again(problem: Problem, timeline: Timeline) -> Timeline:
    """The same placement in the order of its late starts, if that ends earlier (then without peaks)."""
    table = tables(problem)
    if table.sequential:
        return timeline
    order, _ = _late_order(table, timeline)
    found = backfill(table, timeline.placement, order)
    return timeline if found is None or found.value >= timeline.value else found


def look_back(
    problem: Problem,
    decoder: Decoder,
    timeline: Timeline,
    bias: Floats | None = None,
    *,
    capacity: Ints | None = None,
    rate: float = 1.0,
) -> Timeline | None:
    """Devices and order anew, booked twice; None where the decode fails.

    `bias` and `capacity` as in `Decoder.decode`; `rate` is the price of a link that is always busy.
    """
    table = tables(problem)
    if table.sequential:
        return timeline
    order, tail = _late_order(table, timeline)
    placement = np.ascontiguousarray(timeline.placement, np.int32)
    price = _price(table, placement, rate * link_use(table, timeline) ** 2)
    if bias is not None:
        price += bias
    try:
        found = decoder.decode(order, price, capacity=capacity, future=_future(table, placement, tail))
    except InfeasibleError:
        return None
    return booked_again(problem, found)


def link_use(table: Tables, timeline: Timeline) -> Floats:
    """(K, K): for what part of the plan's time the busiest of send port, receive port and bus of a link works."""
    k = table.time.shape[1]
    _, source, target, _, start, end = timeline.transfers.T
    part = (end - start) / max(1, timeline.value)
    sent, received = (np.bincount(side, weights=part, minlength=k) for side in (source, target))
    use: Floats = np.maximum(sent[:, None], received[None])
    if table.bus.max() >= 0:
        bus = np.bincount(table.bus[source, target] + 1, weights=part, minlength=int(table.bus.max()) + 2)
        bus[0] = 0.0
        use = np.maximum(use, bus[table.bus + 1])
    return use


def _late_order(table: Tables, timeline: Timeline) -> tuple[Indices, Ints]:
    """Ops by late start, and how long before the end each starts."""
    tail = late_tails(table, timeline.placement, timeline.end)
    return np.argsort(-tail, kind="stable").astype(np.int32), tail


@kernel
def _future(table: Tables, placement: Indices, tail: Ints) -> Ints:
    """(n, K): from the end of an op on a device to the end of everything, if the others stay; ports are free."""
    n, devices = table.time.shape
    future = np.zeros((n, devices), np.int64)
    for op in range(n):
        for k in range(table.output_ptr[op], table.output_ptr[op + 1]):
            tensor = table.output_of[k]
            row = table.transfer_row[tensor]
            for c in range(table.consumer_ptr[tensor], table.consumer_ptr[tensor + 1]):
                reader = table.consumer_of[c]
                for d in range(devices):
                    length = table.transfer[row, d, placement[reader]]
                    future[op, d] = max(future[op, d], length + tail[reader] if length >= 0 else DEAD_END)
    return future


@kernel
def _price(table: Tables, placement: Indices, rate: Floats) -> Floats:
    """(n, K): for all that an op reads and that others read from it, if the others stay."""
    n, devices = table.time.shape
    price = np.zeros((n, devices), np.float64)
    for op in range(n):
        for e in range(np.int64(table.edge_ptr[op]), np.int64(table.edge_ptr[op + 1])):
            row, other = table.transfer_row[table.edge_tensor[e]], placement[table.edge_maker[e]]
            for d in range(devices):
                price[op, d] += rate[other, d] * max(0, table.transfer[row, other, d])
        for k in range(table.output_ptr[op], table.output_ptr[op + 1]):
            tensor = table.output_of[k]
            row = table.transfer_row[tensor]
            for c in range(table.consumer_ptr[tensor], table.consumer_ptr[tensor + 1]):
                other = placement[table.consumer_of[c]]
                for d in range(devices):
                    price[op, d] += rate[d, other] * max(0, table.transfer[row, d, other])
    return price
