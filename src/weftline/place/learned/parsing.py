"""Graph parsing (Song et al. 2024): nodes are grouped along the edges that a network likes best; again, for each level.

In: embeddings of nodes and the links between them. Out: the group of every node, embeddings of groups, and the links
between groups; how many groups there are is not given. Scores are symmetric, so every group has exactly one pair of
nodes that chose each other. The number of levels is given: parsing until nothing merges would leave one group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weftline.graph.arrays import Ints
from weftline.place.learned.components import components
from weftline.place.learned.encoder import Links, convolved, describe_convolution, make_links
from weftline.place.learned.parameters import Parameters, Tensor

__all__ = ["Level", "best_edges", "describe_parsing", "parse"]


@dataclass(frozen=True, eq=False)
class Level:
    """G groups of the nodes below."""

    group: Ints
    """(nodes below,): 0 .. G - 1."""
    embedding: Tensor
    """(G, width)."""
    links: Links


def describe_parsing(parameters: Parameters, name: str, width: int) -> None:
    """The weights of one level."""
    describe_convolution(parameters, f"{name}.near", width, 2)
    parameters.norm(f"{name}.norm", width)
    parameters.linear(f"{name}.score.0", width, width)
    parameters.linear(f"{name}.score.1", width, 1)
    describe_convolution(parameters, f"{name}.pool", width, 1)
    parameters.linear(f"{name}.before", width, width)
    parameters.linear(f"{name}.after", width, width)


def parse(parameters: Parameters, name: str, x: Tensor, links: Links, *, count_links: bool) -> Level:
    """One level. `count_links`: embeddings are multiplied by the number of inner links, as published."""
    torch = parameters.torch
    near = parameters.normalised(f"{name}.norm", x + convolved(parameters, f"{name}.near", x, links, 2))
    pair = near[links.a] * near[links.b]
    hidden = parameters.dense(f"{name}.score.0", pair).relu()
    score = parameters.dense(f"{name}.score.1", hidden).sigmoid()[:, 0]
    a, b = links.a.numpy(), links.b.numpy()
    kept = best_edges(links.count, a, b, score.detach().numpy())
    group = np.unique(components(links.count, a[kept], b[kept]), return_inverse=True)[1].astype(np.int64)
    count = int(group.max()) + 1
    number = torch.from_numpy(group)
    pooled = parameters.dense(f"{name}.before", convolved(parameters, f"{name}.pool", x, links, 1))
    pooled = torch.zeros(count, pooled.shape[1]).index_add(0, number, pooled)
    embedding = parameters.dense(f"{name}.after", pooled)
    inside = np.flatnonzero(group[a] == group[b])
    owner = torch.from_numpy(group[a[inside]])
    number_inside = torch.bincount(owner, minlength=count).clamp(min=1).float()
    total = torch.zeros(count).index_add(0, owner, score[torch.from_numpy(inside)])
    alone = (torch.bincount(owner, minlength=count) == 0).float()
    factor = (total + alone) / (1.0 if count_links else number_inside)  # mean score, times the number of links or not
    return Level(group, embedding * factor[:, None], _links_between(parameters, group, count, a, b))


def best_edges(count: int, a: Ints, b: Ints, score: np.ndarray[tuple[int], np.dtype[np.float32]]) -> Ints:
    """Edges that are the best one of a node at either end; of equal scores the earlier edge is better."""
    rank = np.empty(len(score), np.int64)
    rank[np.argsort(-score, kind="stable")] = np.arange(len(score))
    least = np.full(count, len(score), np.int64)
    np.minimum.at(least, a, rank)
    np.minimum.at(least, b, rank)
    return np.flatnonzero((least[a] == rank) | (least[b] == rank))


def _links_between(parameters: Parameters, group: Ints, count: int, a: Ints, b: Ints) -> Links:
    low, high = np.minimum(group[a], group[b]), np.maximum(group[a], group[b])
    key = np.unique(low * count + high)
    key = key[key // count != key % count]
    return make_links(parameters, count, key // count, key % count)
