"""Latencies of decodes with noise -> the direction in which what the network says should move (REINFORCE).

In: a problem, what was Said about it, a random generator. Out: two of Push, a gradient for every number the network
said for one decode and for many, and the target of the logits: the best placement that any decode or simple plan found,
mended by a few steps of annealing, which take back what was only noise. Nothing is labelled beforehand, and no problem
comes twice. Samples with much noise count more than those with little, whose differences are mostly chance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.place.annealer import Annealer
from weftline.place.cpeft_random import PER_DEVICE, PER_KAPPA, PER_LAMBDA, PER_OP
from weftline.place.decoder import FAILED, Decoder, Floats
from weftline.place.learned.policy_features import Seen
from weftline.place.learned.policy_network import Said
from weftline.place.learned.policy_order import Orders
from weftline.place.learned.policy_samples import PER_POWER, Noise, biases, decode_rows, draw_noise, scales_of
from weftline.problem import Problem
from weftline.simulate.tables import tables

__all__ = ["Judged", "Push", "advantages", "judge"]

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
    annealer = Annealer(
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
