"""The fractal dimension of each node of a graph: how fast the number of nodes within r hops grows with r.

D(v) is the slope of the least-squares line of log N(v, r) over log r, where N(v, r) counts the nodes within r hops of v
(itself too), for r = 1 ... until nothing new is reached; 0 where there are fewer than two radii.
Simplified: at most MOST_RADII radii, and 0 everywhere in graphs of more than MOST_NODES nodes.

What a network is told about every node: HSDAG's features (Duan et al. 2024), and costs, which are ours.

In: a Problem, its Nodes, and the names of the features to use (each can be left out, for the ablation). Out: one row of
float32 per node, every column of a size around one. Simplified: sizes and shapes enter by their logarithms.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weftline.errors import UsageError
from weftline.graph.arrays import Indices, Ints
from weftline.latency.measured.trials import Nodes
from weftline.problem import Problem

__all__ = [
    "FEATURES",
    "PAPER_FEATURES",
    "Floats",
    "choose_features",
    "features",
    "fractal_dimension",
    "kind_shares",
    "output_shapes",
]

MOST_RADII = 64
MOST_NODES = 5_000
_ONES = np.array([value.bit_count() for value in range(256)], np.int64)


def fractal_dimension(count: int, a: Ints, b: Ints) -> NDArray[np.float64]:
    """(count,): D of every node; (a, b) are the ends of the undirected edges, each edge once."""
    if count > MOST_NODES or not len(a):
        return np.zeros(count)
    sizes = _neighbourhoods(count, a, b)
    grown = np.diff(sizes, axis=1, prepend=1) > 0
    radii = np.where(grown, np.log(np.arange(1, sizes.shape[1] + 1)), np.nan)
    values = np.where(grown, np.log(sizes), np.nan)
    number = grown.sum(axis=1)
    several = np.flatnonzero(number >= 2)
    slope = np.zeros(count)
    x, y = radii[several], values[several]
    x = x - np.nanmean(x, axis=1, keepdims=True)
    slope[several] = np.nansum(x * y, axis=1) / np.nansum(x * x, axis=1)
    return slope


def _neighbourhoods(count: int, a: Ints, b: Ints) -> Ints:
    """(count, R): nodes within 1, 2 ... R hops. A row of bits per node says what it has reached."""
    node, other = np.concatenate([a, b, np.arange(count)]), np.concatenate([b, a, np.arange(count)])
    order = np.argsort(node, kind="stable")
    other = other[order]
    begin = np.searchsorted(node[order], np.arange(count))
    reached = np.zeros((count, (count + 7) // 8), np.uint8)
    reached[np.arange(count), np.arange(count) // 8] = 128 >> (np.arange(count) % 8)
    sizes = [np.ones(count, np.int64)]
    while len(sizes) <= MOST_RADII:
        reached = np.bitwise_or.reduceat(reached[other], begin, axis=0)
        size = _ONES[reached].sum(axis=1)
        if np.array_equal(size, sizes[-1]):
            break
        sizes.append(size)
    return np.stack(sizes[1:] or sizes, axis=1)


Floats = NDArray[np.float32]

PAPER_FEATURES = ("kind", "degree", "fractal", "position", "shape")
FEATURES = (*PAPER_FEATURES, "cost")
MOST_KINDS = 48
"""The most frequent kinds of ops have a column each, the rest share one."""
MOST_DEGREE = 8
"""In- and out-degrees from here on share a column."""
POSITION_WIDTH = 16
SHAPE_WIDTH = 4


def choose_features(word: str, default: tuple[str, ...]) -> tuple[str, ...]:
    """`kind,shape` -> these alone; `-shape` -> the default without it; `all` and `paper` are sets of names."""
    named: dict[str, tuple[str, ...]] = {"all": FEATURES, "paper": PAPER_FEATURES, "": default}
    if word in named:
        return named[word]
    parts = [part.strip() for part in word.split(",")]
    unknown = [part for part in parts if part.removeprefix("-") not in FEATURES]
    if unknown or len({part.startswith("-") for part in parts}) > 1:
        raise UsageError(
            f"features={word!r:.60}: write names to use, or names to leave out each with a minus; "
            f"there are: {', '.join(FEATURES)}; all, paper"
        )
    if parts[0].startswith("-"):
        return tuple(name for name in default if f"-{name}" not in parts)
    return tuple(name for name in FEATURES if name in parts)


def features(problem: Problem, nodes: Nodes, names: tuple[str, ...]) -> Floats:
    """(N, F); a single column of ones where no name is given."""
    made = {
        "kind": kind_shares,
        "degree": _degrees,
        "fractal": _fractal,
        "position": _positions,
        "shape": output_shapes,
        "cost": _costs,
    }
    columns = [made[name](problem, nodes) for name in names]
    table: Floats = np.concatenate([*columns, *([] if columns else [np.ones((nodes.count, 1))])], axis=1)
    return np.ascontiguousarray(table, np.float32)


def kind_shares(problem: Problem, nodes: Nodes) -> NDArray[np.float64]:
    """Op types one-hot, the mean over the ops of a node."""
    kinds = [op.kind for op in problem.graph.ops]
    count: dict[str, int] = {}
    for kind in kinds:
        count[kind] = count.get(kind, 0) + 1
    ranked = sorted(count, key=lambda kind: (-count[kind], kind))
    column = {kind: min(place, MOST_KINDS) for place, kind in enumerate(ranked)}
    table = np.zeros((nodes.count, min(len(ranked), MOST_KINDS + 1)))
    place = nodes.of.astype(np.int64) * table.shape[1] + np.array([column[kind] for kind in kinds], np.int64)
    np.add.at(table.reshape(-1), place, 1.0)
    shares: NDArray[np.float64] = table / table.sum(axis=1, keepdims=True)
    return shares


def output_shapes(problem: Problem, nodes: Nodes) -> NDArray[np.float64]:
    """Logarithms of the last four dimensions of the largest tensor that a node's last op makes, padded in front."""
    arrays, table = problem.graph.arrays, np.zeros((nodes.count, SHAPE_WIDTH))
    for node, op in enumerate(_last_ops(nodes).tolist()):
        made = arrays.output_of[arrays.output_ptr[op] : arrays.output_ptr[op + 1]].tolist()
        if made:
            shape = problem.graph.tensors[max(made, key=lambda tensor: arrays.tensor_bytes[tensor])].shape
            sizes = [max(0, size) for size in shape[-SHAPE_WIDTH:]]
            table[node, SHAPE_WIDTH - len(sizes) :] = np.log2(1.0 + np.array(sizes, np.float64))
    return table / 10.0


def _last_ops(nodes: Nodes) -> Indices:
    last = np.zeros(nodes.count, np.int32)
    last[nodes.of] = np.arange(len(nodes.of), dtype=np.int32)  # the last of equal indices stays
    return last


def _degrees(problem: Problem, nodes: Nodes) -> NDArray[np.float64]:
    """In-degree and out-degree, one-hot each."""
    table = np.zeros((nodes.count, 2 * (MOST_DEGREE + 1)))
    for end, offset in ((nodes.target, 0), (nodes.source, MOST_DEGREE + 1)):
        degree = np.minimum(np.bincount(end, minlength=nodes.count), MOST_DEGREE)
        table[np.arange(nodes.count), offset + degree] = 1.0
    return table


def _fractal(problem: Problem, nodes: Nodes) -> NDArray[np.float64]:
    return fractal_dimension(nodes.count, *nodes.undirected())[:, None]


def _positions(problem: Problem, nodes: Nodes) -> NDArray[np.float64]:
    """Sinusoids of the place in topological order (Vaswani et al. 2017)."""
    place = np.arange(nodes.count, dtype=np.float64)[:, None]
    angle = place / 10_000.0 ** (2.0 * np.arange(POSITION_WIDTH // 2) / POSITION_WIDTH)
    table = np.empty((nodes.count, POSITION_WIDTH))
    table[:, 0::2], table[:, 1::2] = np.sin(angle), np.cos(angle)
    return table


def _costs(problem: Problem, nodes: Nodes) -> NDArray[np.float64]:
    """Per device: time against the node's best and against the mean node, whether it may stand there, its share of the
    memory; then bytes that enter and leave, as the time of their transfers against the mean node.
    """
    arrays = problem.graph.arrays
    time = np.where(nodes.allowed, nodes.time, np.nan).astype(np.float64)
    best = np.nanmin(time, axis=1, keepdims=True)
    mean = max(1.0, float(best.mean()))
    weights = np.zeros(nodes.count)
    np.add.at(weights, nodes.of, arrays.weight_bytes + arrays.workspace_bytes)
    per_device = [
        np.nan_to_num(np.log((time + 1.0) / (best + 1.0)), nan=10.0),
        np.nan_to_num(np.log1p(time / mean), nan=10.0),
        nodes.allowed.astype(np.float64),
        np.minimum(weights[:, None] / np.maximum(problem.capacity, 1), 2.0),
    ]
    return np.concatenate([*per_device, _traffic(problem, nodes, mean)], axis=1)


def _traffic(problem: Problem, nodes: Nodes, mean: float) -> NDArray[np.float64]:
    """Transfers into and out of a node over the mean link, and all bytes of it."""
    arrays, links = problem.graph.arrays, problem.cost.transfer
    between = ~np.eye(links.shape[1], dtype=np.bool_)
    usable = (links >= 0) & between
    row = np.where(usable, links, 0).sum(axis=(1, 2)) / np.maximum(usable.sum(axis=(1, 2)), 1)
    source, target, tensor = arrays.edges()
    crossing = nodes.of[source] != nodes.of[target]
    cost = row[problem.cost.transfer_row[tensor[crossing]]] / mean
    table = np.zeros((nodes.count, 3))
    np.add.at(table[:, 0], nodes.of[target[crossing]], cost)
    np.add.at(table[:, 1], nodes.of[source[crossing]], cost)
    made = arrays.producer >= 0
    np.add.at(table[:, 2], nodes.of[arrays.producer[made]], arrays.tensor_bytes[made].astype(np.float64))
    return np.concatenate([np.log1p(table[:, :2]), np.log10(1.0 + table[:, 2:]) / 10.0], axis=1)
