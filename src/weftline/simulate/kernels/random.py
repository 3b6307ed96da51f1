"""Random numbers for kernels: one 64-bit word of state, the same numbers on every machine and in every thread."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weftline.simulate.kernels.jit import uncounted_part

__all__ = ["RandomGenerator", "below", "log_size", "make_generator", "unit"]

RandomGenerator = NDArray[np.uint64]
"""(1,): the state."""


def make_generator(*seeds: int) -> RandomGenerator:
    """Of a seed (or several)."""
    word = np.random.SeedSequence([abs(seed) for seed in seeds]).generate_state(1, np.uint64)
    return np.maximum(word, np.uint64(1))


@uncounted_part
def _next_word(random: RandomGenerator) -> np.uint64:
    word = random[0]
    word ^= word >> np.uint64(12)
    word ^= word << np.uint64(25)
    word ^= word >> np.uint64(27)
    random[0] = word
    return np.uint64(word * np.uint64(2685821657736338717))


@uncounted_part
def below(random: RandomGenerator, count: int) -> int:
    """A whole number in 0..count-1."""
    return np.int64(((_next_word(random) >> np.uint64(32)) * np.uint64(count)) >> np.uint64(32))  # type: ignore[return-value]


@uncounted_part
def unit(random: RandomGenerator) -> float:
    """A number in [0, 1)."""
    return np.float64(_next_word(random) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@uncounted_part
def log_size(random: RandomGenerator, most: int) -> int:
    """A size in 1..most, small ones as often as large ones: its logarithm is uniform."""
    return min(most, int(np.exp(unit(random) * np.log(np.float64(most + 1)))))
