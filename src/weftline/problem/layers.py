"""The LayerProblem: equal steps of a model ("layers"), and devices whose rate depends on how many of them they hold.

The second capacity model of fleets, for language models that are served: no op times, but tables. A unit that holds k
layers serves at most rates[k - 1] (its room for caches is inside the table). A unit is one device, or a group of `size`
equal devices of one pool that work as one. Links and ports (what enters or leaves a device) have capacities; without
`links` every device reaches every other one and nothing limits it. In: JSON of untrusted files. Out: the frozen
problem, checked. All rates are whole numbers, units (tokens, inputs) per million seconds, rounded down.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec

from weftline.errors import InputError
from weftline.files import unchanged
from weftline.plugins import registered

__all__ = [
    "RATE_SCALE",
    "SINK_NODE",
    "SOURCE_NODE",
    "DevicePool",
    "LayerInstance",
    "LayerLane",
    "LayerProblem",
    "LayerReader",
    "LayerUnit",
    "check_layers",
    "layers_hash",
    "read_layers",
]

RATE_SCALE = 10**6
"""Rates are whole numbers of units (tokens, inputs) per million seconds."""

SOURCE_NODE, SINK_NODE = -1, -2
"""Ends of links where inputs come from and answers go to."""
MOST_TOGETHER = 2**60
MOST_LAYERS, MOST_DEVICES, MOST_LINKS, MOST_RATE = 10_000, 100_000, 4_000_000, 10**15


class DevicePool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Equal devices: they are told apart by their links alone."""

    name: str
    count: int
    names: tuple[str, ...] = ()
    """Of each device; empty: NAME#0, NAME#1 ..."""


class LayerUnit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What can hold layers: one device of a pool, or a group of them."""

    name: str
    pool: int
    rates: tuple[int, ...]
    """rates[k - 1]: the most that it serves while it holds k layers; it cannot hold more than there are entries."""
    size: int = 1
    """Devices of the pool that one unit takes."""


class LayerInstance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A unit that holds layers first..last-1."""

    unit: int
    devices: tuple[int, ...]
    """Numbers of the devices that work as this unit."""
    first: int
    last: int

    @property
    def held(self) -> int:
        """Number of layers."""
        return self.last - self.first


class LayerLane(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A way of requests through the instances."""

    rate: int
    hops: tuple[tuple[int, int, int], ...]
    """(instance, first layer, last layer + 1); together they are all layers."""


class LayerProblem(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="layers", tag_field="kind", dict=True):
    """Which layers does every device hold, and which way does each request go, for the highest rate?"""

    name: str
    layers: int
    pools: tuple[DevicePool, ...]
    units: tuple[LayerUnit, ...]
    links: tuple[tuple[int, int, int], ...] | None = None
    """(from, to, rate): directed, numbers of devices (pool after pool) or SOURCE_NODE, SINK_NODE; absent = no link."""
    ports: tuple[tuple[int, int], ...] | None = None
    """Of each device: the most that enters it and that leaves it."""
    partial: bool = False
    """Whether a request may use only a part of the layers that an instance holds."""
    max_depth: int | None = None
    """The most instances on the way of a request."""
    max_copies: int | msgspec.UnsetType = msgspec.UNSET
    """The most instances that hold a layer; absent: no limit."""

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Number of the first device of each pool, and of one behind the last."""
        return (0, *accumulate(pool.count for pool in self.pools))

    @cached_property
    def pool_of(self) -> tuple[int, ...]:
        """Of every device."""
        return tuple(number for number, pool in enumerate(self.pools) for _ in range(pool.count))

    @cached_property
    def units_of(self) -> tuple[tuple[int, ...], ...]:
        """Numbers of the units of every pool."""
        found: list[list[int]] = [[] for _ in self.pools]
        for number, unit in enumerate(self.units):
            found[unit.pool].append(number)
        return tuple(map(tuple, found))

    @property
    def depth_limit(self) -> int:
        """The most instances in a row; no lane has more than there are layers or devices."""
        most = min(self.layers, self.offsets[-1])
        return most if self.max_depth is None else min(most, self.max_depth)

    @property
    def copies_limit(self) -> int:
        """The most instances that hold a layer; there are no more than devices."""
        most = self.offsets[-1]
        return most if self.max_copies is msgspec.UNSET else min(most, self.max_copies)

    def device_names(self) -> list[str]:
        """All devices, pool after pool."""
        return [name for pool in self.pools for name in pool.names or (f"{pool.name}#{i}" for i in range(pool.count))]

    def rate(self, unit: int, layers: int) -> int:
        """Of a unit that holds so many layers; 0 where it cannot."""
        rates = self.units[unit].rates
        return rates[layers - 1] if 1 <= layers <= len(rates) else 0


def check_layers(problem: LayerProblem, where: str = "") -> LayerProblem:
    """The problem itself; `InputError` for the first thing in it that cannot be."""

    def need(good: bool, what: str) -> None:
        if not good:
            raise InputError(what, where=where)

    need(1 <= problem.layers <= MOST_LAYERS, f"{problem.layers} layers; 1 to {MOST_LAYERS} can be planned")
    need(bool(problem.pools) and bool(problem.units), "there must be devices, and tables of their rates")
    for pool in problem.pools:
        need(1 <= pool.count <= MOST_DEVICES, f"pool {pool.name!r:.60} has {pool.count} devices")
        need(len(pool.names) in (0, pool.count), f"pool {pool.name!r:.60}: a name for every device, or none")
    need(problem.offsets[-1] <= MOST_DEVICES, f"more than {MOST_DEVICES} devices")
    names = problem.device_names()
    need(len(set(names)) == len(names), "two devices have one name")
    for unit in problem.units:
        need(0 <= unit.pool < len(problem.pools), f"unit {unit.name!r:.60} is of no pool")
        need(
            1 <= unit.size <= problem.pools[unit.pool].count,
            f"unit {unit.name!r:.60} needs too many devices",
        )
        need(len(unit.rates) >= 1, f"unit {unit.name!r:.60} has no table")
        need(all(0 <= rate <= MOST_RATE for rate in unit.rates), f"unit {unit.name!r:.60}: a rate is out of range")
    together = sum(problem.pools[unit.pool].count * max(unit.rates[: problem.layers]) for unit in problem.units)
    need(together <= MOST_TOGETHER, "the rates of all devices together are too large")
    need(len({unit.name for unit in problem.units}) == len(problem.units), "two units have one name")
    need(problem.max_depth is None or 1 <= problem.max_depth <= MOST_LAYERS, f"max_depth is 1 to {MOST_LAYERS}")
    need(problem.max_copies is msgspec.UNSET or 1 <= problem.max_copies <= MOST_DEVICES, "max_copies is 1 or more")
    _check_links(problem, where)
    return problem


def _check_links(problem: LayerProblem, where: str) -> None:
    last = problem.offsets[-1] - 1
    single = all(unit.size == 1 for unit in problem.units)
    if problem.links is not None:
        if not single:
            raise InputError("links are between devices, so groups cannot have them", where=where)
        if len(problem.links) > MOST_LINKS:
            raise InputError(f"more than {MOST_LINKS} links", where=where)
        if len({link[:2] for link in problem.links}) < len(problem.links):
            raise InputError("a link stands twice", where=where)
        for source, target, rate in problem.links:
            ends = SOURCE_NODE <= source <= last and (target == SINK_NODE or 0 <= target <= last) and source != target
            if source == SINK_NODE or not ends or not 0 <= rate <= MOST_RATE:
                raise InputError(f"link {[source, target, rate]} joins no two devices, or has no rate", where=where)
    if problem.ports is not None:
        if not single or len(problem.ports) != last + 1:
            raise InputError("ports are of single devices, two rates for each", where=where)
        if not all(0 <= rate <= MOST_RATE for both in problem.ports for rate in both):
            raise InputError("a rate of a port is out of range", where=where)


def layers_hash(problem: LayerProblem) -> str:
    """sha256 of the problem as it stands in files."""
    form = msgspec.to_builtins(problem)
    text = json.dumps(form, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


class LayerReader(msgspec.Struct, frozen=True):
    """One format of files that hold a LayerProblem."""

    name: str
    description: str
    accepts: Callable[[bytes], bool]
    """Does a file that begins with (or is) these bytes look like the format? Quick, and never raises."""
    read: Callable[[bytes, str], LayerProblem]
    """(content, name of the file)"""


MAX_LAYER_BYTES = 256 * 2**20
MARK = b'"weftline-layers"'


def _read_own(data: bytes, name: str) -> LayerProblem:
    form: Any = msgspec.json.decode(data)
    if not isinstance(form, dict) or form.pop("format", None) != "weftline-layers" or form.pop("version", None) != 1:
        raise InputError("not version 1 of weftline-layers")
    return msgspec.convert({"name": name, "kind": "layers", **form}, LayerProblem)


def read_layers(path: Path | str) -> tuple[LayerProblem, str] | None:
    """(problem, sha256 of the file) where a file holds layers on devices with tables, in any format; None otherwise."""
    path = Path(path)
    try:
        if not path.is_file() or path.stat().st_size > MAX_LAYER_BYTES:
            return None
        with path.open("rb") as file:
            if file.read(256).lstrip()[:1] != b"{":
                return None
        own = LayerReader("weftline-layers", "layers on devices with tables of rates", lambda d: MARK in d, _read_own)
        with unchanged(path):
            data = path.read_bytes()
        for reader in registered("weftline.layers", [own]).values():
            if reader.accepts(data):
                return check_layers(reader.read(data, path.stem), str(path)), hashlib.sha256(data).hexdigest()
    except InputError as error:
        if error.where == str(path):
            raise
        raise error.at(str(path)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, MemoryError, OSError) as error:
        raise InputError(f"cannot be read as layers on devices: {error}", where=str(path)) from error
    return None
