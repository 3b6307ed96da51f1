"""What networks of the learned solvers are made of: weights, layers, Adam, the placer, rewards.

Weights are named parts of one flat vector, so that a step of Adam (Kingma, Ba 2015) is a handful of operations and a
checkpoint has nothing to gather. Randomness comes from one generator of its own: nothing here touches PyTorch's global
one. The placer: embeddings of groups and the devices they may take -> a distribution over devices for each, from which
placements are drawn, with their log-probabilities and the entropy; drawing adds Gumbel noise and takes the largest, so
that a device of probability 0 is never drawn. REINFORCE (Williams 1992): values of placements in ns -> rewards, returns
and advantages, which multiply the gradients of log-probabilities. Two forms: the buffer of HSDAG, one return for
all placements of an episode without a baseline; and advantages over the placements of one pass, normalised.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.latency.measured.trials import Bools
from weftline.latency.policy.settings import load_torch
from weftline.simulate.latency import INFEASIBLE

__all__ = [
    "Draws",
    "Rewards",
    "Tensor",
    "Weights",
    "advantages",
    "common_devices",
    "describe_placer",
    "discounted_return",
    "draw",
    "log_probabilities",
    "log_rewards",
    "placer_scores",
    "speed_rewards",
]

Tensor = Any
"""A torch.Tensor; PyTorch is an extra, so its types are not named."""


class Weights:
    """Describe layers with `linear`, `norm` and `table`, then `seal`; then use `tensor[name]` and the layers."""

    def __init__(self, seed: int) -> None:
        self.torch = load_torch()
        self.generator = self.torch.Generator().manual_seed(seed)
        self.tensor: dict[str, Tensor] = {}
        self.steps = 0

    def linear(self, name: str, fan_in: int, fan_out: int, *, scale: float = 1.0) -> None:
        """A dense layer: weights uniform within scale / sqrt(fan_in), biases 0."""
        bound = scale / sqrt(max(1, fan_in))
        self.tensor[f"{name}.weight"] = self._uniform((fan_in, fan_out), bound)
        self.tensor[f"{name}.bias"] = self.torch.zeros(fan_out)

    def norm(self, name: str, width: int) -> None:
        """A layer normalisation."""
        self.tensor[f"{name}.weight"] = self.torch.ones(width)
        self.tensor[f"{name}.bias"] = self.torch.zeros(width)

    def table(self, name: str, rows: int, columns: int, bound: float) -> None:
        """A free matrix, uniform within +-bound."""
        self.tensor[name] = self._uniform((rows, columns), bound)

    def seal(self) -> Weights:
        """All weights are described: move them into one vector."""
        self.flat = self.torch.cat([value.reshape(-1) for value in self.tensor.values()])
        self._first = self.flat.clone()
        self.mean, self.square = self.torch.zeros_like(self.flat), self.torch.zeros_like(self.flat)
        begin = 0
        for name, value in self.tensor.items():
            view = self.flat[begin : begin + value.numel()].view(value.shape)
            self.tensor[name] = view.detach().requires_grad_()
            begin += value.numel()
        return self

    def begin_again(self) -> None:
        """The first weights again, and an optimiser without a past; the generator goes on."""
        self.flat.copy_(self._first)
        self.mean.zero_()
        self.square.zero_()
        self.steps = 0

    def dense(self, name: str, x: Tensor) -> Tensor:
        """x W + b."""
        return x @ self.tensor[f"{name}.weight"] + self.tensor[f"{name}.bias"]

    def normalised(self, name: str, x: Tensor) -> Tensor:
        """Layer normalisation over the last dimension."""
        weight, bias = self.tensor[f"{name}.weight"], self.tensor[f"{name}.bias"]
        return self.torch.nn.functional.layer_norm(x, weight.shape, weight, bias)

    def dropped(self, x: Tensor, share: float) -> Tensor:
        """Dropout."""
        if share <= 0:
            return x
        kept = self.torch.rand(x.shape, generator=self.generator) >= share
        return x * kept / (1.0 - share)

    def gradient(self, loss: Tensor) -> Tensor:
        """Of a loss, in the order of the flat vector; 0 for weights that it does not depend on."""
        torch, leaves = self.torch, list(self.tensor.values())
        found = torch.autograd.grad(loss, leaves, allow_unused=True)
        parts = [
            torch.zeros(leaf.numel()) if part is None else part.reshape(-1)
            for leaf, part in zip(leaves, found, strict=True)
        ]
        return torch.cat(parts)

    def descend(self, gradient: Tensor, rate: float, *, clip: float | None = None) -> None:
        """One step of Adam down a gradient, which is shortened to length `clip`."""
        if clip is not None:
            gradient = gradient * min(1.0, clip / (float(gradient.norm()) + 1e-12))
        self.steps += 1
        self.mean.lerp_(gradient, 0.1)
        self.square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        corrected = self.square.div(1.0 - 0.999**self.steps).sqrt_().add_(1e-8)
        self.flat.addcdiv_(self.mean, corrected, value=-rate / (1.0 - 0.9**self.steps))

    def _uniform(self, shape: tuple[int, ...], bound: float) -> Tensor:
        return (self.torch.rand(shape, generator=self.generator) * 2.0 - 1.0) * bound


CLOSED_SCORE = -1e9
HIDDEN_WIDTH = 128


@dataclass(frozen=True, eq=False)
class Draws:
    """B placements of G groups."""

    devices: Indices
    """(B, G)."""
    log_probability: Tensor
    """(B,): of the whole placement."""
    entropy: Tensor
    """The mean over groups, in nats."""


def describe_placer(weights: Weights, name: str, width: int, devices: int) -> None:
    """width -> 128 -> devices; the last layer begins small, so that the first placements are nearly uniform."""
    weights.linear(f"{name}.0", width, HIDDEN_WIDTH)
    weights.linear(f"{name}.1", HIDDEN_WIDTH, devices, scale=0.1)


def placer_scores(weights: Weights, name: str, embedding: Tensor) -> Tensor:
    """(G, K)."""
    return weights.dense(f"{name}.1", weights.dense(f"{name}.0", embedding).relu())


def common_devices(allowed: Bools, group: Ints) -> Bools:
    """(G, K): devices that all nodes of a group may take; where there is none, those that any of them may."""
    count = int(group.max()) + 1
    common, some = np.ones((count, allowed.shape[1]), np.bool_), np.zeros((count, allowed.shape[1]), np.bool_)
    np.logical_and.at(common, group, allowed)
    np.logical_or.at(some, group, allowed)
    return np.where(common.any(axis=1, keepdims=True), common, some)


def log_probabilities(weights: Weights, scores: Tensor, allowed: Bools) -> Tensor:
    """The logarithm of softmax over allowed devices."""
    open_ones = weights.torch.from_numpy(allowed)
    return scores.masked_fill(~open_ones, CLOSED_SCORE).log_softmax(-1)


def draw(weights: Weights, log_probability: Tensor, count: int) -> Draws:
    """`count` placements from (G, K) log-probabilities."""
    torch = weights.torch
    noise = torch.rand((count, *log_probability.shape), generator=weights.generator).clamp_(min=1e-30)
    devices = (log_probability.detach() - (-noise.log_()).log_()).argmax(-1)
    picked = log_probability.expand(count, -1, -1).gather(-1, devices[..., None])[..., 0]
    entropy = -(log_probability.exp() * log_probability).sum(-1).mean()
    return Draws(devices.numpy().astype(np.int32), picked.sum(-1), entropy)


Rewards = NDArray[np.float64]

BEYOND_WORST = 1.0
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
    return np.where(good, rewards, worst - BEYOND_WORST)


def discounted_return(rewards: Rewards, gamma: float) -> float:
    """Sum of gamma^i * r(T - i): the last reward counts most."""
    powers = gamma ** np.arange(len(rewards))[::-1]
    return float((powers * rewards).sum())


def advantages(rewards: Rewards) -> Rewards:
    """Rewards less their mean, in standard deviations; 0 where all are equal."""
    spread = float(rewards.std())
    return (rewards - rewards.mean()) / spread if spread > 1e-12 else np.zeros_like(rewards)
