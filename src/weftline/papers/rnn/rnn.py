"""The RNN placer's network (Mirhoseini et al. 2017): a GRU reads the nodes, another writes devices, with attention.

In: one row per node (its kinds, its shape, its row of the adjacency). Out: drawn devices for all nodes, many placements
at once, with log-probabilities and entropy. Attention is Bahdanau's: v tanh(W memory + U state).

`rnn`: a recurrent network reads groups of ops and writes their devices (Mirhoseini et al. 2017), trained on reward.

The groups are chains of ops (and runs of chains where there are more than MOST_NODES), as in HSDAG's comparison; there
is no learned grouper. The reward is minus the logarithm of latency, so that faster is better; it is normalised over
the placements of an episode.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from weftline.latency.measured.trials import Bools, PlacementMeter, Trials, make_nodes, offer_single_devices
from weftline.latency.policy.settings import prepare_torch, read_schedule, shorten
from weftline.papers.hsdag.features import Floats, kind_shares, output_shapes
from weftline.papers.training.placer import CLOSED_SCORE, Draws, Tensor, Weights, advantages, log_rewards
from weftline.papers.training.training import SIZE, Arrays, EpisodeResult, changed_settings, run_training
from weftline.search import Search, Solver

__all__ = ["SOLVER", "RnnNetwork", "RnnParameters", "solve"]

DEFAULT_EPISODES = 100


@dataclass(frozen=True)
class RnnParameters:
    """Of the network and its training."""

    embedded_width: int = field(default=64, metadata=SIZE)
    """Of kinds of ops."""
    hidden_width: int = field(default=64, metadata=SIZE)
    device_width: int = field(default=16, metadata=SIZE)
    """Of devices that were written."""
    most_nodes: int = field(default=256, metadata=SIZE)
    """Larger graphs are grouped in so many runs of chains."""
    samples: int = field(default=8, metadata=SIZE)
    """Placements per episode."""
    learning_rate: float = 0.01
    longest_gradient: float = 1.0
    entropy_weight: float = 0.01


class RnnNetwork:
    """`kinds` (N, F) are embedded; `rest` (N, G) is used as it is."""

    def __init__(self, kinds: Floats, rest: Floats, allowed: Bools, seed: int, sizes: RnnParameters) -> None:
        self._hidden = hidden = sizes.hidden_width
        self.weights = own = Weights(seed)
        torch = own.torch
        self._kinds, self._rest = torch.from_numpy(kinds), torch.from_numpy(rest)
        self._closed = ~torch.from_numpy(allowed)
        devices = allowed.shape[1]
        own.table("kind", kinds.shape[1], sizes.embedded_width, 0.5)
        _describe_gru(own, "read", sizes.embedded_width + rest.shape[1], hidden)
        own.table("device", devices + 1, sizes.device_width, 0.5)
        _describe_gru(own, "write", sizes.device_width + hidden, hidden)
        own.linear("memory", hidden, hidden)
        own.linear("state", hidden, hidden)
        own.linear("attention", hidden, 1)
        own.linear("place", 2 * hidden, devices, scale=0.1)
        own.seal()

    def draw(self, count: int) -> Draws:
        """`count` placements."""
        own, torch = self.weights, self.weights.torch
        memory = self._read()
        keys, state = own.dense("memory", memory), memory[-1:].expand(count, -1)
        last = torch.full((count,), len(own.tensor["device"]) - 1, dtype=torch.int64)
        devices, picked, entropies = [], [], []
        for node in range(len(memory)):
            look = (keys[None] + own.dense("state", state)[:, None]).tanh()
            context = own.dense("attention", look)[..., 0].softmax(-1) @ memory
            state = _gru(own, "write", torch.cat([own.tensor["device"][last], context], dim=-1), state)
            scores = own.dense("place", torch.cat([state, context], dim=-1))
            likelihood = scores.masked_fill(self._closed[node], CLOSED_SCORE).log_softmax(-1)
            noise = torch.rand(likelihood.shape, generator=own.generator).clamp_(min=1e-30)
            last = (likelihood.detach() - (-noise.log_()).log_()).argmax(-1)
            devices.append(last)
            picked.append(likelihood.gather(1, last[:, None])[:, 0])
            entropies.append(-(likelihood.exp() * likelihood).sum(-1).mean())
        drawn = torch.stack(devices, dim=1).numpy().astype(np.int32)
        return Draws(drawn, torch.stack(picked).sum(0), torch.stack(entropies).mean())

    def _read(self) -> Tensor:
        """(N, hidden): the states of the encoder."""
        own, torch = self.weights, self.weights.torch
        rows = torch.cat([self._kinds @ own.tensor["kind"], self._rest], dim=-1)
        entering = own.dense("read.input", rows)
        state, states = torch.zeros(1, self._hidden), []
        for row in entering:
            state = _gru_step(own, "read", row[None], state)
            states.append(state)
        return torch.cat(states)


def _describe_gru(own: Weights, name: str, width: int, hidden: int) -> None:
    own.linear(f"{name}.input", width, 3 * hidden)
    own.linear(f"{name}.state", hidden, 3 * hidden)


def _gru(own: Weights, name: str, x: Tensor, state: Tensor) -> Tensor:
    return _gru_step(own, name, own.dense(f"{name}.input", x), state)


def _gru_step(own: Weights, name: str, entering: Tensor, state: Tensor) -> Tensor:
    """One step of a gated recurrent unit (Cho et al. 2014); the product with the input is given."""
    x, h = entering.chunk(3, dim=-1), own.dense(f"{name}.state", state).chunk(3, dim=-1)
    reset, update = (x[0] + h[0]).sigmoid(), (x[1] + h[1]).sigmoid()
    fresh = (x[2] + reset * h[2]).tanh()
    return fresh + update * (state - fresh)


def solve(search: Search, meter: PlacementMeter | None = None) -> None:
    """Train on this problem. `meter` gives the values that the network learns from (simulated ones)."""
    parameters = search.parameters(RnnParameters)
    schedule = read_schedule(search, episodes=DEFAULT_EPISODES, polish="off")
    singles = offer_single_devices(search, meter)
    if search.is_over and search.best is not None:
        return
    nodes = make_nodes(search.problem, most=parameters.most_nodes)
    trials = Trials(search, nodes, meter)
    schedule = shorten(schedule, search, parameters.samples)
    settings = changed_settings(parameters)
    run_training(search, lambda: _Rnn(search, trials, parameters), trials, singles, schedule, "rnn", settings)


class _Rnn:
    """One network on one problem."""

    def __init__(self, search: Search, trials: Trials, parameters: RnnParameters) -> None:
        nodes, self._parameters = trials.nodes, parameters
        adjacency = np.zeros((nodes.count, nodes.count))
        adjacency[nodes.source, nodes.target] = 1.0
        kinds = kind_shares(search.problem, nodes).astype(np.float32)
        rest = np.concatenate([output_shapes(search.problem, nodes), adjacency], axis=1).astype(np.float32)
        self._network = RnnNetwork(kinds, rest, nodes.allowed, search.seed, parameters)
        self.weights, self._trials = self._network.weights, trials
        self._unit = float(max(1, nodes.alone.min()))

    def state(self) -> Arrays:
        """Nothing but the network is carried over."""
        return {}

    def restore(self, arrays: Arrays) -> None:
        """Nothing to restore."""

    def episode(self, number: int) -> EpisodeResult | None:
        """Some placements and one gradient step."""
        torch, numbers = self.weights.torch, self._parameters
        draws = self._network.draw(numbers.samples)
        rewards = log_rewards(self._trials.values(draws.devices), self._unit)
        gain = torch.from_numpy(advantages(rewards).astype(np.float32))
        loss = -(gain * draws.log_probability).mean() - numbers.entropy_weight * draws.entropy * draws.devices.shape[1]
        self.weights.descend(self.weights.gradient(loss), numbers.learning_rate, clip=numbers.longest_gradient)
        return EpisodeResult(float(rewards.mean()), float(draws.entropy.detach()))


SOLVER = Solver(
    "rnn",
    "learned: a recurrent network writes devices for groups of ops",
    solve,
    options=("polish", "checkpoint", "episodes"),
    parameters=RnnParameters,
    learned=True,
    prepare=prepare_torch,
    learn=solve,
)
