"""The hub: an op whose outputs jump over much of a chain, and the ops beside the chain that it feeds.

In: a chain, who comes before whom. Out: the hub, the chain with it in, and in which segments each of the ops beside the
chain ("side ops") can run. `side_program` and `side_search` make a bound of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weftline.bounds.chain import Chain, through
from weftline.graph.arrays import Ints
from weftline.simulate.tables import Tables, edge_readers

__all__ = ["Hub", "make_hub", "pick_hub"]

CANDIDATES = 8
KEPT = 0.95
"""Share of what the blocks hold that must remain when the chain goes through the hub."""

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Hub:
    """An op of the chain whose outputs jump over much of it, and the ops that stand beside the chain."""

    place: int
    """In the chain."""
    op: int
    side: tuple[int, ...]
    begin: Ints
    """First segment in which a side op can run."""
    end: Ints
    """Last one."""


def pick_hub(table: Tables, before: Bools, chain: Chain, most: int) -> tuple[int, Chain] | None:
    """The op whose outputs jump over most of the chain, weighed by what they cost to send, and the chain with it in.

    None if nothing jumps, or if the chain would lose too much by going through what does.
    """
    chain_ops = np.array(chain.ops)
    after = before[:, chain_ops].sum(axis=1)  # ops of the chain before an op: they come first
    after[chain_ops] += 1
    target = edge_readers(table)
    source = table.edge_maker.astype(np.int64)
    ends = after[target] - np.isin(target, chain_ops)
    beside = ~_held(before, chain)[target]  # what waits for nothing else of the chain is needed only where it is read
    ends[beside] = (len(chain_ops) - before[chain_ops].sum(axis=0))[target[beside]]
    cost = table.transfer.max(axis=(1, 2)).astype(np.float64)[table.transfer_row[table.edge_tensor]]
    weight = np.bincount(source, np.maximum(ends - after[source], 0) * cost, len(after))
    for op in np.argsort(-weight, kind="stable")[:CANDIDATES].tolist():
        if weight[op] > 0.0:
            longer = through(table, before, chain, op, most)
            if longer.inside >= KEPT * chain.inside:
                return op, longer
    return None


def make_hub(before: Bools, chain: Chain, op: int) -> Hub | None:
    """A hub that stands in the chain; None if no op stands beside the chain."""
    chain_ops = np.array(chain.ops)
    side = np.flatnonzero(~_held(before, chain))
    if not len(side):
        return None
    begin = before[side][:, chain_ops].sum(axis=1).astype(np.int64)
    end = (len(chain_ops) - before[chain_ops][:, side].sum(axis=0)).astype(np.int64)
    return Hub(chain.ops.index(op), op, tuple(side.tolist()), begin, end)


def _held(before: Bools, chain: Chain) -> Bools:
    """(n,): ops of the chain or of a block."""
    held = np.zeros(len(before), np.bool_)
    held[list(chain.ops)] = True
    for block in chain.blocks:
        held[block] = True
    return held
