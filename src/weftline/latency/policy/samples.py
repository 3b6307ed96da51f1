"""Biases around what the network says, and the best of the decodes that follow from them.

In: a Problem and its Seen, how to Lean, scales of noise. Out: Drawn (biases in ns), and the best decode. Noise comes
in pairs of opposite sign. At scale 1 it has the standard deviations of `place.cpeft_random`. Samples are drawn around
what was said, or four at a time with less noise around the best sample so far. A sample has its own order of ops, too.

Plans of the policy, each planned again a few times with the last plan at hand (see `place.look_back`).

In: Timelines of decodes, and how the decoder leaned. Out: the best Timeline of all. In half of the chains every other
look keeps the lean of the decode; after the first looks there is a little noise. Simplified: activations are not looked
at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.latency.list.decoder import FAILED, Decoder, Floats
from weftline.latency.list.schedulers import PER_DEVICE, PER_KAPPA, PER_LAMBDA, PER_OP
from weftline.latency.policy.features import Seen
from weftline.latency.policy.forward_backward import booked_again, look_back
from weftline.latency.policy.network import Lean
from weftline.latency.policy.order import Orders, rounded
from weftline.problem import Problem
from weftline.simulate import Timeline
from weftline.simulate.batch import evaluate

__all__ = [
    "CHAINS",
    "LOOKS",
    "PER_POWER",
    "SCALES",
    "Drawn",
    "Mender",
    "Noise",
    "Samples",
    "best_row",
    "biases",
    "decode_rows",
    "draw_noise",
    "lean_row",
    "moved",
    "scales_of",
    "untold",
]

SCALES = (0.4, 3.0)
PER_POWER = 0.7
"""Standard deviation of the power of the order, at scale 1."""
CLOSE, CLOSE_PAIRS = (0.2, 0.8), 2
"""Scales of noise around the best sample so far, and how many pairs are drawn before it may move."""
LOOKED_AT = 16
"""Plans of a batch that are booked anew by the simulator."""
POOL = 8
"""Decodes of different latencies that are kept."""
ENTRIES = 2**20
"""Entries of the table of biases that are made at a time."""


@dataclass(frozen=True, eq=False)
class Noise:
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


def draw_noise(random: np.random.Generator, scale: Floats, n: int, k: int) -> Noise:
    """`scale` is (B,) with B even."""

    def pairs(*shape: int) -> Floats:
        half = random.standard_normal((len(scale) // 2, *shape))
        return np.stack([half, -half], axis=1).reshape(len(scale), *shape)

    return Noise(scale, pairs(n, k), pairs(1, k), pairs(), pairs(), pairs())


def untold(seen: Seen) -> Lean:
    """What a network says that has learnt nothing: cPEFT."""
    return Lean(np.zeros(seen.possible.shape), 1.0, 0.0, 1.0)


def biases(seen: Seen, said: Lean, noise: Noise) -> Drawn:
    """Noise around what was said."""
    scale = noise.scale[:, None, None]
    bias = said.bias + scale * (PER_OP * noise.op + PER_DEVICE * noise.device)
    lams = np.maximum(0.0, said.lam + PER_LAMBDA * noise.scale * noise.lam)
    kappas = np.maximum(-1.0, said.kappa + PER_KAPPA * noise.scale * noise.kappa)
    return bias * seen.unit[:, None], lams, kappas, said.power + PER_POWER * noise.scale * noise.power


def moved(lean: Lean, noise: Noise, row: int) -> Lean:
    """What was said, moved by one row of noise."""
    scale = float(noise.scale[row])
    bias = lean.bias + scale * (PER_OP * noise.op[row] + PER_DEVICE * noise.device[row])
    lam = max(0.0, lean.lam + PER_LAMBDA * scale * float(noise.lam[row]))
    kappa = max(-1.0, lean.kappa + PER_KAPPA * scale * float(noise.kappa[row]))
    return Lean(bias, lam, kappa, lean.power + PER_POWER * scale * float(noise.power[row]))


def lean_row(seen: Seen, lean: Lean) -> Drawn:
    """One decode, without noise."""
    bias = (lean.bias * seen.unit[:, None])[None]
    return bias, np.array([max(0.0, lean.lam)]), np.array([max(-1.0, lean.kappa)]), np.array([lean.power])


def decode_rows(decoder: Decoder, orders: Orders, drawn: Drawn, capacity: Ints | None = None) -> tuple[Indices, Ints]:
    """(B, n) placements and (B,) planned latencies or FAILED; rows with the same order are decoded together."""
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
        self, problem: Problem, seen: Seen, decoder: Decoder, orders: Orders, capacity: Ints | None = None
    ) -> None:
        self._problem, self._seen, self._decoder, self._orders, self._capacity = (
            problem,
            seen,
            decoder,
            orders,
            capacity,
        )
        self.value = FAILED
        self.best: Lean | None = None
        self.pool: list[tuple[int, Lean]] = []
        """The best as they were planned, best first; activations may overflow."""

    def try_one(self, lean: Lean) -> int:
        """One decode without noise -> its value or FAILED."""
        return self._keep(self._decode(lean_row(self._seen, lean)), lean)

    def draw(
        self,
        lean: Lean,
        count: int,
        near: int,
        random: np.random.Generator,
        over: Callable[[], bool] = lambda: False,
    ) -> None:
        """`count` decodes around what was said, then `near` ever nearer to the best of these."""
        n, k = self._seen.possible.shape
        most = max(1, ENTRIES // (n * k) // 2)
        scales, pairs = scales_of((count + 1) // 2), (near + 1) // 2
        here, least = lean, FAILED
        rounds = [scales[first : first + 2 * most] for first in range(0, len(scales), 2 * most)]
        rounds += [scales_of(min(CLOSE_PAIRS, pairs - first), *CLOSE) for first in range(0, pairs, CLOSE_PAIRS)]
        for number, scale in enumerate(rounds):
            if over():
                return
            around = lean if number * 2 * most < len(scales) else here
            noise = draw_noise(random, scale, n, k)
            found = self._decode(biases(self._seen, around, noise))
            row = int(found[1].argmin())
            if found[1][row] < least:
                here, least = moved(around, noise, row), int(found[1][row])
            self._keep(found, around, noise)

    def _decode(self, drawn: Drawn) -> tuple[Indices, Ints]:
        return decode_rows(self._decoder, self._orders, drawn, self._capacity)

    def _keep(self, found: tuple[Indices, Ints], around: Lean, noise: Noise | None = None) -> int:
        row, value = best_row(self._problem, *found)
        if value < self.value:
            self.value, self.best = value, around if noise is None else moved(around, noise, row)
        self._keep_in_pool(found[1], around, noise)
        return value

    def _keep_in_pool(self, planned: Ints, around: Lean, noise: Noise | None) -> None:
        for each in np.argsort(planned, kind="stable")[:POOL].tolist():
            latency = int(planned[each])
            if latency < FAILED and all(latency != other for other, _ in self.pool):
                if len(self.pool) == POOL and latency > self.pool[-1][0]:
                    break
                self.pool.append((latency, around if noise is None else moved(around, noise, each)))
                self.pool = sorted(self.pool, key=lambda entry: entry[0])[:POOL]


def best_row(problem: Problem, placements: Indices, planned: Ints) -> tuple[int, int]:
    """The row that is best as planned or booked anew, among those whose activations fit; its value or FAILED.

    In the parallel runtime only the LOOKED_AT best plans are booked anew.
    """
    rows = np.flatnonzero(planned < FAILED)
    sequential = problem.rules.runtime == "sequential"
    if not sequential:
        rows = rows[np.argsort(planned[rows], kind="stable")[:LOOKED_AT]]
    if not len(rows):
        return 0, FAILED
    limited = problem.rules.memory == "dynamic" and any(device.capacity is not None for device in problem.devices)
    again = evaluate(problem, placements[rows], memory=limited)
    value = again.value if sequential else np.minimum(again.value, planned[rows])
    if again.peak is not None:
        value = np.where((again.peak <= problem.capacity).all(axis=1), value, FAILED)
    best = int(value.argmin())
    return int(rows[best]), int(value[best])


ONE_LOOK, LOOKS = 1, 2
"""Looks back after a single decode, which has milliseconds; of any other chain, how many have no noise."""
CHAINS = 4
"""Decodes that are mended, where there are many."""
NOISE = 0.4
"""The largest scale of the noise, see `policy_samples`."""
RATES, LEANS = (1.0, 0.5, 2.0, 4.0), (True, False, True, False)
"""Prices of busy links, and whether the lean of the decode is kept, chain by chain: for variety."""


class Mender:
    """Makes chains of plans."""

    def __init__(self, problem: Problem, seen: Seen, decoder: Decoder, capacity: Ints | None = None) -> None:
        self._problem, self._seen, self._decoder, self._capacity = problem, seen, decoder, capacity
        self.ends: list[Timeline] = []
        """The best of every chain."""

    @property
    def best(self) -> Timeline | None:
        """Of all chains."""
        return min(self.ends, key=lambda timeline: timeline.value, default=None)

    def mend_one(self, start: Timeline, lean: Lean) -> None:
        """What follows a single decode."""
        self._chain(booked_again(self._problem, start), lean, ONE_LOOK, RATES[0], None, lambda: False)

    def mend(
        self,
        starts: list[tuple[Timeline, Lean]],
        looks: int,
        random: np.random.Generator,
        over: Callable[[], bool] = lambda: False,
    ) -> None:
        """The first start and the best others, with so many looks together."""
        booked = [(booked_again(self._problem, start), lean) for start, lean in starts]
        others = sorted(booked[1:], key=lambda entry: entry[0].value)[: CHAINS - 1]
        for number, (start, lean) in enumerate([*booked[:1], *others]):
            share = max(LOOKS, (looks + number) // CHAINS)
            self._chain(start, lean if LEANS[number] else untold(self._seen), share, RATES[number], random, over)

    def _chain(
        self,
        now: Timeline,
        lean: Lean,
        looks: int,
        rate: float,
        random: np.random.Generator | None,
        over: Callable[[], bool],
    ) -> None:
        self.ends.append(now)
        for number in range(looks):
            bias = self._bias(lean, number, random)
            found = look_back(self._problem, self._decoder, now, bias, capacity=self._capacity, rate=rate)
            if found is None or over():
                return
            now = found
            if now.value < self.ends[-1].value:
                self.ends[-1] = now

    def _bias(self, lean: Lean, number: int, random: np.random.Generator | None) -> Floats:
        n, k = self._seen.possible.shape
        bias = lean.bias if number % 2 == 0 else np.zeros((n, k))
        if random is not None and number >= LOOKS:
            noise = PER_OP * random.standard_normal((n, k)) + PER_DEVICE * random.standard_normal((1, k))
            bias = bias + NOISE * random.random() * noise
        found: Floats = bias * self._seen.unit[:, None]
        return found
