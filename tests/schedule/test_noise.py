"""Tests of noise: means stay, a straggler costs, the same seed draws the same."""

from __future__ import annotations

import numpy as np

from weftline.schedule.classic.classic import classic_schedules
from weftline.schedule.make_blocks import chunked
from weftline.schedule.noise import Noise, makespans, percentile

BLOCKS = chunked("p", range(4), [1000] * 4, [2000] * 4)
ORDERS = classic_schedules(BLOCKS, 8)["1f1b"]


def test_without_noise_nothing_changes() -> None:
    """Tests that sigma 0 without a straggler gives the plain makespan in every draw."""
    quiet = Noise(sigma=0.0, straggler=1.0, draws=6)
    assert set(makespans(BLOCKS, 8, ORDERS, quiet).tolist()) == {(8 + 3) * 3000}


def test_noise_makes_schedules_longer() -> None:
    """Tests that waiting for the latest makes the mean makespan longer, and a straggler more so."""
    plain = (8 + 3) * 3000
    noisy = makespans(BLOCKS, 8, ORDERS, Noise(straggler=1.0))
    slow = makespans(BLOCKS, 8, ORDERS, Noise(straggler=2.0))
    assert plain < noisy.mean() < slow.mean()
    assert percentile(BLOCKS, 8, ORDERS, Noise()) >= np.median(makespans(BLOCKS, 8, ORDERS, Noise()))


def test_a_seed_gives_the_same_draws() -> None:
    """Tests that draws repeat with the seed and differ with another."""
    draws = [makespans(BLOCKS, 8, ORDERS, Noise(seed=seed)).tolist() for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
