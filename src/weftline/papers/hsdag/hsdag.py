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

from dataclasses import dataclass, field

import numpy as np

from weftline.latency.measured.trials import Nodes, PlacementMeter, Trials, make_nodes, offer_single_devices
from weftline.latency.policy.settings import prepare_torch, read_choice, read_schedule, read_whole, read_word, shorten
from weftline.papers.hsdag.features import FEATURES, PAPER_FEATURES, Floats, choose_features, features
from weftline.papers.hsdag.network import HsdagNetwork
from weftline.papers.training.placer import advantages, discounted_return, draw, log_rewards, speed_rewards
from weftline.papers.training.training import Arrays, EpisodeResult, changed_settings, run_training
from weftline.search import Search, Solver

__all__ = ["OPTIONS", "PRESETS", "SOLVER", "HsdagParameters", "Preset", "solve"]

OPTIONS = ("preset", "polish", "levels", "features", "nodes", "checkpoint", "episodes")
MOST_LEVELS = 8


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


@dataclass(frozen=True)
class HsdagParameters:
    """Of training, whatever the preset."""

    most_entries: int = field(default=4_000_000, metadata={"least": 1})
    """Devices drawn in one episode: fewer placements per pass in very large graphs."""
    discount: float = field(default=0.95, metadata={"most": 1})
    """Preset `paper`."""
    entropy_weight: float = 0.3
    """Of the bonus at first."""
    entropy_half_life: int = field(default=400, metadata={"least": 1})
    """Episodes after which half of it is left."""
    round_episodes: int = field(default=1000, metadata={"least": 1})
    """After so many a new round begins with the first weights; every other round has no prior."""
    longest_gradient: float = 1.0


def solve(search: Search, meter: PlacementMeter | None = None) -> None:
    """Train on this problem, then polish. `meter` gives the values that the network learns from (simulated ones).

    There is no polish after another meter: annealing knows only the simulator.
    """
    name = read_choice(search.options, "preset", tuple(PRESETS), "weftline")
    preset, parameters = PRESETS[name], search.parameters(HsdagParameters)
    levels = read_whole(search.options, "levels", preset.levels, 0, MOST_LEVELS)
    chosen = choose_features(read_word(search.options, "features", ""), preset.features)
    decided = read_choice(search.options, "nodes", ("chains", "ops"), "chains")
    schedule = read_schedule(search, episodes=preset.episodes, polish=preset.polish if meter is None else "off")
    singles = offer_single_devices(search, meter)
    if search.is_over and search.best is not None:
        return
    nodes = make_nodes(search.problem, coarse=decided == "chains")
    samples = max(1, min(preset.samples, parameters.most_entries // nodes.allowed.size))
    samples = samples if meter is None or name == "paper" else min(samples, meter.samples)
    schedule = shorten(schedule, search, samples)
    trials = Trials(search, nodes, meter)
    settings = {"preset": name, "levels": str(levels), "features": ",".join(chosen), "nodes": decided}
    settings |= changed_settings(parameters)

    def make() -> _Paper | _Batched:
        network = HsdagNetwork(
            features(search.problem, nodes, chosen),
            nodes,
            seed=search.seed,
            width=preset.width,
            levels=levels,
            heads=(levels,) if name == "paper" else tuple(range(levels + 1)),
            dropout=preset.dropout,
            count_links=name == "paper",
        )
        return (_Paper if name == "paper" else _Batched)(network, trials, preset, parameters, samples)

    run_training(search, make, trials, singles, schedule, "hsdag", settings, every=preset.every, saved=preset.saved)


def _prior(nodes: Nodes, ahead: float) -> Floats:
    """(K,): the best single device ahead of the others."""
    prior = np.zeros(nodes.allowed.shape[1], np.float32)
    prior[int(nodes.alone.argmin())] = ahead
    return prior


class _Trained:
    """What both ways to train share: nothing but the network is carried from one episode to the next."""

    def __init__(
        self, network: HsdagNetwork, trials: Trials, preset: Preset, numbers: HsdagParameters, samples: int
    ) -> None:
        self.weights = network.weights
        self._network, self._trials, self._preset, self._samples = network, trials, preset, samples
        self._numbers, self._prior = numbers, _prior(trials.nodes, preset.prior)
        self._unit = float(max(1, trials.nodes.alone.min()))
        """ns: about what the best single device takes."""

    def state(self) -> Arrays:
        """Nothing."""
        return {}

    def restore(self, arrays: Arrays) -> None:
        """Nothing to restore."""


class _Paper(_Trained):
    """One placement per pass, a gradient step per episode."""

    def episode(self, number: int) -> EpisodeResult | None:
        """T placements; each pass sees the sum of the group embeddings before it.

        The gradient of the episode is its return times the sum of those of the log-probabilities, summed as they come.
        """
        carried, drawn, gradient, entropy = self._network.empty_state(), [], 0.0, 0.0
        for _ in range(self._samples):
            if self._trials.search.is_over:
                return None
            view = self._network.views(carried)[0]
            draws = draw(self.weights, view.log_probability, 1)
            drawn.append(draws.devices[0, view.group])
            gradient = gradient + self.weights.gradient(draws.log_probability[0])
            entropy += float(draws.entropy.detach()) / self._samples
            carried = carried + view.embedding.detach()[self.weights.torch.from_numpy(view.group)]
        rewards = speed_rewards(self._trials.values(np.stack(drawn)), self._unit)
        self.weights.descend(-discounted_return(rewards, self._numbers.discount) * gradient, self._preset.rate)
        return EpisodeResult(float(rewards.mean()), entropy)


class _Batched(_Trained):
    """Many placements per pass and a gradient step after each pass; rounds begin anew."""

    def episode(self, number: int) -> EpisodeResult | None:
        """Every level learns from its own placements."""
        torch = self.weights.torch
        turn, within = divmod(number, self._numbers.round_episodes)
        if turn > 0 and within == 0:
            self.weights.begin_again()
        self._network.prior = torch.from_numpy(self._prior if turn % 2 == 0 else np.zeros_like(self._prior))
        views = self._network.views()
        share = max(1, self._samples // len(views))
        draws = [draw(self.weights, view.log_probability, share) for view in views]
        devices = np.concatenate([drawn.devices[:, view.group] for drawn, view in zip(draws, views, strict=True)])
        rewards = log_rewards(self._trials.values(devices), self._unit)
        weight = self._numbers.entropy_weight * 0.5 ** (within / self._numbers.entropy_half_life)
        loss, entropy = 0.0, 0.0
        for view, drawn, mine in zip(views, draws, rewards.reshape(len(views), share), strict=True):
            gain = torch.from_numpy(advantages(mine).astype(np.float32))
            near = drawn.entropy + (view.log_probability.exp() @ self._network.prior).mean()
            loss = loss - (gain * drawn.log_probability).mean() - weight * near * drawn.devices.shape[1]
            entropy += float(drawn.entropy.detach()) / len(views)
        self.weights.descend(self.weights.gradient(loss), self._preset.rate, clip=self._numbers.longest_gradient)
        return EpisodeResult(float(rewards.mean()), entropy)


SOLVER = Solver(
    "hsdag",
    "learned: graph parsing and REINFORCE (HSDAG), then annealing",
    solve,
    options=OPTIONS,
    parameters=HsdagParameters,
    learned=True,
    prepare=prepare_torch,
    learn=solve,
)
