"""Plans of the policy, each planned again a few times with the last plan at hand (see `place.look_back`).

In: Timelines of decodes, and how the decoder leaned. Out: the best Timeline of all. In half of the chains every other
look keeps the lean of the decode; after the first looks there is a little noise. Simplified: activations are not looked
at.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weftline.graph.arrays import Ints
from weftline.place.cpeft_random import PER_DEVICE, PER_OP
from weftline.place.decoder import Decoder, Floats
from weftline.place.learned.policy_features import Seen
from weftline.place.learned.policy_network import Lean
from weftline.place.learned.policy_samples import untold
from weftline.place.look_back import booked_again, look_back
from weftline.problem import Problem
from weftline.simulate import Timeline

__all__ = ["CHAINS", "LOOKS", "Mender"]

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
