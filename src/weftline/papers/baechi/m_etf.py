"""m-ETF and m-SCT (Jeon et al., Baechi, 2020): earliest task first within memory, on Baechi's virtual devices.

m-SCT: small communication times first. Like m-ETF, but a device that has just run an op keeps itself for the favourite
child of that op: see `favourites`.

Virtual devices: time moves from event to event, and idle devices propose ready ops. Their own idea of time, used to
choose only: one channel per device for sending and receiving, a tensor that was received is kept, buses are unknown. An
idle device proposes the op that it could start first, the smallest proposal is taken. A device that has just run an op
whose favourite child could start first there is AWAKE: it keeps itself for that child, unless an op is urgent (it could
start by now on every device that can take it).

Memory: weights as everywhere; outputs from the start of an op until its last consumer begins, and workspace at its
start. Where that leaves no way to go on, activations are ignored. Of the ready ops at most WINDOW_OPS are looked at, in
Kahn's order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.latency.list.favourites import favourite_children
from weftline.latency.list.memory_left import (
    Bools,
    Candidate,
    WeightRoom,
    clear_room,
    close_unlinked,
    make_room,
    may_stop,
    new_bytes,
    offer_leaving_room,
    open_devices,
    settle,
)
from weftline.papers.baechi.m_topo import kahn_order
from weftline.problem import Problem
from weftline.search import Search, Solver
from weftline.simulate.kernels.jit import kernel, part
from weftline.simulate.kernels.sorting import pop, push
from weftline.simulate.sentinels import NEVER, NOBODY
from weftline.simulate.tables import Tables, tables

__all__ = ["SOLVERS", "VirtualDevices"]

WINDOW_OPS = 64
"""Ready ops that are looked at."""
OPS_BETWEEN_LOOKS = 5000
"""At the clock."""


class VirtualState(NamedTuple):
    """Arrays that kernels change. Rows of (WINDOW_OPS, K) tables belong to ready ops."""

    free_at: Ints
    channel: Ints
    scratch: Ints
    """(K,): when a device and its channel are free; channels for trials."""
    held: Ints
    """(K,): bytes of activations."""
    running: Ints
    awake: Ints
    """(K,): the op a device runs or keeps itself for, NOBODY = none."""
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
    """(K,): the op after which a device has just become idle, NOBODY = none."""
    clock: Ints
    """(1,): now."""
    later: Ints
    later_count: Ints
    """A heap of the ready ops outside the window, as positions in Kahn's order; how many."""
    window: Ints
    ready_count: Ints
    """The ready ops that are looked at; (1,): how many."""
    slot: Ints
    """Op -> its place in the window, NOBODY = not in it."""
    soonest: Ints
    """(WINDOW_OPS, K): a lower bound of the start of a ready op on a device."""
    looked: Ints
    """(WINDOW_OPS, K): after how many ops that bound was exact."""
    is_open: Bools
    kahn: Indices
    position: Ints
    """Kahn's order; op -> its place in it."""
    favourite: Indices
    """(n,): the favourite child of an op, NOBODY = none."""


def make_state(table: Tables, kahn: Indices, favourite: Indices) -> VirtualState:
    """Nothing has begun."""
    n, k = table.time.shape
    m = len(table.producer)
    position = np.empty(n, np.int64)
    position[kahn] = np.arange(n)
    waiting = np.diff(table.edge_ptr).astype(np.int64)
    first, later = np.sort(position[waiting == 0]), np.zeros(n + 1, np.int64)
    later[: len(first)] = first  # sorted, hence a heap
    return VirtualState(
        free_at=np.zeros(k, np.int64),
        channel=np.zeros(k, np.int64),
        scratch=np.zeros(k, np.int64),
        held=np.zeros(k, np.int64),
        running=np.full(k, NOBODY, np.int64),
        awake=np.full(k, NOBODY, np.int64),
        arrival=np.full(m * k, -1, np.int64),
        unread=np.diff(table.consumer_ptr).astype(np.int64),
        waiting=waiting,
        placement=np.full(n, NOBODY, np.int32),
        end=np.full(n, -1, np.int64),
        order=np.empty(n, np.int32),
        just_ran=np.full(k, NOBODY, np.int64),
        clock=np.zeros(1, np.int64),
        later=later,
        later_count=np.array([len(first)]),
        window=np.zeros(WINDOW_OPS, np.int64),
        ready_count=np.zeros(1, np.int64),
        slot=np.full(n, NOBODY, np.int64),
        soonest=np.zeros((WINDOW_OPS, k), np.int64),
        looked=np.zeros((WINDOW_OPS, k), np.int64),
        is_open=np.zeros((WINDOW_OPS, k), np.bool_),
        kahn=kahn,
        position=position,
        favourite=favourite,
    )


class VirtualDevices:
    """Schedules one problem, also again with less memory."""

    def __init__(self, problem: Problem, name: str, favourite: Indices | None = None) -> None:
        self._problem, self._name, self._table, self._room = problem, name, tables(problem), make_room(problem)
        n = len(problem.group)
        self._favourite = np.full(n, NOBODY, np.int32) if favourite is None else favourite
        self._kahn = kahn_order(problem)

    def schedule(self, search: Search, capacity: Ints) -> Candidate | None:
        """None once the search may stop. Raises `InfeasibleError` where no device is left for an op."""
        self._room.capacity[:] = capacity
        n = len(self._problem.group)
        for activations in (True, False) if self._table.dynamic else (False,):
            state, done = make_state(self._table, self._kahn, self._favourite), 0
            while 0 <= done < n:
                if may_stop(search):
                    return None
                last = min(done + OPS_BETWEEN_LOOKS, n)
                done = _run(self._table, self._room, state, activations, done, last)
            if done == n:
                return Candidate(state.placement, order=state.order)
        raise InfeasibleError(f"{self._name} finds no device for some op")


@part
def _receive(table: Tables, state: VirtualState, op: int, device: int, channel: Ints, keep: bool) -> int:
    """Send the missing inputs of an op over these channels -> when all are there, NEVER = a link is missing."""
    ready, devices = 0, len(channel)
    for e in range(np.int64(table.edge_ptr[op]), np.int64(table.edge_ptr[op + 1])):
        maker, tensor = np.int64(table.edge_maker[e]), np.int64(table.edge_tensor[e])
        done, origin = state.end[maker], state.placement[maker]
        if origin != device:
            known = state.arrival[tensor * devices + device]
            length = int(table.transfer[table.transfer_row[tensor], origin, device])
            if length < 0:
                return NEVER
            if known >= 0:
                done = known
            else:
                if length > 0:
                    sent = max(done, channel[origin])
                    channel[origin] = sent + length
                    channel[device] = max(sent, channel[device]) + length
                    done = channel[device]
                if keep:
                    state.arrival[tensor * devices + device] = done
        ready = max(ready, done)
    return ready


@part
def _start(table: Tables, state: VirtualState, i: int, device: int, step: int) -> int:
    """When the i-th ready op could start on a device; remembered until the next op is placed."""
    if state.looked[i, device] != step:
        state.scratch[:] = state.channel
        ready = _receive(table, state, state.window[i], device, state.scratch, False)
        state.soonest[i, device] = max(ready, state.free_at[device])
        state.looked[i, device] = step
    return int(state.soonest[i, device])


@part
def _open(table: Tables, room: WeightRoom, state: VirtualState, activations: bool) -> None:
    """Mark for every ready op the devices it can go to: devices that run it, memory, links."""
    for i in range(state.ready_count[0]):
        op, is_open = state.window[i], state.is_open[i]
        open_devices(room, op, is_open)
        if room.gaps:
            close_unlinked(table, room, op, is_open)
        if activations:
            made = table.workspace_bytes[op]
            for k in range(table.output_ptr[op], table.output_ptr[op + 1]):
                made += table.tensor_bytes[table.output_of[k]]
            for device in range(len(is_open)):
                needed = made + state.held[device]
                if room.fixed[room.group[op]] < 0:
                    needed += new_bytes(room, room.group[op], device)
                is_open[device] &= needed <= room.left[device]


@part
def _soonest(table: Tables, state: VirtualState, device: int, step: int) -> tuple[int, int]:
    """The ready op that the device could start first -> (its place in the window or NOBODY, its start)."""
    while True:
        best, least = NOBODY, NEVER
        for i in range(state.ready_count[0]):
            if state.is_open[i, device]:
                start = max(state.soonest[i, device], state.free_at[device])
                earlier = best >= 0 and state.position[state.window[i]] < state.position[state.window[best]]
                if start < least or (start == least and earlier):
                    best, least = i, start
        if best < 0 or state.looked[best, device] == step:
            return best, least
        _start(table, state, best, device, step)


@part
def _most_urgent(table: Tables, state: VirtualState, device: int, step: int) -> tuple[int, int]:
    """Of the ready ops that the device can take, the one that could soonest start everywhere."""
    best, least = NOBODY, NEVER
    for i in range(state.ready_count[0]):
        if not state.is_open[i, device]:
            continue
        latest = 0
        for d in range(len(state.free_at)):
            if state.is_open[i, d] and latest <= least:
                latest = max(latest, state.free_at[d] if state.free_at[d] > least else _start(table, state, i, d, step))
        earlier = best >= 0 and state.position[state.window[i]] < state.position[state.window[best]]
        if latest < least or (latest == least and earlier):
            best, least = i, latest
    return best, least


@part
def _wake(table: Tables, state: VirtualState, op: int, device: int, step: int) -> None:
    """The device has just run the op: does it keep itself for the op's favourite child?"""
    child = state.favourite[op]
    state.awake[device] = NOBODY
    if child < 0 or state.slot[child] < 0:
        return
    i = state.slot[child]
    if state.is_open[i, device]:
        own = _start(table, state, i, device, step)
        for d in range(len(state.free_at)):
            if state.is_open[i, d] and _start(table, state, i, d, step) < own:
                return
        state.awake[device] = child


@part
def _propose(table: Tables, state: VirtualState, device: int, now: int, step: int) -> tuple[int, int]:
    """What an idle device would run next -> (place in the window or NOBODY, start)."""
    child = state.awake[device]
    if child >= 0 and (state.slot[child] < 0 or not state.is_open[state.slot[child], device]):
        state.awake[device] = child = NOBODY
    if child < 0:
        return _soonest(table, state, device, step)
    urgent, when = _most_urgent(table, state, device, step)
    own = _start(table, state, state.slot[child], device, step)
    if when <= now or when < own:
        return urgent, when
    return state.slot[child], own


@part
def _take(table: Tables, room: WeightRoom, state: VirtualState, i: int, device: int, now: int) -> int:
    """Run the i-th ready op on a device -> the op."""
    op = state.window[i]
    settle(room, op, device)
    ready = _receive(table, state, op, device, state.channel, True)
    state.placement[op] = device
    state.end[op] = max(ready, state.free_at[device], now) + int(table.time[op, device])
    state.free_at[device] = state.end[op]
    state.running[device] = op
    state.awake[device] = NOBODY
    for k in range(table.output_ptr[op], table.output_ptr[op + 1]):
        tensor = table.output_of[k]
        if state.unread[tensor] > 0 or table.is_output[tensor]:
            state.held[device] += table.tensor_bytes[tensor]
    for e in range(np.int64(table.edge_ptr[op]), np.int64(table.edge_ptr[op + 1])):
        tensor = np.int64(table.edge_tensor[e])
        state.unread[tensor] -= 1
        if state.unread[tensor] == 0 and not table.is_output[tensor]:
            state.held[state.placement[table.edge_maker[e]]] -= table.tensor_bytes[tensor]
        # A tensor that has come to a device may let its other readers start earlier there.
        for c in range(table.consumer_ptr[tensor], table.consumer_ptr[tensor + 1]):
            if state.slot[table.consumer_of[c]] >= 0:
                state.soonest[state.slot[table.consumer_of[c]], device] = 0
    last = state.ready_count[0] - 1
    state.slot[op] = NOBODY
    if i < last:
        state.window[i] = state.window[last]
        state.slot[state.window[i]] = i
        state.soonest[i] = state.soonest[last]
        state.looked[i] = state.looked[last]
    state.ready_count[0] = last
    return int(op)


@part
def _release(table: Tables, state: VirtualState) -> None:
    """Ops that have ended by now let their consumers go; ready ops move up into the window."""
    heaped = state.later_count[0]
    for device in range(len(state.running)):
        op = state.running[device]
        if op < 0 or state.end[op] > state.clock[0]:
            continue
        state.running[device] = NOBODY
        state.just_ran[device] = op
        for k in range(table.output_ptr[op], table.output_ptr[op + 1]):
            tensor = table.output_of[k]
            for c in range(table.consumer_ptr[tensor], table.consumer_ptr[tensor + 1]):
                reader = table.consumer_of[c]
                state.waiting[reader] -= 1
                if state.waiting[reader] == 0:
                    heaped = push(state.later, heaped, state.position[reader])
    while heaped > 0 and state.ready_count[0] < WINDOW_OPS:
        op, i = int(state.kahn[pop(state.later, heaped)]), state.ready_count[0]
        heaped -= 1
        state.window[i] = op
        state.slot[op] = i
        state.soonest[i] = 0
        state.looked[i] = 0
        state.ready_count[0] += 1
    state.later_count[0] = heaped


@kernel
def _run(table: Tables, room: WeightRoom, state: VirtualState, activations: bool, first: int, last: int) -> int:
    """Place the first..last-th ops -> last, or NOBODY."""
    if first == 0:
        clear_room(room)
    devices = len(state.free_at)
    step = first + 1
    while step <= last:
        now = state.clock[0]
        _release(table, state)
        _open(table, room, state, activations)
        for device in range(devices):
            if state.just_ran[device] >= 0:
                _wake(table, state, state.just_ran[device], device, step)
                state.just_ran[device] = NOBODY
        best, best_start, best_device, following = NOBODY, NEVER, NOBODY, NEVER
        for device in range(devices):
            if state.free_at[device] > now:
                following = min(following, state.free_at[device])
                continue
            i, start = _propose(table, state, device, now, step)
            if i < 0:
                continue
            if start > now:
                following = min(following, start)
                continue
            earlier = best >= 0 and state.position[state.window[i]] < state.position[state.window[best]]
            if start < best_start or (start == best_start and earlier):
                best, best_start, best_device = i, start, device
        if best >= 0:
            state.order[step - 1] = _take(table, room, state, best, best_device, now)
            step += 1
        elif following < NEVER:
            state.clock[0] = following
        else:
            return NOBODY
    return last


def _solve_m_etf(search: Search) -> None:
    devices = VirtualDevices(search.problem, "m-ETF")
    offer_leaving_room(search, lambda capacity: devices.schedule(search, capacity))


def _solve_m_sct(search: Search) -> None:
    devices = VirtualDevices(search.problem, "m-SCT", favourite_children(search))
    offer_leaving_room(search, lambda capacity: devices.schedule(search, capacity))


SOLVERS = (
    Solver("m-etf", "Baechi's m-ETF: earliest task first within memory", _solve_m_etf),
    Solver("m-sct", "Baechi's m-SCT: m-ETF with favourite children from a linear program", _solve_m_sct),
)
