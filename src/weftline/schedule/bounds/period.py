"""Lower bounds of the period: no pattern that repeats for ever needs less time per micro-batch, whatever its size.

In: blocks. Out: an exact fraction and what proves it. Load: a device does one block at a time. Memory: in the average
over time a device holds at most its limit, so limit * period >= what one micro-batch holds times how long it must
(longest paths between the blocks that take and those that give back) + what stays empty for certain (a block that gives
back runs below the limit, and so does the block before one that takes). Simplified: each device by itself.
"""

from __future__ import annotations

from fractions import Fraction
from math import gcd
from typing import Any

import numpy as np

from weftline.graph.arrays import Ints
from weftline.problem.blocks import Blocks
from weftline.problem.model import NO_LIMIT

__all__ = ["gives_back_later", "period_bound", "period_witness"]

MOST_PAIRS = 256
"""Blocks of one device up to which the block before each taking block is chosen by an assignment."""
LARGEST_FLOW_COST = 2**60
NO_PATH = -(2**62)
"""In place of a length."""


def period_bound(blocks: Blocks) -> tuple[Fraction, str]:
    """The largest of the bounds, and a few words that say which it is."""
    busiest = max(range(len(blocks.devices)), key=lambda d: blocks.loads[d])
    best, by = Fraction(blocks.loads[busiest]), f"load of device {blocks.devices[busiest].id}"
    if not blocks.balanced:
        return best, by
    tight = {d: lane for d, lane in enumerate(blocks.devices) if not lane.link and 0 < lane.room < NO_LIMIT}
    most = _most_held(blocks) if tight else []
    for device, lane in tight.items():
        if most[device] <= best * lane.room:
            continue
        plan = _held(blocks, device)
        if plan is None:
            continue
        bound = Fraction(_sum(plan) + _empty(blocks, device), lane.room)
        if bound > best:
            best, by = bound, f"memory of device {lane.id}"
    return best, by


def period_witness(blocks: Blocks) -> dict[str, Any] | None:
    """What shows the checker the bound by memory; None where the largest load is as large."""
    _, by = period_bound(blocks)
    if not by.startswith("memory"):
        return None
    device = next(d for d, lane in enumerate(blocks.devices) if by == f"memory of device {lane.id}")
    plan = [[i, j, amount] for i, j, _, amount in _held(blocks, device) or () if amount]
    rows, columns = _duals(_costs(blocks, device))
    return {"kind": "memory", "device": device, "plan": plan, "rows": rows, "columns": columns}


def _most_held(blocks: Blocks) -> list[int]:
    """Device -> what the bound by memory can be at most: all is held all the time, and every block runs empty."""
    whole = sum(block.span for block in blocks.blocks) + sum(lag for *_, lag in blocks.edges)
    most = [0] * len(blocks.devices)
    for block in blocks.blocks:
        for device, change in zip(block.devices, block.memory, strict=True):
            most[device] += abs(change) * (whole + blocks.loads[device])
    return most


def gives_back_later(blocks: Blocks, device: int) -> bool:
    """Whether all that is given back on a device was taken on paths before: no part of a micro-batch frees memory."""
    return _held(blocks, device) is not None


def _sum(plan: list[tuple[int, int, int, int]]) -> int:
    return sum(length * amount for _, _, length, amount in plan)


def _held(blocks: Blocks, device: int) -> list[tuple[int, int, int, int]] | None:
    """What one micro-batch holds at least on a device, for how long; None where nothing says so.

    Rows are (take, give, length of the path, amount). What is taken is given back later: a plan that pairs each taken
    unit with one that is given back on a path after it holds at least the sum of the longest paths. Every plan is
    valid; the flow finds a best one.
    """
    takes, gives = _changes(blocks, device)
    if not takes or not gives:
        return None if takes or gives else []
    paths = {i: _longest_paths(blocks, i) for i in takes}
    pairs = [(i, j, int(paths[i][j])) for i in takes for j in gives if paths[i][j] > NO_PATH]
    plan = _transport(takes, {j: -m for j, m in gives.items()}, pairs)
    return None if plan is None else [(*pair, amount) for pair, amount in zip(pairs, plan, strict=True)]


def _changes(blocks: Blocks, device: int) -> tuple[dict[int, int], dict[int, int]]:
    """Block -> change, of those that take and those that give."""
    takes, gives = {}, {}
    for i, block in enumerate(blocks.blocks):
        if device in block.devices:
            change = block.memory[block.devices.index(device)]
            if change > 0:
                takes[i] = change
            elif change < 0:
                gives[i] = change
    return takes, gives


def _longest_paths(blocks: Blocks, source: int) -> Ints:
    """Least time from the start of a block to the start of every other; `NO_PATH` where no path leads."""
    table = blocks.table
    found = np.full(blocks.n, NO_PATH, np.int64)
    found[source] = 0
    for i in table.order:
        if found[i] > NO_PATH:
            for e in range(table.after_ptr[i], table.after_ptr[i + 1]):
                after = table.after_of[e]
                found[after] = max(found[after], found[i] + table.span[i] + table.after_lag[e])
    return found


def _transport(takes: dict[int, int], gives: dict[int, int], pairs: list[tuple[int, int, int]]) -> list[int] | None:
    """Amounts for the pairs that use up everything, with a large total length; None where none do."""
    if len(takes) == 1 or len(gives) == 1:
        amounts = [takes[i] if len(gives) == 1 else gives[j] for i, j, _ in pairs]
        return amounts if len(pairs) == max(len(takes), len(gives)) else None
    from ortools.graph.python import min_cost_flow

    unit = gcd(*takes.values(), *gives.values())
    total = sum(takes.values()) // unit
    longest = max((length for *_, length in pairs), default=0)
    # lengths may be rounded, amounts not
    coarse = max(1, longest * total * (len(takes) + len(gives)) // LARGEST_FLOW_COST + 1)
    flow = min_cost_flow.SimpleMinCostFlow()
    node = {block: number for number, block in enumerate([*takes, *gives])}
    arcs = [
        flow.add_arc_with_capacity_and_unit_cost(node[i], node[j], min(takes[i], gives[j]) // unit, -(length // coarse))
        for i, j, length in pairs
    ]
    for block, amount in takes.items():
        flow.set_node_supply(node[block], amount // unit)
    for block, amount in gives.items():
        flow.set_node_supply(node[block], -(amount // unit))
    if flow.solve() != flow.OPTIMAL:
        return None
    return [unit * int(flow.flow(arc)) for arc in arcs]


def _empty(blocks: Blocks, device: int) -> int:
    """Memory times time that stays empty on a device per micro-batch, at least.

    Block x, followed by y on the device, runs at or below limit - max(what x gives, what y takes). Which block follows
    which is unknown: the cheapest assignment.
    """
    cost = _costs(blocks, device)
    if not cost:
        return 0
    if len(cost) <= MOST_PAIRS:
        return _cheapest_assignment(cost)
    return sum(min(row) for row in cost)


def _costs(blocks: Blocks, device: int) -> list[list[int]]:
    """What stays empty while one block of a device runs, by the one that follows."""
    rows = [
        (block.span, block.memory[block.devices.index(device)]) for block in blocks.blocks if device in block.devices
    ]
    return [[span * max(0, -change, taken) for _, taken in rows] for span, change in rows]


def _cheapest_assignment(cost: list[list[int]]) -> int:
    """A lower bound of the cheapest assignment; equal to it while the numbers are small."""
    from ortools.graph.python import linear_sum_assignment

    coarse = _coarse(cost)
    assignment = linear_sum_assignment.SimpleLinearSumAssignment()
    for i, row in enumerate(cost):
        for j, value in enumerate(row):
            assignment.add_arc_with_cost(i, j, value // coarse)
    if assignment.solve() != assignment.OPTIMAL:
        return sum(min(row) for row in cost)
    return int(assignment.optimal_cost()) * coarse


def _duals(cost: list[list[int]]) -> tuple[list[int], list[int]]:
    """Numbers u and v with u_i + v_j <= cost_ij and a large sum: that of the cheapest assignment, for few blocks.

    One row after another finds its column along a shortest path, as Kuhn and Munkres do.
    """
    n, coarse = len(cost), _coarse(cost)
    if n > MOST_PAIRS:
        return [min(row) for row in cost], [0] * n
    table: Ints = np.array([[value // coarse for value in row] for row in cost], np.int64)
    u, v = np.zeros(n, np.int64), np.zeros(n, np.int64)
    row_of: Ints = np.full(n, -1, np.int64)
    for first in range(n):
        length: Ints = np.full(n, LARGEST_FLOW_COST, np.int64)
        came, done = np.full(n, -1, np.int64), np.zeros(n, np.bool_)
        row, last, reached = first, -1, np.int64(0)
        while row >= 0:
            through = reached + table[row] - u[row] - v
            better = ~done & (through < length)
            length[better], came[better] = through[better], last
            last = int(np.where(done, LARGEST_FLOW_COST, length).argmin())
            reached, done[last] = length[last], True
            row = int(row_of[last])
        u[first] += reached
        for column in np.flatnonzero(done):
            if row_of[column] >= 0:
                u[row_of[column]] += reached - length[column]
            v[column] -= reached - length[column]
        while last >= 0:
            before = int(came[last])
            row_of[last] = first if before < 0 else row_of[before]
            last = before
    return [int(x) * coarse for x in u], [int(x) * coarse for x in v]


def _coarse(cost: list[list[int]]) -> int:
    """A unit in which all numbers are small; they are whole in it, where they can be."""
    unit = gcd(*(value for row in cost for value in row)) or 1
    return unit * (max(max(row) for row in cost) // unit // 2**40 + 1)
