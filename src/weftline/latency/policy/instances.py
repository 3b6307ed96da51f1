"""Fresh (graph, cluster) pairs for training the policy: none is ever seen twice, and no label is made.

In: a random generator. Out: a Problem of 30 to 250 ops on 2 to 5 devices. Graphs are of four families of the zoo and of
four that are drawn here, one of them of repeated blocks with branches, as networks have; the other families of the zoo
and all its architectures are left for evaluation. Clusters differ in speeds, in which ops a device likes, in links
(uniform, by distance, on a bus) and in the ratio of transfers to work (0.03 to 6); some have twins, some little memory,
some devices that cannot run some ops. Simplified: no `together`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weftline.cluster import Device
from weftline.cost import NO_TIME, CostTable
from weftline.graph import Graph
from weftline.graph.arrays import Ints
from weftline.latency.list.decoder import Floats
from weftline.problem import Problem, Rules
from weftline.zoo import synthetic
from weftline.zoo.synthetic import graph_of_units

__all__ = ["TRAINING_FAMILIES", "draw_cluster", "draw_devices", "draw_graph", "fresh_problem"]

TRAINING_FAMILIES = ("layered", "series_parallel", "erdos_renyi", "barabasi_albert")
"""Families of the zoo that training may see."""
OPS = (30, 250)
DEVICES = (2, 5)
BLOCK_FAMILIES = 2
"""How many families the blocks count for."""
RATIO = (0.03, 6.0)
"""Mean transfer / mean of the least times."""
MEAN_OP = 1_000_000
"""ns; features know no scale, so any would do."""

Pairs = tuple[Ints, Ints]
"""Sources and targets of edges."""


def fresh_problem(random: np.random.Generator, devices: int, ops: int = 0) -> Problem:
    """One pair; `ops` = 0 draws the size."""
    count = ops or int(np.exp(random.uniform(*np.log(OPS))))
    return draw_cluster(random, draw_graph(random, count), devices)


def draw_devices(random: np.random.Generator) -> int:
    """How many devices a batch has."""
    return int(random.integers(DEVICES[0], DEVICES[1] + 1))


def draw_graph(random: np.random.Generator, count: int) -> Graph:
    """A graph of any training family."""
    own: tuple[Callable[[int, np.random.Generator], Pairs], ...] = (_towers, _tree, _grid)
    kind = int(random.integers(len(TRAINING_FAMILIES) + len(own) + BLOCK_FAMILIES))
    if kind < len(TRAINING_FAMILIES):
        return synthetic(TRAINING_FAMILIES[kind], ops=count, seed=int(random.integers(2**31)))
    kind -= len(TRAINING_FAMILIES)
    if kind < len(own):
        source, target = own[kind](count, random)
        like = np.arange(count, dtype=np.int64)
    else:
        source, target, like = _blocks(count, random)
    spread = random.uniform(0.2, 1.2 if kind < len(own) else 2.5)
    cost, size = (np.exp(4.0 + spread * random.standard_normal(count)).astype(np.int64) + 1 for _ in range(2))
    return graph_of_units("drawn", cost[like], size[like], source, target)


def draw_cluster(random: np.random.Generator, graph: Graph, k: int) -> Problem:
    """Devices, links, times and limits for a graph."""
    time = _times(random, graph, k)
    sizes = np.array([tensor.bytes for tensor in graph.tensors], np.float64)
    transfer = _transfers(random, sizes, k, float(time.min(axis=1).mean()))
    if random.random() < 0.1:
        time = _with_gaps(random, graph, time)
    row = np.arange(len(sizes), dtype=np.int32)
    weights = float(sum(op.weight_bytes for op in graph.ops))
    tight = weights > 0 and random.random() < 0.2
    share = random.dirichlet(np.full(k, 3.0)) * weights * random.uniform(1.3, 2.5)
    devices = tuple(Device(id=f"d{i}", kind="gpu", memory=int(share[i]) if tight else None) for i in range(k))
    pairs = [(a, b) for a in range(k) for b in range(k) if a != b]
    shared = random.random() < 0.25
    per_tensor = random.random() < 0.85
    # Activations are left to the check of the answer.
    rules = Rules(transfers="per-tensor" if per_tensor else "per-edge", memory="static")
    buses = tuple((a, b, "bus") for a, b in pairs) if shared else ()
    return Problem(graph, devices, CostTable(time, transfer, row, "drawn"), rules, (), buses)


def _times(random: np.random.Generator, graph: Graph, k: int) -> Ints:
    """(n, K): speeds, a taste of each device for kinds of ops, noise, a start-up time; the mean least time is fixed."""
    work = np.array([op.flops + 20.0 * op.traffic_bytes for op in graph.ops], np.float64)
    n = len(work)
    work /= max(1.0, work.mean())
    speed = np.exp(random.uniform(0.0, np.log(random.choice([1.5, 4.0, 12.0])), k))
    if k > 1 and random.random() < 0.35:  # twins
        speed[1 : 1 + int(random.integers(1, k))] = speed[0]
    kinds = random.integers(0, 4, n)
    taste = np.exp(random.choice([0.0, 0.3, 0.7]) * random.standard_normal((4, k)))[kinds]
    noise = np.exp(random.choice([0.0, 0.1, 0.4]) * random.standard_normal((n, k)))
    launch = random.choice([0.0, 0.02, 0.2]) * random.uniform(0.3, 1.0, k)
    time: Floats = work[:, None] / speed * taste * noise + launch
    time *= MEAN_OP / max(1e-9, float(time.min(axis=1).mean()))
    return np.ceil(time).astype(np.int64)


def _transfers(random: np.random.Generator, sizes: Floats, k: int, mean_time: float) -> Ints:
    """(tensors, K, K): latency + size / bandwidth, scaled to the ratio that was drawn."""
    m = len(sizes)
    if not m:
        return np.zeros((1, k, k), np.int64)
    relative = sizes / max(1.0, sizes.mean())
    slow = np.ones((k, k))
    style = int(random.integers(3))
    if style == 1:  # by distance
        place = random.uniform(0.0, 1.0, k)
        slow = 0.3 + 2.0 * np.abs(place[:, None] - place)
    elif style == 2:  # every link its own, also by direction
        slow = np.exp(0.6 * random.standard_normal((k, k)))
    latency = random.choice([0.0, 0.1, 0.5])
    table = (1.0 - latency) * relative[:, None, None] * slow + latency
    ratio = np.exp(random.uniform(*np.log(RATIO)))
    between = ~np.eye(k, dtype=np.bool_)
    table *= ratio * mean_time / max(1e-9, float(table[:, between].mean())) if k > 1 else 1.0
    found: Ints = np.ceil(table).astype(np.int64)
    found[:, range(k), range(k)] = 0
    return found


def _with_gaps(random: np.random.Generator, graph: Graph, time: Ints) -> Ints:
    """Devices that cannot run ops of some kinds (or some part of the graph); the one that is fastest in all can."""
    n, k = time.shape
    names = sorted({op.kind for op in graph.ops})
    kind = np.array([names.index(op.kind) for op in graph.ops]) if len(names) > 1 else np.arange(n) * 8 // n
    gap = (random.random((int(kind.max()) + 1, k)) < 0.2)[kind]
    gap[:, int(time.sum(axis=0).argmin())] = False
    return np.where(gap, NO_TIME, time)


def _towers(count: int, random: np.random.Generator) -> Pairs:
    """Chains side by side, with a few edges between them and one end."""
    towers = int(random.integers(2, 7))
    op = np.arange(towers, count, dtype=np.int64)
    source, target = [op - towers], [op]
    cross = op[random.random(len(op)) < 0.1]
    level = cross // towers
    source.append(np.maximum(level - 1, 0) * towers + random.integers(0, towers, len(cross)))
    target.append(cross)
    last = np.arange(max(0, count - towers), count - 1, dtype=np.int64)
    source.append(last)
    target.append(np.full(len(last), count - 1, np.int64))
    return np.concatenate(source), np.concatenate(target)


def _tree(count: int, random: np.random.Generator) -> Pairs:
    """From a root to leaves, or from leaves to a root."""
    child = np.arange(1, count, dtype=np.int64)
    near = int(random.integers(2, 12))
    parent = np.maximum(child - 1 - random.integers(0, near, len(child)), 0)
    if random.random() < 0.5:
        return parent, child
    return count - 1 - child, count - 1 - parent


def _grid(count: int, random: np.random.Generator) -> Pairs:
    """Every op reads its left and its upper neighbour."""
    width = int(random.integers(3, 13))
    op = np.arange(count, dtype=np.int64)
    left, below = op[op % width > 0], op[op >= width]
    return np.concatenate([left - 1, below - width]), np.concatenate([left, below])


def _blocks(count: int, random: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """One block after another, and for every op the op whose sizes it has: the same place in the first such block.

    A block is a few branches, chains that read the end of the block before and meet in one op, perhaps with an edge
    around them. There are one to three kinds of blocks, in turn.
    """
    kinds, first = [], [-1] * 3
    for _ in range(int(random.integers(1, 4))):
        branches = int(np.exp(random.uniform(0.0, np.log(12.0))))
        kinds.append((random.integers(1, 7, branches).tolist(), bool(random.random() < 0.5)))
    source, target, like = [], [], [0]
    number = 0
    while len(like) < count:
        kind = number % len(kinds)
        lengths, around = kinds[kind]
        entry, begin, ends = len(like) - 1, len(like), []
        if number < len(kinds):
            first[kind] = begin
        for length in lengths:
            last = entry
            for _ in range(length):
                source.append(last)
                target.append(len(like))
                last = len(like)
                like.append(first[kind] + last - begin)
            ends.append(last)
        for end in [*ends, entry] if around else ends:
            source.append(end)
            target.append(len(like))
        like.append(first[kind] + len(like) - begin)
        number += 1
    pairs = np.array([source, target], np.int64)
    pairs = pairs[:, pairs[1] < count]
    return pairs[0], pairs[1], np.array(like[:count], np.int64)
