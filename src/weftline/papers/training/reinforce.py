"""REINFORCE (Williams 1992): values of placements -> what the gradients of their log-probabilities are multiplied by.

In: values of placements in ns. Out: rewards, returns, advantages. Two forms: the buffer of HSDAG, one return for all
placements of an episode without a baseline; and advantages over the placements of one pass, normalised.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Ints
from weftline.simulate.latency import INFEASIBLE

__all__ = ["Rewards", "advantages", "discounted_return", "log_rewards", "speed_rewards"]

Rewards = NDArray[np.float64]

BEYOND = 1.0
"""A placement that breaks a limit is worth so much less than the slowest of its batch, in natural logarithms."""


def speed_rewards(values: Ints, unit: float) -> Rewards:
    """1 / latency, as a multiple of 1 / unit; 0 where a limit is broken."""
    rewards: Rewards = np.where(values < INFEASIBLE, unit / np.maximum(values, 1), 0.0)
    return rewards


def log_rewards(values: Ints, unit: float) -> Rewards:
    """-log(latency / unit); less than all others where a limit is broken."""
    good = values < INFEASIBLE
    rewards = -np.log(np.maximum(values, 1) / unit)
    worst = float(rewards[good].min()) if good.any() else 0.0
    return np.where(good, rewards, worst - BEYOND)


def discounted_return(rewards: Rewards, gamma: float) -> float:
    """Sum of gamma^i * r(T - i): the last reward counts most."""
    powers = gamma ** np.arange(len(rewards))[::-1]
    return float((powers * rewards).sum())


def advantages(rewards: Rewards) -> Rewards:
    """Rewards less their mean, in standard deviations; 0 where all are equal."""
    spread = float(rewards.std())
    return (rewards - rewards.mean()) / spread if spread > 1e-12 else np.zeros_like(rewards)
