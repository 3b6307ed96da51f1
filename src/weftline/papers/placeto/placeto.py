"""`placeto`: one node after another gets a device, by a policy that sees the whole placement (Addanki et al. 2019).

An episode begins with everything on the device that would be fastest alone, visits every node once in topological order
and simulates the placement after each. The reward of a step is by how much the logarithm of latency falls (memory above
the limits adds to it). REINFORCE with a baseline per step (mean return of the last episodes), entropy bonus, several
episodes at once in one pass. The network: messages along the edges in both directions, sums over neighbours, ancestors,
descendants and all others, then a look from the node that is placed. Every table is dense, so the graph must be small.
Ours: times of the node on every device stand in its features, or devices could not be told apart; ops are grouped in
chains, and large graphs in `most_nodes` runs of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.latency.measured.trials import Nodes, Trials, make_nodes, offer_single_devices
from weftline.latency.policy.settings import prepare_torch, read_schedule, shorten
from weftline.papers.training.placer import Tensor, Weights, log_probabilities
from weftline.papers.training.training import SIZE, Arrays, EpisodeResult, changed_settings, run_training
from weftline.search import Search, Solver
from weftline.simulate import simulate_latency

__all__ = ["SOLVER", "PlacetoNetwork", "PlacetoParameters", "solve"]

DEFAULT_EPISODES = 100
Floats = NDArray[np.float64]
_PAIRS = ("forward", "backward", "ancestors", "descendants", "parallel")


@dataclass(frozen=True)
class PlacetoParameters:
    """Of the network and its training."""

    message_rounds: int = field(default=8, metadata=SIZE)
    most_nodes: int = field(default=200, metadata=SIZE)
    """Larger graphs are grouped in so many runs of chains."""
    workers: int = field(default=4, metadata=SIZE)
    """Episodes that are trained on at a time."""
    discount: float = field(default=0.95, metadata={"most": 1})
    longest_gradient: float = 1.25
    first_rate: float = 1e-3
    last_rate: float = 1e-4
    first_entropy: float = 0.1
    last_entropy: float = 0.005
    decay_episodes: int = field(default=100, metadata=SIZE)
    """Over which rate and entropy bonus fall."""
    remembered_rounds: int = field(default=10, metadata=SIZE)
    """Of episodes whose returns make the baseline."""
    overflow_cost: float = 2.0
    """Of memory above a limit, as a multiple of the limit, in logarithms of latency."""
    broken_cost: float = 2.0
    """Of a placement that cannot run."""
    most_entries: int = field(default=400_000, metadata={"least": 1})
    """Numbers in one tensor of a pass."""


class PlacetoNetwork:
    """`width` numbers are known about each node."""

    def __init__(self, nodes: Nodes, width: int, devices: int, seed: int, rounds: int) -> None:
        self._rounds = rounds
        self.weights = own = Weights(seed)
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
        own = self.weights
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
        for _ in range(self._rounds):
            sums = self._before[name] @ self._two(name, ("f.0", "f.1"), h)
            h = first + self._has[name] * self._two(name, ("g.0", "g.1"), sums)
        return h

    def _two(self, name: str, layers: tuple[str, str], x: Tensor) -> Tensor:
        """A hidden layer and one more, with ReLU."""
        own = self.weights
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


def solve(search: Search) -> None:
    """Train on this problem."""
    parameters = search.parameters(PlacetoParameters)
    schedule = read_schedule(search, episodes=DEFAULT_EPISODES, polish="off")
    singles = offer_single_devices(search)
    if search.is_over and search.best is not None:
        return
    nodes = make_nodes(search.problem, most=parameters.most_nodes)
    trials = Trials(search, nodes)
    schedule = shorten(schedule, search, parameters.workers * nodes.count)
    settings = changed_settings(parameters)
    run_training(search, lambda: _Placeto(search, trials, parameters), trials, singles, schedule, "placeto", settings)


class _Placeto:
    """One network on one problem."""

    def __init__(self, search: Search, trials: Trials, parameters: PlacetoParameters) -> None:
        self._search, self._trials, self._parameters = search, trials, parameters
        self._nodes = nodes = trials.nodes
        self._known = _known(search, nodes)
        k = nodes.allowed.shape[1]
        self._network = PlacetoNetwork(nodes, self._known.shape[1] + 3 + k, k, search.seed, parameters.message_rounds)
        self.weights = self._network.weights
        alone = int(nodes.alone.argmin())
        start = np.full(nodes.count, alone, np.int32)
        self._start = np.where(nodes.allowed[:, alone], start, nodes.fastest).astype(np.int32)
        self._first = np.zeros(nodes.count, np.int64)
        self._first[nodes.of[::-1]] = np.arange(len(nodes.of))[::-1]
        self._returns, self._rounds = np.zeros((parameters.remembered_rounds, nodes.count)), np.zeros(1, np.int64)

    def state(self) -> Arrays:
        """The returns that make the baseline."""
        return {"returns": self._returns, "rounds": self._rounds}

    def restore(self, arrays: Arrays) -> None:
        """The returns of another time."""
        self._returns, self._rounds = arrays["returns"].copy(), arrays["rounds"].copy()

    def episode(self, number: int) -> EpisodeResult | None:
        """Roll out, then one gradient step over all steps of all episodes."""
        n, torch, workers = self._nodes.count, self.weights.torch, self._parameters.workers
        placement = np.repeat(self._start[None], workers, axis=0)
        starts, cost = self._simulated(placement, np.zeros((workers, n)))
        states, actions, rewards = [], np.zeros((n, workers), np.int64), np.zeros((n, workers))
        for node in range(n):
            if self._search.is_over:
                return None
            states.append(self._features(placement, node, starts))
            with torch.no_grad():
                likelihood = self._likelihood(states[-1], np.full(workers, node))
                noise = torch.rand(likelihood.shape, generator=self.weights.generator).clamp_(min=1e-30)
                actions[node] = (likelihood - (-noise.log_()).log_()).argmax(-1).numpy()
            placement[:, node] = actions[node]
            starts, after = self._simulated(placement, starts)
            rewards[node], cost = cost - after, after
        advantage = self._advantages(rewards)
        entropy = self._learn(np.concatenate(states), actions.reshape(-1), advantage.reshape(-1), number)
        return None if entropy is None else EpisodeResult(float(rewards.sum(axis=0).mean()), entropy)

    def _learn(self, states: NDArray[np.float32], actions: Ints, advantage: Floats, number: int) -> float | None:
        """A step of Adam -> the mean entropy, None if time ran out. Gradients are summed over portions of states."""
        torch, own, numbers = self.weights.torch, self.weights, self._parameters
        node = np.repeat(np.arange(self._nodes.count), numbers.workers)
        done = min(1.0, number / numbers.decay_episodes)
        weight = numbers.first_entropy + done * (numbers.last_entropy - numbers.first_entropy)
        gradient, entropies = torch.zeros_like(own.flat), 0.0
        at_once = max(1, numbers.most_entries // (states.shape[1] * states.shape[2]))
        for first in range(0, len(states), at_once):
            if self._search.is_over:
                return None
            rows = slice(first, first + at_once)
            likelihood = self._likelihood(states[rows], node[rows])
            picked = likelihood.gather(1, torch.from_numpy(actions[rows])[:, None])[:, 0]
            entropy = -(likelihood.exp() * likelihood).sum()
            gain = torch.from_numpy(advantage[rows].astype(np.float32))
            gradient += own.gradient((-(gain * picked).sum() - weight * entropy) / numbers.workers)
            entropies += float(entropy.detach())
        rate = numbers.first_rate + done * (numbers.last_rate - numbers.first_rate)
        own.descend(gradient, rate, clip=numbers.longest_gradient)
        return entropies / len(states)

    def _advantages(self, rewards: Floats) -> Floats:
        """(N, workers): discounted returns less the mean return at that step in the last rounds."""
        returns = np.zeros_like(rewards)
        later = np.zeros(rewards.shape[1])
        for step in range(len(rewards) - 1, -1, -1):
            later = rewards[step] + self._parameters.discount * later
            returns[step] = later
        self._returns[int(self._rounds[0]) % len(self._returns)] = returns.mean(axis=1)
        self._rounds[0] += 1
        baseline: Floats = self._returns[: int(self._rounds[0])].mean(axis=0)
        return returns - baseline[:, None]

    def _likelihood(self, states: NDArray[np.float32], node: Ints) -> Tensor:
        torch = self.weights.torch
        scores = self._network.scores(torch.from_numpy(states), torch.from_numpy(node))
        return log_probabilities(self.weights, scores, self._nodes.allowed[node])

    def _features(self, placement: Indices, node: int, starts: Floats) -> NDArray[np.float32]:
        """(workers, N, F): what is always known; placed or not, the current node, start times; the device one-hot."""
        workers, n = placement.shape
        relative = starts - starts[:, node : node + 1]
        relative /= np.maximum(np.abs(relative).max(axis=1, keepdims=True), 1.0)
        known = np.broadcast_to(self._known, (workers, *self._known.shape))
        done, current = np.arange(n) < node, np.arange(n) == node
        flags = np.broadcast_to(np.stack([done, current], axis=1), (workers, n, 2))
        device = placement[:, :, None] == np.arange(self._nodes.allowed.shape[1])
        return np.concatenate([known, flags, relative[:, :, None], device], axis=2).astype(np.float32)

    def _simulated(self, placement: Indices, before: Floats) -> tuple[Floats, Floats]:
        """(workers, N) start times of nodes, and (workers,) the cost of each placement; the best is offered."""
        starts, cost, capacity = before.copy(), np.zeros(len(placement)), self._search.problem.capacity
        for row, lifted in enumerate(self._nodes.lift(placement)):
            try:
                timeline = simulate_latency(self._search.problem, lifted)
            except InfeasibleError:
                cost[row] = np.log(max(1.0, float(self._nodes.time.max(axis=1).sum()))) + self._parameters.broken_cost
                continue
            above = np.maximum(timeline.peak - capacity, 0) / np.maximum(capacity, 1)
            starts[row] = timeline.start[self._first]
            cost[row] = np.log(max(1, timeline.value)) + self._parameters.overflow_cost * min(1.0, float(above.sum()))
            if not above.any() and timeline.value < self._trials.best:
                self._trials.offer(timeline.value, placement[row])
        self._trials.count += len(placement)
        return starts, cost


def _known(search: Search, nodes: Nodes) -> Floats:
    """(N, K + 2): times on every device, output bytes and memory, each by its largest; a time that is absent is 2."""
    arrays = search.problem.graph.arrays
    made, held = np.zeros(nodes.count), np.zeros(nodes.count)
    outputs = arrays.producer >= 0
    np.add.at(made, nodes.of[arrays.producer[outputs]], arrays.tensor_bytes[outputs].astype(np.float64))
    np.add.at(held, nodes.of, (arrays.weight_bytes + arrays.workspace_bytes).astype(np.float64))
    time = np.where(nodes.allowed, nodes.time, 0).astype(np.float64)
    time = np.where(nodes.allowed, time / max(1.0, time.max()), 2.0)
    sizes = np.stack([made / max(1.0, made.max()), held / max(1.0, held.max())], axis=1)
    return np.concatenate([time, sizes], axis=1)


SOLVER = Solver(
    "placeto",
    "learned: one node after another, by a policy that sees the whole placement",
    solve,
    options=("polish", "checkpoint", "episodes"),
    parameters=PlacetoParameters,
    learned=True,
    prepare=prepare_torch,
)
