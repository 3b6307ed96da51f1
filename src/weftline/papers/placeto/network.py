"""Placeto's network (Addanki et al. 2019): messages along the edges in both directions, then a look from one node.

In: features of all nodes in some states (placement, step), and the node that is to be placed in each. Out: scores of
devices. Messages are sums over neighbours, sums over ancestors, descendants and all others; every table is dense, so
the graph must be small (see `placeto`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weftline.latency.measured.trials import Nodes
from weftline.papers.training.placer import Parameters, Tensor

__all__ = ["PlacetoNetwork"]

ROUNDS = 8
_PAIRS = ("forward", "backward", "ancestors", "descendants", "parallel")


class PlacetoNetwork:
    """`width` numbers are known about each node."""

    def __init__(self, nodes: Nodes, width: int, devices: int, seed: int) -> None:
        self.parameters = own = Parameters(seed)
        torch = own.torch
        before = np.zeros((nodes.count, nodes.count), np.float32)
        before[nodes.target, nodes.source] = 1.0
        ancestors = _closure(before > 0)
        parallel = ~(ancestors | ancestors.T | np.eye(nodes.count, dtype=np.bool_))
        self._before = {"forward": torch.from_numpy(before), "backward": torch.from_numpy(before.T.copy())}
        self._has = {name: (table.sum(1) > 0).float()[:, None] for name, table in self._before.items()}
        looks = {"ancestors": ancestors, "descendants": ancestors.T.copy(), "parallel": parallel}
        self._looks = {name: torch.from_numpy(table.astype(np.float32)) for name, table in looks.items()}
        own.linear("input.0", width, width)
        own.linear("input.1", width, width)
        for name in _PAIRS:
            wide = width if name in self._before else 2 * width
            for layer in ("f.0", "f.1", "g.0", "g.1"):
                own.linear(f"{name}.{layer}", wide, wide)
        own.linear("place.0", 8 * width, 16 * width)
        own.linear("place.1", 16 * width, 8 * width)
        own.linear("place.2", 8 * width, devices, scale=0.1)
        own.seal()

    def scores(self, features: Tensor, node: Tensor) -> Tensor:
        """(S, N, width) features and (S,) nodes -> (S, K)."""
        own = self.parameters
        first = self._two("input", ("0", "1"), features)
        around = own.torch.cat([self._messages(name, first) for name in self._before], dim=-1)
        states = own.torch.arange(len(node))
        seen = [around[states, node]]
        for name, table in self._looks.items():
            sums = (table[node][:, None, :] @ self._two(name, ("f.0", "f.1"), around))[:, 0]
            seen.append(self._two(name, ("g.0", "g.1"), sums))
        hidden = own.dense("place.0", own.torch.cat(seen, dim=-1)).relu()
        return own.dense("place.2", own.dense("place.1", hidden).relu())

    def _messages(self, name: str, first: Tensor) -> Tensor:
        """h <- h0 + g(sum over the nodes before of f(h)), again and again."""
        h = first
        for _ in range(ROUNDS):
            sums = self._before[name] @ self._two(name, ("f.0", "f.1"), h)
            h = first + self._has[name] * self._two(name, ("g.0", "g.1"), sums)
        return h

    def _two(self, name: str, layers: tuple[str, str], x: Tensor) -> Tensor:
        """A hidden layer and one more, with ReLU."""
        own = self.parameters
        return own.dense(f"{name}.{layers[1]}", own.dense(f"{name}.{layers[0]}", x).relu()).relu()


def _closure(direct: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """What can be reached in any number of steps, by squaring."""
    reached = direct
    while True:
        product = reached.astype(np.float32) @ reached.astype(np.float32)
        further: NDArray[np.bool_] = reached | (product > 0)
        if np.array_equal(further, reached):
            return reached
        reached = further
