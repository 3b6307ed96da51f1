"""The policy's network in torch, for training: the same numbers as `policy_network.ask`, for several graphs at once.

In: Seen of graphs with equally many devices, and weights as tensors. Out: what the network says about each, with
gradients. Graphs stand one behind another along the ops; no edge leads from one to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from weftline.place.learned.policy_features import FEATURES, Seen
from weftline.place.learned.policy_network import EPSILON, LAYERS, MOST_DOUBT, PRIOR, WIDTH
from weftline.place.learned.torch_backend import load_torch

__all__ = ["Answers", "Batch", "batch_of", "forward"]


@dataclass(frozen=True, eq=False)
class Batch:
    """Several graphs, as tensors. N ops in all, K devices, G graphs."""

    features: Any
    """(N, K, FEATURES)"""
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


def batch_of(chosen: list[Seen]) -> Batch:
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
    prior = np.concatenate([PRIOR * (seen.plain[:, None] == np.arange(k)) for seen in chosen])
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
        flat = torch.zeros(count, k * WIDTH).index_add(0, batch.graph, z.reshape(n, k * WIDTH))
        return (flat / batch.size).reshape(count, k, WIDTH)

    def norm(h: Any, name: str) -> Any:
        scale, shift = weights[f"{name}.norm.scale"], weights[f"{name}.norm.shift"]
        return torch.nn.functional.layer_norm(h, (WIDTH,), scale, shift, EPSILON)

    h = batch.features.reshape(n * k, FEATURES) @ weights["input.weight"] + weights["input.bias"]
    h = h.reshape(n, k, WIDTH)
    for layer in range(LAYERS):
        name = f"layer{layer}"
        z = norm(h, name)
        near = z @ weights[f"{name}.near.weight"]
        itself, before, after = (near[:, :, i * WIDTH : (i + 1) * WIDTH].reshape(n, k * WIDTH) for i in range(3))
        zero = torch.zeros(n, k * WIDTH)
        u = itself + zero.index_add(0, batch.reader, before[batch.maker]) / read
        u = u + zero.index_add(0, batch.maker, after[batch.reader]) / made
        means = over_ops(z)
        wide = means @ weights[f"{name}.ops.weight"] + weights[f"{name}.bias"]
        wide = wide + means.mean(dim=1, keepdim=True) @ weights[f"{name}.all.weight"]
        u = u.reshape(n, k, WIDTH) + wide[batch.graph] + (z.mean(dim=1) @ weights[f"{name}.devices.weight"])[:, None]
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
