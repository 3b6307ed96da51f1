"""The order of stages: from a device per piece to levels that never go down along a forward edge, if there are any.

Stages have odd levels, pieces on hosts the even ones between them. In: the block of each piece. Out: a topological
order of the quotient graph, drawn at random.
"""

from __future__ import annotations

import numpy as np

from weftline.graph.arrays import Indices
from weftline.partition.board import Board
from weftline.partition.orders import keyed_order
from weftline.simulate.dice import Dice, below, make_dice
from weftline.simulate.jit import kernel

__all__ = ["arrange", "following_order"]


@kernel
def arrange(board: Board, column: Indices, stages: int, dice: Dice, at: Indices, level: Indices) -> bool:
    """Fill `at` (block at each place of the pipeline) and the level of each piece -> False if there is a cycle.

    Blocks 0..stages-1 are stages (empty ones stand anywhere), all above are hosts, whose pieces stand alone.
    """
    count = len(column)
    first = np.full(stages + count, -1, np.int32)  # pieces of a node as linked lists
    following = np.full(count, -1, np.int32)
    node = np.empty(count, np.int32)
    waiting = np.zeros(stages + count, np.int32)
    for p in range(count - 1, -1, -1):
        node[p] = column[p] if column[p] < stages else stages + p
        following[p] = first[node[p]]
        first[node[p]] = p
    for p in range(count):
        for e in range(board.next_ptr[p], board.next_ptr[p + 1]):
            if node[board.next_of[e]] != node[p]:
                waiting[node[board.next_of[e]]] += 1
    ready = np.empty(stages + count, np.int32)
    size = 0
    for v in range(stages + count):
        if waiting[v] == 0 and (v < stages or first[v] >= 0):
            ready[size] = v
            size += 1
    place, done = 0, 0
    while size > 0:
        spot = below(dice, size)
        v = ready[spot]
        size -= 1
        ready[spot] = ready[size]
        here = 2 * place
        if v < stages:
            at[place] = v
            here += 1
            place += 1
        p = first[v]
        while p >= 0:
            level[p] = here
            done += 1
            for e in range(board.next_ptr[p], board.next_ptr[p + 1]):
                w = node[board.next_of[e]]
                if w != v:
                    waiting[w] -= 1
                    if waiting[w] == 0:
                        ready[size] = w
                        size += 1
            p = following[p]
    return bool(done == count)


def following_order(board: Board, device: Indices, seed: int) -> Indices | None:
    """A topological order in which every stage is contiguous, random inside the stages; None if there is a cycle."""
    hosts = board.host[device]
    column = np.where(hosts, len(board.host), device).astype(np.int32)
    at, level = np.zeros(len(board.host), np.int32), np.zeros(len(device), np.int32)
    if not arrange(board, column, len(board.host), make_dice(seed), at, level):
        return None
    inside = np.arange(len(device)) / len(device) if seed == 0 else np.random.default_rng(seed).random(len(device))
    return keyed_order(board, level + inside)
