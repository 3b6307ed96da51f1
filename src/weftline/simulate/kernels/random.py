"""Random numbers for kernels: one 64-bit word of state, the same numbers on every machine and in every thread."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weftline.simulate.kernels.jit import part

__all__ = ["Dice", "below", "log_size", "make_dice", "unit"]

Dice = NDArray[np.uint64]
"""(1,): the state."""


def make_dice(*seeds: int) -> Dice:
    """Dice of a seed (or several)."""
    word = np.random.SeedSequence([abs(seed) for seed in seeds]).generate_state(1, np.uint64)
    return np.maximum(word, np.uint64(1))


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
