"""Threshold contraction: to find a pipeline below a target, or to prove that there is none.

If two pieces that share a tensor stand on different devices, one pays for its own time and the tensor, and the other
too. Where that reaches the target on every pair of devices, no pipeline below the target separates them: they are
merged, and so is what then lies on a cycle, until nothing changes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weftline.coarsen.pieces import Pieces, merge

__all__ = ["contract_uncuttable"]

ROUNDS = 100


def contract_uncuttable(pieces: Pieces, target: int) -> Pieces:
    """Merge what no pipeline with a value below `target` can separate; bounds hold up to `target`."""
    import rustworkx

    contracted = merge(pieces, np.arange(len(pieces.time)), ceiling=target)
    for _ in range(ROUNDS):
        maker = np.repeat(contracted.maker, np.diff(contracted.reader_ptr))
        together = _uncuttable(contracted, target)
        if not together.any():
            break
        graph = rustworkx.PyGraph(multigraph=False)
        graph.add_nodes_from(range(len(contracted.time)))
        pairs = zip(maker[together].tolist(), contracted.reader_of[together].tolist(), strict=True)
        graph.add_edges_from_no_data(list(pairs))
        group = np.zeros(len(contracted.time), np.int64)
        for number, members in enumerate(rustworkx.connected_components(graph)):
            group[list(members)] = number
        contracted = merge(contracted, group, ceiling=target)
    return contracted


def _uncuttable(pieces: Pieces, target: int) -> NDArray[np.bool_]:
    """For every (tensor, reader): True if maker and reader cannot stand apart below the target."""
    problem = pieces.problem
    counts = np.diff(pieces.reader_ptr)
    maker, row = np.repeat(pieces.maker, counts), np.repeat(pieces.row, counts)
    apart = np.zeros(len(maker), np.bool_)
    added = problem.rules.communication == "added"
    for a, b in _pairs(pieces):
        send = pieces.transfer[row, a, b]
        out, into = send * (not problem.host[a]), send * (not problem.host[b])
        first, second = pieces.time[maker, a], pieces.time[pieces.reader_of, b]
        able = (send >= 0) & (first >= 0) & (second >= 0)
        left = first + out if added else np.maximum(first, out)
        right = second + into if added else np.maximum(second, into)
        apart |= able & (left < target) & (right < target)
    for host in np.flatnonzero(problem.host).tolist():  # together on a host they would still be two nodes of the order
        first, second = pieces.time[maker, host], pieces.time[pieces.reader_of, host]
        apart |= (first >= 0) & (second >= 0) & (first + second < target)
    together: NDArray[np.bool_] = ~apart
    return together


def _pairs(pieces: Pieces) -> list[tuple[int, int]]:
    """Pairs of devices, only one of those that look the same."""
    devices = range(pieces.time.shape[1])
    if not pieces.flat:
        return [(a, b) for a in devices for b in devices if a != b]
    kinds = {d: (bool(pieces.problem.host[d]), pieces.time[:, d].tobytes()) for d in devices}
    seen: dict[object, tuple[int, int]] = {}
    for a in devices:
        for b in devices:
            if a != b:
                seen.setdefault((kinds[a], kinds[b]), (a, b))
    return list(seen.values())
