"""A layout that serves requests, event by event: tokens per second, time to the first token, time per token.

In: a LayerProblem, instances and lanes, a profile, requests, rules. Out: a `ServingRun`. A request goes its lane: over
a link to the first instance, through the layers that it uses there, over the next link, and back to where it came from;
then its next token goes the same way. An instance works on one batch at a time, layer after layer: all requests that
decode and wait there, and as many prompts as a batch may hold, in the order in which they came; whoever comes later
waits until the batch is through. So a decode that meets a prompt travels with it. A link sends one message after
another. Room for a prompt and an answer of mean length is taken on every layer until the request ends; while there is
none the next request waits, and all behind it. Simplified: no caches are shared or moved, prompts are not cut into
chunks, and what the tables of rates in the problem say is not used here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from weftline.errors import InfeasibleError, InputError, UsageError
from weftline.graph.arrays import Ints
from weftline.problem.layers import RATE_SCALE, SINK_NODE, SOURCE_NODE, LayerProblem
from weftline.problem.serving import (
    Requests,
    ServedLayout,
    ServingProfile,
    ServingRules,
    ServingUnit,
    check_requests,
    dense_times,
    unit_profiles,
)
from weftline.simulate.kernels.serving import ServingTables, run_serving

__all__ = ["ServingRun", "Spread", "serving_tables", "simulate_serving", "token_room", "wires"]

MOST_TOKENS_SEEN = 4_000_000
"""Times of so many tokens are kept; a run that makes more ends there."""
MOST_TABLE_ENTRIES = 2**26
"""Of all units together."""
SLOWEST_LINK = RATE_SCALE
"""A token per second."""
SHARE_SCALE = 2**20
"""Rates of lanes as whole shares of the largest."""
NS_PER_SECOND, PS_PER_SECOND, PS_PER_NS = 10**9, 10**12, 1000


@dataclass(frozen=True)
class Spread:
    """Times in ns; all 0 where nothing was measured."""

    mean_ns: int = 0
    p50_ns: int = 0
    p95_ns: int = 0

    @staticmethod
    def of(times: Ints) -> Spread:
        """Of some times: the mean rounded down, percentiles that occurred."""
        if not len(times):
            return Spread()
        ordered = np.sort(times)
        p50, p95 = (int(ordered[len(ordered) * percent // 100]) for percent in (50, 95))
        return Spread(int(ordered.sum()) // len(ordered), p50, p95)


@dataclass(frozen=True)
class ServingRun:
    """What was measured, from the end of the warm-up on."""

    measured_ns: int
    prompts: int
    """That were done."""
    tokens: int
    """That were made after prompts."""
    first: Spread
    """Time to the first token: from arrival, offline from when a request was let in, to the end of its prompt."""
    token: Spread
    """Time per token after it."""
    busy: tuple[Fraction, ...]
    """Share of the measured time in which each instance worked."""
    resident: int
    """The most requests that were inside at once."""

    @property
    def rate(self) -> int:
        """Tokens made after prompts, per million seconds, rounded down."""
        return self.tokens * RATE_SCALE * NS_PER_SECOND // self.measured_ns


def simulate_serving(
    problem: LayerProblem,
    layout: ServedLayout,
    profile: ServingProfile,
    requests: Requests,
    rules: ServingRules | None = None,
    *,
    drain: bool = False,
) -> ServingRun:
    """Run it. Offline the run ends when the last request has been let in, unless all are waited for (`drain`)."""
    rules = (rules or ServingRules()).check()
    tables = serving_tables(problem, layout, profile, check_requests(requests), rules, drain=drain)
    first_ns = np.zeros(len(requests.lengths), np.int64)
    outputs = sum(output for _, output in requests.lengths)
    token_ns = np.zeros(min(outputs, MOST_TOKENS_SEEN), np.int64)
    work = np.zeros(len(layout.instances), np.int64)
    counts = run_serving(tables, first_ns, token_ns, work)
    _, _, _, _, _, _, firsts, tokens, peak, end, never = counts.tolist()
    if never:
        prompt = requests.lengths[never - 1][0]
        raise InfeasibleError(f"request {never - 1}, with a prompt of {prompt} tokens, has room on no lane")
    measured = end - rules.warm_up_ns
    if measured <= 0:
        raise InputError(
            f"the {len(requests.lengths)} requests had all been let in before the warm-up was over",
            hint="give more of them, or a shorter warm-up",
        )
    return ServingRun(
        measured,
        firsts,
        tokens,
        Spread.of(first_ns[:firsts]),
        Spread.of(token_ns[:tokens]),
        tuple(Fraction(part, measured) for part in work.tolist()),
        peak,
    )


def token_room(problem: LayerProblem, layout: ServedLayout, profile: ServingProfile) -> tuple[list[int], int]:
    """(tokens of cache for each layer of every instance, those of the layer of the model that has the fewest)."""
    units = unit_profiles(problem, profile)
    rooms, layers = [], [0] * problem.layers
    for number, one in enumerate(layout.instances):
        own = units[one.unit]
        if not 1 <= one.held <= len(own.room):
            raise InputError(f"instance {number}: {own.name!r:.60} cannot hold {one.held} layers with room for caches")
        rooms.append(own.room[one.held - 1])
        for layer in range(one.first, one.last):
            layers[layer] += rooms[-1]
    return rooms, min(layers)


def wires(problem: LayerProblem, rules: ServingRules) -> Callable[[int, int], tuple[int, int]]:
    """(from, to), numbers of devices or of the two ends -> (ps for each token, latency in ns) of a hop."""
    rates = None if problem.links is None else {(a, b): rate for a, b, rate in problem.links}
    late = {(a, b): ns for a, b, ns in rules.latencies}

    def cost(source: int, target: int) -> tuple[int, int]:
        ns = late.get((source, target), rules.hop_ns)
        if rates is None:
            return 0, ns
        rate = rates.get((source, target), 0)
        if rate < SLOWEST_LINK:
            raise InputError(f"the link {source} -> {target}, which a lane needs, carries less than a token per second")
        return PS_PER_SECOND * RATE_SCALE // rate, ns

    return cost


def serving_tables(
    problem: LayerProblem,
    layout: ServedLayout,
    profile: ServingProfile,
    requests: Requests,
    rules: ServingRules,
    *,
    drain: bool = False,
) -> ServingTables:
    """What the kernel reads."""
    units = unit_profiles(problem, profile)
    _check_lanes(problem, layout)
    rooms, least = token_room(problem, layout, profile)
    sections, cuts = _sections(layout)
    hops, lanes, links = _lane_rows(problem, layout, rules, cuts)
    end = rules.warm_up_ns + rules.duration_ns
    row = {number: place for place, number in enumerate(sorted({one.unit for one in layout.instances}))}
    used = [units[number] for number in row]
    _check_lengths(requests, used)
    prompts, decodes = (_stacked([getattr(unit, name) for unit in used]) for name in ("prompt", "decode"))
    percent = rules.instance_percent
    instance = [
        (row[one.unit], *cuts[i][1:], units[one.unit].prompts[one.held - 1], room * one.held * percent // 100)
        for i, (one, room) in enumerate(zip(layout.instances, rooms, strict=True))
    ]
    slowest = int(prompts.max() + decodes.max()) * problem.layers
    _check_range(requests, rules, slowest, max(ps for ps, _ in links), len(layout.instances))
    arrivals = requests.arrivals or (-1,) * len(requests.lengths)
    asked = [(*lengths, arrival) for lengths, arrival in zip(requests.lengths, arrivals, strict=True)]
    offline = not requests.arrivals
    room, at_once, pause = least * rules.layer_percent // 100, rules.prompts_at_once, rules.pause_ns
    expected, limits = round(requests.mean_output), (at_once, pause) if offline else (0, 0)
    settings = [rules.warm_up_ns, end, room, limits[0], expected, rules.copy_ns, int(drain), limits[1]]
    reach = [(unit.prompt[-1][0], unit.decode[-1][0]) for unit in used]
    rows: tuple[Any, ...] = (instance, hops, lanes, links, sections, prompts, decodes, reach, asked, settings)
    return ServingTables._make(np.array(part, np.int64) for part in rows)


def _stacked(tables: list[tuple[tuple[int, int], ...]]) -> Ints:
    """Dense times of all units, one row each."""
    if len(tables) * max(table[-1][0] for table in tables) > MOST_TABLE_ENTRIES:
        raise InputError("the tables of these units reach too far to be simulated", hint="end them at what is needed")
    rows = [dense_times(table) for table in tables]
    found = np.zeros((len(rows), max(map(len, rows))), np.int64)
    for row, times in zip(found, rows, strict=True):
        row[: len(times)] = times
    return found


def _check_lanes(problem: LayerProblem, layout: ServedLayout) -> None:
    if not layout.lanes:
        raise InfeasibleError("nothing is served: there is no lane")
    for number, lane in enumerate(layout.lanes):
        position = 0
        for i, first, last in lane.hops:
            one = layout.instances[i] if 0 <= i < len(layout.instances) else None
            if one is None or first != position or not one.first <= first < last <= one.last:
                raise UsageError(f"lane {number} has a hole, or uses layers that instance {i} does not hold")
            position = last
        if position != problem.layers or lane.rate < 1:
            raise UsageError(f"lane {number} ends at layer {position} of {problem.layers}, or has no rate")


def _check_lengths(requests: Requests, units: list[ServingUnit]) -> None:
    longest = max(prompt for prompt, _ in requests.lengths)
    for unit in units:
        if longest > unit.prompt[-1][0]:
            raise InputError(
                f"a prompt of {longest} tokens, but {unit.name!r:.60} was measured up to {unit.prompt[-1][0]}",
                hint="measure longer ones, or leave them out",
            )


def _check_range(requests: Requests, rules: ServingRules, slowest: int, per_token: int, instances: int) -> None:
    """Every moment, also that at which all prompts have crossed one link, times the slots of the kernel is 62 bits."""
    prompts = sum(prompt for prompt, _ in requests.lengths)
    tokens = prompts + sum(output for _, output in requests.lengths)
    last = rules.warm_up_ns + rules.duration_ns + max(requests.arrivals, default=0) + rules.pause_ns
    last += slowest + prompts * (rules.copy_ns + per_token // PS_PER_NS + 1)
    last += max([rules.hop_ns, *(ns for _, _, ns in rules.latencies)])
    if last * (instances + len(requests.lengths)) >= 2**62 or tokens * SHARE_SCALE >= 2**62:
        raise UsageError("so much cannot be simulated: ask for fewer or shorter requests, or for a shorter time")


def _sections(layout: ServedLayout) -> tuple[list[int], list[tuple[list[int], int, int]]]:
    """(layers of every section, of every instance: where it is cut, its first section, that of the next instance)."""
    cuts: list[set[int]] = [{one.first, one.last} for one in layout.instances]
    for lane in layout.lanes:
        for i, first, last in lane.hops:
            cuts[i] |= {first, last}
    sections: list[int] = []
    found = []
    for own in map(sorted, cuts):
        begin = len(sections)
        sections += [b - a for a, b in pairwise(own)]
        found.append((own, begin, len(sections)))
    return sections, found


def _lane_rows(
    problem: LayerProblem, layout: ServedLayout, rules: ServingRules, cuts: list[tuple[list[int], int, int]]
) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]], list[tuple[int, int]]]:
    """Rows of hops, lanes and links."""
    cost, number, links = wires(problem, rules), {}, []  # type: ignore[var-annotated]
    hops: list[tuple[int, ...]] = []
    lanes: list[tuple[int, ...]] = []
    top = max(lane.rate for lane in layout.lanes)
    for lane in layout.lanes:
        lanes.append((len(hops), len(lane.hops), max(1, lane.rate * SHARE_SCALE // top)))
        here = SOURCE_NODE
        for i, first, last in (*lane.hops, (-1, 0, 0)):
            there = SINK_NODE if i < 0 else layout.instances[i].devices[0]
            if (here, there) not in number:
                number[here, there] = len(links)
                links.append((0, 0) if here == there else cost(here, there))
            if i < 0:
                hops.append((-1, 0, 0, 0, number[here, there]))
            else:
                own, begin, _ = cuts[i]
                enter, leave = begin + own.index(first), begin + own.index(last) - 1
                hops.append((i, enter, leave, last - first, number[here, there]))
            here = there
    return hops, lanes, links
