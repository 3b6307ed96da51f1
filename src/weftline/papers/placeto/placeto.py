"""`placeto`: one node after another gets a device, by a policy that sees the whole placement (Addanki et al. 2019).

An episode begins with everything on the device that would be fastest alone, visits every node once in topological order
and simulates the placement after each. The reward of a step is by how much the logarithm of latency falls (memory above
the limits adds to it). REINFORCE with a baseline per step (mean return of the last episodes), entropy bonus, several
episodes at once in one pass. Ours: times of the node on every device stand in its features, or devices could not be
told apart; ops are grouped in chains, and large graphs in MOST_NODES runs of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.latency.measured.trials import Nodes, Trials, make_nodes, offer_single_devices
from weftline.latency.policy.settings import prepare_torch, read_schedule, shorten
from weftline.papers.placeto.network import PlacetoNetwork
from weftline.papers.training.checkpoints import Arrays
from weftline.papers.training.keeper import Outcome
from weftline.papers.training.placer import Tensor, log_probabilities
from weftline.papers.training.training import run_training
from weftline.search import Search, Solver
from weftline.simulate import simulate_latency

__all__ = ["SOLVER", "solve"]

MOST_NODES = 200
EPISODES, WORKERS = 100, 4
"""Episodes are trained on WORKERS at a time."""
GAMMA, CLIP = 0.95, 1.25
FIRST_RATE, LAST_RATE = 1e-3, 1e-4
FIRST_ENTROPY, LAST_ENTROPY = 0.1, 0.005
DECAY = 100
"""Episodes over which rate and entropy bonus fall."""
REMEMBERED = 10
"""Rounds of episodes whose returns make the baseline."""
OVERFLOW = 2.0
"""What memory above a limit costs, as a multiple of the limit, in logarithms of latency."""
BROKEN = 2.0
"""What a placement that cannot run costs."""
ENTRIES = 400_000
"""Numbers in one tensor of a pass, at most."""
Floats = NDArray[np.float64]


def solve(search: Search) -> None:
    """Train on this problem."""
    schedule = read_schedule(search, episodes=EPISODES, polish="off")
    singles = offer_single_devices(search)
    if search.is_over and search.best is not None:
        return
    nodes = make_nodes(search.problem, most=MOST_NODES)
    trials = Trials(search, nodes)
    schedule = shorten(schedule, search, WORKERS * nodes.count)
    run_training(search, lambda: _Placeto(search, nodes, trials), trials, singles, schedule, "placeto", {})


class _Placeto:
    """One network on one problem."""

    def __init__(self, search: Search, nodes: Nodes, trials: Trials) -> None:
        self._search, self._nodes, self._trials = search, nodes, trials
        self._known = _known(search, nodes)
        k = nodes.allowed.shape[1]
        self._network = PlacetoNetwork(nodes, self._known.shape[1] + 3 + k, k, search.seed)
        self.parameters = self._network.parameters
        alone = int(np.where(nodes.allowed, nodes.time, 2**40).sum(axis=0).argmin())
        start = np.full(nodes.count, alone, np.int32)
        self._start = np.where(nodes.allowed[:, alone], start, nodes.fastest).astype(np.int32)
        self._first = np.zeros(nodes.count, np.int64)
        self._first[nodes.of[::-1]] = np.arange(len(nodes.of))[::-1]
        self._returns, self._rounds = np.zeros((REMEMBERED, nodes.count)), np.zeros(1, np.int64)

    def state(self) -> Arrays:
        """The returns that make the baseline."""
        return {"returns": self._returns, "rounds": self._rounds}

    def restore(self, arrays: Arrays) -> None:
        """The returns of another time."""
        self._returns, self._rounds = arrays["returns"].copy(), arrays["rounds"].copy()

    def episode(self, number: int) -> Outcome | None:
        """Roll out, then one gradient step over all steps of all episodes."""
        n, torch = self._nodes.count, self.parameters.torch
        placement = np.repeat(self._start[None], WORKERS, axis=0)
        starts, cost = self._simulated(placement, np.zeros((WORKERS, n)))
        states, actions, rewards = [], np.zeros((n, WORKERS), np.int64), np.zeros((n, WORKERS))
        for node in range(n):
            if self._search.is_over:
                return None
            states.append(self._features(placement, node, starts))
            with torch.no_grad():
                likelihood = self._likelihood(states[-1], np.full(WORKERS, node))
                noise = torch.rand(likelihood.shape, generator=self.parameters.generator).clamp_(min=1e-30)
                actions[node] = (likelihood - (-noise.log_()).log_()).argmax(-1).numpy()
            placement[:, node] = actions[node]
            starts, after = self._simulated(placement, starts)
            rewards[node], cost = cost - after, after
        advantage = self._advantages(rewards)
        entropy = self._learn(np.concatenate(states), actions.reshape(-1), advantage.reshape(-1), number)
        return None if entropy is None else Outcome(float(rewards.sum(axis=0).mean()), entropy)

    def _learn(self, states: NDArray[np.float32], actions: Ints, advantage: Floats, number: int) -> float | None:
        """A step of Adam -> the mean entropy, None if time ran out. Gradients are summed over portions of states."""
        torch, own = self.parameters.torch, self.parameters
        node = np.repeat(np.arange(self._nodes.count), WORKERS)
        done = min(1.0, number / DECAY)
        weight = FIRST_ENTROPY + done * (LAST_ENTROPY - FIRST_ENTROPY)
        gradient, entropies = torch.zeros_like(own.flat), 0.0
        at_once = max(1, ENTRIES // (states.shape[1] * states.shape[2]))
        for first in range(0, len(states), at_once):
            if self._search.is_over:
                return None
            rows = slice(first, first + at_once)
            likelihood = self._likelihood(states[rows], node[rows])
            picked = likelihood.gather(1, torch.from_numpy(actions[rows])[:, None])[:, 0]
            entropy = -(likelihood.exp() * likelihood).sum()
            gain = torch.from_numpy(advantage[rows].astype(np.float32))
            gradient += own.gradient((-(gain * picked).sum() - weight * entropy) / WORKERS)
            entropies += float(entropy.detach())
        own.descend(gradient, FIRST_RATE + done * (LAST_RATE - FIRST_RATE), clip=CLIP)
        return entropies / len(states)

    def _advantages(self, rewards: Floats) -> Floats:
        """(N, WORKERS): discounted returns less the mean return at that step in the last rounds."""
        returns = np.zeros_like(rewards)
        later = np.zeros(rewards.shape[1])
        for step in range(len(rewards) - 1, -1, -1):
            later = rewards[step] + GAMMA * later
            returns[step] = later
        self._returns[int(self._rounds[0]) % REMEMBERED] = returns.mean(axis=1)
        self._rounds[0] += 1
        baseline: Floats = self._returns[: int(self._rounds[0])].mean(axis=0)
        return returns - baseline[:, None]

    def _likelihood(self, states: NDArray[np.float32], node: Ints) -> Tensor:
        torch = self.parameters.torch
        scores = self._network.scores(torch.from_numpy(states), torch.from_numpy(node))
        return log_probabilities(self.parameters, scores, self._nodes.allowed[node])

    def _features(self, placement: Indices, node: int, starts: Floats) -> NDArray[np.float32]:
        """(WORKERS, N, F): what is always known; placed or not, the current node, start times; the device one-hot."""
        workers, n = placement.shape
        relative = starts - starts[:, node : node + 1]
        relative /= np.maximum(np.abs(relative).max(axis=1, keepdims=True), 1.0)
        known = np.broadcast_to(self._known, (workers, *self._known.shape))
        done, current = np.arange(n) < node, np.arange(n) == node
        flags = np.broadcast_to(np.stack([done, current], axis=1), (workers, n, 2))
        device = placement[:, :, None] == np.arange(self._nodes.allowed.shape[1])
        return np.concatenate([known, flags, relative[:, :, None], device], axis=2).astype(np.float32)

    def _simulated(self, placement: Indices, before: Floats) -> tuple[Floats, Floats]:
        """(WORKERS, N) start times of nodes, and (WORKERS,) the cost of each placement; the best is offered."""
        starts, cost, capacity = before.copy(), np.zeros(len(placement)), self._search.problem.capacity
        for row, lifted in enumerate(self._nodes.lift(placement)):
            try:
                timeline = simulate_latency(self._search.problem, lifted)
            except InfeasibleError:
                cost[row] = np.log(max(1.0, float(self._nodes.time.max(axis=1).sum()))) + BROKEN
                continue
            above = np.maximum(timeline.peak - capacity, 0) / np.maximum(capacity, 1)
            starts[row] = timeline.start[self._first]
            cost[row] = np.log(max(1, timeline.value)) + OVERFLOW * min(1.0, float(above.sum()))
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
    learned=True,
    prepare=prepare_torch,
)
