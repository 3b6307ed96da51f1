"""A rate that no deployment of layers reaches: every layer must be covered, and no request may pass too many instances.

In: a LayerProblem and a rate F. Out: a witness that F is impossible, or that none of this kind was found.
*Theorem.* Let s be a step function of flows, never falling, and g, b, h >= 0 numbers such that flows that add up to F
always have steps that add up to at least g. Take any deployment of rate F, with f(i) the flow through instance i, which
holds k(i) layers. Every layer is covered by flows that add up to F: the sum of k(i) s(f(i)) is at least L g, that of
k(i) f(i) is L F. A request passes at most S instances: the sum of f(i) is at most S F. So the sum over the instances of
k s(f) + (b k - h) f / F is at least L (g + b) - S h. Where the devices together cannot reach that, F is impossible.
No f(i) needs to be above F: a request that comes back to an instance could have stayed there.
*Links.* Call a layer single if one instance alone serves it with all of F. Two single layers in a row are served by one
instance, or over a link that carries F: by devices of one part of the network of such links. So with M other layers
there are at most M + 1 runs of single layers, in as many parts, and a part cannot hold more single layers than its
devices can at rate F: that gives the least M. The flows of such a layer are two or more: g + e at least, not g.
The numbers come from a linear program; sets of flows that add up to F are its rows, found when they are needed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from weftline.problem.layers import LayerProblem
from weftline.search.lp import GrowingProgram
from weftline.simulate.kernels.jit import kernel
from weftline.simulate.sentinels import NOBODY

__all__ = ["Coverage", "CoverageBound", "coverage_limit", "refutes"]

Whole = NDArray[np.int64]
WHOLE_WEIGHT = 5_040
"""Weights are whole numbers; so much is a full set, where the linear program says 1."""
LARGEST_SCALE = 500_000
"""Where sets count little beside the slope, weights are larger, up to so much for 1."""
FINE_WEIGHT = 20_000
"""The same inside the search for missing rows."""
MOST_WIDTH = 2**62
"""Wider sets count no more: sums stay within 64 bits."""
MOST_ROUNDS = 400
MOST_STEPS, MOST_TABLE_ROWS = 1_000, 200_000
"""Steps of flow, from more of them some are taken; and rows of tables: with a limit of depth one for each step."""
PROGRAM_SECONDS = 10.0
LEAST_SLACK = 1e-7
SAME_AS_BEFORE = -2
"""In place of a member: the widest set is that of one weight less."""


@kernel
def widest_sets(weights: Whole, widths: Whole, full: int) -> Whole:
    """(2, full): for every weight the widest multiset that weighs no more, and the last of its members, -1 for none.

    Every weight is at least 1.
    """
    found = np.zeros((2, full), np.int64)
    found[1, :] = NOBODY
    for weight in range(1, full):
        found[0, weight] = found[0, weight - 1]
        found[1, weight] = SAME_AS_BEFORE
        for j in range(len(weights)):
            if weights[j] <= weight:
                width = min(found[0, weight - weights[j]] + widths[j], MOST_WIDTH)
                if width > found[0, weight]:
                    found[0, weight], found[1, weight] = width, j
    return found


def coverage_limit(problem: LayerProblem) -> int:
    """A rate that no deployment exceeds: all that devices can serve, layers times rate, spread over all layers."""
    total = 0
    for number, pool in enumerate(problem.pools):
        best = [
            (max((k + 1) * rate for k, rate in enumerate(unit.rates[: problem.layers])), unit.size)
            for unit in (problem.units[own] for own in problem.units_of[number])
        ]
        total += max((-(-value * pool.count // size) for value, size in best), default=0)
    return total // problem.layers


@dataclass(frozen=True)
class CoverageBound:
    """A witness: this rate is impossible."""

    rate: int
    steps: tuple[tuple[int, int], ...]
    """(flow, weight) of every step: flows above the last one, up to this one, weigh so much."""
    full: int
    slope: int
    hop: int
    extra: int = 0
    """What two or more flows that add up to the rate weigh beyond `full`."""

    def witness(self) -> dict[str, object]:
        """As it stands in files."""
        return {
            "kind": "coverage",
            "rate": self.rate,
            "steps": [list(step) for step in self.steps],
            "full": self.full,
            "slope": self.slope,
            "hop": self.hop,
            "extra": self.extra,
        }


class Coverage:
    """The linear program of one problem; sets that were found at one rate serve at others."""

    def __init__(
        self,
        problem: LayerProblem,
        *,
        grid: int = 24,
        sets: Sequence[tuple[int, ...]] = (),
        left: Callable[[], float | None] = lambda: None,
    ) -> None:
        """`left`: seconds that may still be used, None without a limit."""
        self.problem = problem
        self.grid = grid
        self.left = left
        self.sets = list(sets)
        """Multisets of flows, widest first."""

    def _seconds(self) -> float:
        """For one linear program."""
        left = self.left()
        return PROGRAM_SECONDS if left is None else min(PROGRAM_SECONDS, left)

    def _steps(self, rate: int) -> list[int]:
        served = {min(rate, top) for unit in self.problem.units for top in unit.rates if top > 0}
        extra = {rate * i // self.grid for i in range(1, self.grid)} if self.problem.max_depth is not None else set()
        found = sorted(served | extra | {rate})
        most = MOST_STEPS
        if self.problem.max_depth is not None:
            most = max(1, min(most, MOST_TABLE_ROWS // sum(len(unit.rates) for unit in self.problem.units)))
        return found if len(found) <= most else [*found[: -1 : -(-len(found) // most)], rate]

    def refute(self, rate: int) -> CoverageBound | None:
        """A witness that the rate is impossible, None if there is none of this kind."""
        problem, steps = self.problem, self._steps(rate)
        shared = shared_layers(problem, rate)
        program, columns = self._program(rate, steps, shared)
        place = {flow: j for j, flow in enumerate(steps)}
        for flows in self.sets:
            if sum(flows) >= rate:
                self._row(program, columns, [place.get(min(flow, rate), -1) for flow in flows])
        program.limit(columns[1], 0.0)  # first without sets: depth and slope alone
        answer = program.solve(self._seconds())
        if np.isfinite(answer.value) and answer.value < -LEAST_SLACK * problem.layers:
            numbers = answer.solution[len(steps) : len(steps) + 4]
            if (found := self._witness(rate, steps, answer.solution[: len(steps)], numbers)) is not None:
                return found
        program.limit(columns[1], np.inf)
        for _ in range(MOST_ROUNDS):
            if self._seconds() <= 0:
                return None
            answer = program.solve(self._seconds())
            if not np.isfinite(answer.value) or answer.value > -LEAST_SLACK * problem.layers:
                return None
            weights, numbers = answer.solution[: len(steps)], answer.solution[len(steps) : len(steps) + 4]
            missing = self._missing(rate, steps, weights, (float(numbers[0]), float(numbers[3])))
            if not missing:
                return self._witness(rate, steps, weights, numbers)
            for members in missing:
                self.sets.append(tuple(steps[j] for j in members))
                self._row(program, columns, members)
        return None

    def _program(self, rate: int, steps: list[int], shared: int) -> tuple[GrowingProgram, tuple[list[int], int, int]]:
        """Columns: every step, full, slope, hop, extra, value of a device of each pool; minimise what is reached less
        what must be.
        """
        problem = self.problem
        program, depth = GrowingProgram(), problem.max_depth
        weight = [program.column() for _ in steps]
        full, slope = program.column(cost=-problem.layers), program.column(cost=-problem.layers)
        hop = program.column(cost=0.0 if depth is None else depth)
        if depth is None:
            program.limit(hop, 0.0)
        extra = program.column(cost=-shared)
        if not shared:
            program.limit(extra, 0.0)
        pools = [program.column(cost=pool.count) for pool in problem.pools]
        program.row([(full, 1.0), (slope, 1.0)], 1.0, 1.0)
        program.row([(full, 1.0), (extra, -1.0)], 0.0, np.inf)
        for a, b in pairwise(weight):
            program.row([(b, 1.0), (a, -1.0)], 0.0, np.inf)
        for unit in problem.units:
            for held, top in enumerate(unit.rates[: problem.layers], 1):
                most = min(top, rate)
                last = bisect_left(steps, most)
                for j in range(last if depth is None else 0, last + 1 if most else 0):  # without hops the widest flow
                    before = steps[j - 1] if j else 0
                    for end in {min(steps[j], most), before} if depth is not None else {most}:
                        share = end / rate
                        terms = [(pools[unit.pool], float(unit.size)), (weight[j], -float(held))]
                        terms += [(slope, -held * share), (hop, share)]
                        program.row(terms, 0.0, np.inf)
        return program, (weight, full, extra)

    @staticmethod
    def _row(program: GrowingProgram, columns: tuple[list[int], int, int], flows: list[int]) -> None:
        """A set of flows that add up to the rate weighs at least as much as a full one, several of them more."""
        weight, full, extra = columns
        if min(flows) >= 0:
            several = [(extra, -1.0)] if len(flows) > 1 else []
            program.row([*((weight[j], 1.0) for j in flows), (full, -1.0), *several], 0.0, np.inf)

    def _missing(
        self, rate: int, steps: list[int], weights: NDArray[np.float64], least: tuple[float, float]
    ) -> list[list[int]]:
        """Sets of flows that add up to the rate and weigh too little: the lightest, and the lightest of several."""
        full, extra = least
        if full + extra <= LEAST_SLACK:
            return []
        whole = np.maximum(np.floor(weights / (full + extra) * FINE_WEIGHT + 1e-6), 1).astype(np.int64)
        widths = np.array(steps, np.int64)
        widest = widest_sets(whole, widths, FINE_WEIGHT)
        found = [
            flows
            for flows, limit in (
                (_light_set(widest, whole, rate), full),
                (_several(widest, whole, widths, rate), full + extra),
            )
            if flows and weights[flows].sum() < limit - LEAST_SLACK
        ]
        return found[:1] if len(found) > 1 and found[0] == found[1] else found

    def _witness(
        self, rate: int, steps: list[int], weights: NDArray[np.float64], numbers: NDArray[np.float64]
    ) -> CoverageBound | None:
        """Whole numbers: rounded to nearest, then full sets made lighter until they are full."""
        if numbers[0] * LARGEST_SCALE < WHOLE_WEIGHT:  # next to nothing is said of sets
            kept, full, scale, extra = [(rate, 0)], 0, WHOLE_WEIGHT, 0
        else:
            scale = int(WHOLE_WEIGHT / numbers[0])
            rounded = np.maximum.accumulate(np.maximum(np.ceil(weights * scale - 1e-3), 1).astype(np.int64))
            last = np.append(rounded[1:] != rounded[:-1], True)
            kept = [(flow, int(weight)) for flow, weight, ends in zip(steps, rounded, last, strict=True) if ends]
            heavy, wide = (np.array(part, np.int64) for part in ([w for _, w in kept], [flow for flow, _ in kept]))
            widest = widest_sets(heavy, wide, int((numbers[0] + numbers[3]) * scale + 1e-3) + 1)[0]
            full = int(np.searchsorted(widest, rate))  # the lightest that is wide enough
            rest = [int(heavy[0]) if flow >= rate else int(np.searchsorted(widest, rate - flow)) for flow, _ in kept]
            extra = max(0, min(weight + more for (_, weight), more in zip(kept, rest, strict=True)) - full)
        slope, hop = int(numbers[1] * scale + 1e-3), int(np.ceil(numbers[2] * scale - 1e-3))
        found = CoverageBound(rate, tuple(kept), full, slope, hop, extra)
        return found if refutes(self.problem, found) else None


def _members(widest: Whole, weights: Whole, weight: int) -> list[int]:
    """Of the widest set of a weight."""
    members = []
    while weight > 0 and widest[1, weight] != NOBODY:
        member = int(widest[1, weight])
        if member == SAME_AS_BEFORE:
            weight -= 1
        else:
            members.append(member)
            weight -= int(weights[member])
    return members


def _light_set(widest: Whole, weights: Whole, rate: int) -> list[int]:
    """The lightest set that is as wide as the rate, nothing where there is none."""
    return _members(widest, weights, int(np.searchsorted(widest[0], rate))) if widest[0, -1] >= rate else []


def _several(widest: Whole, weights: Whole, widths: Whole, rate: int) -> list[int]:
    """The lightest such set of two or more."""
    need = np.maximum(rate - widths, 0)
    rest = np.where(need > 0, np.searchsorted(widest[0], need), weights[0])
    able = (need == 0) | (rest < widest.shape[1])
    if not able.any():
        return []
    first = int(np.argmin(np.where(able, weights + rest, np.iinfo(np.int64).max)))
    return [first, *(_members(widest, weights, int(rest[first])) if need[first] else [0])]


def shared_layers(problem: LayerProblem, rate: int) -> int:
    """The least number of layers that two or more instances share at a rate."""
    if problem.links is None or any(unit.size > 1 for unit in problem.units):
        return 0
    held = [0] * len(problem.pools)
    for unit in problem.units:
        most = max([k for k, top in enumerate(unit.rates[: problem.layers], 1) if top >= rate], default=0)
        held[unit.pool] = max(held[unit.pool], most)
    part = list(range(problem.offsets[-1]))

    def root(device: int) -> int:
        while part[device] != device:
            part[device] = device = part[part[device]]
        return device

    for a, b, room in problem.links:
        if a >= 0 and b >= 0 and room >= rate:
            part[root(a)] = root(b)
    sizes = dict.fromkeys(map(root, part), 0)
    for device, pool in enumerate(problem.pool_of):
        sizes[root(device)] += held[pool]
    largest = sorted(sizes.values(), reverse=True)
    return next(m for m in range(problem.layers + 1) if problem.layers - m <= sum(largest[: m + 1]))


def refutes(problem: LayerProblem, bound: CoverageBound) -> bool:
    """Second condition of the theorem, in whole numbers; the first one holds by construction of `full`."""
    depth, total = problem.max_depth, 0
    if bound.hop and depth is None:
        return False
    for number, pool in enumerate(problem.pools):
        worth = []
        for unit in (problem.units[own] for own in problem.units_of[number]):
            best = 0
            for held, top in enumerate(unit.rates[: problem.layers], 1):
                most, before = min(top, bound.rate), 0
                for flow, weight in bound.steps:
                    if before >= most:
                        break
                    for end in (min(flow, most), before):
                        best = max(best, bound.rate * held * weight + (bound.slope * held - bound.hop) * end)
                    before = flow
            worth.append((best, unit.size))
        total += _most_worth(worth, pool.count)
    least = problem.layers * (bound.full + bound.slope) - (depth or 0) * bound.hop
    return total < bound.rate * (least + shared_layers(problem, bound.rate) * bound.extra)


def _most_worth(worth: list[tuple[int, int]], count: int) -> int:
    """The most that `count` devices are worth, in groups."""
    if len(worth) == 1 and worth[0][1] == 1:
        return worth[0][0] * count
    best = [0] * (count + 1)
    for devices in range(1, count + 1):
        best[devices] = max(
            [best[devices - 1], *(best[devices - size] + value for value, size in worth if size <= devices)]
        )
    return best[count]
