"""`rnn`: a recurrent network reads groups of ops and writes their devices (Mirhoseini et al. 2017), trained on reward.

The groups are chains of ops (and runs of chains where there are more than MOST_NODES), as in HSDAG's comparison; there
is no learned grouper. The reward is minus the logarithm of latency, so that faster is better; it is normalised over
the placements of an episode.
"""

from __future__ import annotations

import numpy as np

from weftline.place.learned.checkpoints import Arrays
from weftline.place.learned.features import kind_shares, output_shapes
from weftline.place.learned.keeper import Outcome
from weftline.place.learned.nodes import Nodes, make_nodes
from weftline.place.learned.reinforce import advantages, log_rewards
from weftline.place.learned.rnn_network import RnnNetwork
from weftline.place.learned.settings import read_schedule, shorten
from weftline.place.learned.torch_backend import prepare_torch
from weftline.place.learned.training import run_training
from weftline.place.learned.trials import Meter, Trials, offer_single_devices
from weftline.search import Search, Solver

__all__ = ["SOLVER", "solve"]

MOST_NODES = 256
EPISODES, SAMPLES = 100, 8
RATE, CLIP = 0.01, 1.0
ENTROPY = 0.01


def solve(search: Search, meter: Meter | None = None) -> None:
    """Train on this problem. `meter` gives the values that the network learns from (simulated ones)."""
    schedule = read_schedule(search, episodes=EPISODES, polish="off")
    singles = offer_single_devices(search, meter)
    if search.is_over and search.best is not None:
        return
    nodes = make_nodes(search.problem, most=MOST_NODES)
    trials = Trials(search, nodes, meter)
    schedule = shorten(schedule, search, SAMPLES)
    run_training(search, lambda: _Rnn(search, nodes, trials), trials, singles, schedule, "rnn", {})


class _Rnn:
    """One network on one problem."""

    def __init__(self, search: Search, nodes: Nodes, trials: Trials) -> None:
        adjacency = np.zeros((nodes.count, nodes.count))
        adjacency[nodes.source, nodes.target] = 1.0
        kinds = kind_shares(search.problem, nodes).astype(np.float32)
        rest = np.concatenate([output_shapes(search.problem, nodes), adjacency], axis=1).astype(np.float32)
        self._network = RnnNetwork(kinds, rest, nodes.allowed, search.seed)
        self.parameters, self._trials = self._network.parameters, trials
        self._unit = float(max(1, np.where(nodes.allowed, nodes.time, 2**40).sum(axis=0).min()))

    def state(self) -> Arrays:
        """Nothing but the network is carried over."""
        return {}

    def restore(self, arrays: Arrays) -> None:
        """Nothing to restore."""

    def episode(self, number: int) -> Outcome | None:
        """Some placements and one gradient step."""
        torch, draws = self.parameters.torch, self._network.draw(SAMPLES)
        rewards = log_rewards(self._trials.values(draws.devices), self._unit)
        gain = torch.from_numpy(advantages(rewards).astype(np.float32))
        loss = -(gain * draws.log_probability).mean() - ENTROPY * draws.entropy * draws.devices.shape[1]
        self.parameters.descend(self.parameters.gradient(loss), RATE, clip=CLIP)
        return Outcome(float(rewards.mean()), float(draws.entropy.detach()))


SOLVER = Solver(
    "rnn",
    "learned: a recurrent network writes devices for groups of ops",
    solve,
    takes=("polish", "checkpoint", "episodes"),
    learned=True,
    prepare=prepare_torch,
)
