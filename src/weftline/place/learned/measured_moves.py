"""Placements of few sub-models: random ones, and small changes of one that is known to be good.

In: a Problem, a placement. Out: placements that keep `together` sets and devices that can run an op. Ops are in
topological order, so that a run of consecutive ops is a convex set: what is moved is such a run, or the border between
two. Simplified: other topological orders are not looked at.
"""

from __future__ import annotations

import numpy as np

from weftline.graph.arrays import Indices
from weftline.problem import Problem
from weftline.problem.feasible import allowed_devices

__all__ = ["mutate", "random_cuts", "repair"]

MOST_PIECES = 6
"""Of a random placement."""


def random_cuts(problem: Problem, dice: np.random.Generator, count: int) -> list[Indices]:
    """Uniform: how many pieces (2 to MOST_PIECES), where the cuts are, which device each piece has."""
    n, k = len(problem.graph.ops), len(problem.devices)
    if k < 2 or n < 2:
        return []
    found = []
    for _ in range(count):
        pieces = int(dice.integers(2, min(MOST_PIECES, n) + 1))
        cuts = np.sort(dice.choice(np.arange(1, n), pieces - 1, replace=False))
        word = [int(dice.integers(k))]
        while len(word) < pieces:
            word.append((word[-1] + int(dice.integers(1, k))) % k)
        placement = np.repeat(np.array(word, np.int32), np.diff([0, *cuts.tolist(), n]))
        found.append(repair(problem, placement, placement))
    return found


def mutate(problem: Problem, placement: Indices, dice: np.random.Generator, count: int) -> list[Indices]:
    """Borders moved, runs given to another device, runs joined to their neighbours."""
    n, k = len(placement), len(problem.devices)
    if k < 2 or n < 2:
        return []
    found = []
    for _ in range(count):
        changed = placement.copy()
        borders = np.flatnonzero(np.diff(placement)) + 1
        kind = int(dice.integers(4)) if len(borders) else int(dice.integers(2)) * 3
        if kind == 0:  # a run anywhere
            first = int(dice.integers(n))
            changed[first : first + _length(dice, n)] = int(dice.integers(k))
        elif kind == 1:  # a border moves
            border, length = int(dice.choice(borders)), _length(dice, n)
            if dice.integers(2):
                changed[border : border + length] = placement[border - 1]
            else:
                changed[max(0, border - length) : border] = placement[border]
        elif kind == 2:  # a run joins its neighbour
            ends = [0, *borders.tolist(), n]
            run = int(dice.integers(len(ends) - 1))
            near = ends[run] - 1 if run > 0 and (run == len(ends) - 2 or dice.integers(2)) else ends[run + 1]
            changed[ends[run] : ends[run + 1]] = placement[near]
        else:  # the beginning or the end
            cut, device = int(dice.integers(1, n)), int(dice.integers(k))
            part = slice(0, cut) if dice.integers(2) else slice(cut, n)
            changed[part] = device
        found.append(repair(problem, changed, placement))
    return found


def repair(problem: Problem, placement: Indices, fallback: Indices) -> Indices:
    """Sets stay together; one whose device cannot run it all takes that of `fallback`, or where it is fastest."""
    group, allowed = problem.group, allowed_devices(problem)
    first = np.unique(group, return_index=True)[1]
    total = np.zeros(allowed.shape, np.int64)
    np.add.at(total, group, np.maximum(problem.cost.time, 0))
    sets = np.arange(len(first))
    found = np.where(allowed[sets, placement[first]], placement[first], fallback[first])
    found = np.where(allowed[sets, found], found, np.where(allowed, total, 2**62).argmin(axis=1))
    repaired: Indices = found[group].astype(np.int32)
    return repaired


def _length(dice: np.random.Generator, n: int) -> int:
    """From one op to half of them, all orders of magnitude alike."""
    return int(np.exp(dice.uniform(0.0, np.log(max(2.0, n / 2)))))
