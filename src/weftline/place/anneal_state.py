"""Where the latency annealer stands: a device per op, a topological order, and the schedule that follows from both.

The schedule is kept so that any of its prefixes can be taken up again: what every device, port and bus is free at is
stored before every position of the order (or every `stride`-th), and a transfer remembers the op it was booked for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.place.anneal_board import Board
from weftline.simulate.dice import Dice, make_dice

__all__ = ["KINDS", "State", "make_state"]

KINDS = 7
"""Moves: see anneal_moves."""
MEMORY = 2**28
"""Bytes for stored prefixes (there are two sets); longer graphs with many devices store fewer of them."""


class State(NamedTuple):
    """n ops, K devices, `width` = 3 K + buses + 2."""

    order: Indices
    position: Indices
    """(n,): the op at a position, the position of an op."""
    device: Indices
    end: Ints
    """(n,): of each op."""
    arrival: Ints
    """(m K, 2): when a tensor is on a device, and the op it was booked for (-1 = none); empty where sent per edge."""
    stored: Ints
    fresh: Ints
    """(rows, width): free times of devices, send ports, receive ports, buses, clock, latest end; now and in a trial."""
    kept: Ints
    """(n,): ends before a trial, by position."""
    log: Ints
    """(E, 3): arrivals before a trial: slot, time, op."""
    free: Ints
    pending: Ints
    chosen: Indices
    changed: Indices
    was: Indices
    """Ops a trial is about, those that change their device, and the device they had."""
    mark: Indices
    """(2, n): stamps of ops and groups seen in this trial."""
    backup: Indices
    spare: Indices
    """Orders: before a trial, and in the making."""
    level: Ints
    held: Ints
    """(K,): bytes on each device."""
    room: Ints
    """(K,): bytes each device has for weights."""
    users: Indices
    """(W, K): ops on a device that use a tied weight."""
    now: Ints
    """(5,): value, bytes above the limits, stamp, steps done, and below which value a state is worth asking about."""
    best: Indices
    """(2, n): devices and order of the best."""
    best_value: Ints
    weight: NDArray[np.float64]
    credit: NDArray[np.float64]
    effort: NDArray[np.float64]
    """(KINDS,): of moves."""
    dice: Dice
    stride: int
    binds: bool
    """True if memory for weights can run out."""
    asks: bool
    """True if activations can run out of memory too: then the kernel stops at a state that may be a new best."""


def make_state(board: Board, capacity: Ints, seed: int, *, asks: bool) -> State:
    """An empty state; `load` fills it."""
    n, k = board.cost.shape[:2]
    edges = len(board.edge)
    width = 3 * k + board.buses + 2
    stride = max(1, -(-n * width * 8 // MEMORY))
    rows = n // stride + 1
    slots = 1 if board.per_edge else board.tensors * k
    widest = int(np.diff(board.edge_ptr.astype(np.int64)).max(initial=0))
    total = int(board.static_bytes.sum()) + int(board.tied_bytes.sum())
    return State(
        order=np.zeros(n, np.int32),
        position=np.zeros(n, np.int32),
        device=np.zeros(n, np.int32),
        end=np.zeros(n, np.int64),
        arrival=np.full((slots, 2), -1, np.int64),
        stored=np.zeros((rows, width), np.int64),
        fresh=np.zeros((rows, width), np.int64),
        kept=np.zeros(n, np.int64),
        log=np.zeros((1 if board.per_edge else edges + 1, 3), np.int64),
        free=np.zeros(width, np.int64),
        pending=np.zeros((widest + 1, 3), np.int64),
        chosen=np.zeros(n + 1, np.int32),
        changed=np.zeros(n + 1, np.int32),
        was=np.zeros(n + 1, np.int32),
        mark=np.zeros((2, n), np.int32),
        backup=np.zeros(n, np.int32),
        spare=np.zeros(n, np.int32),
        level=np.zeros(n, np.int64),
        held=np.zeros(k, np.int64),
        room=capacity.astype(np.int64),
        users=np.zeros((len(board.tied_bytes), k), np.int32),
        now=np.zeros(5, np.int64),
        best=np.zeros((2, n), np.int32),
        best_value=np.full(1, 2**62, np.int64),
        weight=np.zeros(KINDS),
        credit=np.zeros(KINDS),
        effort=np.ones(KINDS),
        dice=make_dice(seed),
        stride=stride,
        binds=asks or bool((total > capacity).any()),
        asks=asks,
    )
