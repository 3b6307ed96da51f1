"""The policy's network in torch, for training: the same numbers as `network.ask`, for several graphs at once.

In: Features of graphs with equally many devices, and weights as tensors. Out: what the network says about each, with
gradients. Graphs stand one behind another along the ops; no edge leads from one to the next.

`TrainingState` is all that training must not forget: weights and their mean, Adam's moments, the best so far, and where
it stands. Kept in one safetensors file, so that training that was killed goes on as if it had not been; the same run
gives the same bytes.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from weftline.errors import InputError
from weftline.latency.policy.features import FEATURE_COUNT, Features
from weftline.latency.policy.network import (
    MOST_DOUBT,
    NETWORK_LAYERS,
    NETWORK_WIDTH,
    NORM_EPSILON,
    PRIOR_LOGIT,
    Weights,
    first_weights,
    read_arrays,
    shapes,
    write_arrays,
)
from weftline.latency.policy.settings import load_torch

__all__ = [
    "Answers",
    "Batch",
    "TrainingState",
    "batch_of",
    "check_output",
    "checkpoint_of",
    "first_state",
    "forward",
    "load_state",
    "save_state",
]


@dataclass(frozen=True, eq=False)
class Batch:
    """Several graphs, as tensors. N ops in all, K devices, G graphs."""

    features: Any
    """(N, K, FEATURE_COUNT)"""
    reader: Any
    maker: Any
    """(edges,)"""
    graph: Any
    """(N,): which graph an op is of."""
    prior: Any
    """(N, K)"""
    size: Any
    """(G, 1): ops of each graph."""


@dataclass(frozen=True, eq=False)
class Answers:
    """What the network says about every graph of a batch."""

    op_bias: Any
    """(N, K, 2): for one decode, for many."""
    device_bias: Any
    """(G, K, 2)"""
    weights: Any
    """(G, 2, 3): for one and for many, what is added to lambda, kappa and the power of the order."""
    logits: Any
    """(N, K)"""


def batch_of(chosen: list[Features]) -> Batch:
    """Graphs with equally many devices."""
    torch = load_torch()
    sizes = [len(seen.features) for seen in chosen]
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    readers = [
        np.repeat(np.arange(size), np.diff(seen.edges.before_ptr)) + at
        for seen, size, at in zip(chosen, sizes, first, strict=True)
    ]
    makers = [seen.edges.before + at for seen, at in zip(chosen, first, strict=True)]
    k = chosen[0].features.shape[1]
    prior = np.concatenate([PRIOR_LOGIT * (seen.plain[:, None] == np.arange(k)) for seen in chosen])
    return Batch(
        features=torch.from_numpy(np.concatenate([seen.features for seen in chosen])),
        reader=torch.from_numpy(np.concatenate(readers).astype(np.int64)),
        maker=torch.from_numpy(np.concatenate(makers).astype(np.int64)),
        graph=torch.from_numpy(np.repeat(np.arange(len(chosen)), sizes)),
        prior=torch.from_numpy(prior.astype(np.float32)),
        size=torch.tensor(sizes, dtype=torch.float32)[:, None],
    )


def forward(weights: dict[str, Any], batch: Batch) -> Answers:
    """One pass through the network."""
    torch = load_torch()
    n, k, _ = batch.features.shape
    count = len(batch.size)
    read = torch.bincount(batch.reader, minlength=n).clamp(min=1).to(torch.float32)[:, None]
    made = torch.bincount(batch.maker, minlength=n).clamp(min=1).to(torch.float32)[:, None]

    def over_ops(z: Any) -> Any:
        flat = torch.zeros(count, k * NETWORK_WIDTH).index_add(0, batch.graph, z.reshape(n, k * NETWORK_WIDTH))
        return (flat / batch.size).reshape(count, k, NETWORK_WIDTH)

    def norm(h: Any, name: str) -> Any:
        scale, shift = weights[f"{name}.norm.scale"], weights[f"{name}.norm.shift"]
        return torch.nn.functional.layer_norm(h, (NETWORK_WIDTH,), scale, shift, NORM_EPSILON)

    h = batch.features.reshape(n * k, FEATURE_COUNT) @ weights["input.weight"] + weights["input.bias"]
    h = h.reshape(n, k, NETWORK_WIDTH)
    for layer in range(NETWORK_LAYERS):
        name = f"layer{layer}"
        z = norm(h, name)
        near = z @ weights[f"{name}.near.weight"]
        itself, before, after = (
            near[:, :, i * NETWORK_WIDTH : (i + 1) * NETWORK_WIDTH].reshape(n, k * NETWORK_WIDTH) for i in range(3)
        )
        zero = torch.zeros(n, k * NETWORK_WIDTH)
        u = itself + zero.index_add(0, batch.reader, before[batch.maker]) / read
        u = u + zero.index_add(0, batch.maker, after[batch.reader]) / made
        means = over_ops(z)
        wide = means @ weights[f"{name}.ops.weight"] + weights[f"{name}.bias"]
        wide = wide + means.mean(dim=1, keepdim=True) @ weights[f"{name}.all.weight"]
        u = (
            u.reshape(n, k, NETWORK_WIDTH)
            + wide[batch.graph]
            + (z.mean(dim=1) @ weights[f"{name}.devices.weight"])[:, None]
        )
        h = h + torch.relu(u) @ weights[f"{name}.out.weight"] + weights[f"{name}.out.bias"]
    z = norm(h, "last")

    def head(name: str, x: Any) -> Any:
        hidden = torch.relu(x @ weights[f"{name}.hidden.weight"] + weights[f"{name}.hidden.bias"])
        return hidden @ weights[f"{name}.last.weight"]

    logits = head("op", z)[:, :, 2] + batch.prior
    z = z.detach()  # rewards are too noisy to teach the layers: these learn from the logits' targets alone
    of_op, means = head("op", z), over_ops(z)
    of_graph = head("graph", means.mean(dim=1))
    doubt = (-torch.log_softmax(logits.detach(), dim=1)).clamp(max=MOST_DOUBT)
    trusted = of_op[:, :, 0] + of_graph[batch.graph, :1] * doubt
    return Answers(
        op_bias=torch.stack([trusted, of_op[:, :, 1]], dim=2),
        device_bias=head("device", means),
        weights=of_graph[:, 1:].reshape(count, 2, 3),
        logits=logits,
    )


MOST_STEPS = 10**12
PARTS = ("now", "mean", "first", "second", "best")


@dataclass
class TrainingState:
    """Of a training run."""

    now: Weights
    mean: Weights
    """Of the last few thousand steps, the latest counting most: steadier than `now`."""
    first: Weights
    second: Weights
    """Adam's moments."""
    best: Weights
    """The mean that was best by `train_policy_check`."""
    seed: int
    step: int = 0
    seconds: float = 0.0
    score: float = 0.0
    """Of the best: mean log of value / cPEFT."""
    best_step: int = 0
    """When the best was found."""


def checkpoint_of(output: Path | str) -> Path:
    """The file beside the weights that training goes on from."""
    output = Path(output)
    return output.with_name(f"{output.name}.checkpoint.safetensors")


def check_output(output: Path) -> None:
    """Raises `InputError` if weights and checkpoint could not be written there; better now than after the training."""
    where = str(output)
    try:
        if output.name in ("", "..") or output.is_dir():
            raise InputError("is a folder, not a file for weights", where=where)
        if not output.parent.is_dir():
            raise InputError("cannot be written: no such folder", where=where)
        if not os.access(output.parent, os.W_OK | os.X_OK):
            raise InputError("cannot be written: its folder is read-only", where=where)
        with suppress(FileNotFoundError):
            checkpoint_of(output).lstat()  # fails if the name is too long
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot be written: {getattr(error, 'strerror', None) or error}", where=repr(where)[:80]
        ) from error


def first_state(seed: int) -> TrainingState:
    """Nothing learnt."""
    weights = first_weights(seed)
    first, second = ({name: np.zeros_like(array) for name, array in weights.items()} for _ in range(2))
    mean, best = ({name: array.copy() for name, array in weights.items()} for _ in range(2))
    return TrainingState(weights, mean, first, second, best, seed)


def save_state(path: Path, state: TrainingState, *, timed: bool) -> None:
    """Seconds are written only where they count, so that runs by steps give the same bytes."""
    arrays = {f"{part}:{name}": array for part in PARTS for name, array in getattr(state, part).items()}
    words = {
        "seed": str(state.seed),
        "step": str(state.step),
        "score": state.score.hex(),
        "best_step": str(state.best_step),
    }
    write_arrays(path, arrays, words | ({"seconds": state.seconds.hex()} if timed else {}))


def load_state(path: Path) -> TrainingState:
    """Raises `InputError` on anything that is not a checkpoint of this network."""
    arrays, words = read_arrays(path, {f"{part}:{name}": shape for part in PARTS for name, shape in shapes().items()})
    parts = [{name: arrays[f"{part}:{name}"] for name in shapes()} for part in PARTS]
    try:
        where, best_step = (int(words["seed"]), int(words["step"])), int(words["best_step"])
        seconds, score = float.fromhex(words.get("seconds", "0x0p+0")), float.fromhex(words["score"])
    except (KeyError, ValueError, OverflowError) as error:
        raise InputError("does not say where training stood", where=str(path)) from error
    now, mean, first, second, best = parts
    possible = (
        0 <= best_step <= where[1] <= MOST_STEPS and where[0] >= 0 and seconds >= 0.0 and isfinite(seconds + score)
    )
    if not possible or any((array < 0).any() for array in second.values()):
        raise InputError("stands where no training can", where=str(path))
    return TrainingState(now, mean, first, second, best, *where, seconds, score, best_step)
