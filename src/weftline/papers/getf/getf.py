"""GETF (Su, Ren, Vardi, Wierman 2020): devices in groups of like speed, ops assigned to groups, ETF within the groups.

A device's speed is the geometric mean over ops of mean time / time there, scaled so that the fastest of m devices has
speed m; those below 1 are left out as long as others can take an op. A linear program without communication spreads
each op over devices. The fastest group that holds half of an op's mass together with all faster ones is the least it
needs; of that and the faster groups, the one of greatest total speed takes it. Where memory or links leave no device
there, the next faster group takes it, then any. Where the program does not finish, each op is spread by the speeds of
the devices that can run it.
"""

from __future__ import annotations

import numpy as np

from weftline.bounds import group_times
from weftline.graph.arrays import Indices, Ints
from weftline.latency.list.favourites import Floats, Program, solve_within
from weftline.latency.list.memory_left import Bools, offer_leaving_room, possible_devices
from weftline.papers.getf.earliest_first import EarliestFirst
from weftline.problem import Problem
from weftline.search import Search, Solver
from weftline.simulate.tables import tables

__all__ = ["SOLVER", "assign", "device_speeds", "getf_program", "speed_groups"]


def _solve(search: Search) -> None:
    problem = search.problem
    speed = device_speeds(problem)
    level = speed_groups(speed)
    possible = possible_devices(problem)
    mass = np.where(possible, speed, 0.0)
    if (level[level > 0] != level.max()).any():  # with one group there is nothing to assign
        rows = len(possible) + 2 * len(problem.group) + len(tables(problem).edge_maker) + len(speed)
        found = solve_within(search, rows, lambda: getf_program(problem, possible))
        if found is not None:
            mass = found[: possible.size].reshape(possible.shape)
        else:
            search.tell("GETF: the linear program did not finish; ops are spread by speed instead")
    scheduler = EarliestFirst(problem, "GETF", assign(mass, speed, level))

    offer_leaving_room(search, lambda capacity: scheduler.schedule(search, capacity))


def device_speeds(problem: Problem) -> Floats:
    """(K,): scaled so that the fastest has speed K."""
    time = problem.cost.time.astype(np.float64)
    can = (time > 0) & ((time > 0).sum(axis=1) > 0)[:, None]
    mean = np.where(can, time, 0.0).sum(axis=1) / np.maximum(can.sum(axis=1), 1)
    ratio = np.log(np.where(can, mean[:, None], 1.0)) - np.log(np.where(can, time, 1.0))
    speed = np.exp(ratio.sum(axis=0) / np.maximum(can.sum(axis=0), 1))
    scaled: Floats = speed / speed.max() * len(speed)
    return scaled


def speed_groups(speed: Floats) -> Ints:
    """(K,): the group of each device, faster ones higher, 0 = left out."""
    m = len(speed)
    gamma = max(2.0, np.log(m) / max(np.log(np.log(m)), 1e-9)) if m > np.e else 2.0
    level = np.floor(np.log(np.maximum(speed, 1e-300)) / np.log(gamma) + 1e-9).astype(np.int64) + 1
    return np.where(speed >= 1.0 - 1e-9, np.maximum(level, 1), 0)


def getf_program(problem: Problem, possible: Bools) -> Program:
    """Columns: mass of each group of ops on each device, end of each op, length. Times in units of their mean."""
    time = np.maximum(problem.cost.time, 0).astype(np.float64)
    time /= max(float(time.mean()), 1e-9)
    n, k = time.shape
    groups = len(possible)
    total, _ = group_times(problem)
    load = total / max(float(np.maximum(problem.cost.time, 0).mean()), 1e-9)
    source, target, _ = problem.graph.arrays.edges()
    op, edge, one = np.arange(n), np.arange(len(source)), np.ones
    end, length = groups * k + op, groups * k + n
    share = problem.group.astype(np.int64)[:, None] * k + np.arange(k)
    # Mass 1; end >= own time; end(j) >= end(i) + own time(j); load of a device <= length; end <= length.
    first, second, third = groups + n, groups + n + len(source), groups + n + len(source) + k
    entries = [
        (np.repeat(np.arange(groups), k), np.arange(groups * k), one(groups * k)),
        (np.repeat(groups + op, k), share.ravel(), -time.ravel()),
        (groups + op, end, one(n)),
        (np.repeat(first + edge, k), share[target].ravel(), -time[target].ravel()),
        (first + edge, end[target], one(len(edge))),
        (first + edge, end[source], -one(len(edge))),
        (np.tile(second + np.arange(k), groups), np.arange(groups * k), -load.ravel()),
        (second + np.arange(k), np.full(k, length), one(k)),
        (third + op, end, -one(n)),
        (third + op, np.full(n, length), one(n)),
    ]
    rows = third + n
    return Program(
        cost=np.concatenate([np.zeros(length), [1.0]]),
        low=np.zeros(length + 1),
        high=np.concatenate([possible.ravel().astype(np.float64), np.full(n + 1, np.inf)]),
        row_low=np.concatenate([one(groups), np.zeros(rows - groups)]),
        row_high=np.concatenate([one(groups), np.full(rows - groups, np.inf)]),
        rows=np.concatenate([r for r, _, _ in entries]).astype(np.int64),
        columns=np.concatenate([c for _, c, _ in entries]).astype(np.int64),
        values=np.concatenate([v for _, _, v in entries]),
    )


def assign(mass: Floats, speed: Floats, level: Ints) -> Indices:
    """(groups, K): the tier of each device for a group of ops, 0 = the assigned devices, then faster ones, then any."""
    levels = np.unique(level[level > 0])
    power = np.array([speed[level == g].sum() for g in levels])
    in_level = np.stack([mass[:, level == g].sum(axis=1) for g in levels], axis=1)
    as_fast = np.cumsum(in_level[:, ::-1], axis=1)[:, ::-1]
    half = as_fast >= 0.5 * in_level.sum(axis=1, keepdims=True) - 1e-9
    least = half.shape[1] - 1 - half[:, ::-1].argmax(axis=1)  # the fastest that holds half of the mass with its betters
    best = np.array([g + int(power[g:].argmax()) for g in range(len(levels))])[least]
    number = np.searchsorted(levels, level)  # of each device; those left out come last
    above = number - best[:, None]
    tier: Indices = np.where((level > 0) & (above >= 0), above, len(levels) + (level == 0)).astype(np.int32)
    return tier


SOLVER = Solver("getf", "GETF: ops assigned to groups of like devices by a linear program, then ETF", _solve)
