"""Forward-backward improvement: plan again with a plan at hand, by its late starts instead of the optimistic costs.

In: a Decoder and a Timeline of its problem. Out: another Timeline, which may be worse: whoever asks keeps the best.
`late_tails` moves every op and transfer as late as it can go, last first: how long before the end must each op start?
It is `backfill` with the clock turned round: transfers and ops take the last gap of their ports, buses and devices. Ops
by falling tail are a topological order in which critical ones come first.

`booked_again` keeps the placement and only books it anew, in the order of its late starts (Li and Willis 1992, with
transfers). `look_back` also chooses devices anew: what follows an op is what follows it in the plan, and a transfer
costs, beside its time, its length times the square of how busy its port or bus is there. `Mender` makes chains of such
looks from the policy's decodes; in half of them every other look keeps the bias of the decode, and after the first
looks there is a little noise. Simplified: activations are not looked at. Parallel runtime only; where everything waits
for its turn, both give back what they got.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.latency.anneal.backfill import backfill
from weftline.latency.list.decoder import DEAD_END, Decoder, Floats
from weftline.latency.list.schedulers import PER_DEVICE, PER_OP
from weftline.latency.policy.features import Features
from weftline.latency.policy.network import DecoderBias
from weftline.latency.policy.samples import no_bias
from weftline.problem import Problem
from weftline.simulate import Timeline
from weftline.simulate.kernels.booking import book_transfer, first_rows, occupy
from weftline.simulate.kernels.jit import kernel, part
from weftline.simulate.kernels.sorting import sort_rows
from weftline.simulate.sentinels import NOBODY
from weftline.simulate.tables import Tables, tables

__all__ = ["MOST_CHAINS", "PLAIN_LOOKS", "Mender", "booked_again", "late_tails", "link_use", "look_back"]


SEND_TAIL, SEND_TENSOR, SEND_TARGET = range(3)
"""Columns of `pending`: how long before the end it must be there, which tensor, where."""


def late_tails(table: Tables, placement: Indices, end: Ints) -> Ints:
    """`end` (n,) says who goes last; the devices and links of the placement must exist."""
    last_first = np.lexsort((-np.arange(len(end)), -end)).astype(np.int32)
    tail = np.zeros(len(end), np.int64)
    _push(table, np.ascontiguousarray(placement, np.int32), last_first, tail)
    return tail


@part
def _most_readers(table: Tables) -> int:
    """Of the outputs of one op."""
    most = 0
    for op in range(len(table.time)):
        count = 0
        for k in range(table.output_ptr[op], table.output_ptr[op + 1]):
            tensor = table.output_of[k]
            count += table.consumer_ptr[tensor + 1] - table.consumer_ptr[tensor]
        most = max(most, count)
    return most


@part
def _pending(table: Tables, placement: Indices, op: int, tail: Ints, at: Ints, pending: Ints) -> tuple[int, int]:
    """Fill (tail of the reader, tensor, target) for what the op sends -> how many, and the tail of readers here."""
    here, count, ready = placement[op], 0, 0
    for k in range(table.output_ptr[op], table.output_ptr[op + 1]):
        tensor = table.output_of[k]
        at[:] = -1
        for c in range(table.consumer_ptr[tensor], table.consumer_ptr[tensor + 1]):
            reader = table.consumer_of[c]
            there = placement[reader]
            if there == here:
                ready = max(ready, tail[reader])
            elif table.per_edge:
                pending[count, SEND_TAIL], pending[count, SEND_TENSOR] = tail[reader], tensor
                pending[count, SEND_TARGET] = there
                count += 1
            else:
                at[there] = max(at[there], tail[reader])
        for there in range(len(at)):
            if at[there] >= 0:
                pending[count, SEND_TAIL], pending[count, SEND_TENSOR] = at[there], tensor
                pending[count, SEND_TARGET] = there
                count += 1
    return count, ready


@kernel
def _push(table: Tables, placement: Indices, last_first: Indices, tail: Ints) -> None:
    """Fill `tail`; times count from the end."""
    devices = table.time.shape[1]
    first = first_rows(table, placement)
    number = np.zeros(len(first), np.int64)
    busy = np.zeros((first[-1] + 1, 2), np.int64)
    pending = np.zeros((_most_readers(table) + 1, 3), np.int64)
    room = np.zeros(devices, np.int64)
    for p in range(len(last_first)):
        op = last_first[p]
        here = placement[op]
        count, ready = _pending(table, placement, op, tail, room, pending)
        if count > 1:
            sort_rows(pending, count)
        for i in range(count):
            at, tensor, there = pending[i, SEND_TAIL], pending[i, SEND_TENSOR], pending[i, SEND_TARGET]
            length = int(table.transfer[table.transfer_row[tensor], here, there])
            if length > 0:
                lane = 3 * devices + table.bus[here, there] if table.bus[here, there] >= 0 else NOBODY
                at = book_transfer(busy, first, number, devices + here, 2 * devices + there, lane, at, length)
            ready = max(ready, at + max(length, 0))
        duration = int(table.time[op, here])
        if duration > 0:
            ready, number[here] = occupy(busy, first[here], number[here], ready, duration)
        tail[op] = ready + duration


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


ONE_LOOK, PLAIN_LOOKS = 1, 2
"""Looks back after a single decode, which has milliseconds; of any other chain, how many have no noise."""
MOST_CHAINS = 4
"""Decodes that are mended, where there are many."""
LARGEST_NOISE = 0.4
"""The largest scale of the noise, see `policy_samples`."""
CHAIN_RATES, CHAIN_KEEPS_BIAS = (1.0, 0.5, 2.0, 4.0), (True, False, True, False)
"""Prices of busy links, and whether the lean of the decode is kept, chain by chain: for variety."""


class Mender:
    """Makes chains of plans."""

    def __init__(self, problem: Problem, seen: Features, decoder: Decoder, capacity: Ints | None = None) -> None:
        self._problem, self._seen, self._decoder, self._capacity = problem, seen, decoder, capacity
        self.ends: list[Timeline] = []
        """The best of every chain."""

    @property
    def best(self) -> Timeline | None:
        """Of all chains."""
        return min(self.ends, key=lambda timeline: timeline.value, default=None)

    def mend_one(self, start: Timeline, center: DecoderBias) -> None:
        """What follows a single decode."""
        self._chain(booked_again(self._problem, start), center, ONE_LOOK, CHAIN_RATES[0], None, lambda: False)

    def mend(
        self,
        starts: list[tuple[Timeline, DecoderBias]],
        looks: int,
        random: np.random.Generator,
        over: Callable[[], bool] = lambda: False,
    ) -> None:
        """The first start and the best others, with so many looks together."""
        booked = [(booked_again(self._problem, start), center) for start, center in starts]
        others = sorted(booked[1:], key=lambda entry: entry[0].value)[: MOST_CHAINS - 1]
        for number, (start, center) in enumerate([*booked[:1], *others]):
            share = max(PLAIN_LOOKS, (looks + number) // MOST_CHAINS)
            self._chain(
                start,
                center if CHAIN_KEEPS_BIAS[number] else no_bias(self._seen),
                share,
                CHAIN_RATES[number],
                random,
                over,
            )

    def _chain(
        self,
        now: Timeline,
        center: DecoderBias,
        looks: int,
        rate: float,
        random: np.random.Generator | None,
        over: Callable[[], bool],
    ) -> None:
        self.ends.append(now)
        for number in range(looks):
            bias = self._bias(center, number, random)
            found = look_back(self._problem, self._decoder, now, bias, capacity=self._capacity, rate=rate)
            if found is None or over():
                return
            now = found
            if now.value < self.ends[-1].value:
                self.ends[-1] = now

    def _bias(self, center: DecoderBias, number: int, random: np.random.Generator | None) -> Floats:
        n, k = self._seen.possible.shape
        bias = center.bias if number % 2 == 0 else np.zeros((n, k))
        if random is not None and number >= PLAIN_LOOKS:
            noise = PER_OP * random.standard_normal((n, k)) + PER_DEVICE * random.standard_normal((1, k))
            bias = bias + LARGEST_NOISE * random.random() * noise
        found: Floats = bias * self._seen.unit[:, None]
        return found
