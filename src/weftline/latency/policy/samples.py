"""Biases around what the network says, and the best of the decodes that follow from them.

In: a Problem and its Features, a DecoderBias, scales of noise. Out: Drawn (biases in ns), and the best decode. Noise
comes in pairs of opposite sign. At scale 1 it has the standard deviations of `cpeft-64`. Samples are drawn around what
was said, or four at a time with less noise around the best sample so far.

A sample has its own order of ops, too: by upward rank, with a mean over devices that can lean towards the fast ones.
Power 1 is the plain mean of HEFT and cPEFT; -1 is the harmonic mean, under which a very slow device hardly counts.
Powers are rounded to quarters, and orders are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.latency.list.decoder import Decoder, Floats
from weftline.latency.list.memory_left import possible_devices
from weftline.latency.list.schedulers import BIASES_AT_ONCE, PER_DEVICE, PER_KAPPA, PER_LAMBDA, PER_OP, best_row
from weftline.latency.policy.features import Features
from weftline.latency.policy.network import DecoderBias
from weftline.problem import Problem
from weftline.simulate.sentinels import NEVER
from weftline.simulate.tables import default_order, longest_paths, tables

__all__ = [
    "PER_POWER",
    "POWERS",
    "SCALES",
    "BiasNoise",
    "Drawn",
    "Orders",
    "Samples",
    "bias_row",
    "biases",
    "decode_rows",
    "draw_noise",
    "moved",
    "no_bias",
    "rounded",
    "scales_of",
]

POWERS = (-4.0, 3.0)
"""The least and the largest power."""
STEPS_PER_POWER = 4
"""Per whole number."""


def rounded(power: float) -> float:
    """The nearest power for which there is an order."""
    return round(min(max(power, POWERS[0]), POWERS[1]) * STEPS_PER_POWER) / STEPS_PER_POWER


class Orders:
    """The orders of one problem."""

    def __init__(self, problem: Problem) -> None:
        table = tables(problem)
        self._problem, self._table = problem, table
        possible = possible_devices(problem)[problem.group]
        time = np.where(possible, np.maximum(table.time, 1), 1).astype(np.float64)
        self._largest = time.max(axis=1)
        self._relative = time / self._largest[:, None]
        self._share = possible / np.maximum(possible.sum(axis=1, keepdims=True), 1)
        between = (table.transfer >= 0) & ~np.eye(table.time.shape[1], dtype=np.bool_)
        count = np.maximum(between.sum(axis=(1, 2)), 1)
        self._transfer: Floats = np.where(between, table.transfer, 0).sum(axis=(1, 2)) / count
        self._found: dict[float, Indices] = {}

    def order(self, power: float) -> Indices:
        """(n,): by descending rank."""
        power = rounded(power)
        if power not in self._found:
            self._found[power] = default_order(self._problem) if power == 1.0 else self._by(power)
        return self._found[power]

    def _by(self, power: float) -> Indices:
        if power == 0.0:
            mean = np.exp((np.log(self._relative) * self._share).sum(axis=1))
        else:
            mean = ((self._relative**power) * self._share).sum(axis=1) ** (1.0 / power)
        rank = longest_paths(self._table, np.maximum(mean, 1e-12) * self._largest, self._transfer)
        return np.argsort(-rank, kind="stable").astype(np.int32)


SCALES = (0.4, 3.0)
PER_POWER = 0.7
"""Standard deviation of the power of the order, at scale 1."""
CLOSE_SCALES, CLOSE_PAIRS = (0.2, 0.8), 2
"""Scales of noise around the best sample so far, and how many pairs are drawn before it may move."""
MOST_REBOOKED = 16
"""Plans of a batch that are booked anew by the simulator."""
POOL_SIZE = 8
"""Decodes of different latencies that are kept."""


@dataclass(frozen=True, eq=False)
class BiasNoise:
    """B standard normal draws, each with a scale; row 2i + 1 is row 2i with the sign turned."""

    scale: Floats
    """(B,)"""
    op: Floats
    """(B, n, K)"""
    device: Floats
    """(B, 1, K)"""
    lam: Floats
    kappa: Floats
    power: Floats
    """(B,)"""


Drawn = tuple[Floats, Floats, Floats, Floats]
"""(B, n, K) biases in ns, (B,) lambdas, kappas and powers."""


def scales_of(pairs: int, least: float = SCALES[0], most: float = SCALES[1]) -> Floats:
    """(2 x pairs,): geometric, the same for both of a pair."""
    found: Floats = np.repeat(np.geomspace(least, most, pairs), 2)
    return found


def draw_noise(random: np.random.Generator, scale: Floats, n: int, k: int) -> BiasNoise:
    """`scale` is (B,) with B even."""

    def pairs(*shape: int) -> Floats:
        half = random.standard_normal((len(scale) // 2, *shape))
        return np.stack([half, -half], axis=1).reshape(len(scale), *shape)

    return BiasNoise(scale, pairs(n, k), pairs(1, k), pairs(), pairs(), pairs())


def no_bias(seen: Features) -> DecoderBias:
    """What a network says that has learnt nothing: cPEFT."""
    return DecoderBias(np.zeros(seen.possible.shape), 1.0, 0.0, 1.0)


def biases(seen: Features, center: DecoderBias, noise: BiasNoise) -> Drawn:
    """Noise around what was said."""
    scale = noise.scale[:, None, None]
    bias = center.bias + scale * (PER_OP * noise.op + PER_DEVICE * noise.device)
    lams = np.maximum(0.0, center.lam + PER_LAMBDA * noise.scale * noise.lam)
    kappas = np.maximum(-1.0, center.kappa + PER_KAPPA * noise.scale * noise.kappa)
    return bias * seen.unit[:, None], lams, kappas, center.power + PER_POWER * noise.scale * noise.power


def moved(center: DecoderBias, noise: BiasNoise, row: int) -> DecoderBias:
    """What was said, moved by one row of noise."""
    scale = float(noise.scale[row])
    bias = center.bias + scale * (PER_OP * noise.op[row] + PER_DEVICE * noise.device[row])
    lam = max(0.0, center.lam + PER_LAMBDA * scale * float(noise.lam[row]))
    kappa = max(-1.0, center.kappa + PER_KAPPA * scale * float(noise.kappa[row]))
    return DecoderBias(bias, lam, kappa, center.power + PER_POWER * scale * float(noise.power[row]))


def bias_row(seen: Features, center: DecoderBias) -> Drawn:
    """One decode, without noise."""
    bias = (center.bias * seen.unit[:, None])[None]
    return bias, np.array([max(0.0, center.lam)]), np.array([max(-1.0, center.kappa)]), np.array([center.power])


def decode_rows(decoder: Decoder, orders: Orders, drawn: Drawn, capacity: Ints | None = None) -> tuple[Indices, Ints]:
    """(B, n) placements and (B,) planned latencies or NEVER; rows with the same order are decoded together."""
    bias, lams, kappas, powers = drawn
    power = np.array([rounded(each) for each in powers.tolist()])
    placements, planned = np.zeros(bias.shape[:2], np.int32), np.zeros(len(bias), np.int64)
    for each in np.unique(power):
        rows = np.flatnonzero(power == each)
        found = decoder.decode_many(bias[rows], lams[rows], kappas[rows], orders.order(float(each)), capacity=capacity)
        placements[rows], planned[rows] = found
    return placements, planned


class Samples:
    """Decodes of one problem. `best` is None until a decode has found devices within memory."""

    def __init__(
        self, problem: Problem, seen: Features, decoder: Decoder, orders: Orders, capacity: Ints | None = None
    ) -> None:
        self._problem, self._seen, self._decoder, self._orders, self._capacity = (
            problem,
            seen,
            decoder,
            orders,
            capacity,
        )
        self.value = NEVER
        self.best: DecoderBias | None = None
        self.pool: list[tuple[int, DecoderBias]] = []
        """The best as they were planned, best first; activations may overflow."""

    def try_one(self, center: DecoderBias) -> int:
        """One decode without noise -> its value or NEVER."""
        return self._keep(self._decode(bias_row(self._seen, center)), center)

    def draw(
        self,
        center: DecoderBias,
        count: int,
        near: int,
        random: np.random.Generator,
        over: Callable[[], bool] = lambda: False,
    ) -> None:
        """`count` decodes around what was said, then `near` ever nearer to the best of these."""
        n, k = self._seen.possible.shape
        most = max(1, BIASES_AT_ONCE // (n * k) // 2)
        scales, pairs = scales_of((count + 1) // 2), (near + 1) // 2
        here, least = center, NEVER
        rounds = [scales[first : first + 2 * most] for first in range(0, len(scales), 2 * most)]
        rounds += [scales_of(min(CLOSE_PAIRS, pairs - first), *CLOSE_SCALES) for first in range(0, pairs, CLOSE_PAIRS)]
        for number, scale in enumerate(rounds):
            if over():
                return
            around = center if number * 2 * most < len(scales) else here
            noise = draw_noise(random, scale, n, k)
            found = self._decode(biases(self._seen, around, noise))
            row = int(found[1].argmin())
            if found[1][row] < least:
                here, least = moved(around, noise, row), int(found[1][row])
            self._keep(found, around, noise)

    def _decode(self, drawn: Drawn) -> tuple[Indices, Ints]:
        return decode_rows(self._decoder, self._orders, drawn, self._capacity)

    def _keep(self, found: tuple[Indices, Ints], around: DecoderBias, noise: BiasNoise | None = None) -> int:
        row, value = best_row(self._problem, *found, most=MOST_REBOOKED)
        if value < self.value:
            self.value, self.best = value, around if noise is None else moved(around, noise, row)
        self._keep_in_pool(found[1], around, noise)
        return value

    def _keep_in_pool(self, planned: Ints, around: DecoderBias, noise: BiasNoise | None) -> None:
        for each in np.argsort(planned, kind="stable")[:POOL_SIZE].tolist():
            latency = int(planned[each])
            if latency < NEVER and all(latency != other for other, _ in self.pool):
                if len(self.pool) == POOL_SIZE and latency > self.pool[-1][0]:
                    break
                self.pool.append((latency, around if noise is None else moved(around, noise, each)))
                self.pool = sorted(self.pool, key=lambda entry: entry[0])[:POOL_SIZE]
