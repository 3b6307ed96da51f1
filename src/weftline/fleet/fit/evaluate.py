"""What a plan of a FitProblem costs and holds: the one place that adds it up.

In: segments. Out: the time of a step, what each unit spends, what each device holds, which rules and limits are broken.
Simplified: a part that lives on the host pays its own way there and back, even where its neighbour goes there too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from weftline.errors import InputError
from weftline.problem.fit import FitObjective, FitProblem, FitSegment, FitUse, HostRows

__all__ = ["FitCost", "cost_segments", "devices_for", "fit_violations", "rows_split", "split_segments"]


class FitCost(NamedTuple):
    """What a plan costs."""

    value_ns: int
    """Of one step."""
    unit_ns: tuple[int, ...]
    """Of each segment."""
    uses: tuple[FitUse, ...]
    """Of each device."""
    pipelined: bool
    """Nothing lies on the host, and the buffers of several batches in flight fit."""


def cost_segments(problem: FitProblem, segments: Sequence[FitSegment]) -> FitCost:
    """Time and memory of a plan, whether or not it fits."""
    times = tuple(_unit_ns(problem, segments, number) for number in range(len(segments)))
    if problem.objective is FitObjective.SUM:
        value = problem.base_ns + sum(times)
    else:
        value = problem.base_ns + len(segments) * max(times, default=0)
    cards = [segment for segment in segments if not problem.is_host(segment.unit)]
    whole = len(cards) == len(segments) > 1 and not any(segment.moved for segment in segments)
    uses = _uses(problem, segments, pipelined=whole)
    pipelined = whole and all(use.bytes <= use.limit_bytes for use in uses)
    return FitCost(value, times, uses if pipelined else _uses(problem, segments, pipelined=False), pipelined)


def _unit_ns(problem: FitProblem, segments: Sequence[FitSegment], number: int) -> int:
    """What a segment adds to the time of a step."""
    segment = segments[number]
    unit, host, moved = problem.units[segment.unit], problem.host_unit, set(segment.moved)
    total = problem.hop_ns[segments[number - 1].unit][segment.unit] if number else 0
    for row in range(segment.first, segment.last):
        kind = problem.rows[row]
        total += unit.row_ns[kind]
        for part in range(len(problem.parts)):
            if (row, part) in moved and host is not None:
                total += problem.units[host].ns[kind][part] + unit.trip_ns
            else:
                total += unit.ns[kind][part]
    return total


def _cards_before(problem: FitProblem, segments: Sequence[FitSegment], number: int) -> bool:
    return any(not problem.is_host(segment.unit) for segment in segments[:number])


def _uses(problem: FitProblem, segments: Sequence[FitSegment], *, pipelined: bool) -> tuple[FitUse, ...]:
    """What each device holds."""
    held = [[0] * len(problem.parts) for _ in problem.devices]
    buffers = [0] * len(problem.devices)
    host, end = problem.host_unit, len(problem.rows)
    host_device = None if host is None else problem.pools[problem.units[host].takes[0][0]].devices[0]
    if host is not None and host_device is not None:
        alone = len(segments) == 1 and segments[0].unit == host
        buffers[host_device] = problem.units[host].buffers.alone if alone else problem.units[host].buffers.first
    for number, segment in enumerate(segments):
        unit, moved = problem.units[segment.unit], set(segment.moved)
        for row in range(segment.first, segment.last):
            kind = problem.rows[row]
            for part in range(len(problem.parts)):
                if (row, part) in moved and host is not None and host_device is not None:
                    held[host_device][part] += problem.units[host].bytes[kind][part]
                else:
                    for device in segment.devices:
                        held[device][part] += unit.bytes[kind][part]
        if segment.unit != host:
            before, output = _cards_before(problem, segments, number), segment.last == end
            four = unit.pipelined_buffers if pipelined else unit.buffers
            own = (four.middle if before else four.first, four.last if before else four.alone)[output]
            for device in segment.devices:
                buffers[device] += own
    return tuple(
        FitUse(number, tuple(held[number]), buffers[number], device.limit_bytes)
        for number, device in enumerate(problem.devices)
    )


def fit_violations(problem: FitProblem, segments: Sequence[FitSegment]) -> tuple[str, ...]:
    """Rules and limits that a plan breaks, in words."""
    found = _holes(problem, segments) or _against_rules(problem, segments)
    if not found:
        for use in cost_segments(problem, segments).uses:
            if use.bytes > use.limit_bytes:
                name = problem.devices[use.device].id
                found.append(f"{name} would hold {use.bytes:,} bytes and has {use.limit_bytes:,}")
    return tuple(found)


def _holes(problem: FitProblem, segments: Sequence[FitSegment]) -> list[str]:
    """Rows without a home, and devices that are not what their unit takes."""
    found, position, taken = [], 0, set[int]()
    for segment in segments:
        if not (segment.first == position < segment.last <= len(problem.rows)):
            found.append(f"rows {segment.first} to {segment.last} do not follow on row {position}")
        position = segment.last
        if not 0 <= segment.unit < len(problem.units):
            return [*found, "a segment is on no unit"]
        rest = list(segment.devices)
        for pool, count in problem.units[segment.unit].takes:
            mine = [device for device in rest if device in problem.pools[pool].devices]
            rest = [device for device in rest if device not in mine]
            if len(mine) != count or len(set(mine)) != count or taken & set(mine):
                found.append(f"unit {problem.units[segment.unit].name} has not the devices that it takes")
            taken |= set(mine)
        if rest:
            found.append(f"unit {problem.units[segment.unit].name} has devices that it does not take")
    if position != len(problem.rows):
        found.append(f"rows from {position} on have no home")
    return found


def _against_rules(problem: FitProblem, segments: Sequence[FitSegment]) -> list[str]:
    """What the engine cannot do."""
    found, rules = [], problem.rules
    for number, segment in enumerate(segments):
        if 0 <= segment.unit < len(problem.units) and problem.is_host(segment.unit):
            if rules.host_rows is HostRows.NONE:
                found.append("the engine runs no rows on the host")
            elif rules.host_rows is HostRows.FIRST and number > 0:
                found.append("the engine leaves only the first rows on the host")
            if segment.moved:
                found.append("a row of the host has no parts elsewhere")
        for row, part in segment.moved:
            inside = segment.first <= row < segment.last and 0 <= part < len(problem.parts)
            if not inside or problem.parts[part] not in rules.moves:
                found.append(f"part {part} of row {row} may not move")
        if len(set(segment.moved)) < len(segment.moved):
            found.append("a part moves twice")
    units = [segment.unit for segment in segments if not problem.is_host(segment.unit)]
    if rules.equal_groups and len({problem.units[unit].size for unit in units}) > 1:
        found.append("all groups must take equally many devices")
    if rules.most_units is not None and len(units) > rules.most_units:
        found.append(f"{len(units)} units in a row, {rules.most_units} are allowed")
    if rules.exact_units is not None and len(units) != rules.exact_units:
        found.append(f"{len(units)} units in a row, exactly {rules.exact_units} are asked")
    return found


def devices_for(problem: FitProblem, units: Sequence[int]) -> list[tuple[int, ...]]:
    """Devices for units in their order: the first ones of each pool that are left."""
    left = [list(pool.devices) for pool in problem.pools]
    found = []
    for unit in units:
        mine: list[int] = []
        for pool, count in problem.units[unit].takes:
            mine += left[pool][:count]
            left[pool] = left[pool][count:]
        found.append(tuple(mine))
    return found


def split_segments(problem: FitProblem, counts: Sequence[int]) -> tuple[FitSegment, ...]:
    """The plan of a split: so many blocks on each card, in the order of the devices.

    The output layer stands with the last block, or is counted too (as llama.cpp does) where the counts add up to all
    blocks and one. Where they add up to less, the first blocks stay on the host.
    """
    own = list(counts)
    used = [number for number, count in enumerate(own) if count]
    if used and sum(own) < len(problem.rows):
        own[used[-1]] += 1
    return rows_split(problem, own)


def rows_split(problem: FitProblem, counts: Sequence[int]) -> tuple[FitSegment, ...]:
    """So many of the last rows, with the output layer, on the cards in the order of the devices; others on the host."""
    cards = [number for number, device in enumerate(problem.devices) if not device.host]
    total, rows = sum(counts), len(problem.rows)
    if len(counts) > len(cards) or any(count < 0 for count in counts) or not 1 <= total <= rows:
        raise InputError(
            f"a split of {total} layers over {len(counts)} devices; the model has {problem.blocks} layers (and the "
            f"output layer), there are {len(cards)} cards"
        )
    segments, position = [], rows - total
    if position:
        if problem.host_unit is None:
            raise InputError(f"{position} layers of the split are on no card, and there is no host for them")
        host = problem.host_unit
        segments.append(FitSegment(host, problem.pools[problem.units[host].takes[0][0]].devices[:1], 0, position))
    single = {unit.takes[0][0]: number for number, unit in reversed(list(enumerate(problem.units))) if unit.size == 1}
    pool_of = {device: number for number, pool in enumerate(problem.pools) for device in pool.devices}
    for card, count in zip(cards, counts, strict=False):
        if not count:
            continue
        if pool_of[card] not in single:
            raise InputError(f"{problem.devices[card].id} is only used in groups here")
        segments.append(FitSegment(single[pool_of[card]], (card,), position, position + count))
        position += count
    return tuple(segments)
