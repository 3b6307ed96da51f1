"""Two devices: the cheapest labelling is a minimum cut, and its flow is the proof.

In: LabelCosts of two devices. Out: labels and messages (see `messages.py`). Device 0 is the side of the source. A pair
of groups is two arcs; a star is two gates, one for each direction in which its tensor may be sent. What cannot be has
a capacity above every possible cost.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weftline.bounds.label_costs import FAR, LabelCosts, worst_cost
from weftline.bounds.messages import Messages, no_messages
from weftline.graph.arrays import Ints

__all__ = ["Cut", "minimum_cut"]

LARGEST = 2.0**62


class Cut(NamedTuple):
    """The best labelling, and the messages that its flow stands for."""

    value: int
    labels: Ints
    messages: Messages


def minimum_cut(costs: LabelCosts) -> Cut | None:
    """None where nothing is possible, or where the numbers are too large for the flow."""
    from ortools.graph.python.max_flow import SimpleMaxFlow

    groups, stars = len(costs.unary), len(costs.star_home)
    star = np.repeat(np.arange(stars), np.diff(costs.star_ptr))
    source, sink = groups + 2 * stars, groups + 2 * stars + 1
    leaves, enters = groups + np.arange(stars), groups + stars + np.arange(stars)
    never = int(worst_cost(costs)) + 1
    least = costs.unary.min(axis=1)
    above = np.where(costs.unary < FAR, costs.unary - least[:, None], never)
    same = costs.pair_cost[:, [0, 1], [0, 1]]
    if np.any(least >= FAR) or np.any(same != 0):
        return None
    there, back = _length(costs.pair_cost[:, 0, 1], never), _length(costs.pair_cost[:, 1, 0], never)
    out, into = _length(costs.star_cost[:, 0, 1], never), _length(costs.star_cost[:, 1, 0], never)
    first, second = costs.pair.T
    every = np.arange(groups)
    parts = [
        (np.full(groups, source), every, above[:, 1]),
        (every, np.full(groups, sink), above[:, 0]),
        (first, second, there),
        (second, first, back),
        (costs.star_home, leaves, out),
        (leaves[star], costs.star_of, out[star]),
        (costs.star_of, enters[star], into[star]),
        (enters, costs.star_home, into),
    ]
    tail, head, room = (np.concatenate(column).astype(np.int64) for column in zip(*parts, strict=True))
    if never * float(len(room)) > LARGEST:
        return None
    network = SimpleMaxFlow()
    arcs = network.add_arcs_with_capacity(tail, head, room)
    if network.solve(source, sink) != network.OPTIMAL or network.optimal_flow() >= never:
        return None
    ends = np.cumsum([len(part[0]) for part in parts])
    flow = np.split(np.asarray(network.flows(arcs), np.int64), ends[:-1])
    labels = np.ones(groups + 2 * stars + 2, np.int64)
    labels[network.get_source_side_min_cut()] = 0
    return Cut(int(least.sum()) + network.optimal_flow(), labels[:groups], _messages(costs, flow))


def _length(table: Ints, never: int) -> Ints:
    return np.where(table < FAR, table, never)


def _messages(costs: LabelCosts, flow: list[Ints]) -> Messages:
    """What flows from one group to another is cost that moves between them, on device 1."""
    messages = no_messages(costs)
    messages.pair[:, 0, 1] = flow[3] - flow[2]
    messages.pair[:, 1, 1] = flow[2] - flow[3]
    place = costs.star_ptr[:-1] + np.arange(len(costs.star_home))
    messages.star[place, 1] = flow[7] - flow[4]
    readers = np.ones(len(messages.star), np.bool_)
    readers[place] = False
    messages.star[readers, 1] = flow[5] - flow[6]
    return messages
