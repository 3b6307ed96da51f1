"""Stages of parallel instances, one behind the other: the highest rate where links do not matter.

In: a LayerProblem and a rate. Out: stages (layers, how many of each unit) that reach the rate, or that there are none.
A stage of l layers needs units whose tables for l add up to the rate; an integer program chooses among all smallest
sets of them, so its no is a no for every deployment of such stages. `grouped_stages` is for hundreds of devices: it
counts units by length of stage and fills the stages afterwards, which loses a little. Simplified: instances overlap
stages nowhere; those that do are found by `exact.py`, or not at all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

import numpy as np

from weftline.problem.layers import LayerInstance, LayerProblem
from weftline.search.cp_sat import run_model
from weftline.search.lp import Program, minimise_whole

__all__ = [
    "LayerStage",
    "StageCall",
    "filled_stages",
    "grouped_stages",
    "stage_instances",
    "stage_rate",
    "stages_for",
]


MOST_SWAPS = 2_000
"""Of units between stages, after hundreds of devices were dealt out."""


@dataclass(frozen=True)
class LayerStage:
    """Equal layers on several units in parallel."""

    layers: int
    units: tuple[tuple[int, int], ...]
    """(unit, how many of it)."""


@dataclass(frozen=True)
class StageCall:
    """What one integer program may use."""

    seconds: float | None
    work: float | None
    seed: int = 0
    most_columns: int = 60_000
    """More smallest sets than this are not enumerated."""


def stage_rate(problem: LayerProblem, stage: LayerStage) -> int:
    """What its units serve together."""
    return sum(problem.rate(unit, stage.layers) * count for unit, count in stage.units)


def stage_instances(problem: LayerProblem, stages: Sequence[LayerStage]) -> list[LayerInstance]:
    """Devices for the units of the stages, in their order."""
    free = [iter(range(a, b)) for a, b in pairwise(problem.offsets)]
    found, position = [], 0
    for stage in stages:
        for unit, count in stage.units:
            about = problem.units[unit]
            for _ in range(count):
                taken = tuple(islice(free[about.pool], about.size))
                found.append(LayerInstance(unit, taken, position, position + stage.layers))
        position += stage.layers
    return found


def _smallest_sets(problem: LayerProblem, rate: int, most: int) -> dict[tuple[int, ...], set[int]] | None:
    """Counts of each unit -> the lengths of stages for which no smaller set reaches the rate; None if there are more
    than `most`.
    """
    units, found = problem.units, dict[tuple[int, ...], set[int]]()
    room = [pool.count for pool in problem.pools]
    for layers in range(1, min(problem.layers, max(len(unit.rates) for unit in units)) + 1):
        able = sorted((u for u in range(len(units)) if problem.rate(u, layers)), key=lambda u: -problem.rate(u, layers))
        counts, free = [0] * len(units), list(room)
        widest = problem.copies_limit
        rest = [0]  # what those from a place on can serve at most
        for unit in reversed(able):
            rest.insert(0, rest[0] + problem.rate(unit, layers) * (room[units[unit].pool] // units[unit].size))

        def grow(place: int, missing: int, width: int = widest, layers: int = layers, able: list[int] = able) -> None:
            if len(found) > most or not width:
                return
            for position in range(place, len(able)):
                if rest[position] < missing:  # noqa: B023
                    break
                unit = able[position]
                about, serves = units[unit], problem.rate(unit, layers)
                if free[about.pool] < about.size:  # noqa: B023
                    continue
                counts[unit] += 1  # noqa: B023
                free[about.pool] -= about.size  # noqa: B023
                if serves >= missing:
                    found.setdefault(tuple(counts), set()).add(layers)  # noqa: B023
                else:
                    grow(position, missing - serves, width - 1, layers, able)
                counts[unit] -= 1  # noqa: B023
                free[about.pool] += about.size  # noqa: B023

        grow(0, rate)
    return None if len(found) > most else found


def _columns(
    problem: LayerProblem, sets: dict[tuple[int, ...], set[int]], rate: int
) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """(counts, shortest, longest stage) for each run of lengths at which a set reaches the rate."""
    for counts, smallest in sets.items():
        used = [(unit, count) for unit, count in enumerate(counts) if count]
        longest = min(max(len(problem.units[unit].rates) for unit, _ in used), problem.layers)
        reaches = [0] + [
            int(sum(problem.rate(unit, length) * count for unit, count in used) >= rate)
            for length in range(1, longest + 1)
        ]
        first = 0
        for length in range(1, longest + 2):
            good = length <= longest and reaches[length]
            if good and not first:
                first = length
            elif not good and first:
                if any(first <= one < length for one in smallest):
                    yield counts, first, length - 1
                first = 0


def stages_for(
    problem: LayerProblem, rate: int, call: StageCall, *, poll: Callable[[], bool] = lambda: False
) -> tuple[list[LayerStage] | None, bool]:
    """(stages that reach the rate, or None; whether a None is shown to be one)."""
    from ortools.sat.python import cp_model

    sets = _smallest_sets(problem, rate, call.most_columns)
    if sets is None:
        return None, False
    columns = list(_columns(problem, sets, rate))
    if not columns:
        return None, True
    model, chosen = cp_model.CpModel(), []
    uses: dict[int, list[Any]] = defaultdict(list)
    for counts, _, _ in columns:
        need = Counter[int]()
        for unit, count in enumerate(counts):
            need[problem.units[unit].pool] += count * problem.units[unit].size
        most = min(problem.pools[pool].count // devices for pool, devices in need.items() if devices)
        variable = model.new_int_var(0, min(most, problem.layers), "")
        chosen.append(variable)
        for pool, devices in need.items():
            if devices:
                uses[pool].append((variable, devices))
    for pool, terms in uses.items():
        model.add(sum(variable * devices for variable, devices in terms) <= problem.pools[pool].count)
    pairs = list(zip(chosen, columns, strict=True))
    model.add(sum(variable * longest for variable, (_, _, longest) in pairs) >= problem.layers)
    model.add(sum(variable * shortest for variable, (_, shortest, _) in pairs) <= problem.layers)
    if problem.max_depth is not None:
        model.add(sum(chosen) <= problem.max_depth)
    best: list[Sequence[int]] = []
    outcome = run_model(model, seconds=call.seconds, work=call.work, seed=call.seed, on_solution=best.append, poll=poll)
    if not best:
        return None, outcome.infeasible
    picked = [
        (counts, shortest, longest)
        for number, (counts, shortest, longest) in enumerate(columns)
        for _ in range(best[-1][number])
    ]
    return _trimmed(problem, picked), True


def _trimmed(problem: LayerProblem, picked: list[tuple[tuple[int, ...], int, int]]) -> list[LayerStage]:
    """Lengths between the shortest and the longest that add up to all layers; the weakest are shortened first."""
    lengths = [longest for _, _, longest in picked]
    units = [tuple((unit, count) for unit, count in enumerate(counts) if count) for counts, _, _ in picked]
    for _ in range(sum(lengths) - problem.layers):
        able = [i for i, (_, shortest, _) in enumerate(picked) if lengths[i] > shortest]
        weakest = min(able, key=lambda i: stage_rate(problem, LayerStage(lengths[i], units[i])))
        lengths[weakest] -= 1
    return [LayerStage(length, own) for length, own in zip(lengths, units, strict=True)]


def filled_stages(problem: LayerProblem, stages: Sequence[LayerStage]) -> list[LayerStage]:
    """Devices that are left over join the weakest stage that they can help."""
    left = [pool.count for pool in problem.pools]
    counts = [Counter(dict(stage.units)) for stage in stages]
    for own in counts:
        for unit, count in own.items():
            left[problem.units[unit].pool] -= count * problem.units[unit].size
    rates = [stage_rate(problem, stage) for stage in stages]
    for unit in sorted(range(len(problem.units)), key=lambda u: -max(problem.units[u].rates)):
        about = problem.units[unit]
        while left[about.pool] >= about.size:
            able = [
                i
                for i, stage in enumerate(stages)
                if problem.rate(unit, stage.layers) and counts[i].total() < problem.copies_limit
            ]
            if not able:
                break
            weakest = min(able, key=rates.__getitem__)
            counts[weakest][unit] += 1
            rates[weakest] += problem.rate(unit, stages[weakest].layers)
            left[about.pool] -= about.size
    return [LayerStage(stage.layers, tuple(sorted(own.items()))) for stage, own in zip(stages, counts, strict=True)]


def grouped_stages(problem: LayerProblem, rate: int, seconds: float) -> list[LayerStage] | None:
    """Stages for hundreds of devices: whole numbers of stages of every length, units as if they could be split; then
    whole units are dealt out.
    """
    longest = min(problem.layers, max(len(unit.rates) for unit in problem.units))
    units = [(u, n) for u in range(len(problem.units)) for n in range(1, longest + 1) if problem.rate(u, n)]
    entries: list[tuple[int, int, float]] = []
    """(row, column, value): a row for each length, for each pool, for all layers, for the depth, for each width."""
    pools, layers = longest, longest + len(problem.pools)
    widths, limited = layers + 2, problem.copies_limit < problem.offsets[-1]
    for column, (unit, length) in enumerate(units, longest):
        about = problem.units[unit]
        entries.append((length - 1, column, problem.rate(unit, length) / rate))
        entries.append((pools + about.pool, column, float(about.size)))
        if limited:
            entries.append((widths + length - 1, column, 1.0))
    for length in range(1, longest + 1):
        entries += [(length - 1, length - 1, -1.0), (layers, length - 1, float(length)), (layers + 1, length - 1, 1.0)]
        if limited:
            entries.append((widths + length - 1, length - 1, -float(problem.copies_limit)))
    rows, columns, values = (np.array(part) for part in zip(*entries, strict=True))
    counts = [float(pool.count) for pool in problem.pools]
    high = np.array([np.inf] * longest + counts + [float(problem.layers), float(problem.depth_limit)])
    low = np.array([0.0] * longest + [-np.inf] * len(counts) + [float(problem.layers), -np.inf])
    if limited:
        high, low = np.append(high, np.zeros(longest)), np.append(low, np.full(longest, -np.inf))
    most = np.array([float(problem.layers // n) for n in range(1, longest + 1)] + [np.inf] * len(units))
    width, places = longest + len(units), (rows.astype(np.int64), columns.astype(np.int64))
    program = Program(np.zeros(width), np.zeros(width), most, low, high, *places, values)
    answer = minimise_whole(program, longest, seconds=seconds)
    if not np.isfinite(answer.value):
        return None
    stages = np.rint(answer.solution[:longest]).astype(np.int64).tolist()
    wanted = dict(zip(units, answer.solution[longest:].tolist(), strict=True))
    found = [
        stage
        for length, count in enumerate(stages, 1)
        for stage in _dealt(problem, length, count, {u: int(x + 1e-6) for (u, n), x in wanted.items() if n == length})
    ]
    return _evened(problem, filled_stages(problem, found))


def _evened(problem: LayerProblem, stages: list[LayerStage]) -> list[LayerStage]:
    """Units change places between the weakest stage and others while that helps the weakest."""
    counts = [Counter(dict(stage.units)) for stage in stages]
    rates = [stage_rate(problem, stage) for stage in stages]
    for _ in range(MOST_SWAPS):
        weak = min(range(len(stages)), key=rates.__getitem__)
        best, least = None, rates[weak]
        for other in range(len(stages)):
            more = [None] if counts[weak].total() < problem.copies_limit else []
            for given in [*more, *(unit for unit, count in counts[weak].items() if count)]:
                for taken in [unit for unit, count in counts[other].items() if count] if other != weak else ():
                    after = [
                        rates[at]
                        + sign * problem.rate(taken, stages[at].layers)
                        - sign * (0 if given is None else problem.rate(given, stages[at].layers))
                        for at, sign in ((weak, 1), (other, -1))
                    ]
                    if min(after) > least:
                        best, least, changed = (other, given, taken), min(after), after
        if best is None:
            break
        other, given, taken = best
        for at, sign in ((weak, 1), (other, -1)):
            counts[at][taken] += sign
            if given is not None:
                counts[at][given] -= sign
        rates[weak], rates[other] = changed
    return [
        LayerStage(stage.layers, tuple(sorted((unit, count) for unit, count in own.items() if count > 0)))
        for stage, own in zip(stages, counts, strict=True)
    ]


def _dealt(problem: LayerProblem, length: int, count: int, units: dict[int, int]) -> list[LayerStage]:
    """The largest units first, each to the stage that has least."""
    bins, rates = [Counter[int]() for _ in range(count)], [0] * count
    for unit in sorted(units, key=lambda u: -problem.rate(u, length)):
        for _ in range(units[unit]):
            open_bins = [i for i in range(count) if bins[i].total() < problem.copies_limit]
            if not open_bins:
                break
            least = min(open_bins, key=rates.__getitem__)
            bins[least][unit] += 1
            rates[least] += problem.rate(unit, length)
    return [LayerStage(length, tuple(sorted(own.items()))) for own in bins]
