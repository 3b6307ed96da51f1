"""Random numbers for the latency annealer: one 64-bit word, so that several annealers run side by side and alike."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weftline.simulate.jit import part

__all__ = ["Dice", "below", "log_size", "make_dice", "unit"]

Dice = NDArray[np.uint64]
"""(1,): the state."""


def make_dice(seed: int) -> Dice:
    """Dice of a seed: the seed's word, well mixed (splitmix64)."""
    word = (seed + 1) * 0x9E3779B97F4A7C15 % 2**64
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
    return np.array([max(1, word ^ (word >> 31))], np.uint64)


@part
def _roll(dice: Dice) -> np.uint64:
    word = dice[0]
    word ^= word >> np.uint64(12)
    word ^= word << np.uint64(25)
    word ^= word >> np.uint64(27)
    dice[0] = word
    return np.uint64(word * np.uint64(2685821657736338717))


@part
def below(dice: Dice, count: int) -> int:
    """A whole number in 0..count-1."""
    return np.int64(((_roll(dice) >> np.uint64(32)) * np.uint64(count)) >> np.uint64(32))  # type: ignore[return-value]


@part
def unit(dice: Dice) -> float:
    """A number in [0, 1)."""
    return np.float64(_roll(dice) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@part
def log_size(dice: Dice, most: int) -> int:
    """A size in 1..most, small ones as often as large ones: its logarithm is uniform."""
    return min(most, int(np.exp(unit(dice) * np.log(np.float64(most + 1)))))
