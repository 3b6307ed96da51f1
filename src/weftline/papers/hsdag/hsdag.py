"""`hsdag`: placement learned by graph parsing and REINFORCE on this one problem (Duan et al., NeurIPS 2024).

Preset `paper`: the published method. 25 episodes of 20 placements, one drawn per pass, state update x + h(group) inside
an episode, reward 1 / latency, discounted by 0.95, no baseline; the published features, which hold no costs.
Preset `weftline` (default): many placements per pass, drawn for single nodes (and for groups, if `levels` are asked
for); rewards are minus the logarithm of latency, normalised over the placements of a pass; a bonus that decays for
staying near a prior, which is the best single device with some chance for others, or uniform; cost features; then
annealing op by op.
Single devices are candidates in both, parsing has a given number of levels, and its scores are symmetric.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weftline.graph.arrays import Ints
from weftline.latency.measured.trials import Meter, Nodes, Trials, make_nodes, offer_single_devices
from weftline.latency.policy.settings import prepare_torch, read_choice, read_schedule, read_whole, read_word, shorten
from weftline.papers.hsdag.features import FEATURES, PAPER_FEATURES, Floats, choose_features, features
from weftline.papers.hsdag.network import Network
from weftline.papers.training.checkpoints import Arrays
from weftline.papers.training.keeper import Outcome
from weftline.papers.training.placer import draw
from weftline.papers.training.reinforce import advantages, discounted_return, log_rewards, speed_rewards
from weftline.papers.training.training import run_training
from weftline.search import Search, Solver

__all__ = ["PRESETS", "SOLVER", "TAKES", "Preset", "solve"]

TAKES = ("preset", "polish", "levels", "features", "nodes", "checkpoint", "episodes")
MOST_LEVELS = 8
ENTRIES = 4_000_000
"""Devices drawn in one episode, at most: fewer placements per pass in very large graphs."""


@dataclass(frozen=True)
class Preset:
    """Numbers of a way to train."""

    episodes: int
    samples: int
    """Placements per episode."""
    polish: str
    levels: int
    """Of grouping. With costs among the features, single nodes learned faster than groups, so `weftline` has none."""
    features: tuple[str, ...]
    width: int
    dropout: float
    rate: float
    every: int
    """Episodes between two events."""
    saved: int
    """Episodes between two checkpoints."""
    prior: float
    """What the score of the best single device has ahead of the others."""


PRESETS = {
    "paper": Preset(25, 20, "off", 1, PAPER_FEATURES, 128, 0.2, 1e-3, 1, 1, 0.0),
    "weftline": Preset(2000, 64, "on", 0, FEATURES, 64, 0.0, 2e-3, 20, 100, 2.0),
}
GAMMA = 0.95
ENTROPY, HALVED = 0.3, 400
"""The weight of the entropy bonus at first, and after how many episodes half of it is left."""
ROUND = 1000
"""After so many episodes a new round begins with the first weights; every other round has no prior."""
CLIP = 1.0
FAR = 2**40
"""ns, for a node that a device may not have."""


def solve(search: Search, meter: Meter | None = None) -> None:
    """Train on this problem, then polish. `meter` gives the values that the network learns from (simulated ones).

    There is no polish after another meter: annealing knows only the simulator.
    """
    name = read_choice(search.options, "preset", tuple(PRESETS), "weftline")
    preset = PRESETS[name]
    levels = read_whole(search.options, "levels", preset.levels, 0, MOST_LEVELS)
    chosen = choose_features(read_word(search.options, "features", ""), preset.features)
    decided = read_choice(search.options, "nodes", ("chains", "ops"), "chains")
    schedule = read_schedule(search, episodes=preset.episodes, polish=preset.polish if meter is None else "off")
    singles = offer_single_devices(search, meter)
    if search.is_over and search.best is not None:
        return
    nodes = make_nodes(search.problem, coarse=decided == "chains")
    samples = max(1, min(preset.samples, ENTRIES // nodes.allowed.size))
    samples = samples if meter is None or name == "paper" else min(samples, meter.samples)
    schedule = shorten(schedule, search, samples)
    trials = Trials(search, nodes, meter)
    settings = {"preset": name, "levels": str(levels), "features": ",".join(chosen), "nodes": decided}

    def make() -> _Paper | _Batched:
        network = Network(
            features(search.problem, nodes, chosen),
            nodes,
            seed=search.seed,
            width=preset.width,
            levels=levels,
            heads=(levels,) if name == "paper" else tuple(range(levels + 1)),
            dropout=preset.dropout,
            count_links=name == "paper",
        )
        return (_Paper if name == "paper" else _Batched)(network, nodes, trials, preset, samples)

    run_training(search, make, trials, singles, schedule, "hsdag", settings, every=preset.every, saved=preset.saved)


def _alone(nodes: Nodes) -> Ints:
    """(K,): about what each device takes alone; nodes that it may not have count a lot."""
    times: Ints = np.where(nodes.allowed, nodes.time, FAR).sum(axis=0)
    return times


def _prior(nodes: Nodes, ahead: float) -> Floats:
    """(K,): the best single device ahead of the others."""
    prior = np.zeros(nodes.allowed.shape[1], np.float32)
    prior[int(_alone(nodes).argmin())] = ahead
    return prior


class _Trained:
    """What both ways to train share: nothing but the network is carried from one episode to the next."""

    def __init__(self, network: Network, nodes: Nodes, trials: Trials, preset: Preset, samples: int) -> None:
        self.parameters = network.parameters
        self._network, self._trials, self._preset, self._samples = network, trials, preset, samples
        self._prior = _prior(nodes, preset.prior)
        self._unit = float(max(1, _alone(nodes).min()))
        """ns: about what the best single device takes."""

    def state(self) -> Arrays:
        """Nothing."""
        return {}

    def restore(self, arrays: Arrays) -> None:
        """Nothing to restore."""


class _Paper(_Trained):
    """One placement per pass, a gradient step per episode."""

    def episode(self, number: int) -> Outcome | None:
        """T placements; each pass sees the sum of the group embeddings before it.

        The gradient of the episode is its return times the sum of those of the log-probabilities, summed as they come.
        """
        carried, drawn, gradient, entropy = self._network.empty_state(), [], 0.0, 0.0
        for _ in range(self._samples):
            if self._trials.search.is_over:
                return None
            view = self._network.views(carried)[0]
            draws = draw(self.parameters, view.log_probability, 1)
            drawn.append(draws.devices[0, view.group])
            gradient = gradient + self.parameters.gradient(draws.log_probability[0])
            entropy += float(draws.entropy.detach()) / self._samples
            carried = carried + view.embedding.detach()[self.parameters.torch.from_numpy(view.group)]
        rewards = speed_rewards(self._trials.values(np.stack(drawn)), self._unit)
        self.parameters.descend(-discounted_return(rewards, GAMMA) * gradient, self._preset.rate)
        return Outcome(float(rewards.mean()), entropy)


class _Batched(_Trained):
    """Many placements per pass and a gradient step after each pass; rounds begin anew."""

    def episode(self, number: int) -> Outcome | None:
        """Every level learns from its own placements."""
        torch = self.parameters.torch
        turn, within = divmod(number, ROUND)
        if turn > 0 and within == 0:
            self.parameters.begin_again()
        self._network.prior = torch.from_numpy(self._prior if turn % 2 == 0 else np.zeros_like(self._prior))
        views = self._network.views()
        share = max(1, self._samples // len(views))
        draws = [draw(self.parameters, view.log_probability, share) for view in views]
        devices = np.concatenate([drawn.devices[:, view.group] for drawn, view in zip(draws, views, strict=True)])
        rewards = log_rewards(self._trials.values(devices), self._unit)
        loss, entropy, weight = 0.0, 0.0, ENTROPY * 0.5 ** (within / HALVED)
        for view, drawn, mine in zip(views, draws, rewards.reshape(len(views), share), strict=True):
            gain = torch.from_numpy(advantages(mine).astype(np.float32))
            near = drawn.entropy + (view.log_probability.exp() @ self._network.prior).mean()
            loss = loss - (gain * drawn.log_probability).mean() - weight * near * drawn.devices.shape[1]
            entropy += float(drawn.entropy.detach()) / len(views)
        self.parameters.descend(self.parameters.gradient(loss), self._preset.rate, clip=CLIP)
        return Outcome(float(rewards.mean()), entropy)


SOLVER = Solver(
    "hsdag",
    "learned: graph parsing and REINFORCE (HSDAG), then annealing",
    solve,
    options=TAKES,
    learned=True,
    prepare=prepare_torch,
    learn=solve,
)
