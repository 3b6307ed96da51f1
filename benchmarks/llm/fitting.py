"""Constants of decode and prefill, fitted to measured rows, and judged on devices that were left out.

In: `MeasuredRow`s of a class of devices and a family of number formats. Out: `ClassFit`: coefficients, the ratio of
measured to estimated rates with the row's device left out of the fit, and the interval that most of them fall into.
Simplified: rows count alike, but those of an interval count once per device; prompts are fitted with less weight for
rows that are far off, because some hosts were broken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from benchmarks.llm.regression import Terms, bounded_fit, quantile
from benchmarks.llm.rows import MeasuredRow
from weftline.cost.llm import CostClass

__all__ = ["LEAST_GRADED", "OTHER_KERNELS", "ClassFit", "fit_decode", "fit_prefill", "interval_of"]

OVERLAPPED_CLASSES = {CostClass.APPLE}
"""Classes that read and compute at the same time: the longer of the two counts."""
LEAST_READ = 1 / 0.95
"""Nothing reads faster than 95 % of its peak bandwidth."""
CACHE_LIMITS = {CostClass.AMD: 3.0, CostClass.UNIFIED: 2.0, CostClass.INTEL: 3.0}
"""Classes whose rows have next to no cache: times the peak's time."""
LEAST_DEPTH, CACHE_COLUMN = 1024, 1
"""Rows with fewer tokens say nothing of the cache: then it takes what CACHE_LIMITS say."""
RATIOS_OF_COMPUTE = (0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0, 24.0, 28.0, 32.0)
"""Overlapped classes: tried multiples of the time that computing takes at the peak."""
PIPELINE_LOSSES = (0.0, 0.05, 0.1, 0.15, 0.2)
"""Tried: how much longer each further card makes an overlapped prompt."""
LEAST_GRADED = 8
"""With fewer rows of grade A all are fitted, but those of OTHER_KERNELS."""
OTHER_KERNELS = ("cjpais/LocalScore",)
"""llamafile, an older fork: on a card with 8 GB it was up to 3.6 times slower than llama.cpp is on others."""
FAR_OFF = 0.15
REPEATS = 12
SHARE_BELOW, SHARE_ABOVE = 0.05, 0.95
OTHER_BUILDS = (0.78, 1.3)
"""Intervals are no narrower: builds and models of two years later were up to 30 % faster, capped cards 22 % slower."""
BROKEN_HOST = 3.0
"""Rates that are off by more than this factor say nothing of a device: they stay out of intervals."""


@dataclass(frozen=True)
class ClassFit:
    """Constants of one class and family."""

    coefficients: tuple[float, ...]
    rows: tuple[MeasuredRow, ...]
    ratios: tuple[float, ...]
    """Measured rate over estimated rate, one for each row, its device left out; in sample where there is one device."""
    devices: int
    low: float
    high: float

    @property
    def held_out(self) -> bool:
        """Whether the ratios are of devices that the constants were not fitted to."""
        return self.devices > 1


Fitter = Callable[[Sequence[MeasuredRow]], Callable[[MeasuredRow], float]]
"""Rows to fit -> an estimate of the time of any row."""


def _decode_terms(row: MeasuredRow) -> list[float]:
    rate = row.device.bandwidth / 1e9
    vector = 2 * row.parameters * 1e9 / row.device.vector_flops if row.device.vector_flops else 0.0
    return [row.weights / rate, row.cache / rate, vector, float(row.layers), float(row.cards - 1)]


def fit_decode(rows: Sequence[MeasuredRow], kind: CostClass) -> ClassFit:
    """Coefficients: reading, cache, computing (multiples of the time at the peak), ns per layer, ns per hop."""
    rows = [row for row in rows if row.decode_ns]
    solve = _overlapped if kind in OVERLAPPED_CLASSES else _added
    limits = [LEAST_READ, CACHE_LIMITS.get(kind, LEAST_READ), 0.0, 0.0, 0.0]

    def estimate(row: MeasuredRow, found: Sequence[float]) -> float:
        terms = _decode_terms(row)
        parts = [one * two for one, two in zip(terms, found, strict=True)]
        weights = max(parts[0], parts[2]) if kind in OVERLAPPED_CLASSES else parts[0] + parts[2]
        return weights + parts[1] + parts[3] + parts[4]

    return _judged(rows, lambda chosen: solve(chosen, limits), estimate, lambda row: row.decode_ns)


def _matrix(rows: Sequence[MeasuredRow]) -> tuple[Terms, Terms]:
    return np.array([_decode_terms(row) for row in rows]), np.array([row.decode_ns for row in rows])


def _added(rows: Sequence[MeasuredRow], limits: Sequence[float]) -> tuple[float, ...]:
    terms, times = _matrix(rows)
    short = max(row.depth for row in rows) < LEAST_DEPTH
    return tuple(bounded_fit(terms, times, limits, np.ones(len(rows)), (CACHE_COLUMN,) if short else ()))


def _overlapped(rows: Sequence[MeasuredRow], limits: Sequence[float]) -> tuple[float, ...]:
    terms, times = _matrix(rows)
    best, least = tuple(limits), float("inf")
    for ratio in RATIOS_OF_COMPUTE:
        longer = np.maximum(limits[0] * terms[:, 0], ratio * terms[:, 2])
        rest = np.column_stack([longer, terms[:, 1], terms[:, 3], terms[:, 4]])
        found = bounded_fit(rest, times, [1.0, limits[1], 0.0, 0.0], np.ones(len(rows)))
        error = float(np.sum((rest @ found / times - 1) ** 2))
        if error < least:
            scale, cache, layer, hop = (float(one) for one in found)
            best, least = (limits[0] * scale, cache, ratio * scale, layer, hop), error
    return best


def overlap_factor(micro_batches: int, cards: int, loss: float) -> float:
    """Of the time of one card: micro-batches follow each other through the cards, and each further card costs some."""
    return (micro_batches + cards - 1) / (micro_batches * cards) * (1 + loss * (cards - 1))


def _prefill_terms(row: MeasuredRow, loss: float) -> list[float]:
    peak = (row.device.flops or row.device.vector_flops or row.device.bandwidth * 40) / 1e9
    work = [2 * row.prompt_parameters * row.prompt / peak, row.attention / (row.device.bandwidth / 1e9)]
    return [one * overlap_factor(row.micro_batches, row.cards, loss) for one in (*work, row.layers * row.micro_batches)]


def fit_prefill(rows: Sequence[MeasuredRow]) -> ClassFit:
    """Coefficients: multiplying (multiple of the time at the peak), attention (bytes of bandwidth per FLOP), ns per
    layer and micro-batch, loss per further card."""
    rows = [row for row in rows if row.prefill_ns]

    def estimate(row: MeasuredRow, found: Sequence[float]) -> float:
        return sum(one * two for one, two in zip(_prefill_terms(row, found[3]), found[:3], strict=True))

    return _judged(rows, _robust, estimate, lambda row: row.prefill_ns)


def _robust(rows: Sequence[MeasuredRow]) -> tuple[float, ...]:
    best: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0)
    least = float("inf")
    several = any(row.cards > 1 for row in rows)
    for loss in PIPELINE_LOSSES if several else (PIPELINE_LOSSES[1],):
        terms = np.array([_prefill_terms(row, loss) for row in rows])
        times, weights = np.array([row.prefill_ns for row in rows]), np.ones(len(rows))
        for _ in range(REPEATS):
            found = bounded_fit(terms, times, [1.0, 0.0, 0.0], weights)
            error = np.abs(terms @ found / times - 1)
            weights = np.minimum(1.0, FAR_OFF / np.maximum(error, 1e-9))
        if (total := float(np.sum(error))) < least:
            best, least = (*(float(one) for one in found), loss), total
    return best


def _judged(
    rows: Sequence[MeasuredRow],
    solve: Callable[[Sequence[MeasuredRow]], tuple[float, ...]],
    estimate: Callable[[MeasuredRow, Sequence[float]], float],
    measured: Callable[[MeasuredRow], float],
) -> ClassFit:
    """The fit to all rows of grade A (to all, where there are few), judged by leaving out one device at a time."""
    graded = [row for row in rows if row.grade == "A"]
    if len(graded) < LEAST_GRADED:
        graded = [row for row in rows if row.group not in OTHER_KERNELS] or list(rows)
    names = {row.device.name for row in rows}
    ratios: dict[str, float] = {}
    for name in sorted(names):
        others = [row for row in graded if row.device.name != name] or graded
        found = solve(others)
        ratios |= {row.id: estimate(row, found) / measured(row) for row in rows if row.device.name == name}
    low, high = interval_of(rows, ratios)
    ordered = tuple(ratios[row.id] for row in rows)
    return ClassFit(solve(graded), tuple(rows), ordered, len({row.device.name for row in graded}), low, high)


def interval_of(rows: Sequence[MeasuredRow], ratios: dict[str, float]) -> tuple[float, float]:
    """Ends between which nine of ten ratios lie, every device counting alike; no narrower than OTHER_BUILDS."""
    rows = [row for row in rows if 1 / BROKEN_HOST <= ratios[row.id] <= BROKEN_HOST]
    count = Counter(row.device.name for row in rows)
    weights = [1 / count[row.device.name] for row in rows]
    values = [log(ratios[row.id]) for row in rows]
    low, high = (float(np.exp(quantile(values, weights, share))) for share in (SHARE_BELOW, SHARE_ABOVE))
    return min(low, OTHER_BUILDS[0]), max(high, OTHER_BUILDS[1])
