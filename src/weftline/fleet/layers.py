"""`auto` for layers on devices with tables: stages by integer programs, annealing over links, bounds by coverage.

In: a LayerSearch. Out: deployments and refuted rates, until they meet or the time is over. A rate is first limited by a
linear program (`coverage.py`), so that the integer programs (`stages.py`) are asked only about rates that may exist;
the same program then refutes what is just above the best answer. At last the rates of smaller depths are found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import msgspec
import numpy as np

from weftline.fleet.coverage import Coverage, coverage_limit
from weftline.fleet.exact import improve_exactly, model_size
from weftline.fleet.flows import unlinked
from weftline.fleet.linked import linked_stages, stage_walk, walk_instances
from weftline.fleet.search import FleetSolver, FrontPoint, LayerSearch
from weftline.fleet.stages import (
    Stage,
    StageCall,
    filled_stages,
    grouped_stages,
    stage_instances,
    stage_rate,
    stages_for,
)
from weftline.problem.layers import LayerInstance, LayerProblem

__all__ = ["SOLVERS", "LayersParameters", "layer_baselines", "solve_layers"]


@dataclass(frozen=True)
class LayersParameters:
    """Numbers of `auto`."""

    tolerance: float = 1e-6
    """Rates are searched up to this share."""
    stage_seconds: float = 4.0
    """For one integer program of stages."""
    stage_work: float = 2.0
    """The same in CP-SAT's own measure of work, where work is limited."""
    many_devices: int = 150
    """From so many on units are counted by length of stage."""
    walk_steps: int = 20_000
    """Changes in one walk of annealing."""
    walks_per_rate: int = 6
    """Walks towards one rate before a smaller one is tried."""
    front_share: float = 0.35
    """Of the time, for the rates of smaller depths."""
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
    coverage = Coverage(problem)
    begun, total = search.seconds, search.seconds_left
    share = None if total is None else begun + total * (1 - numbers.front_share)

    def over() -> bool:
        return bool(search.stopped_by) or (share is not None and search.seconds > share)

    _limit_rate(search, coverage, numbers, over)
    done = _deployments(search, numbers, over)
    _close(search, coverage, numbers, lambda: bool(search.stopped_by))
    if search.best is not None:
        _front(search, numbers)
    if not search.free and not done:
        _more_walks(search, numbers)


def _limit_rate(search: LayerSearch, coverage: Coverage, numbers: LayersParameters, over: Callable[[], bool]) -> None:
    """A refuted rate near the smallest that the linear program refutes."""
    high = coverage_limit(search.problem) + 1
    low, tolerance = 0, 1e-4
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
    while low < middle < high and high - low > max(1, numbers.tolerance * high) and not over():
        found = coverage.refute(middle)
        if found is None:
            low = middle
        else:
            search.offer_bound(found)
            high = middle
        middle = (low + high) // 2


def _deployments(search: LayerSearch, numbers: LayersParameters, over: Callable[[], bool]) -> bool:
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
        _walks(search, numbers, over)
    return done


def _call(search: LayerSearch, numbers: LayersParameters) -> StageCall:
    left = search.seconds_left
    share = left if left is None or search.best is not None else left / 3  # so that one that is too hard is not all
    seconds = numbers.stage_seconds if share is None else max(0.05, min(numbers.stage_seconds, share))
    return StageCall(seconds, None if search.work_limit is None else numbers.stage_work, search.seed)


def _stages(search: LayerSearch, numbers: LayersParameters, over: Callable[[], bool]) -> None:
    """Bisection over the rate, each step an integer program."""
    problem = search.problem
    many = problem.offsets[-1] >= numbers.many_devices
    high = search.bound.rate if search.bound is not None else coverage_limit(problem) + 1
    low = 0 if search.best is None else search.best.rate
    tolerance = 1e-3 if many else numbers.tolerance
    middle = max(low + 1, high - 1 - high // 64)
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

    stages: list[Stage] | None = None
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


def _walks(search: LayerSearch, numbers: LayersParameters, over: Callable[[], bool]) -> None:
    """Annealing towards rates: up after a success, halfway down after failures."""
    about = linked_stages(search.problem)
    if about is None:
        return
    high = float(search.bound.rate if search.bound is not None else coverage_limit(search.problem))
    low, rate, seed, place = 0.0, 0.5 * high, search.seed, None
    while not over() and high - low > max(1.0, 1e-4 * high):
        reached = False
        for _ in range(numbers.walks_per_rate):
            seed += 1
            walk = stage_walk(about, max(1, int(rate)), place, steps=numbers.walk_steps, seed=seed)
            found = search.offer(walk_instances(search.problem, walk))
            if found is not None and found.rate >= int(rate):
                reached, low, place = True, float(found.rate), walk.place
                break
            place = walk.place if seed % 3 else None
            if over():
                return
        if not reached:
            high = rate
        rate = (low + high) / 2


def _more_walks(search: LayerSearch, numbers: LayersParameters) -> None:
    """What time is left: walks towards rates a little above the best."""
    about = linked_stages(search.problem)
    random, seed = np.random.default_rng(search.seed), search.seed + 10_000
    while about is not None and search.best is not None and search.limit is not None and not search.stopped_by:
        seed += 1
        more = 1 + 0.1 * float(random.random()) ** 3
        rate = min(int(search.best.rate * more) + 1, search.limit)
        walk = stage_walk(about, rate, None, steps=3 * numbers.walk_steps, seed=seed)
        search.offer(walk_instances(search.problem, walk))
        if search.seconds_left is None and search.work_limit is None and seed > search.seed + 10_020:
            return


def _front(search: LayerSearch, numbers: LayersParameters) -> None:
    """The best within each smaller depth, from the deepest down, while there is time."""
    assert search.best is not None
    deepest = search.best.depth
    search.offer_front(FrontPoint(deepest, search.best, search.bound))
    depths = list(range(deepest - 1, 0, -1))
    step = max(1, -(-len(depths) // numbers.front_points))
    above = search.bound
    for number, depth in enumerate(depths[::step]):
        left = search.seconds_left
        if left is not None and left <= 0.2:
            return
        points = len(depths[::step]) - number
        small = LayerSearch(
            problem=msgspec.structs.replace(search.problem, max_depth=depth),
            time_limit=None if left is None else max(0.1, left / points * 1.5),
            work_limit=None if search.work_limit is None else max(1, search.work_limit // 8),
            seed=search.seed,
            gap=search.gap,
            free=search.free,
        )
        coverage = Coverage(small.problem)
        _limit_rate(small, coverage, numbers, lambda small=small: bool(small.stopped_by))  # type: ignore[misc]
        stop = lambda small=small: bool(small.stopped_by)  # noqa: E731
        _deployments(small, numbers, stop)
        if small.best is None:
            return
        _close(small, coverage, numbers, stop)
        search.offer_front(FrontPoint(depth, small.best, small.bound or above))


def layer_baselines(search: LayerSearch) -> dict[str, int | None]:
    """What simple deployments give, offered to the search too; None where one cannot be."""
    problem = search.problem
    found: dict[str, int | None] = {}
    for name, make in _SIMPLE.items():
        best: int | None = None
        for stages in make(problem):
            deployment = search.offer(_copied(problem, stages))
            best = max((rate for rate in (best, deployment and deployment.rate) if rate), default=None)
        found[name] = best
    return found


Pipelines = list[list[tuple[int, int]]]
"""Pipelines side by side, each a row of (unit, layers)."""


def _copied(problem: LayerProblem, pipelines: Pipelines) -> list[LayerInstance]:
    """Devices for pipelines, in their order."""
    free = [list(range(a, b)) for a, b in pairwise(problem.offsets)]
    found = []
    for row in pipelines:
        position = 0
        for unit, layers in row:
            about = problem.units[unit]
            taken, free[about.pool] = free[about.pool][: about.size], free[about.pool][about.size :]
            if len(taken) < about.size:
                return []
            found.append(LayerInstance(unit, tuple(taken), position, position + layers))
            position += layers
    return found


def _alone(problem: LayerProblem) -> Iterator[Pipelines]:
    for unit in range(len(problem.units)):
        if problem.rate(unit, problem.layers):
            yield [[(unit, problem.layers)]]


def _whole_copies(problem: LayerProblem) -> Iterator[Pipelines]:
    rows: Pipelines = []
    for number, pool in enumerate(problem.pools):
        able = [u for u, unit in enumerate(problem.units) if unit.pool == number and problem.rate(u, problem.layers)]
        if able:
            best = max(able, key=lambda u: problem.rate(u, problem.layers) / problem.units[u].size)
            rows += [[(best, problem.layers)]] * (pool.count // problem.units[best].size)
    if rows:
        yield rows


def _evenly(layers: int, parts: int) -> list[int]:
    return [layers // parts + (i < layers % parts) for i in range(parts)]


def _even_split(problem: LayerProblem) -> Iterator[Pipelines]:
    """One pipeline over all single devices, or as many as it may have."""
    singles = {unit.pool: number for number, unit in reversed(list(enumerate(problem.units))) if unit.size == 1}
    row = [singles[pool] for pool in problem.pool_of if pool in singles]
    row.sort(key=lambda unit: -max(problem.units[unit].rates))
    row = row[: problem.depth_limit]
    if row:
        yield [list(zip(row, _evenly(problem.layers, len(row)), strict=True))]


def _equal_pipelines(problem: LayerProblem) -> Iterator[Pipelines]:
    """Of every pool its best number of pipelines of equal units."""
    rows: Pipelines = []
    for unit, about in enumerate(problem.units):
        count = problem.pools[about.pool].count // about.size
        best = (0, 0)
        for deep in range(1, min(count, problem.depth_limit) + 1):
            rate = min(problem.rate(unit, held) for held in _evenly(problem.layers, deep))
            best = max(best, (rate * (count // deep), deep))
        if best[0]:
            row = list(zip([unit] * best[1], _evenly(problem.layers, best[1]), strict=True))
            single = [row] * (count // best[1])
            yield single
            if all(problem.units[other].pool != about.pool for line in rows for other, _ in line):
                rows += single
    if rows:
        yield rows


def _one_pipeline(problem: LayerProblem) -> Iterator[Pipelines]:
    """The best row of units, one behind the other, by bisection over its rate."""
    low, high, best = 0, coverage_limit(problem) + 1, None
    while high - low > max(1, high // 10**6):
        rate = (low + high) // 2
        row = _row_for(problem, rate)
        if row is None:
            high = rate
        else:
            low, best = rate, row
    if best is not None:
        yield [best]


def _row_for(problem: LayerProblem, rate: int) -> list[tuple[int, int]] | None:
    """Units that hold all layers at that rate, those first that hold most."""
    most = [max([held for held, top in enumerate(unit.rates, 1) if top >= rate], default=0) for unit in problem.units]
    free, left, row = [pool.count for pool in problem.pools], problem.layers, list[tuple[int, int]]()
    for unit in sorted(range(len(most)), key=lambda u: -most[u]):
        about = problem.units[unit]
        while left and most[unit] and free[about.pool] >= about.size and len(row) < problem.depth_limit:
            held = max((n for n in range(1, min(most[unit], left) + 1) if problem.rate(unit, n) >= rate), default=0)
            if not held:
                break
            row.append((unit, held))
            free[about.pool] -= about.size
            left -= held
    return row if not left else None


_SIMPLE: dict[str, Callable[[LayerProblem], Iterator[Pipelines]]] = {
    "single-device": _alone,
    "replicas": _whole_copies,
    "even-split": _even_split,
    "pipeline": _one_pipeline,
    "separate-pipelines": _equal_pipelines,
}

SOLVERS = (
    FleetSolver(
        "auto",
        "stages by integer programs, annealing where links limit, bounds by coverage of layers",
        solve_layers,
        layers=True,
        parameters=LayersParameters,
    ),
)
