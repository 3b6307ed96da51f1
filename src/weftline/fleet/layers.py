"""`auto` for layers on devices with tables: stages by integer programs, annealing over links, bounds by coverage.

In: a LayerSearch. Out: deployments and refuted rates, until they meet or the time is over. A rate is first limited by a
linear program (`coverage.py`), so that the integer programs (`stages.py`) are asked only about rates that may exist;
the same program then refutes what is just above the best answer. At last the rates of smaller depths are found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import msgspec
import numpy as np
from numpy.typing import NDArray

from weftline.fleet.coverage import Coverage, coverage_limit
from weftline.fleet.exact import improve_exactly, model_size
from weftline.fleet.flows import unlinked
from weftline.fleet.layouts import SIMPLE_LAYOUTS, pipeline_instances
from weftline.fleet.linked import LinkedStages, Walk, linked_stages, place_of, stage_walk, walk_instances
from weftline.fleet.search import FleetSolver, FrontPoint, LayerSearch
from weftline.fleet.stages import (
    LayerStage,
    StageCall,
    filled_stages,
    grouped_stages,
    stage_instances,
    stage_rate,
    stages_for,
)
from weftline.problem.layers import SINK_NODE, SOURCE_NODE, DevicePool, LayerProblem, LayerUnit
from weftline.simulate.layers import LayerDeployment

__all__ = ["SOLVERS", "LayersParameters", "layer_baselines", "prepare", "solve_layers"]

PILOT_PARTS = 20
"""Where devices are many, a walk of this part of the length tells how long all take."""
Starts = NDArray[np.int64] | None
"""Stages of devices with which a walk begins."""


@dataclass(frozen=True)
class LayersParameters:
    """Numbers of `auto`."""

    tolerance: float = 1e-6
    """Rates are searched up to this share."""
    bound_tolerance: float = 1e-4
    """Refuted rates are searched up to this share."""
    rough_tolerance: float = 2e-2
    """The same for the first bound."""
    stage_seconds: float = 4.0
    """For one integer program of stages."""
    stage_work: float = 2.0
    """The same in CP-SAT's own measure of work, where work is limited."""
    many_devices: int = 150
    """From so many on units are counted by length of stage."""
    walk_steps: int = 40_000
    """Changes in one walk of annealing."""
    warmest: float = 4.0
    """Heat at the beginning of every other walk, in layers."""
    warm: float = 1.5
    """The same of the other walks."""
    walks_per_rate: int = 6
    """Walks towards one rate before a smaller one is tried."""
    front_share: float = 0.35
    """Of the time, for the rates of smaller depths."""
    point_seconds: float = 1.5
    """One depth of the front takes about so long; with less time there are fewer."""
    front_points: int = 24
    """Depths of the front at most."""
    exact_variables: int = 4_000
    """An exact program of at most so many is solved where value and bound do not meet before."""
    exact_seconds: float = 4.0
    """For that."""
    exact_work: float = 2.0
    """The same in CP-SAT's own measure of work, where work is limited."""


def solve_layers(search: LayerSearch) -> None:
    """Everything in turn, until value and bound meet or a limit says stop."""
    numbers, problem = search.parameters(LayersParameters), search.problem
    search.free = unlinked(problem, coverage_limit(problem))
    coverage = Coverage(problem, left=lambda: search.seconds_left)
    begun, total = search.seconds, search.seconds_left
    share = None if total is None else begun + total * (1 - numbers.front_share)

    def over() -> bool:
        return bool(search.stopped_by) or (share is not None and search.seconds > share)

    _limit_rate(search, coverage, numbers, over)
    done = _deployments(search, coverage, numbers, over)
    _close(search, coverage, numbers, lambda: bool(search.stopped_by))
    if search.best is not None:
        _front(search, coverage, numbers)
    if not search.free and not done:
        _more_walks(search, numbers)
    if search.best is not None:  # what was found last may be better, or need less depth
        search.front = {depth: point for depth, point in search.front.items() if depth < search.best.depth}
        search.offer_front(FrontPoint(search.best.depth, search.best, search.bound))


def _limit_rate(search: LayerSearch, coverage: Coverage, numbers: LayersParameters, over: Callable[[], bool]) -> None:
    """A refuted rate near the smallest that the linear program refutes."""
    high = coverage_limit(search.problem) + 1
    low = 0 if search.best is None else search.best.rate
    tolerance = numbers.rough_tolerance
    if (found := coverage.refute(high)) is not None:
        search.offer_bound(found)
    while high - low > max(1, tolerance * high) and not over():
        middle = (low + high) // 2 if low else high * 3 // 4
        found = coverage.refute(middle)
        if found is None:
            low = middle
        else:
            search.offer_bound(found)
            high = middle


def _close(search: LayerSearch, coverage: Coverage, numbers: LayersParameters, over: Callable[[], bool]) -> None:
    """Refute what is just above the best answer, or as near to it as can be."""
    if search.best is None or search.bound is None or over():
        return
    low, high = search.best.rate, search.bound.rate
    middle = low + 1
    while low < middle < high and high - low > max(1, numbers.bound_tolerance * high) and not over():
        found = coverage.refute(middle)
        if found is None:
            low = middle
        else:
            search.offer_bound(found)
            high = middle
        middle = (low + high) // 2


def _deployments(search: LayerSearch, coverage: Coverage, numbers: LayersParameters, over: Callable[[], bool]) -> bool:
    """Stages, walks over links, and where the problem is small everything that can be held -> whether that is shown to
    be the best: instances that overlap stages are found there alone.
    """
    small = model_size(search.problem, search.free) <= numbers.exact_variables
    if search.free:
        _stages(search, numbers, over)
    left = search.seconds_left
    seconds = numbers.exact_seconds if left is None else min(numbers.exact_seconds, left / 3)
    done = small and not over() and improve_exactly(search, seconds=seconds, work=numbers.exact_work)
    if not search.free and not done:
        _walks(search, coverage, numbers, over)
    return done


def _call(search: LayerSearch, numbers: LayersParameters, part: float = 1.0) -> StageCall:
    left = search.seconds_left
    share = left if left is None or search.best is not None else left / 3  # so that one that is too hard is not all
    most = part * numbers.stage_seconds
    seconds = most if share is None else max(0.05, min(most, share))
    return StageCall(seconds, None if search.work_limit is None else numbers.stage_work, search.seed)


def _stages(search: LayerSearch, numbers: LayersParameters, over: Callable[[], bool]) -> None:
    """Bisection over the rate, each step an integer program."""
    problem = search.problem
    many = problem.offsets[-1] >= numbers.many_devices
    high = search.bound.rate if search.bound is not None else coverage_limit(problem) + 1
    low = 0 if search.best is None else search.best.rate
    tolerance = 1e-3 if many else numbers.tolerance
    middle = max(low + 1, (low + 7 * high) // 8)
    while high - low > max(1, tolerance * high) and not over():
        found = _reach(search, middle, many, numbers)
        if found is None:
            high = middle
        else:
            low = max(low, found if many else max(found, middle))
            if many and found < middle:
                high = middle
        middle = (low + high) // 2


def _reach(search: LayerSearch, rate: int, many: bool, numbers: LayersParameters) -> int | None:
    """The rate that stages for this rate give."""
    problem, call = search.problem, _call(search, numbers)

    def poll() -> bool:
        return search.best is not None and bool(search.stopped_by)

    stages: list[LayerStage] | None = None
    if not many:
        stages, _ = stages_for(problem, rate, call, poll=poll)
    if many:
        stages = grouped_stages(problem, rate, numbers.stage_seconds if call.seconds is None else call.seconds)
    if stages is None:
        return None
    stages = filled_stages(problem, stages)
    if search.free:
        deployment = search.offer(stage_instances(problem, stages))
        return None if deployment is None else deployment.rate
    return min(stage_rate(problem, stage) for stage in stages)


class _Walker:
    """Walks that keep the time limit: no longer than the time that is left allows at the pace of those before."""

    def __init__(self, search: LayerSearch, about: LinkedStages) -> None:
        self.search, self.about = search, about
        self.many = search.parameters(LayersParameters).many_devices
        self.pace = 0.0
        """Seconds for a change."""

    def _timed(self, rate: int, start: Starts, steps: int, seed: int, heat: float) -> Walk:
        begun = self.search.seconds
        found = stage_walk(self.about, rate, start, steps=steps, seed=seed, heat=heat)
        self.pace = max(self.pace, (self.search.seconds - begun) / steps)
        return found

    def walk(self, rate: int, start: Starts, *, steps: int, seed: int, heat: float) -> LayerDeployment | None:
        """Anneal towards a rate, offer what is found."""
        steps = min(steps, self.about.most_steps)
        if self.search.seconds_left is not None:
            if not self.pace and len(self.about.rates) >= self.many:
                self._timed(rate, start, max(1, steps // PILOT_PARTS), seed, heat)
            if self.pace:
                steps = min(steps, max(1, int(max(self.search.seconds_left, 0.0) / self.pace)))
        found = self._timed(rate, start, steps, seed, heat)
        return self.search.offer(walk_instances(self.search.problem, found))


def _walks(search: LayerSearch, coverage: Coverage, numbers: LayersParameters, over: Callable[[], bool]) -> None:
    """Annealing towards rates, from stages that would reach them without links: bisection over the rate. What no walk
    reaches is refuted, if it can be, so that none is wasted on what is not there.
    """
    about = linked_stages(search.problem)
    if about is None:
        return
    walker = _Walker(search, about)
    high = float(search.bound.rate if search.bound is not None else coverage_limit(search.problem))
    low = 0.0 if search.best is None else float(search.best.rate)
    rate = max(low + 1, (low + 5 * high) / 6)
    first = search.best is None  # a late answer is better than none
    while (first or not over()) and high - low > max(1.0, 1e-4 * high):
        found = _walk_to(search, walker, max(1, int(rate)), numbers, over, first=first)
        first = False
        if found is None or found < int(rate):
            high = rate
            if search.best is not None and not over():  # is there anything above what is known?
                best = coverage.refute(search.best.rate + 1)
                if best is not None:
                    search.offer_bound(best)
            if not over() and (refuted := coverage.refute(max(1, int(rate)))) is not None:
                search.offer_bound(refuted)
        low = max(low, float(found or 0))
        rate = (low + high) / 2


def _walk_to(
    search: LayerSearch,
    walker: _Walker,
    rate: int,
    numbers: LayersParameters,
    over: Callable[[], bool],
    *,
    first: bool,
) -> int | None:
    """The best of some walks towards a rate; the first one that reaches it ends them. `first`: one is made anyhow."""
    free = msgspec.structs.replace(search.problem, links=None, ports=None)
    small = search.problem.offsets[-1] < numbers.many_devices
    call = _call(search, numbers, 0.25)
    if small:
        stages, shown = stages_for(free, rate, call)
        if stages is None and (shown or not first):
            return None
    else:
        stages = grouped_stages(free, rate, numbers.stage_seconds if call.seconds is None else call.seconds)
    start = None if stages is None else place_of(search.problem, stage_instances(free, filled_stages(free, stages)))
    best = None
    for number in range(numbers.walks_per_rate):
        if over() and not (first and number == 0):
            break
        heat = numbers.warmest if number % 2 == 0 else numbers.warm
        found = walker.walk(rate, start, steps=numbers.walk_steps, seed=search.seed + number, heat=heat)
        best = max((one for one in (best, found and found.rate) if one), default=None)
        if found is not None and found.rate >= rate:
            break
    return best


def _more_walks(search: LayerSearch, numbers: LayersParameters) -> None:
    """What time is left: longer walks towards rates a little above the best."""
    about = linked_stages(search.problem)
    random, seed = np.random.default_rng(search.seed), search.seed + 10_000
    walker = None if about is None else _Walker(search, about)
    while walker is not None and search.best is not None and search.limit is not None and not search.stopped_by:
        seed += 1
        more = 1 + 0.1 * float(random.random()) ** 3
        rate = min(int(search.best.rate * more) + 1, search.limit)
        start = place_of(search.problem, search.best.instances) if seed % 2 else None
        heat = numbers.warm if seed % 2 else numbers.warmest
        walker.walk(rate, start, steps=3 * numbers.walk_steps, seed=seed, heat=heat)
        if search.seconds_left is None and search.work_limit is None and seed > search.seed + 10_020:
            return


def _front(search: LayerSearch, coverage: Coverage, numbers: LayersParameters) -> None:
    """The best within each smaller depth, from the deepest down, while there is time."""
    assert search.best is not None
    search.offer_front(FrontPoint(search.best.depth, search.best, search.bound))
    depths = list(range(search.best.depth - 1, 0, -1))
    points = numbers.front_points
    if search.seconds_left is not None:
        points = max(1, min(points, int(search.seconds_left / numbers.point_seconds)))
    depths = depths[:: max(1, -(-len(depths) // points))]
    known: LayerDeployment | None = None
    above = search.bound
    for number, depth in enumerate(depths):
        left = search.seconds_left
        if left is not None and left <= 0.1:
            return
        small = LayerSearch(
            problem=msgspec.structs.replace(search.problem, max_depth=depth),
            time_limit=None if left is None else max(0.1, 1.5 * left / (len(depths) - number)),
            work_limit=None if search.work_limit is None else max(1, search.work_limit // 8),
            seed=search.seed,
            gap=search.gap,
            free=search.free,
        )
        if known is not None and known.depth <= depth:  # it was the best within more
            small.adopt(known)
        if above is not None:  # what is refuted with more depth is refuted with less
            small.offer_bound(above)
        coverage = Coverage(small.problem, sets=coverage.sets, left=coverage.left)
        if not _within(small, coverage, numbers):
            return
        known, above = small.best or known, small.bound
        if small.best is not None:
            search.adopt(small.best)  # it may even be better than what was found with more depth
            search.offer_front(FrontPoint(depth, small.best, small.bound or search.bound))


def _within(search: LayerSearch, coverage: Coverage, numbers: LayersParameters) -> bool:
    """One point of the front; False if it is shown that nothing fits."""

    def over() -> bool:
        return bool(search.stopped_by)

    layer_baselines(search, {})
    if search.bound is None:
        _limit_rate(search, coverage, numbers, over)
    if search.limit == 0:
        return False
    _deployments(search, coverage, numbers, over)
    _close(search, coverage, numbers, over)
    return True


def layer_baselines(search: LayerSearch, found: dict[str, int | None]) -> None:
    """What simple deployments give, offered to the search too; None where one cannot be."""
    problem = search.problem
    for name, make in SIMPLE_LAYOUTS.items():
        best: int | None = None
        for stages in make(problem):
            deployment = search.offer(pipeline_instances(problem, stages))
            best = max((rate for rate in (best, deployment and deployment.rate) if rate), default=None)
        found[name] = best


SOLVERS = (
    FleetSolver(
        "auto",
        "stages by integer programs, annealing where links limit, bounds by coverage of layers",
        solve_layers,
        layers=True,
        parameters=LayersParameters,
    ),
)


@cache
def prepare() -> None:
    """Compile (or load) what layers need before a clock runs: a tiny problem without links, and walks over links."""
    unit = LayerUnit("d", 0, (10, 6, 4))
    free = LayerProblem("tiny", 4, (DevicePool("d", 3),), (unit,))
    ends = [(a, b, 3) for a in (SOURCE_NODE, 0, 1, 2) for b in (SINK_NODE, 0, 1, 2) if a != b and a + b > -3]
    for problem in (free, msgspec.structs.replace(free, links=tuple(ends))):
        solve_layers(LayerSearch(problem=problem, work_limit=5, options={"exact_variables": "0"}))
