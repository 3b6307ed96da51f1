"""Simple layouts of layers, to compare with and to begin with: one device, copies, even splits, pipelines.

In: a LayerProblem. Out: pipelines side by side, of which the best counts. Simplified: links are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice, pairwise

from weftline.fleet.coverage import coverage_limit
from weftline.problem.layers import LayerInstance, LayerProblem

__all__ = ["SIMPLE_LAYOUTS", "pipeline_instances"]

Pipelines = list[list[tuple[int, int]]]
"""Pipelines side by side, each a row of (unit, layers)."""


def pipeline_instances(problem: LayerProblem, pipelines: Pipelines) -> list[LayerInstance]:
    """Devices for pipelines, in their order."""
    free = [iter(range(a, b)) for a, b in pairwise(problem.offsets)]
    found = []
    for row in pipelines:
        position = 0
        for unit, layers in row:
            about = problem.units[unit]
            taken = tuple(islice(free[about.pool], about.size))
            if len(taken) < about.size:
                return []
            found.append(LayerInstance(unit, taken, position, position + layers))
            position += layers
    return found


def _alone(problem: LayerProblem) -> Iterator[Pipelines]:
    for unit in range(len(problem.units)):
        if problem.rate(unit, problem.layers):
            yield [[(unit, problem.layers)]]


def _whole_copies(problem: LayerProblem) -> Iterator[Pipelines]:
    rows: Pipelines = []
    for number, pool in enumerate(problem.pools):
        able = [unit for unit in problem.units_of[number] if problem.rate(unit, problem.layers)]
        if able:
            best = max(able, key=lambda u: problem.rate(u, problem.layers) / problem.units[u].size)
            rows += [[(best, problem.layers)]] * (pool.count // problem.units[best].size)
    if len(rows) > problem.copies_limit:
        rows = sorted(rows, key=lambda row: -problem.rate(*row[0]))[: problem.copies_limit]
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
    rows, taken = Pipelines(), set[int]()
    for unit, about in enumerate(problem.units):
        count = problem.pools[about.pool].count // about.size
        best = (0, 0)
        for deep in range(1, min(count, problem.depth_limit) + 1):
            rate = min(problem.rate(unit, held) for held in _evenly(problem.layers, deep))
            best = max(best, (rate * min(count // deep, problem.copies_limit), deep))
        if best[0]:
            row = list(zip([unit] * best[1], _evenly(problem.layers, best[1]), strict=True))
            single = [row] * min(count // best[1], problem.copies_limit)
            yield single
            if about.pool not in taken:
                taken.add(about.pool)
                rows += single
    if rows:
        yield rows[: problem.copies_limit]


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


SIMPLE_LAYOUTS: dict[str, Callable[[LayerProblem], Iterator[Pipelines]]] = {
    "single-device": _alone,
    "replicas": _whole_copies,
    "even-split": _even_split,
    "pipeline": _one_pipeline,
    "separate-pipelines": _equal_pipelines,
}
"""Baselines: name -> layouts, the best of which counts."""
