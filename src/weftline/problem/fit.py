"""The FitProblem: the rows of a language model on cards and a host, in bytes and ns, with the rules of an engine.

A row is a block or, last of all, the output layer. Rows of one kind are equal. A kind has parts (kv, attention, ffn,
experts ...), each with bytes and ns on every unit; a unit is one device, or a group of devices that share every matrix.
A plan cuts the rows into segments, one behind the other, each on a unit of its own; a part of a row may live on the
host although its row is a card's, if the rules say so. In: tables made from a model and devices. Out: the frozen
problem, checked, and what plans of it are made of. Simplified: equal devices are told apart by their ids alone, and
what one unit costs does not depend on which units stand beside it, but for its place (alone, first, middle, last).
"""

from __future__ import annotations

import hashlib
import json
from enum import Enum

import msgspec

from weftline.errors import InputError

__all__ = [
    "FitAnswer",
    "FitBuffers",
    "FitDevice",
    "FitObjective",
    "FitPool",
    "FitProblem",
    "FitRules",
    "FitSegment",
    "FitUnit",
    "FitUse",
    "HostRows",
    "check_fit_problem",
    "fit_hash",
]

MOST_FIT_ROWS, MOST_FIT_KINDS, MOST_FIT_PARTS, MOST_FIT_DEVICES, MOST_FIT_UNITS = 2_000, 64, 16, 256, 256
MOST_FIT_NUMBER = 10**16
"""Of every number of bytes or ns; sums of all rows stay far below 2**62."""


class HostRows(Enum):
    """Which rows may have the host as their home."""

    NONE = "none"
    FIRST = "first"
    """The first ones: what an engine leaves on the CPU."""
    ANY = "any"
    """Any one run of rows."""


class FitObjective(Enum):
    """What the time of one step is."""

    SUM = "sum"
    """One batch passes all units in turn: their times add up."""
    MAX = "max"
    """As many batches as units are under way: the step is so many times the slowest unit's time."""


class FitDevice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One card, or the host."""

    id: str
    limit_bytes: int
    """What weights, caches and buffers together may take: what the engine itself needs is already taken off."""
    host: bool = False


class FitPool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Equal devices."""

    name: str
    devices: tuple[int, ...]
    """Numbers of devices, in the order in which they are used."""


class FitBuffers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes that each device of a unit needs besides weights and caches, by the place of the unit among the cards."""

    alone: int
    """It holds the output layer, and no card stands before it."""
    first: int
    middle: int
    last: int
    """It holds the output layer."""


class FitUnit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What can hold a segment: a card, a group of cards, or the host."""

    name: str
    takes: tuple[tuple[int, int], ...]
    """(pool, how many of its devices)."""
    bytes: tuple[tuple[int, ...], ...]
    """bytes[kind][part], on each of its devices."""
    ns: tuple[tuple[int, ...], ...]
    """ns[kind][part] of one step."""
    row_ns: tuple[int, ...]
    """Of each kind: what a row costs besides its parts (launches, sums over a group)."""
    buffers: FitBuffers
    pipelined_buffers: FitBuffers
    """Where an engine keeps several batches in flight, which it does only if nothing lies on the host; not smaller."""
    trip_ns: int = 0
    """For each part of a row that lives on the host: over and back."""

    @property
    def size(self) -> int:
        """How many devices it takes."""
        return sum(count for _, count in self.takes)


class FitRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the engine can do."""

    engine: str = "any"
    host_rows: HostRows = HostRows.ANY
    moves: tuple[str, ...] = ()
    """Parts that may live on the host while their row is a card's."""
    equal_groups: bool = False
    """All units take equally many devices."""
    most_units: int | None = None
    """Cards (or groups) in a row."""
    exact_units: int | None = None
    """Exactly so many."""


class FitProblem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where does every row go, for the least time of a step within memory?"""

    name: str
    rows: tuple[int, ...]
    """Kind of each row; the last one is the output layer."""
    kinds: tuple[str, ...]
    parts: tuple[str, ...]
    devices: tuple[FitDevice, ...]
    pools: tuple[FitPool, ...]
    units: tuple[FitUnit, ...]
    hop_ns: tuple[tuple[int, ...], ...]
    """[unit][unit]: from a segment on the first to the next one on the second; it counts to the second."""
    rules: FitRules = FitRules()
    objective: FitObjective = FitObjective.SUM
    streams: int = 1
    """Tokens that one step makes."""
    base_ns: int = 0
    """Of every step, wherever the rows are."""

    @property
    def blocks(self) -> int:
        """Rows without the output layer."""
        return len(self.rows) - 1

    @property
    def host_unit(self) -> int | None:
        """The unit that is the host, if there is one."""
        return next((number for number in range(len(self.units)) if self.is_host(number)), None)

    def is_host(self, unit: int) -> bool:
        """Whether a unit is the host."""
        pool, _ = self.units[unit].takes[0]
        return self.devices[self.pools[pool].devices[0]].host

    def limit(self, unit: int) -> int:
        """Bytes on each device of a unit: as many as its smallest device has."""
        return min(
            self.devices[number].limit_bytes
            for pool, _ in self.units[unit].takes
            for number in self.pools[pool].devices
        )

    def tokens_per_second(self, step_ns: int) -> float:
        """Of a step that takes so long."""
        return self.streams * 1e9 / step_ns if step_ns else 0.0


class FitSegment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rows first..last-1 on a unit."""

    unit: int
    devices: tuple[int, ...]
    """Numbers of the devices that are this unit."""
    first: int
    last: int
    moved: tuple[tuple[int, int], ...] = ()
    """(row, part) that live on the host."""


class FitUse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one device holds."""

    device: int
    part_bytes: tuple[int, ...]
    """Of each part: rows of its own, and parts that other units moved to it."""
    buffer_bytes: int
    limit_bytes: int

    @property
    def bytes(self) -> int:
        """All together."""
        return sum(self.part_bytes) + self.buffer_bytes


class FitAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A plan, its value, and how far the best one can be."""

    segments: tuple[FitSegment, ...]
    value_ns: int
    """Of one step (`FitProblem.tokens_per_second` makes a rate of it)."""
    bound_ns: int
    """No plan that obeys the rules takes less."""
    witness: dict[str, object] | None
    """What the checker re-computes the bound from; None: nothing is proved."""
    uses: tuple[FitUse, ...]
    """One for each device of the problem, in order."""
    pipelined: bool = False
    """Whether the engine may keep several batches in flight (nothing on the host, buffers for it fit)."""
    baselines: tuple[tuple[str, int | None], ...] = ()
    """(name, value_ns); None where it does not fit."""
    free_ns: int | None = None
    """The value without the rules of the engine; None: not asked."""
    seconds: float = 0.0

    @property
    def gap(self) -> float:
        """By how much the value may lie above the best."""
        return 0.0 if self.value_ns <= self.bound_ns else (self.value_ns - self.bound_ns) / self.value_ns


def fit_hash(problem: FitProblem) -> str:
    """sha256 of the problem as it stands in files."""
    form = msgspec.to_builtins(problem)
    text = json.dumps(form, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def check_fit_problem(problem: FitProblem, where: str = "") -> FitProblem:
    """The problem itself; `InputError` for the first thing in it that cannot be."""

    def need(good: bool, what: str) -> None:
        if not good:
            raise InputError(what, where=where)

    need(1 <= len(problem.rows) <= MOST_FIT_ROWS, f"{len(problem.rows)} rows; 1 to {MOST_FIT_ROWS} can be planned")
    need(1 <= len(problem.kinds) <= MOST_FIT_KINDS, f"{len(problem.kinds)} kinds of rows")
    need(1 <= len(problem.parts) <= MOST_FIT_PARTS, f"{len(problem.parts)} parts of rows")
    need(all(0 <= kind < len(problem.kinds) for kind in problem.rows), "a row is of no kind")
    need(len(set(problem.parts)) == len(problem.parts), "two parts have one name")
    need(set(problem.rules.moves) <= set(problem.parts), "a part that may move is not among the parts")
    need(1 <= len(problem.devices) <= MOST_FIT_DEVICES, f"{len(problem.devices)} devices")
    need(len({device.id for device in problem.devices}) == len(problem.devices), "two devices have one id")
    need(sum(device.host for device in problem.devices) <= 1, "there is one host at most")
    need(all(0 <= device.limit_bytes <= MOST_FIT_NUMBER for device in problem.devices), "a limit is out of range")
    held = [number for pool in problem.pools for number in pool.devices]
    need(sorted(held) == list(range(len(problem.devices))), "every device is in exactly one pool")
    for pool in problem.pools:
        need(len({problem.devices[i].host for i in pool.devices}) == 1, f"pool {pool.name!r:.60} is empty or mixed")
        need(
            len({problem.devices[i].limit_bytes for i in pool.devices}) == 1,
            f"pool {pool.name!r:.60} is of unequal devices",
        )
    need(1 <= len(problem.units) <= MOST_FIT_UNITS, f"{len(problem.units)} units")
    for unit in problem.units:
        _check_unit(problem, unit, where)
    hops = [hop for row in problem.hop_ns for hop in row]
    square = len(problem.hop_ns) == len(problem.units) and all(len(row) == len(problem.units) for row in problem.hop_ns)
    need(square and all(0 <= hop <= MOST_FIT_NUMBER for hop in hops), "hops need a number for every pair of units")
    hosts = sum(problem.is_host(number) for number in range(len(problem.units)))
    need(hosts <= 1, "the host is one unit")
    host_used = bool(problem.rules.moves) or problem.rules.host_rows is not HostRows.NONE
    need(problem.objective is FitObjective.SUM or not host_used, "batches in turn (MAX) use no host")
    need(problem.streams >= 1 and 0 <= problem.base_ns <= MOST_FIT_NUMBER, "a number is out of range")
    for most in (problem.rules.most_units, problem.rules.exact_units):
        need(most is None or 1 <= most <= MOST_FIT_DEVICES, "a number of units is out of range")
    return problem


def _check_unit(problem: FitProblem, unit: FitUnit, where: str) -> None:
    named = f"unit {unit.name!r:.60}"
    if not unit.takes or len({pool for pool, _ in unit.takes}) < len(unit.takes):
        raise InputError(f"{named} takes devices of no pool, or of one twice", where=where)
    for pool, count in unit.takes:
        if not 0 <= pool < len(problem.pools) or not 1 <= count <= len(problem.pools[pool].devices):
            raise InputError(f"{named} takes devices that are not there", where=where)
    hosts = {problem.devices[problem.pools[pool].devices[0]].host for pool, _ in unit.takes}
    if True in hosts and unit.size != 1:
        raise InputError(f"{named}: the host is in no group", where=where)
    shape = (len(problem.kinds), len(problem.parts))
    for table in (unit.bytes, unit.ns):
        if len(table) != shape[0] or any(len(row) != shape[1] for row in table):
            raise InputError(f"{named} has a table of the wrong shape", where=where)
    buffers = [
        value
        for one in (unit.buffers, unit.pipelined_buffers)
        for value in (one.alone, one.first, one.middle, one.last)
    ]
    numbers = [*(n for table in (unit.bytes, unit.ns) for row in table for n in row), *unit.row_ns, *buffers]
    numbers.append(unit.trip_ns)
    if any(plain > several for plain, several in zip(buffers[:4], buffers[4:], strict=True)):
        raise InputError(f"{named}: buffers of several batches are smaller than those of one", where=where)
    if len(unit.row_ns) != shape[0] or not all(0 <= number <= MOST_FIT_NUMBER for number in numbers):
        raise InputError(f"{named}: a number is out of range, or missing", where=where)
