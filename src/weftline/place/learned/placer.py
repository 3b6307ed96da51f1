"""The placer: embeddings of groups -> a distribution over devices for each, from which placements are drawn.

In: embeddings and the devices that a group may take. Out: drawn devices, their log-probabilities, the entropy. Drawing
adds Gumbel noise and takes the largest, so that a device of probability 0 is never drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.place.learned.nodes import Bools
from weftline.place.learned.parameters import Parameters, Tensor

__all__ = ["Draws", "common_devices", "describe_placer", "draw", "log_probabilities", "placer_scores"]

NEVER = -1e9
HIDDEN = 128


@dataclass(frozen=True, eq=False)
class Draws:
    """B placements of G groups."""

    devices: Indices
    """(B, G)."""
    log_probability: Tensor
    """(B,): of the whole placement."""
    entropy: Tensor
    """The mean over groups, in nats."""


def describe_placer(parameters: Parameters, name: str, width: int, devices: int) -> None:
    """width -> 128 -> devices; the last layer begins small, so that the first placements are nearly uniform."""
    parameters.linear(f"{name}.0", width, HIDDEN)
    parameters.linear(f"{name}.1", HIDDEN, devices, scale=0.1)


def placer_scores(parameters: Parameters, name: str, embedding: Tensor) -> Tensor:
    """(G, K)."""
    return parameters.dense(f"{name}.1", parameters.dense(f"{name}.0", embedding).relu())


def common_devices(allowed: Bools, group: Ints) -> Bools:
    """(G, K): devices that all nodes of a group may take; where there is none, those that any of them may."""
    count = int(group.max()) + 1
    common, some = np.ones((count, allowed.shape[1]), np.bool_), np.zeros((count, allowed.shape[1]), np.bool_)
    np.logical_and.at(common, group, allowed)
    np.logical_or.at(some, group, allowed)
    return np.where(common.any(axis=1, keepdims=True), common, some)


def log_probabilities(parameters: Parameters, scores: Tensor, allowed: Bools) -> Tensor:
    """The logarithm of softmax over allowed devices."""
    open_ones = parameters.torch.from_numpy(allowed)
    return scores.masked_fill(~open_ones, NEVER).log_softmax(-1)


def draw(parameters: Parameters, log_probability: Tensor, count: int) -> Draws:
    """`count` placements from (G, K) log-probabilities."""
    torch = parameters.torch
    noise = torch.rand((count, *log_probability.shape), generator=parameters.generator).clamp_(min=1e-30)
    devices = (log_probability.detach() - (-noise.log_()).log_()).argmax(-1)
    picked = log_probability.expand(count, -1, -1).gather(-1, devices[..., None])[..., 0]
    entropy = -(log_probability.exp() * log_probability).sum(-1).mean()
    return Draws(devices.numpy().astype(np.int32), picked.sum(-1), entropy)
