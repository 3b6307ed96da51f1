"""Latencies of decodes with noise -> the direction in which what the network says should move (REINFORCE).

In: a problem, what was Said about it, a random generator. Out: two of Push, a gradient for every number the network
said for one decode and for many, and the target of the logits: the best placement that any decode or simple plan found,
mended by a few steps of annealing, which take back what was only noise. Nothing is labelled beforehand, and no problem
comes twice. Samples with much noise count more than those with little, whose differences are mostly chance.

How good are weights? One decode and the best of 64 on problems that training never sees, against cPEFT.

In: weights. Out: the mean of log(value / cPEFT) over both; 0 is cPEFT, below is better. The problems are drawn from
the training families with seeds of their own, once per process.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.latency.anneal.annealer import PlacementAnnealer
from weftline.latency.list.decoder import FAILED, Decoder, Floats
from weftline.latency.list.schedulers import PER_DEVICE, PER_KAPPA, PER_LAMBDA, PER_OP
from weftline.latency.policy.features import Seen, see
from weftline.latency.policy.network import Said, Weights, ask
from weftline.latency.policy.order import Orders
from weftline.latency.policy.samples import PER_POWER, Noise, biases, decode_rows, draw_noise, lean_row, scales_of
from weftline.latency.policy.train.instances import fresh_problem
from weftline.problem import Problem
from weftline.simulate.tables import tables

__all__ = ["Judged", "Push", "advantages", "check", "judge"]

PAIRS = 24
"""Of samples, each of the two kinds."""
NEAR = (0.15, 1.0)
"""Scales of noise around what is said for one decode; for many they are those with which samples are drawn later."""
TOP = 75.0
"""Percentile above which samples count, once risk is sought."""
MENDING, COLD = 2_000, 0.0003
"""Steps of annealing that the target gets, and how warm they begin, as a part of the value."""
PENALTY = 0.2
"""How much worse than the worst a decode is that found no device for some op, in logarithms."""


@dataclass(frozen=True, eq=False)
class Push:
    """Gradients of the expected cost, divided by the number of ops; all 0 where samples are equally good."""

    op: Floats
    """(n, K)"""
    device: Floats
    """(K,)"""
    weights: Floats
    """(3,): of lambda, kappa and the power of the order."""


@dataclass(frozen=True, eq=False)
class Judged:
    """What one graph teaches."""

    one: Push
    many: Push
    target: Indices
    """(n,): the best placement seen, mended."""


def judge(problem: Problem, seen: Seen, said: Said, random: np.random.Generator, *, risk: bool) -> Judged:
    """Decode around what was said for one and for many; `risk` rewards only the best of the many."""
    simple = int(seen.simple_values.argmin())
    target, least = seen.simple[simple], float(seen.simple_values[simple])
    decoder, orders, pushes = Decoder(problem), Orders(problem), []
    for lean, scale, seek in ((said.one, scales_of(PAIRS, *NEAR), False), (said.many, scales_of(PAIRS), risk)):
        noise = draw_noise(random, scale, *seen.possible.shape)
        placements, planned = decode_rows(decoder, orders, biases(seen, lean, noise))
        best = int(planned.argmin())
        if planned[best] < least:
            target, least = placements[best], float(planned[best])
        pushes.append(_push(noise, advantages(planned, risk=seek)))
    return Judged(pushes[0], pushes[1], _mended(problem, target))


def _mended(problem: Problem, placement: Indices) -> Indices:
    annealer = PlacementAnnealer(
        tables(problem),
        capacity=problem.capacity,
        group=problem.group,
        start=[(placement, None)],
        first_temperature=COLD,
        cycle=MENDING,
    )
    annealer.run(MENDING, np.zeros(1, np.int64))
    return placement if annealer.best is None else annealer.best[0]


def _push(noise: Noise, advantage: Floats) -> Push:
    share = -advantage / (noise.op.shape[0] * noise.op.shape[1])
    return Push(
        op=np.tensordot(share, noise.op, 1) / PER_OP,
        device=(share @ noise.device[:, 0]) / PER_DEVICE,
        weights=np.array(
            [share @ noise.lam / PER_LAMBDA, share @ noise.kappa / PER_KAPPA, share @ noise.power / PER_POWER]
        ),
    )


def advantages(planned: Ints, *, risk: bool) -> Floats:
    """(B,): above the mean, or what lies above the 75th percentile; of size 1, or 0 where all are equal."""
    failed = planned >= FAILED
    if failed.all():
        return np.zeros(len(planned))
    reward: Floats = -np.log(np.maximum(np.where(failed, 1, planned), 1).astype(np.float64))
    reward = np.where(failed, reward[~failed].min() - PENALTY, reward)
    found = np.maximum(reward - np.percentile(reward, TOP), 0.0) if risk else reward - reward.mean()
    size = float(np.sqrt((found**2).mean()))
    return found / size if size > 1e-9 else np.zeros(len(planned))


SEED = 2**31 + 7
PAIRS_TRAIN_POLICY_CHECK = 32


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
            noise = draw_noise(random, scales_of(PAIRS_TRAIN_POLICY_CHECK), *seen.possible.shape)
            found.append((problem, seen, noise, max(1, int(seen.simple_values[-1]))))
    return found
