"""The encoder: features of nodes -> embeddings, by a perceptron and graph convolutions (Kipf, Welling 2017).

In: a table of features and the undirected edges between nodes. Out: one vector per node. A graph is a list of edges
with weights 1 / sqrt(degree * degree), self loops included; a convolution is a product and a sum over edges.

Graph parsing (Song et al. 2024): nodes are grouped along the edges that a network likes best; again, for each level.

In: embeddings of nodes and the links between them. Out: the group of every node, embeddings of groups, and the links
between groups; how many groups there are is not given. Scores are symmetric, so every group has exactly one pair of
nodes that chose each other. The number of levels is given: parsing until nothing merges would leave one group.

HSDAG's network (Duan et al. 2024): encoder, graph parsing, placer; one pass gives distributions at every level.

In: features of nodes and the links between them. Out: `View`s: the group of every node, and log-probabilities of
devices for each group. Level 0 are the nodes themselves. Simplified: the state that an episode carries is normalised,
which keeps twenty updates finite, and is not differentiated through.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from weftline.graph.arrays import Ints
from weftline.latency.measured.trials import Nodes, components
from weftline.papers.hsdag.features import Floats
from weftline.papers.training.placer import (
    Tensor,
    Weights,
    common_devices,
    describe_placer,
    log_probabilities,
    placer_scores,
)

__all__ = [
    "HsdagNetwork",
    "Level",
    "Links",
    "View",
    "best_edges",
    "convolved",
    "describe_convolution",
    "describe_parsing",
    "describe_perceptron",
    "make_links",
    "parse",
    "perceptron",
]


@dataclass(frozen=True, eq=False)
class Links:
    """The graph of one level, symmetric."""

    count: int
    a: Tensor
    b: Tensor
    """(E,): the ends of every undirected edge, once."""
    weight: Tensor
    """(E, 1): 1 / sqrt((degree + 1) * (degree + 1)) of its ends."""
    loop: Tensor
    """(N, 1): the weight of each node's own loop."""


def make_links(weights: Weights, count: int, a: Ints, b: Ints) -> Links:
    """The normalised adjacency with self loops."""
    torch = weights.torch
    a, b = torch.as_tensor(a, dtype=torch.int64), torch.as_tensor(b, dtype=torch.int64)
    degree = torch.ones(count)
    degree += torch.bincount(a, minlength=count) + torch.bincount(b, minlength=count)
    root = degree.rsqrt()
    return Links(count, a, b, (root[a] * root[b])[:, None], (1.0 / degree)[:, None])


def describe_perceptron(weights: Weights, name: str, widths: tuple[int, ...]) -> None:
    """Layers of Linear, LayerNorm, ReLU, Dropout."""
    for layer, (fan_in, fan_out) in enumerate(pairwise(widths)):
        weights.linear(f"{name}.{layer}", fan_in, fan_out)
        weights.norm(f"{name}.{layer}.norm", fan_out)


def perceptron(weights: Weights, name: str, x: Tensor, layers: int, dropout: float = 0.0) -> Tensor:
    """What `describe_perceptron` describes."""
    for layer in range(layers):
        x = weights.normalised(f"{name}.{layer}.norm", weights.dense(f"{name}.{layer}", x))
        x = weights.dropped(x.relu(), dropout)
    return x


def describe_convolution(weights: Weights, name: str, width: int, layers: int) -> None:
    """Convolutions of equal width."""
    for layer in range(layers):
        weights.linear(f"{name}.{layer}", width, width)


def convolved(weights: Weights, name: str, x: Tensor, links: Links, layers: int) -> Tensor:
    """H' = ReLU(D^-1/2 (A + I) D^-1/2 H W), `layers` times."""
    for layer in range(layers):
        moved = weights.dense(f"{name}.{layer}", x)
        x = moved * links.loop
        x = x.index_add(0, links.b, moved[links.a] * links.weight)
        x = x.index_add(0, links.a, moved[links.b] * links.weight).relu()
    return x


@dataclass(frozen=True, eq=False)
class Level:
    """G groups of the nodes below."""

    group: Ints
    """(nodes below,): 0 .. G - 1."""
    embedding: Tensor
    """(G, width)."""
    links: Links


def describe_parsing(weights: Weights, name: str, width: int) -> None:
    """The weights of one level."""
    describe_convolution(weights, f"{name}.near", width, 2)
    weights.norm(f"{name}.norm", width)
    weights.linear(f"{name}.score.0", width, width)
    weights.linear(f"{name}.score.1", width, 1)
    describe_convolution(weights, f"{name}.pool", width, 1)
    weights.linear(f"{name}.before", width, width)
    weights.linear(f"{name}.after", width, width)


def parse(weights: Weights, name: str, x: Tensor, links: Links, *, count_links: bool) -> Level:
    """One level. `count_links`: embeddings are multiplied by the number of inner links, as published."""
    torch = weights.torch
    near = weights.normalised(f"{name}.norm", x + convolved(weights, f"{name}.near", x, links, 2))
    pair = near[links.a] * near[links.b]
    hidden = weights.dense(f"{name}.score.0", pair).relu()
    score = weights.dense(f"{name}.score.1", hidden).sigmoid()[:, 0]
    a, b = links.a.numpy(), links.b.numpy()
    kept = best_edges(links.count, a, b, score.detach().numpy())
    group = np.unique(components(links.count, a[kept], b[kept]), return_inverse=True)[1].astype(np.int64)
    count = int(group.max()) + 1
    number = torch.from_numpy(group)
    pooled = weights.dense(f"{name}.before", convolved(weights, f"{name}.pool", x, links, 1))
    pooled = torch.zeros(count, pooled.shape[1]).index_add(0, number, pooled)
    embedding = weights.dense(f"{name}.after", pooled)
    inside = np.flatnonzero(group[a] == group[b])
    owner = torch.from_numpy(group[a[inside]])
    number_inside = torch.bincount(owner, minlength=count).clamp(min=1).float()
    total = torch.zeros(count).index_add(0, owner, score[torch.from_numpy(inside)])
    alone = (torch.bincount(owner, minlength=count) == 0).float()
    factor = (total + alone) / (1.0 if count_links else number_inside)  # mean score, times the number of links or not
    return Level(group, embedding * factor[:, None], _links_between(weights, group, count, a, b))


def best_edges(count: int, a: Ints, b: Ints, score: np.ndarray[tuple[int], np.dtype[np.float32]]) -> Ints:
    """Edges that are the best one of a node at either end; of equal scores the earlier edge is better."""
    rank = np.empty(len(score), np.int64)
    rank[np.argsort(-score, kind="stable")] = np.arange(len(score))
    least = np.full(count, len(score), np.int64)
    np.minimum.at(least, a, rank)
    np.minimum.at(least, b, rank)
    return np.flatnonzero((least[a] == rank) | (least[b] == rank))


def _links_between(weights: Weights, group: Ints, count: int, a: Ints, b: Ints) -> Links:
    low, high = np.minimum(group[a], group[b]), np.maximum(group[a], group[b])
    key = np.unique(low * count + high)
    key = key[key // count != key % count]
    return make_links(weights, count, key // count, key % count)


@dataclass(frozen=True, eq=False)
class View:
    """One level, as the placer sees it."""

    group: Ints
    """(N,): node -> group."""
    log_probability: Tensor
    """(G, K)."""
    embedding: Tensor
    """(G, width)."""


class HsdagNetwork:
    """`heads`: the levels at which devices are drawn."""

    def __init__(
        self,
        table: Floats,
        nodes: Nodes,
        *,
        seed: int,
        width: int,
        levels: int,
        heads: tuple[int, ...],
        dropout: float,
        count_links: bool,
    ) -> None:
        self.weights = own = Weights(seed)
        self._nodes, self._levels, self._heads = nodes, levels, heads
        self._dropout, self._count_links, self._width = dropout, count_links, width
        self._features = own.torch.from_numpy(table)
        self._links = make_links(own, nodes.count, *nodes.undirected())
        self.prior = own.torch.zeros(nodes.allowed.shape[1])
        """(K,): added to all scores of devices; may be changed between passes."""
        describe_perceptron(own, "input", (table.shape[1], width, width))
        if 0 in heads:
            describe_convolution(own, "own", width, 2)
            own.norm("own.norm", width)
        for level in range(levels):
            describe_parsing(own, f"parse.{level}", width)
        for level in heads:
            describe_placer(own, f"place.{level}", width, nodes.allowed.shape[1])
        own.seal()

    def empty_state(self) -> Tensor:
        """Before the first placement of an episode."""
        return self.weights.torch.zeros(self._nodes.count, self._width)

    def views(self, carried: Tensor | None = None) -> list[View]:
        """One per head. `carried` is added to the embeddings of nodes."""
        own = self.weights
        x = perceptron(own, "input", self._features, 2, self._dropout)
        if carried is not None:
            x = own.torch.nn.functional.layer_norm(x + carried, (self._width,))
        found, group, links = [], np.arange(self._nodes.count), self._links
        if 0 in self._heads:
            near = own.normalised("own.norm", x + convolved(own, "own", x, links, 2))
            found.append(self._view(0, group, near))
        for level in range(self._levels):
            parsed = parse(own, f"parse.{level}", x, links, count_links=self._count_links)
            group, x, links = parsed.group[group], parsed.embedding, parsed.links
            if level + 1 in self._heads:
                found.append(self._view(level + 1, group, x))
        return found

    def _view(self, level: int, group: Ints, embedding: Tensor) -> View:
        own = self.weights
        scores = placer_scores(own, f"place.{level}", embedding) + self.prior
        return View(group, log_probabilities(own, scores, common_devices(self._nodes.allowed, group)), embedding)
