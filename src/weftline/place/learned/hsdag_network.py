"""HSDAG's network (Duan et al. 2024): encoder, graph parsing, placer; one pass gives distributions at every level.

In: features of nodes and the links between them. Out: `View`s: the group of every node, and log-probabilities of
devices for each group. Level 0 are the nodes themselves. Simplified: the state that an episode carries is normalised,
which keeps twenty updates finite, and is not differentiated through.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weftline.graph.arrays import Ints
from weftline.place.learned.encoder import (
    convolved,
    describe_convolution,
    describe_perceptron,
    make_links,
    perceptron,
)
from weftline.place.learned.features import Floats
from weftline.place.learned.nodes import Nodes
from weftline.place.learned.parameters import Parameters, Tensor
from weftline.place.learned.parsing import describe_parsing, parse
from weftline.place.learned.placer import common_devices, describe_placer, log_probabilities, placer_scores

__all__ = ["Network", "View"]


@dataclass(frozen=True, eq=False)
class View:
    """One level, as the placer sees it."""

    group: Ints
    """(N,): node -> group."""
    log_probability: Tensor
    """(G, K)."""
    embedding: Tensor
    """(G, width)."""


class Network:
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
        self.parameters = own = Parameters(seed)
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
        return self.parameters.torch.zeros(self._nodes.count, self._width)

    def views(self, carried: Tensor | None = None) -> list[View]:
        """One per head. `carried` is added to the embeddings of nodes."""
        own = self.parameters
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
        own = self.parameters
        scores = placer_scores(own, f"place.{level}", embedding) + self.prior
        return View(group, log_probabilities(own, scores, common_devices(self._nodes.allowed, group)), embedding)
