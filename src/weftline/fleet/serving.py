"""Which layout serves a language model best: an estimate by Little's law, then the simulator, as a front over depth.

In: a LayerProblem, layouts, a profile, requests. Out: a `ServingRow` for each layout: depth, the rate of the tables,
two estimates, and what the simulator says of tokens per second, time to the first token and time per token.

Offline the room for caches decides how many requests can be inside (N). Little's law: tokens per second = N / round
trip of a token. That round trip is ruled by prompts: a decode that catches up with a prompt travels with it to the end
of the lane (a convoy), so its round trip is that of the prompt less the time since the last one passed. Simplified:
means instead of distributions; the busiest instance stands for all queues; a lane is as wide as its hops are on the
average, weighted by their time; lanes that cross do not break convoys up. Good to rank layouts for the simulator, not
to promise a rate.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from math import expm1
from random import Random
from typing import NamedTuple

import numpy as np

from weftline.errors import InfeasibleError
from weftline.problem.layers import RATE_SCALE, SINK_NODE, SOURCE_NODE, LayerInstance, LayerLane, LayerProblem
from weftline.problem.serving import (
    Requests,
    ServedLayout,
    ServingProfile,
    ServingRules,
    check_requests,
    dense_times,
    unit_profiles,
)
from weftline.simulate.serving import ServingRun, simulate_serving, token_room, wires

__all__ = [
    "LittleEstimate",
    "ServingRow",
    "crossed_lanes",
    "little_estimate",
    "prepare",
    "rank_layouts",
    "serve_front",
    "stage_lanes",
]

RATE_BISECTIONS = 100
"""Halvings of the interval in which a rate lies: more than a float can tell apart."""
CROSSED_PARTS = 64
"""Into so many equal parts lanes are cut before they exchange their ends."""
MOST_SIMULATED = 10
"""Layouts that are simulated, the best of the ranking, unless told."""
NS_PER_SECOND, PS_PER_NS = 10**9, 1000


_Hops = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class LittleEstimate:
    """What Little's law says of a layout. Times in ns."""

    rate: int
    """Tokens made after prompts, per million seconds."""
    resident: int
    """Requests of mean lengths that have room for their caches."""
    prompt_way_ns: int
    """A prompt alone."""
    decode_way_ns: int
    """A token alone."""
    prompt_ns: int
    """A prompt that waits for others."""
    round_trip_ns: int
    """Time per token."""
    busy: float
    """Share of its time that the busiest instance spends on prompts."""


@dataclass(frozen=True)
class _Ways:
    """Of a layout, in seconds."""

    prompt: float
    decode: float
    works: dict[int, tuple[float, float]]
    """Of each instance: time for prompts of one request (mean over all requests), and its share of decode time."""
    width: float


@dataclass(frozen=True)
class ServingRow:
    """One layout on the front. Rates in tokens per million seconds."""

    layout: int
    """Its number among those that were given."""
    depth: int
    table_rate: int
    """Sum of its lanes: prompt and answer tokens together, by the tables of the problem."""
    convoy: LittleEstimate
    """Estimate with whole prompts in batches."""
    no_convoy: LittleEstimate
    """With prompts in chunks, or on devices of their own."""
    run: ServingRun | None
    """What the simulator says (whole prompts); None for layouts that were only ranked."""
    best: bool = False
    """No other row that was simulated has both a higher rate and a shorter time to the first token."""


def stage_lanes(problem: LayerProblem, instances: Sequence[LayerInstance]) -> tuple[LayerLane, ...]:
    """Lanes through stages, sets of instances with the same layers: each instance has a share like its table rate.

    The rate is that of the slowest stage. There are fewer lanes than instances, not all combinations: stages are laid
    side by side from 0 to the rate, and a lane is what lies between two borders.
    """
    stages: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, one in enumerate(instances):
        stages[one.first, one.last].append(number)
    order = sorted(stages)
    joined = [0, *(last for _, last in order)] == [*(first for first, _ in order), problem.layers]
    most = [[problem.rate(instances[i].unit, last - first) for i in stages[first, last]] for first, last in order]
    total = min(map(sum, most), default=0)
    if not joined or total < 1:
        raise InfeasibleError("these instances are no stages one behind the other, or one of them serves nothing")
    borders = [np.cumsum([0, *rates]).tolist() for rates in most]
    ends = [[border * total // own[-1] for border in own[1:]] for own in borders]
    lanes, position = [], 0
    for end in sorted({end for own in ends for end in own}):
        if end > position:
            taken = [next(k for k, border in enumerate(own) if border > position) for own in ends]
            hops = tuple((stages[span][k], *span) for span, k in zip(order, taken, strict=True))
            lanes.append(LayerLane(end - position, hops))
            position = end
    return tuple(lanes)


def crossed_lanes(
    problem: LayerProblem, layout: ServedLayout, parts: int = CROSSED_PARTS, seed: int = 0
) -> tuple[LayerLane, ...]:
    """The same shares of every instance, no lane deeper than before, but lanes that cross where they meet.

    Who has travelled behind a prompt on one instance is then seldom behind it on the next: convoys fall apart where a
    stage has several instances. Lanes are cut into equal parts, and at every layer parts exchange their ends at random,
    unless a link would have to carry more than it can.
    """
    total, deepest = sum(lane.rate for lane in layout.lanes), max(len(lane.hops) for lane in layout.lanes)
    size, random = max(1, total // max(1, parts)), Random(seed)
    pieces = [lane.hops for lane in layout.lanes for _ in range(lane.rate // size)]
    crossed = Counter({lane.hops: lane.rate % size for lane in layout.lanes})
    links = _Links(problem, layout, size)
    for position in sorted({last for hops in pieces for _, _, last in hops[:-1]}):
        before = {n: [last for _, _, last in hops].index(position) + 1 for n, hops in _at(pieces, position)}
        meeting = list(before)
        for place in range(len(meeting) - 1, 0, -1):
            a, b = meeting[place], meeting[random.randint(0, place)]
            one, other = pieces[a], pieces[b]
            new = one[: before[a]] + other[before[b] :], other[: before[b]] + one[before[a] :]
            hops = (one[before[a] - 1], one[before[a]], other[before[b] - 1], other[before[b]])
            if max(map(len, new)) <= deepest and links.exchange(*(hop[0] for hop in hops)):
                pieces[a], pieces[b] = new
    for way in pieces:
        crossed[way] += size
    return tuple(LayerLane(rate, hops) for hops, rate in crossed.items() if rate)


def _at(pieces: Sequence[_Hops], position: int) -> list[tuple[int, _Hops]]:
    """Those that end a hop at a layer."""
    return [(number, hops) for number, hops in enumerate(pieces) if any(last == position for _, _, last in hops)]


class _Links:
    """What links between devices carry, while parts of lanes exchange their ends."""

    def __init__(self, problem: LayerProblem, layout: ServedLayout, size: int) -> None:
        self.device, self.size = [one.devices[0] for one in layout.instances], size
        self.most = None if problem.links is None else {(a, b): rate for a, b, rate in problem.links}
        self.carried: Counter[tuple[int, int]] = Counter()
        for lane in layout.lanes:
            for (i, _, _), (j, _, _) in pairwise(lane.hops):
                self.carried[self.device[i], self.device[j]] += lane.rate

    def exchange(self, a: int, a_next: int, b: int, b_next: int) -> bool:
        """Instances a -> a_next and b -> b_next become a -> b_next and b -> a_next, if links can carry it."""
        here = [self.device[i] for i in (a, a_next, b, b_next)]
        old, new = [(here[0], here[1]), (here[2], here[3])], [(here[0], here[3]), (here[2], here[1])]
        for link, change in (*((link, -self.size) for link in old), *((link, self.size) for link in new)):
            self.carried[link] += change
        most = self.most
        if most is None or all(x == y or self.carried[x, y] <= most.get((x, y), 0) for x, y in new):
            return True
        for link, change in (*((link, self.size) for link in old), *((link, -self.size) for link in new)):
            self.carried[link] += change
        return False


def little_estimate(
    problem: LayerProblem,
    layout: ServedLayout,
    profile: ServingProfile,
    requests: Requests,
    rules: ServingRules | None = None,
    *,
    convoy: bool = True,
) -> LittleEstimate:
    """The largest rate D with D * round trip(D) <= N.

    With convoys: P = prompt way * (1 + busy / (2 (1 - busy))), and the age of the last prompt of a lane is exponential:
    round trip = P - (1 - exp(-l (P - decode way))) / l, where l are prompts per second and lane. Without: each hop
    shares its time with the prompts, so a token needs 1 / (1 - busy) times as long there.
    """
    rules = (rules or ServingRules()).check()
    _, least = token_room(problem, layout, profile)
    resident = least * rules.layer_percent // 100 // round(requests.mean_prompt + requests.mean_output)
    ways, output = _ways(problem, layout, profile, requests, rules), requests.mean_output
    if resident < 1 or output <= 0:
        raise InfeasibleError("there is no room for the caches of one request of mean length")
    slowest = max(work for work, _ in ways.works.values())

    def times(rate: float) -> tuple[float, float]:
        """Prompt and round trip, in seconds, at this many tokens per second."""
        prompts = rate / output
        busy = prompts * slowest
        prompt = ways.prompt * (1 + busy / (2 * (1 - busy)))
        if not convoy:
            stretched = sum(share * (1 / (1 - prompts * work) - 1) for work, share in ways.works.values())
            return prompt, ways.decode + stretched
        lane = prompts / ways.width
        return prompt, prompt + expm1(-lane * (prompt - ways.decode)) / lane

    low, high = 0.0, output / slowest if slowest > 0 else resident / ways.decode
    for _ in range(RATE_BISECTIONS):
        middle = (low + high) / 2
        if 0 < middle < high and middle * times(middle)[1] <= resident:
            low = middle
        else:
            high = middle
    prompt, trip = times(low) if low > 0 else (ways.prompt, ways.decode)
    alone, token, busy_prompt, round_trip = (int(s * NS_PER_SECOND) for s in (ways.prompt, ways.decode, prompt, trip))
    rate, busy = int(low * RATE_SCALE), low / output * slowest
    return LittleEstimate(rate, resident, alone, token, busy_prompt, round_trip, busy)


def _ways(
    problem: LayerProblem, layout: ServedLayout, profile: ServingProfile, requests: Requests, rules: ServingRules
) -> _Ways:
    """Means over the lanes, by their rates."""
    units, cost = unit_profiles(problem, profile), wires(problem, rules)
    lengths = np.array([prompt for prompt, _ in requests.lengths])
    tokens = requests.mean_prompt
    used = {one.unit for one in layout.instances}
    prompt_s = {u: float(dense_times(units[u].prompt)[lengths].mean()) / NS_PER_SECOND for u in used}
    decode_s = {u: float(dense_times(units[u].decode)[1]) / NS_PER_SECOND for u in used}
    total = sum(lane.rate for lane in layout.lanes)
    share: dict[int, float] = defaultdict(float)
    for lane in layout.lanes:
        for i, _, _ in lane.hops:
            share[i] += lane.rate / total
    prompt, decode, weighted, weights = 0.0, 0.0, 0.0, 0.0
    works: dict[int, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for lane in layout.lanes:
        part, here = lane.rate / total, SOURCE_NODE
        for i, first, last in (*lane.hops, (-1, 0, 0)):
            there = SINK_NODE if i < 0 else layout.instances[i].devices[0]
            per_token, latency = (0, 0) if here == there else cost(here, there)
            prompt += part * (latency + tokens * per_token / PS_PER_NS) / NS_PER_SECOND
            decode += part * (latency + per_token / PS_PER_NS) / NS_PER_SECOND
            here = there
            if i < 0:
                continue
            unit, held = layout.instances[i].unit, last - first
            copied = rules.copy_ns / NS_PER_SECOND
            whole, single = held * prompt_s[unit] + tokens * copied, held * decode_s[unit] + copied
            prompt += part * (whole + single)
            decode += part * single
            works[i] = works[i][0] + part * whole, works[i][1] + part * single
            weighted += part * (whole + single) / share[i]
            weights += part * (whole + single)
    return _Ways(prompt, decode, dict(works), weighted / weights)


def rank_layouts(
    problem: LayerProblem,
    layouts: Iterable[ServedLayout],
    profile: ServingProfile,
    requests: Requests,
    rules: ServingRules | None = None,
    *,
    convoy: bool = True,
) -> list[tuple[int, LittleEstimate]]:
    """(number of a layout, its estimate), the highest rate first; layouts without room are left out."""
    found = []
    for number, layout in enumerate(layouts):
        try:
            found.append((number, little_estimate(problem, layout, profile, requests, rules, convoy=convoy)))
        except InfeasibleError:
            continue
    return sorted(found, key=lambda row: (-row[1].rate, row[0]))


def serve_front(
    problem: LayerProblem,
    layouts: Sequence[ServedLayout],
    profile: ServingProfile,
    requests: Requests,
    rules: ServingRules | None = None,
    *,
    simulated: int = MOST_SIMULATED,
) -> list[ServingRow]:
    """Rank layouts by Little's law, simulate the best of them; rows by depth, then by the rate of the tables."""
    rules, requests = (rules or ServingRules()).check(), check_requests(requests)
    rows = []
    for place, (number, convoy) in enumerate(rank_layouts(problem, layouts, profile, requests, rules)):
        layout = layouts[number]
        free = little_estimate(problem, layout, profile, requests, rules, convoy=False)
        run = simulate_serving(problem, layout, profile, requests, rules) if place < simulated else None
        depth, rate = max(len(lane.hops) for lane in layout.lanes), sum(lane.rate for lane in layout.lanes)
        rows.append(ServingRow(number, depth, rate, convoy, free, run))
    if not rows:
        raise InfeasibleError("none of the layouts has room for the caches of one request of mean length")
    runs = [row.run for row in rows if row.run is not None]
    rows = [replace(row, best=row.run is not None and not _beaten(row.run, runs)) for row in rows]
    return sorted(rows, key=lambda row: (row.depth, row.table_rate, row.layout))


def _beaten(run: ServingRun, runs: Sequence[ServingRun]) -> bool:
    own = run.rate, -run.first.mean_ns
    others = [(other.rate, -other.first.mean_ns) for other in runs]
    return any(rate >= own[0] and first >= own[1] and (rate, first) != own for rate, first in others)


@cache
def prepare() -> None:
    """Compile (or load) the kernel before a clock runs."""
    from weftline.problem.layers import DevicePool, LayerUnit
    from weftline.problem.serving import ServingUnit, fixed_requests

    problem = LayerProblem("one", 1, (DevicePool("one", 1),), (LayerUnit("one", 0, (1,)),))
    unit = ServingUnit("one", ((0, 0), (8, 8)), ((0, 0), (8, 8)), (64,), (1,))
    layout = _Layout((LayerInstance(0, (0,), 0, 1),), (LayerLane(1, ((0, 0, 1),)),))
    profile = ServingProfile("one", 1, (unit,), 1, 1)
    simulate_serving(problem, layout, profile, fixed_requests(1, 1, 1), ServingRules(warm_up_ns=0), drain=True)


class _Layout(NamedTuple):
    instances: tuple[LayerInstance, ...]
    lanes: tuple[LayerLane, ...]
