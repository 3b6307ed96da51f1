"""The simulator, calibrated: a few factors that bring its times near to what was measured.

In: placements and their measured ratios to one device alone. Out: predicted ratios of other placements, and a Problem
whose costs are scaled by the factors, so that any solver searches nearer to the truth. The model is that of a backend
that runs sub-models one after another: a factor for the work of each device, one for transfers, and a price of every
border between sub-models. Fitted on logarithms of ratios, with a pull to what is assumed before anything is known.
Simplified: kernels that fuse across a border are only seen through the price of borders.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices
from weftline.problem import Problem
from weftline.simulate.batch import INFEASIBLE, evaluate
from weftline.units import MAX_QUANTITY

__all__ = ["Calibration", "count_parts"]

Floats = NDArray[np.float64]

BORDER = 0.01
"""What a border between two sub-models is thought to cost before one was measured: a share of the reference."""
PULL = 0.03
"""Weight of what is assumed, against one measurement."""
STEPS, LONGEST = 20, 1.0
"""Of Gauss and Newton; how far a step may go in a logarithm."""


class Calibration:
    """K factors for devices, one for transfers, one for borders; all in ratios per ns (borders: per border)."""

    def __init__(self, problem: Problem) -> None:
        self._sequential = problem.with_rules(msgspec.structs.replace(problem.rules, runtime="sequential"))
        self._time = np.maximum(problem.cost.time, 0).astype(np.float64)
        able = (problem.cost.time >= 0).all(axis=0)
        alone = self._time.sum(axis=0)
        self._unit = max(1.0, float(alone[able].min() if able.any() else alone.max()))
        k = len(problem.devices)
        self._assumed = np.log(np.array([*([1.0 / self._unit] * (k + 1)), BORDER]))
        self.factors: Floats = np.exp(self._assumed)

    def fit(self, placements: Indices, ratios: Floats) -> None:
        """Choose the factors again, from everything that was measured."""
        x, y = self._parts(placements), np.log(ratios)
        usable = np.isfinite(x).all(axis=1) & np.isfinite(y)
        x, y = x[usable], y[usable]
        theta = self._assumed.copy()
        for _ in range(STEPS if len(x) else 0):
            shares = x * np.exp(theta)
            predicted = np.maximum(shares.sum(axis=1, keepdims=True), 1e-12)
            slope = shares / predicted
            pull = PULL * np.eye(len(theta))
            right = slope.T @ (y - np.log(predicted[:, 0])) - pull @ (theta - self._assumed)
            theta = theta + np.clip(np.linalg.solve(slope.T @ slope + pull, right), -LONGEST, LONGEST)
        self.factors = np.exp(theta)

    def predict(self, placements: Indices) -> Floats:
        """(B, n) placements -> (B,) ratios; infinity where links or devices are missing."""
        ratios: Floats = self._parts(placements) @ self.factors
        return np.where(np.isfinite(ratios), ratios, np.inf)

    def problem(self) -> Problem:
        """The same question with calibrated costs, sequential runtime; every tensor that crosses pays for a border."""
        k, cost = self._time.shape[1], self._sequential.cost
        scale = self.factors[:k] * self._unit
        move, border = self.factors[k] * self._unit, self.factors[k + 1] * self._unit
        most = MAX_QUANTITY // (4 * (self._time.size + len(cost.transfer_row) * k + 1))
        time = np.where(cost.time >= 0, np.minimum(np.rint(cost.time * scale), most), cost.time)
        moved = np.minimum(np.rint(cost.transfer * move + border), most)
        apart = ~np.eye(k, dtype=np.bool_) & (cost.transfer >= 0)
        transfer = np.where(apart, moved, cost.transfer)
        scaled = replace(cost, time=time.astype(np.int64), transfer=transfer.astype(np.int64))
        return replace(self._sequential, cost=scaled)

    def _parts(self, placements: Indices) -> Floats:
        """(B, K + 2): ns of work per device, ns of transfers, borders; infinite where the placement cannot run."""
        placements = np.atleast_2d(placements)
        k = self._time.shape[1]
        work = np.stack([np.where(placements == d, self._time[:, d], 0.0).sum(axis=1) for d in range(k)], axis=1)
        value = evaluate(self._sequential, placements).value
        moved = np.where(value < INFEASIBLE, value - work.sum(axis=1), np.inf)
        borders = count_parts(self._sequential, placements) - 1
        return np.concatenate([work, np.maximum(moved, 0.0)[:, None], borders[:, None]], axis=1)


def count_parts(problem: Problem, placements: Indices) -> Floats:
    """(B,): about how many sub-models a placement makes, counting a device anew where the data comes back to it."""
    placements = np.atleast_2d(placements)
    count, n = placements.shape
    source, target, _ = problem.graph.arrays.edges()
    turn = np.zeros((count, n), np.int64)
    order = np.argsort(source, kind="stable")  # ops are in topological order, so all that enters an op is there before
    for a, b in zip(source[order].tolist(), target[order].tolist(), strict=True):
        np.maximum(turn[:, b], turn[:, a] + (placements[:, a] != placements[:, b]), out=turn[:, b])
    key = turn * len(problem.devices) + placements
    key.sort(axis=1)
    parts: Floats = 1.0 + (np.diff(key, axis=1) != 0).sum(axis=1)
    return parts
