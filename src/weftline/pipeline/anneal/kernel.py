"""Simulated annealing on moves of single pieces, as one kernel that runs a given number of steps.

The target is a little below the best value. A rejected move is sometimes tried together with a move of one piece of the
receiving column. Stages of unequal devices also swap devices. The places of the pipeline are renumbered now and then in
another topological order of the quotient graph.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.pipeline.anneal.moves import (
    PieceMove,
    change_elsewhere,
    changed_energy,
    levels_of,
    settle,
    shift,
    shift_readers,
    swap_devices,
    tied_bytes,
    weigh_flat,
    weigh_links,
)
from weftline.pipeline.anneal.state import (
    COUNT_LOOSE,
    COUNT_USED,
    LINK_ENERGY,
    LOAD_DEVICE,
    LOAD_SIZE,
    MORE_LINKS,
    PLACE_COLUMN,
    WHO_COLUMN,
    WHO_LEVEL,
    PartitionState,
    largest,
    loosen_all,
    loosen_around,
    refresh,
    renumber,
    tighten,
)
from weftline.pipeline.reduce import PieceArrays
from weftline.simulate.kernels.jit import kernel
from weftline.simulate.kernels.random import below, unit

__all__ = ["Cooling", "anneal"]

RENUMBER_STEPS = 8192
"""Steps between two orders of the stages, at least."""
TARGET_SHARE = 0.998
"""Of the best value: the target."""
SWAP_STEPS = 128
"""Steps between two tries to swap devices."""
PAIR_CHANCE = 0.3
"""That a rejected move is tried together with another one."""


class Cooling(NamedTuple):
    """How many steps, from which temperature to which."""

    steps: int
    hot: float
    cold: float


@kernel
def anneal(
    board: PieceArrays,
    state: PartitionState,
    stage_devices: Indices,
    best: Indices,
    best_value: Ints,
    cooling: Cooling,
    floor: int,
    stop: Ints,
) -> int:
    """Cool over the steps -> steps done. A better state goes to `best` (device per piece) and `best_value`.

    Before and after every step, costs, bytes and energies of all columns are those of the pieces in them: what is not
    taken is taken back. So a best value is the simulator's; tests compare it with `simulate_throughput`.
    """
    list_ptr, near, cost, wire, who, readers = (
        state.list_ptr,
        state.near,
        state.cost,
        state.wire,
        state.who,
        state.readers,
    )
    loads, energy, member, loose, counts = state.loads, state.energy, state.member, state.loose, state.counts
    room, generator, stages, overlapped = state.room, state.generator, state.stages, board.overlapped
    kind, transfer, limit = state.kind, state.transfer, board.stage_limit
    flat, tied, unequal = board.flat, len(state.tied) > 0, len(state.column_time) > 0
    special, hosts, bytes_at = tied or unequal or not flat, len(loads) - stages, cost.shape[1] - 1
    target = max(float(floor), 1.0, TARGET_SHARE * best_value[0])
    total = refresh(board, state, target)
    loosen_all(state)
    steps, temperature = cooling.steps, cooling.hot
    factor = (cooling.cold / cooling.hot) ** (256.0 / max(1, steps))
    often = max(RENUMBER_STEPS, (4 * len(who) + 255) // 256 * 256)
    swap = SWAP_STEPS if flat else max(4 * SWAP_STEPS, len(board.maker))
    bar = 0.0603 * len(loads)
    moved, came_from, old_level = 0, 0, 0  # the first of two moves
    first_a, first_b = 0.0, 0.0
    for step in range(steps):
        # Now and then: cool, look at the flag, renumber the places of the pipeline.
        if step & 255 == 0 and step > 0:
            temperature *= factor
            if step & 4095 == 0 and stop[0] != 0:
                return step
            if step % often == 0:
                renumber(board, state)
                loosen_all(state)
                total = refresh(board, state, target)
        improved = False
        if unequal and step % swap == 0:
            improved = swap_devices(board, state, stage_devices, target, temperature)
            if improved:
                total = refresh(board, state, target)
        else:
            # Move a loose piece, perhaps with one of the column that it enters.
            if counts[COUNT_LOOSE] == 0:
                continue
            p = int(loose[below(generator, counts[COUNT_LOOSE])])
            change, made = 0.0, 0
            while True:
                low, high = levels_of(list_ptr, near, who, p, 2 * stages)
                if hosts == 0:
                    low, high = low >> 1, min(high, 2 * stages - 1) >> 1
                    if low >= high:
                        if made == 0:
                            tighten(who, loose, counts, p)
                        break
                    place = low + below(generator, high - low)
                    if place >= who[p, WHO_LEVEL] >> 1:
                        place += 1
                    level = 2 * place + 1
                    b = loads[place, PLACE_COLUMN]
                else:
                    if low >= high and hosts < 2:
                        if made == 0:
                            tighten(who, loose, counts, p)
                        break
                    level = low + below(generator, high - low + 1)
                    b = loads[level >> 1, PLACE_COLUMN] if level & 1 else int(stages + below(generator, hosts))
                a = int(who[p, WHO_COLUMN])
                if a == b:
                    if level != who[p, WHO_LEVEL] and made == 0:
                        who[p, WHO_LEVEL] = level
                        loosen_around(list_ptr, near, who, loose, counts, p)
                    break
                time = cost[p, loads[b, LOAD_DEVICE]]
                more = (1 if loads[b, LOAD_SIZE] == 0 else 0) - (1 if loads[a, LOAD_SIZE] == 1 else 0)
                if time < 0 or counts[COUNT_USED] + more > limit:
                    break
                between = (p, a, b)
                if flat:
                    weigh_flat(list_ptr, near, wire, readers, who, loads, between)
                else:
                    counts[MORE_LINKS] = weigh_links(list_ptr, near, kind, transfer, readers, who, loads, between)
                gone, come = cost[p, bytes_at], cost[p, bytes_at]
                if tied:
                    gone += tied_bytes(board, state, p, a, 1)
                    come += tied_bytes(board, state, p, b, 0)
                own = cost[p, loads[a, LOAD_DEVICE]]
                energy_a = changed_energy(loads, room, a, -own, -gone, a < stages, overlapped, target)
                energy_b = changed_energy(loads, room, b, time, come, b < stages, overlapped, target)
                change += energy_a - energy[a] + energy_b - energy[b]
                if not flat:
                    change += LINK_ENERGY * counts[MORE_LINKS]
                    change += change_elsewhere(loads, room, energy, a, b, stages, overlapped, target)
                taken = change <= 0.0 or unit(generator) < np.exp(-change / temperature)
                if not taken and (made == 1 or loads[b, LOAD_SIZE] == 0 or unit(generator) >= PAIR_CHANCE):
                    break
                if made == 0:
                    moved, came_from, old_level = p, a, int(who[p, WHO_LEVEL])
                    first_a, first_b = energy[b], energy[a]  # as seen on the path back
                made += 1
                move = PieceMove(p, a, b, level, gone, come)
                shift(cost, who, loads, member, counts, move)
                shift_readers(list_ptr, near, readers, move)
                energy[a], energy[b] = energy_a, energy_b
                if special:
                    settle(board, state, move, target)
                if taken:
                    loosen_around(list_ptr, near, who, loose, counts, moved)
                    loosen_around(list_ptr, near, who, loose, counts, p)
                    total += change
                    made = 0
                    improved = True
                    break
                p = int(member[b, below(generator, loads[b, LOAD_SIZE])])
                if p == moved:
                    break
            # Take the first of two moves back.
            if made == 1:
                p, b = moved, came_from
                a = int(who[p, WHO_COLUMN])
                between = (p, a, b)
                if flat:
                    weigh_flat(list_ptr, near, wire, readers, who, loads, between)
                else:
                    counts[MORE_LINKS] = weigh_links(list_ptr, near, kind, transfer, readers, who, loads, between)
                gone, come = cost[p, bytes_at], cost[p, bytes_at]
                if tied:
                    gone += tied_bytes(board, state, p, a, 1)
                    come += tied_bytes(board, state, p, b, 0)
                move = PieceMove(p, a, b, old_level, gone, come)
                shift(cost, who, loads, member, counts, move)
                shift_readers(list_ptr, near, readers, move)
                energy[a], energy[b] = first_a, first_b
                if special:
                    settle(board, state, move, target)
        # Is it the best so far?
        if improved and total < bar:
            value = largest(loads, room, counts, stages, overlapped)
            if 0 <= value < best_value[0]:
                for p in range(len(best)):
                    best[p] = loads[who[p, WHO_COLUMN], LOAD_DEVICE]
                best_value[0] = value
                if value <= floor:
                    return step
                target = max(float(floor), 1.0, TARGET_SHARE * value)
                total = refresh(board, state, target)
    return steps
