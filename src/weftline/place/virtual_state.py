"""The state of Baechi's virtual devices while time moves on: devices, channels and ready ops."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.place.possible_devices import Bools
from weftline.simulate.tables import Tables

__all__ = ["WINDOW", "State", "make_state"]

WINDOW = 64
"""Ready ops that are looked at."""


class State(NamedTuple):
    """Arrays that kernels change. Rows of (WINDOW, K) tables belong to ready ops."""

    free_at: Ints
    channel: Ints
    scratch: Ints
    """(K,): when a device and its channel are free; channels for trials."""
    held: Ints
    """(K,): bytes of activations."""
    running: Ints
    awake: Ints
    """(K,): the op a device runs or keeps itself for, -1 = none."""
    arrival: Ints
    """(tensors x K), -1 = not there."""
    unread: Ints
    """(tensors,): consumers that have not begun."""
    waiting: Ints
    """(n,): inputs that are not made yet."""
    placement: Indices
    end: Ints
    order: Indices
    """Ops in the order in which they begin."""
    just_ran: Ints
    """(K,): the op after which a device has just become idle, -1 = none."""
    clock: Ints
    """(1,): now."""
    later: Ints
    later_count: Ints
    """A heap of the ready ops outside the window, as positions in Kahn's order; how many."""
    window: Ints
    ready_count: Ints
    """The ready ops that are looked at; (1,): how many."""
    slot: Ints
    """Op -> its place in the window, -1 = not in it."""
    soonest: Ints
    """(WINDOW, K): a lower bound of the start of a ready op on a device."""
    looked: Ints
    """(WINDOW, K): after how many ops that bound was exact."""
    is_open: Bools


def make_state(table: Tables, position: Ints) -> State:
    """Nothing has begun. `position`: op -> place in Kahn's order."""
    n, k = table.time.shape
    m = len(table.producer)
    waiting = np.diff(table.edge_ptr).astype(np.int64)
    first, later = np.sort(position[waiting == 0]), np.zeros(n + 1, np.int64)
    later[: len(first)] = first  # sorted, hence a heap
    return State(
        free_at=np.zeros(k, np.int64),
        channel=np.zeros(k, np.int64),
        scratch=np.zeros(k, np.int64),
        held=np.zeros(k, np.int64),
        running=np.full(k, -1, np.int64),
        awake=np.full(k, -1, np.int64),
        arrival=np.full(m * k, -1, np.int64),
        unread=np.diff(table.consumer_ptr).astype(np.int64),
        waiting=waiting,
        placement=np.full(n, -1, np.int32),
        end=np.full(n, -1, np.int64),
        order=np.empty(n, np.int32),
        just_ran=np.full(k, -1, np.int64),
        clock=np.zeros(1, np.int64),
        later=later,
        later_count=np.array([len(first)]),
        window=np.zeros(WINDOW, np.int64),
        ready_count=np.zeros(1, np.int64),
        slot=np.full(n, -1, np.int64),
        soonest=np.zeros((WINDOW, k), np.int64),
        looked=np.zeros((WINDOW, k), np.int64),
        is_open=np.zeros((WINDOW, k), np.bool_),
    )
