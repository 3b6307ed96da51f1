"""Stages whose instances are joined by links that limit: annealing with the largest flow as its judge.

In: a LayerProblem of single devices, a rate that is wanted. Out: instances that reach it, or the best that came near.
A state is an order of stages, each a set of devices. A stage holds as many layers as its devices can serve at the
wanted rate; what is missing is layers, and flow through the links that are there. Simplified: stages are disjoint and
hold the same layers on all their devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weftline.problem.layers import SINK_NODE, SOURCE_NODE, LayerInstance, LayerProblem
from weftline.simulate.kernels.jit import kernel, part
from weftline.simulate.kernels.max_flow import add_arc, push_flow
from weftline.simulate.kernels.random import RandomGenerator, below, make_generator, unit
from weftline.simulate.sentinels import NOBODY

__all__ = ["LinkedStages", "Walk", "linked_stages", "place_of", "stage_walk", "walk_instances"]

Whole = NDArray[np.int64]
Network = tuple[Whole, Whole, Whole, Whole]
MOST_LINKED = 2_000
"""Devices; with more of them walks take too long."""
MOST_LOOKS = 2 * 10**9
"""Pairs of devices that are looked at in one walk."""
FLOW_WEIGHT, JOINT_WEIGHT = 40.0, 8.0
"""What all of the flow is worth, and what can pass between two stages, in layers."""


@dataclass(frozen=True, eq=False)
class LinkedStages:
    """A problem as arrays. D devices, K layers at most in one of them."""

    rates: Whole
    """(D, K + 1): of a device that holds so many layers."""
    room: Whole
    """(D + 1, D + 1): links; the last row is the source, the last column the sink."""
    layers: int
    most_stages: int
    widest: int
    """Devices of a stage."""

    @property
    def most_steps(self) -> int:
        """Changes in one walk."""
        return int(max(1, MOST_LOOKS // len(self.rates) ** 2))


@dataclass(frozen=True, eq=False)
class Walk:
    """Where annealing has ended. `place` (D,): stage of each device, -1 for idle; `lengths`: layers of each stage."""

    place: Whole
    lengths: Whole
    energy: float


def linked_stages(problem: LayerProblem) -> LinkedStages | None:
    """The arrays; None where groups of devices work as one, or one pool has several units."""
    if (
        problem.offsets[-1] > MOST_LINKED
        or any(unit.size > 1 for unit in problem.units)
        or len({unit.pool for unit in problem.units}) < len(problem.units)
    ):
        return None
    count = problem.offsets[-1]
    longest = min(problem.layers, max(len(unit.rates) for unit in problem.units))
    unit_of = {unit.pool: number for number, unit in enumerate(problem.units)}
    rates = np.zeros((count, longest + 1), np.int64)
    for device, pool in enumerate(problem.pool_of):
        if pool in unit_of:
            rates[device, 1:] = [problem.rate(unit_of[pool], held) for held in range(1, longest + 1)]
    most = int(rates.max(initial=0))
    room = np.full((count + 1, count + 1), most if problem.links is None else 0, np.int64)
    for a, b, rate in problem.links or ():
        if not (a == SOURCE_NODE and b == SINK_NODE):
            room[count if a == SOURCE_NODE else a, count if b == SINK_NODE else b] = min(rate, most)
    if problem.ports is not None:
        into, out = (np.array([both[i] for both in problem.ports], np.int64) for i in (0, 1))
        rates = np.minimum(rates, np.minimum(into, out)[:, None])
    return LinkedStages(rates, room, problem.layers, problem.depth_limit, problem.copies_limit)


def stage_walk(
    about: LinkedStages, rate: int, start: Whole | None, *, steps: int, seed: int, heat: float = 4.0
) -> Walk:
    """Anneal towards a rate, from stages that are known or from all devices in one row."""
    devices = len(about.rates)
    steps = min(steps, about.most_steps)
    place = np.full(devices, NOBODY, np.int64)
    if start is not None:
        place[:] = start
    random = make_generator(seed, rate % 2**31)
    if start is None:
        order = np.random.default_rng(seed).permutation(devices)
        row = np.arange(devices)
        crowded = about.most_stages - 1 if about.widest >= devices else NOBODY
        place[order] = np.where(row < about.most_stages, row, crowded)
    found, lengths, energy = anneal_stages(
        (about.rates, about.room), (about.layers, about.most_stages, about.widest), rate, place, (steps, heat), random
    )
    return Walk(found, lengths, float(energy))


def walk_instances(problem: LayerProblem, walk: Walk) -> list[LayerInstance]:
    """Of the devices that hold something."""
    unit_of = {unit.pool: number for number, unit in enumerate(problem.units)}
    begins = np.concatenate([[0], np.cumsum(walk.lengths)]).tolist()
    return [
        LayerInstance(unit_of[problem.pool_of[device]], (device,), begins[stage], begins[stage + 1])
        for device, stage in enumerate(walk.place.tolist())
        if stage >= 0 and begins[stage + 1] > begins[stage]
    ]


def place_of(problem: LayerProblem, instances: Sequence[LayerInstance]) -> Whole:
    """The stage of each device, for a walk to begin with; instances that overlap stages become stages of their own."""
    spans = sorted({(one.first, one.last) for one in instances})
    place = np.full(problem.offsets[-1], NOBODY, np.int64)
    for one in instances:
        place[one.devices[0]] = spans.index((one.first, one.last))
    return place


@part
def _lengths(tables: tuple[Whole, Whole], place: Whole, wanted: tuple[int, int], lengths: Whole, sums: Whole) -> int:
    """Layers of every stage at the wanted rate -> the number of stages."""
    rates, _ = tables
    layers, rate = wanted
    stages = 0
    for d in range(len(place)):
        stages = max(stages, place[d] + 1)
    sums[:stages] = 0
    for d in range(len(place)):
        if place[d] >= 0:
            for held in range(1, rates.shape[1]):
                sums[place[d], held] += rates[d, held]
    total = 0
    for s in range(stages):
        lengths[s] = 1
        for held in range(rates.shape[1] - 1, 0, -1):
            if sums[s, held] >= rate:
                lengths[s] = held
                break
        total += lengths[s]
    while total > layers:  # the longest are shortened
        longest = 0
        for s in range(stages):
            if lengths[s] > lengths[longest]:
                longest = s
        lengths[longest] -= 1
        total -= 1
    return stages


@part
def _energy(
    tables: tuple[Whole, Whole],
    place: Whole,
    wanted: tuple[int, int],
    room_for: tuple[Whole, Whole, Whole, Whole],
    net: Network,
    work: tuple[Whole, Whole, Whole],
) -> float:
    """Layers that are missing, and the share of the flow that does not come through."""
    rates, room = tables
    lengths, sums, into, out = room_for
    layers, rate = wanted
    stages = _lengths(tables, place, wanted, lengths, sums)
    missing, devices = layers, len(place)
    for s in range(stages):
        missing -= lengths[s]
    head = net[0]
    head[:] = -1
    into[:] = 0
    out[:] = 0
    arcs, source, sink = 0, 2 * devices, 2 * devices + 1
    for d in range(devices):
        s = place[d]
        if s < 0:
            continue
        arcs = add_arc(net, arcs, (2 * d, 2 * d + 1), rates[d, lengths[s]])
        if s == 0 and room[devices, d] > 0:
            arcs = add_arc(net, arcs, (source, 2 * d), room[devices, d])
            into[d] = room[devices, d]
        if s == stages - 1 and room[d, devices] > 0:
            arcs = add_arc(net, arcs, (2 * d + 1, sink), room[d, devices])
            out[d] = room[d, devices]
        for e in range(devices):
            if place[e] == s + 1 and room[d, e] > 0:
                arcs = add_arc(net, arcs, (2 * d + 1, 2 * e), room[d, e])
                out[d] += room[d, e]
                into[e] += room[d, e]
    sums[: stages + 1, 0] = 0  # what can pass each joint, seen from either side
    sums[: stages + 1, 1] = 0
    for d in range(devices):
        s = place[d]
        if s >= 0:
            sums[s, 1] += min(into[d], rates[d, lengths[s]])
            sums[s + 1, 0] += min(out[d], rates[d, lengths[s]])
    torn = 0.0
    for s in range(stages):
        torn += max(0.0, 1.0 - sums[s, 1] / rate) + max(0.0, 1.0 - sums[s + 1, 0] / rate)
    flow = push_flow(net, source, sink, work)
    return missing + FLOW_WEIGHT * (1.0 - min(1.0, flow / rate)) + JOINT_WEIGHT * torn


@part
def _closed(place: Whole, used: Whole) -> int:
    """Numbers of stages without holes -> how many there are."""
    used[:] = 0
    for d in range(len(place)):
        if place[d] >= 0:
            used[place[d]] = 1
    stages = 0
    for s in range(len(used)):
        taken = used[s]
        used[s] = stages
        stages += taken
    for d in range(len(place)):
        if place[d] >= 0:
            place[d] = used[place[d]]
    return stages


@part
def _width(place: Whole, used: Whole) -> int:
    """Devices of the largest stage."""
    used[:] = 0
    widest = 0
    for d in range(len(place)):
        if place[d] >= 0:
            used[place[d]] += 1
            widest = max(widest, used[place[d]])
    return widest


@part
def _open_stage(place: Whole, position: int) -> None:
    for d in range(len(place)):
        if place[d] >= position:
            place[d] += 1


@part
def _move(place: Whole, stages: int, random: RandomGenerator) -> None:
    """One of seven changes: move or swap devices, open or split a stage, shift, reverse or merge stages."""
    devices = len(place)
    what, d, e = below(random, 100), below(random, devices), below(random, devices)
    a, b = below(random, max(stages, 1)), below(random, max(stages, 1))
    if what < 25:
        place[d] = a
    elif what < 50:
        place[d], place[e] = place[e], place[d]
    elif what < 60:  # a stage of its own
        position = below(random, stages + 1)
        _open_stage(place, position)
        place[d] = position
    elif what < 68:  # half of a stage goes behind it
        _open_stage(place, a + 1)
        for i in range(devices):
            if place[i] == a and unit(random) < 0.5:
                place[i] = a + 1
    elif what < 80:  # stage a goes to position b
        for i in range(devices):
            s = place[i]
            if s == a:
                place[i] = b
            elif a < s <= b:
                place[i] = s - 1
            elif b <= s < a:
                place[i] = s + 1
    elif what < 88:  # stages a..b backwards
        low, high = min(a, b), max(a, b)
        for i in range(devices):
            if low <= place[i] <= high:
                place[i] = low + high - place[i]
    elif what < 95:  # two stages change places
        for i in range(devices):
            if place[i] == a:
                place[i] = b
            elif place[i] == b:
                place[i] = a
    else:
        for i in range(devices):
            if place[i] == a:
                place[i] = b


@kernel
def anneal_stages(
    tables: tuple[Whole, Whole],
    limits: tuple[int, int, int],
    rate: int,
    start: Whole,
    walk: tuple[int, float],
    random: RandomGenerator,
) -> tuple[Whole, Whole, float]:
    """The stages with the least energy on a walk that cools; ends at once where nothing is missing."""
    devices, longest = len(start), tables[0].shape[1]
    layers, most_stages, widest = limits
    steps, warmest = walk
    wanted = (layers, rate)
    most_arcs = 2 * (3 * devices + devices * devices)
    net = (
        np.full(2 * devices + 2, -1, np.int64),
        np.zeros(most_arcs, np.int64),
        np.zeros(most_arcs, np.int64),
        np.zeros(most_arcs, np.int64),
    )
    nodes = 2 * devices + 2
    work = (np.zeros(nodes, np.int64), np.zeros(nodes, np.int64), np.zeros(nodes + 1, np.int64))
    room_for = (
        np.zeros(devices + 2, np.int64),
        np.zeros((devices + 2, max(longest, 2)), np.int64),
        np.zeros(devices, np.int64),
        np.zeros(devices, np.int64),
    )
    used = np.zeros(devices + 2, np.int64)
    place, tried = start.copy(), start.copy()
    stages = _closed(place, used)
    energy = _energy(tables, place, wanted, room_for, net, work)
    best, best_energy = place.copy(), energy
    for step in range(steps):
        if best_energy <= 0.0:
            break
        heat = warmest * (0.01 ** (step / steps))
        tried[:] = place
        _move(tried, stages, random)
        count = _closed(tried, used)
        if count == 0 or count > most_stages or (widest < devices and _width(tried, used) > widest):
            continue
        other = _energy(tables, tried, wanted, room_for, net, work)
        if other <= energy or unit(random) < np.exp((energy - other) / heat):
            place[:] = tried
            energy, stages = other, count
            if energy < best_energy:
                best[:] = place
                best_energy = energy
    stages = _closed(best, used)
    _lengths(tables, best, wanted, room_for[0], room_for[1])
    return best, room_for[0][:stages].copy(), best_energy
