"""The exact model for equal stage devices, in CP-SAT: at which level of the pipeline does each piece stand?

Levels are the stages in their order; where there are host devices, a host slot lies before, between and behind them
(levels 0, 2, 4...). z[v, l] says that piece v stands at level l or before; it is monotone in l and along edges. A
tensor costs a stage its time if maker and readers do not all stand inside it or all outside it. Only levels that a
piece can have below the target are in the model: what must come before it needs room, and so does what comes behind.
All costs are divided by `scale` and rounded down, so that the bound of the model, times `scale`, holds for the problem.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.pipeline.pieces import Pieces
from weftline.simulate.kernels.jit import kernel

__all__ = ["EqualModel", "build_equal_model", "keep_order", "place_on_levels", "work_before"]

MOST_PIECES = 20_000
"""Above it only the longest chains are counted: the sets of all ancestors would take too much memory."""


def work_before(pieces: Pieces, work: Ints) -> tuple[Ints, Ints]:
    """(P,) work of all ancestors of each piece, and of all its descendants (itself not counted)."""
    order = np.arange(len(work), dtype=np.int32)
    if len(work) > MOST_PIECES:
        return _chain(*pieces.before, order, work), _chain(pieces.next_ptr, pieces.next_of, order[::-1].copy(), work)
    before = _reached(*pieces.before, order, work)
    return before, _reached(pieces.next_ptr, pieces.next_of, order[::-1].copy(), work)


@kernel
def _reached(pointer: Indices, row: Indices, order: Indices, work: Ints) -> Ints:
    """Sum of work over everything that is reached through the rows."""
    n = len(work)
    words = (n + 63) // 64
    bits = np.zeros((n, words), np.uint64)
    total = np.zeros(n, np.int64)
    for v in order:
        for e in range(pointer[v], pointer[v + 1]):
            u = row[e]
            for word in range(words):
                bits[v, word] |= bits[u, word]
            bits[v, u >> 6] |= np.uint64(1) << np.uint64(u & 63)
        for word in range(words):
            rest = bits[v, word]
            while rest:
                low = rest & (~rest + np.uint64(1))
                position = 0
                while (low >> np.uint64(position)) != np.uint64(1):
                    position += 1
                total[v] += work[word * 64 + position]
                rest ^= low
    return total


@kernel
def _chain(pointer: Indices, row: Indices, order: Indices, work: Ints) -> Ints:
    """The largest work of a chain that is reached through the rows."""
    total = np.zeros(len(work), np.int64)
    for v in order:
        for e in range(pointer[v], pointer[v + 1]):
            total[v] = max(total[v], total[row[e]] + work[row[e]])
    return total


@dataclass(frozen=True, eq=False)
class EqualModel:
    """A CP-SAT model and how to read its solutions."""

    model: Any
    scale: int
    pieces: Pieces
    at: dict[tuple[int, int], Any]
    """(piece, level) -> true if the piece stands there."""
    host_of: dict[tuple[int, int], Any]
    """(piece, host device) -> true if it stands on that host."""
    stage_of_level: dict[int, int]

    def exclude(self, device: int, held: Indices) -> None:
        """No stage may hold exactly these pieces, nor that host."""
        inside = set(held.tolist())
        if self.pieces.problem.host[device]:
            mine = _column(self.host_of, device)
            self.model.add_bool_or([~literal if v in inside else literal for v, literal in mine.items()])
            return
        for level in self.stage_of_level:
            here = _column(self.at, level)
            if inside <= here.keys():
                self.model.add_bool_or([~literal if v in inside else literal for v, literal in here.items()])

    def placement(self, true: Any) -> Indices:
        """Device of each piece in a solution; `true(variable)` gives a variable's value."""
        devices = self.pieces.stage_devices
        chosen = np.zeros(len(self.pieces.time), np.int32)
        for (piece, level), here in self.at.items():
            if level in self.stage_of_level and true(here):
                chosen[piece] = devices[self.stage_of_level[level]]
        for (piece, host), here in self.host_of.items():
            if true(here):
                chosen[piece] = host
        return chosen


def build_equal_model(pieces: Pieces, target: int, scale: int, room: Ints) -> EqualModel | None:
    """All pipelines with a value below `target`; None if some piece has no level left, so that there are none."""
    from ortools.sat.python import cp_model

    problem, model = pieces.problem, cp_model.CpModel()
    stages = min(problem.stage_limit, len(pieces.stage_devices))
    hosts = np.flatnonzero(problem.host).tolist()
    stage_levels = [2 * b + 1 for b in range(stages)] if hosts else list(range(stages))
    levels = 2 * stages + 1 if hosts else stages
    device = pieces.stage_devices[0]
    low, high = _windows(pieces, target, stages, levels, bool(hosts))
    if (low > high).any():
        return None
    limit = max(0, (target - 1) // scale)
    longest = model.new_int_var(0, limit, "")
    at, up_to = place_on_levels(model, low, high)
    keep_order(model, pieces, up_to, low, high)
    host_of = _hosts(model, pieces, at, stage_levels, hosts)
    for v in range(len(pieces.time)):
        if pieces.time[v, device] < 0:
            for level in stage_levels:
                if (v, level) in at:
                    model.add(at[v, level] == 0)
    for first, *others in pieces.same:
        for v in others:
            for choices, places in ((at, stage_levels), (host_of, hosts)):
                for place in places:
                    model.add(choices.get((first, place), 0) == choices.get((v, place), 0))
    work = np.maximum(pieces.time[:, device], 0) // scale
    _stage_loads(model, pieces, at, stage_levels, work, scale, longest)
    if not hosts and stages >= 3:
        _prefix_loads(model, up_to, work, low, high, stages, longest)
    for host in hosts:
        times = np.maximum(pieces.time[:, host], 0) // scale
        model.add(sum(int(times[v]) * here for (v, h), here in host_of.items() if h == host) <= longest)
    _memory(model, pieces, at, host_of, stage_levels, room)
    _stage_limit(model, pieces, at, host_of, stage_levels, hosts)
    model.minimize(longest)
    return EqualModel(model, scale, pieces, at, host_of, {level: b for b, level in enumerate(stage_levels)})


def _windows(pieces: Pieces, target: int, stages: int, levels: int, hosts: bool) -> tuple[Ints, Ints]:
    """Lowest and highest level of each piece: the work that must come before needs so many stages below the target."""
    count = len(pieces.time)
    if hosts:  # work may go to a host, so nothing is known
        return np.zeros(count, np.int64), np.full(count, levels - 1, np.int64)
    work = np.maximum(pieces.time[:, pieces.stage_devices[0]], 0)
    before, behind = work_before(pieces, work)
    full = max(1, target - 1)
    low = -(-(before + work) // full) - 1
    high = stages - -(-(behind + work) // full)
    return np.maximum(low, 0), np.minimum(high, stages - 1)


def place_on_levels(model: Any, low: Ints, high: Ints) -> tuple[dict[tuple[int, int], Any], dict[tuple[int, int], Any]]:
    """`at[v, l]` and `up_to[v, l]` for low <= l < high; exactly one level each."""
    at, up_to = {}, {}
    for v, (first, last) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        for level in range(first, last):
            up_to[v, level] = model.new_bool_var("")
        if first == last:
            at[v, first] = model.new_constant(1)
            continue
        at[v, first], at[v, last] = up_to[v, first], ~up_to[v, last - 1]
        for level in range(first + 1, last):
            here, now, earlier = model.new_bool_var(""), up_to[v, level], up_to[v, level - 1]
            at[v, level] = here
            model.add_implication(earlier, now)
            model.add_bool_or(~now, earlier, here)
            model.add_implication(here, now)
            model.add_implication(here, ~earlier)
    return at, up_to


def keep_order(model: Any, pieces: Pieces, up_to: dict[tuple[int, int], Any], low: Ints, high: Ints) -> None:
    """An edge never goes to an earlier level."""
    for u, v in zip(*(side.tolist() for side in pieces.edges), strict=True):
        for level in range(int(low[v]), int(high[v])):  # v up to level => u up to level
            if (u, level) in up_to:
                model.add_implication(up_to[v, level], up_to[u, level])
            elif level < low[u]:
                model.add(up_to[v, level] == 0)
        for level in range(int(high[v]), int(high[u])):  # v is certainly up to level
            model.add(up_to[u, level] == 1)


def _hosts(
    model: Any, pieces: Pieces, at: dict[tuple[int, int], Any], stage_levels: list[int], hosts: list[int]
) -> dict[tuple[int, int], Any]:
    """A piece in a host slot stands on one of the hosts that can run it."""
    found: dict[tuple[int, int], Any] = {}
    if not hosts:
        return found
    on_stage = set(stage_levels)
    slots: list[list[Any]] = [[] for _ in pieces.time]
    for (v, level), here in at.items():
        if level not in on_stage:
            slots[v].append(here)
    for v in range(len(pieces.time)):
        able = [h for h in hosts if pieces.time[v, h] >= 0]
        found |= {(v, h): model.new_bool_var("") for h in able}
        model.add(sum(found[v, h] for h in able) == sum(slots[v]))
    return found


def _stage_loads(
    model: Any,
    pieces: Pieces,
    at: dict[tuple[int, int], Any],
    stage_levels: list[int],
    work: Ints,
    scale: int,
    longest: Any,
) -> None:
    """Compute and transfers of every stage."""
    overlapped = pieces.problem.rules.communication == "overlapped"
    cost = (pieces.transfer_time // scale).tolist()
    compute: dict[int, list[Any]] = {level: [] for level in stage_levels}
    enters: dict[int, list[Any]] = {level: [] for level in stage_levels}
    leaves: dict[int, list[Any]] = {level: [] for level in stage_levels}
    for (v, level), here in at.items():
        if level in compute and work[v]:
            compute[level].append(int(work[v]) * here)
    for t, maker in enumerate(pieces.maker.tolist()):
        if cost[t] == 0:
            continue
        readers = pieces.reader_of[pieces.reader_ptr[t] : pieces.reader_ptr[t + 1]].tolist()
        for level in stage_levels:
            made = at.get((maker, level))
            read = [at.get((q, level)) for q in readers]
            if made is None and not any(here is not None for here in read):
                continue
            if made is not None:
                leaving = model.new_bool_var("")
                for here in read:
                    model.add_bool_or([~made, leaving] if here is None else [~made, here, leaving])
                leaves[level].append(cost[t] * leaving)
            if any(here is not None for here in read):
                entering = leaving if made is not None and not overlapped else model.new_bool_var("")
                for here in read:
                    if here is not None:
                        model.add_bool_or([~here, entering] if made is None else [~here, made, entering])
                if made is None or overlapped:
                    enters[level].append(cost[t] * entering)
    for level in stage_levels:
        if overlapped:
            for part in (compute, enters, leaves):
                model.add(sum(part[level]) <= longest)
        else:
            model.add(sum(compute[level]) + sum(enters[level]) + sum(leaves[level]) <= longest)


def _prefix_loads(
    model: Any, up_to: dict[tuple[int, int], Any], work: Ints, low: Ints, high: Ints, stages: int, longest: Any
) -> None:
    """Implied: the first l + 1 stages hold at most l + 1 times the longest, and so do the stages behind them."""
    total = int(work.sum())
    for level in range(stages - 1):
        sure = int(work[high <= level].sum())
        terms = [int(work[v]) * up_to[v, level] for v in np.flatnonzero((low <= level) & (high > level)).tolist()]
        model.add(sum(terms) + sure <= (level + 1) * longest)
        model.add(total - sure - sum(terms) <= (stages - 1 - level) * longest)


def _memory(
    model: Any,
    pieces: Pieces,
    at: dict[tuple[int, int], Any],
    host_of: dict[tuple[int, int], Any],
    stage_levels: list[int],
    room: Ints,
) -> None:
    """What is held all the time fits. (Live activations are the simulator's affair.)"""
    problem = pieces.problem
    tied = [(sorted({int(pieces.of[op]) for op in entry.ops}), entry.bytes) for entry in problem.graph.tied]
    everything = int(pieces.weight.sum()) + sum(size for _, size in tied)
    first = pieces.stage_devices[0]
    groups = [(int(room[first]), _column(at, level)) for level in stage_levels]
    groups += [(int(room[h]), _column(host_of, h)) for h in sorted({host for _, host in host_of})]
    for limit, here in groups:
        if limit >= everything:
            continue
        held = [int(pieces.weight[v]) * choice for v, choice in here.items() if pieces.weight[v]]
        for members, size in tied:
            kept = model.new_bool_var("")
            for v in members:
                if v in here:
                    model.add_implication(here[v], kept)
            held.append(size * kept)
        model.add(sum(held) <= limit)


def _stage_limit(
    model: Any,
    pieces: Pieces,
    at: dict[tuple[int, int], Any],
    host_of: dict[tuple[int, int], Any],
    stage_levels: list[int],
    hosts: list[int],
) -> None:
    """Hosts count as stages too: matters only where not all devices may be used."""
    limit = pieces.problem.stage_limit
    if not hosts or limit >= len(stage_levels) + len(hosts):
        return
    used = []
    for column in [*(_column(at, level) for level in stage_levels), *(_column(host_of, host) for host in hosts)]:
        used.append(model.new_bool_var(""))
        for here in column.values():
            model.add_implication(here, used[-1])
    model.add(sum(used) <= limit)


def _column(choices: dict[tuple[int, int], Any], place: int) -> dict[int, Any]:
    """Piece -> its variable for one level or host."""
    return {v: here for (v, where), here in choices.items() if where == place}
