"""Small random FitProblems, and their best plans by trying everything.

In: a seed. Out: a problem that is checked; its optimum. Simplified: at most five devices and four rows.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain, combinations, permutations

from weftline.fleet.fit.evaluate import cost_segments, devices_for, fit_violations
from weftline.problem.fit import (
    FitBuffers,
    FitDevice,
    FitObjective,
    FitPool,
    FitProblem,
    FitRules,
    FitSegment,
    FitUnit,
    HostRows,
    check_fit_problem,
)

__all__ = ["all_fit_plans", "best_fit_value", "random_fit_problem"]

PART_NAMES = ("kv", "attention", "ffn")


def random_fit_problem(seed: int) -> FitProblem:
    """A problem of a few rows on a few devices: with and without a host, groups, limits of units, and moves."""
    dice = random.Random(seed)
    kinds, rows = dice.randint(1, 3), dice.randint(1, 4)
    host = dice.random() < 0.7
    bottleneck = not host and dice.random() < 0.5
    counts = [dice.randint(1, 2) for _ in range(dice.randint(1, 2))] + [1] * host
    size = dice.choice([1, 2, 20])
    part_bytes = [[size * dice.randint(0, 6) for _ in PART_NAMES] for _ in range(kinds)]
    rooms = dice.choice([16, 30, 50])
    devices: list[FitDevice] = []
    pools: list[FitPool] = []
    for pool, count in enumerate(counts):
        is_host = host and pool == len(counts) - 1
        limit = size * dice.randint(4, rooms) * (2 if is_host else 1)
        mine = tuple(range(len(devices), len(devices) + count))
        devices += [FitDevice(f"d{i}", limit, host=is_host) for i in mine]
        pools.append(FitPool(f"p{pool}", mine))
    takes = [((pool, 1),) for pool in range(len(pools))]
    takes += [((pool, 2),) for pool, count in enumerate(counts) if count == 2 and dice.random() < 0.7]
    units = tuple(_unit(dice, f"u{i}", take, part_bytes, size) for i, take in enumerate(takes))
    hops = tuple(tuple(dice.randint(0, 5) for _ in units) for _ in units)
    moves = tuple(dice.sample(PART_NAMES, dice.randint(0, 4 - rows if rows > 2 else 2))) if host else ()
    rules = FitRules(
        engine="any",
        host_rows=dice.choice(list(HostRows)) if host else HostRows.NONE,
        moves=moves,
        equal_groups=dice.random() < 0.3,
        most_units=dice.choice([None, None, 1, 2]),
        exact_units=dice.choice([None, None, None, 2]),
    )
    objective = FitObjective.MAX if bottleneck else FitObjective.SUM
    kind_of = tuple(dice.randrange(kinds) for _ in range(rows))
    names = tuple(f"k{i}" for i in range(kinds))
    problem = FitProblem(
        f"random {seed}", kind_of, names, PART_NAMES, tuple(devices), tuple(pools), units, hops, rules, objective
    )
    return check_fit_problem(problem)


def _unit(
    dice: random.Random, name: str, takes: tuple[tuple[int, int], ...], part_bytes: list[list[int]], size: int
) -> FitUnit:
    group = sum(count for _, count in takes)
    pace = dice.randint(1, 9)
    buffers = FitBuffers(*(dice.randint(0, 2 * size) for _ in range(4)))
    return FitUnit(
        name=name,
        takes=takes,
        bytes=tuple(tuple(-(-number // group) for number in row) for row in part_bytes),
        ns=tuple(tuple(pace * number + dice.randint(0, 3) for number in row) for row in part_bytes),
        row_ns=tuple(dice.randint(0, 5) for _ in part_bytes),
        buffers=buffers,
        pipelined_buffers=FitBuffers(
            *(2 * number for number in (buffers.alone, buffers.first, buffers.middle, buffers.last))
        ),
        trip_ns=dice.randint(0, 4),
    )


def all_fit_plans(problem: FitProblem) -> Iterator[tuple[FitSegment, ...]]:
    """Every sequence of units, every cut, every set of parts on the host, whether or not it fits."""
    rows, numbers = len(problem.rows), range(len(problem.units))
    slots = [number for number in numbers for _ in range(_most(problem, number))]
    orders = {order for count in range(1, min(rows, len(slots)) + 1) for order in permutations(slots, count)}
    for order in sorted(orders):
        if not _devices_last(problem, order):
            continue
        devices = devices_for(problem, order)
        for cuts in combinations(range(1, rows), len(order) - 1):
            ends = list(zip((0, *cuts), (*cuts, rows), strict=True))
            movable = [
                (place, row, part)
                for place, (first, last) in enumerate(ends)
                if not problem.is_host(order[place])
                for row in range(first, last)
                for part, name in enumerate(problem.parts)
                if name in problem.rules.moves
            ]
            for moved in chain.from_iterable(combinations(movable, count) for count in range(len(movable) + 1)):
                yield tuple(
                    FitSegment(
                        order[place],
                        devices[place],
                        first,
                        last,
                        tuple((row, part) for at, row, part in moved if at == place),
                    )
                    for place, (first, last) in enumerate(ends)
                )


def _most(problem: FitProblem, unit: int) -> int:
    return min(len(problem.pools[pool].devices) // count for pool, count in problem.units[unit].takes)


def _devices_last(problem: FitProblem, order: tuple[int, ...]) -> bool:
    used = [0] * len(problem.pools)
    for unit in order:
        for pool, count in problem.units[unit].takes:
            used[pool] += count
    return all(count <= len(pool.devices) for count, pool in zip(used, problem.pools, strict=True))


def best_fit_value(problem: FitProblem) -> int | None:
    """The least time of a step over all plans that fit; None if none does."""
    values = [
        cost_segments(problem, segments).value_ns
        for segments in all_fit_plans(problem)
        if not fit_violations(problem, segments)
    ]
    return min(values, default=None)
