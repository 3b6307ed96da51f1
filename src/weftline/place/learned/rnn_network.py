"""The RNN placer's network (Mirhoseini et al. 2017): a GRU reads the nodes, another writes devices, with attention.

In: one row per node (its kinds, its shape, its row of the adjacency). Out: drawn devices for all nodes, many placements
at once, with log-probabilities and entropy. Attention is Bahdanau's: v tanh(W memory + U state).
"""

from __future__ import annotations

import numpy as np

from weftline.place.learned.features import Floats
from weftline.place.learned.nodes import Bools
from weftline.place.learned.parameters import Parameters, Tensor
from weftline.place.learned.placer import NEVER, Draws

__all__ = ["RnnNetwork"]

EMBEDDED, HIDDEN, DEVICE = 64, 64, 16


class RnnNetwork:
    """`kinds` (N, F) are embedded in 64 numbers; `rest` (N, G) is used as it is."""

    def __init__(self, kinds: Floats, rest: Floats, allowed: Bools, seed: int) -> None:
        self.parameters = own = Parameters(seed)
        torch = own.torch
        self._kinds, self._rest = torch.from_numpy(kinds), torch.from_numpy(rest)
        self._closed = ~torch.from_numpy(allowed)
        devices = allowed.shape[1]
        own.table("kind", kinds.shape[1], EMBEDDED, 0.5)
        _describe_gru(own, "read", EMBEDDED + rest.shape[1])
        own.table("device", devices + 1, DEVICE, 0.5)
        _describe_gru(own, "write", DEVICE + HIDDEN)
        own.linear("memory", HIDDEN, HIDDEN)
        own.linear("state", HIDDEN, HIDDEN)
        own.linear("attention", HIDDEN, 1)
        own.linear("place", 2 * HIDDEN, devices, scale=0.1)
        own.seal()

    def draw(self, count: int) -> Draws:
        """`count` placements."""
        own, torch = self.parameters, self.parameters.torch
        memory = self._read()
        keys, state = own.dense("memory", memory), memory[-1:].expand(count, -1)
        last = torch.full((count,), len(own.tensor["device"]) - 1, dtype=torch.int64)
        devices, picked, entropies = [], [], []
        for node in range(len(memory)):
            look = (keys[None] + own.dense("state", state)[:, None]).tanh()
            context = own.dense("attention", look)[..., 0].softmax(-1) @ memory
            state = _gru(own, "write", torch.cat([own.tensor["device"][last], context], dim=-1), state)
            scores = own.dense("place", torch.cat([state, context], dim=-1))
            likelihood = scores.masked_fill(self._closed[node], NEVER).log_softmax(-1)
            noise = torch.rand(likelihood.shape, generator=own.generator).clamp_(min=1e-30)
            last = (likelihood.detach() - (-noise.log_()).log_()).argmax(-1)
            devices.append(last)
            picked.append(likelihood.gather(1, last[:, None])[:, 0])
            entropies.append(-(likelihood.exp() * likelihood).sum(-1).mean())
        drawn = torch.stack(devices, dim=1).numpy().astype(np.int32)
        return Draws(drawn, torch.stack(picked).sum(0), torch.stack(entropies).mean())

    def _read(self) -> Tensor:
        """(N, hidden): the states of the encoder."""
        own, torch = self.parameters, self.parameters.torch
        rows = torch.cat([self._kinds @ own.tensor["kind"], self._rest], dim=-1)
        entering = own.dense("read.input", rows)
        state, states = torch.zeros(1, HIDDEN), []
        for row in entering:
            state = _gru_step(own, "read", row[None], state)
            states.append(state)
        return torch.cat(states)


def _describe_gru(own: Parameters, name: str, width: int) -> None:
    own.linear(f"{name}.input", width, 3 * HIDDEN)
    own.linear(f"{name}.state", HIDDEN, 3 * HIDDEN)


def _gru(own: Parameters, name: str, x: Tensor, state: Tensor) -> Tensor:
    return _gru_step(own, name, own.dense(f"{name}.input", x), state)


def _gru_step(own: Parameters, name: str, entering: Tensor, state: Tensor) -> Tensor:
    """One step of a gated recurrent unit (Cho et al. 2014); the product with the input is given."""
    x, h = entering.chunk(3, dim=-1), own.dense(f"{name}.state", state).chunk(3, dim=-1)
    reset, update = (x[0] + h[0]).sigmoid(), (x[1] + h[1]).sigmoid()
    fresh = (x[2] + reset * h[2]).tanh()
    return fresh + update * (state - fresh)
