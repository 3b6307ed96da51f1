"""How good are weights? One decode and the best of 64 on problems that training never sees, against cPEFT.

In: weights. Out: the mean of log(value / cPEFT) over both; 0 is cPEFT, below is better. The problems are drawn from
the training families with seeds of their own, once per process.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from weftline.place.decoder import FAILED, Decoder
from weftline.place.learned.policy_features import Seen, see
from weftline.place.learned.policy_network import Weights, ask
from weftline.place.learned.policy_order import Orders
from weftline.place.learned.policy_samples import Noise, biases, decode_rows, draw_noise, lean_row, scales_of
from weftline.place.learned.train_policy_instances import fresh_problem
from weftline.problem import Problem

__all__ = ["check"]

SEED = 2**31 + 7
PAIRS = 32


def check(weights: Weights, count: int = 40) -> tuple[float, float]:
    """Means of log(value / cPEFT): of one decode, and of the best of it and 64 samples."""
    one, many = [], []
    for problem, seen, noise, plain in _problems(count):
        said, decoder, orders = ask(weights, seen), Decoder(problem), Orders(problem)
        first = int(decode_rows(decoder, orders, lean_row(seen, said.one))[1][0])
        rest = int(decode_rows(decoder, orders, biases(seen, said.many, noise))[1].min())
        worst = 2 * plain  # where no device was found for some op
        one.append(np.log((first if first < FAILED else worst) / plain))
        many.append(np.log(min(first, rest, worst) / plain))
    return float(np.mean(one)), float(np.mean(many))


@cache
def _problems(count: int) -> list[tuple[Problem, Seen, Noise, int]]:
    """Problem, what is seen of it, noise, and the value of cPEFT."""
    found = []
    for number in range(count):
        random = np.random.default_rng([SEED, number])
        problem = fresh_problem(random, 2 + number % 4)
        seen = see(problem)
        if seen is not None and np.isfinite(seen.simple_values[-1]):
            noise = draw_noise(random, scales_of(PAIRS), *seen.possible.shape)
            found.append((problem, seen, noise, max(1, int(seen.simple_values[-1]))))
    return found
