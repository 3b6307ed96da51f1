"""Problem and Rules: what is asked, in one immutable value; and its canonical JSON, the form that plans embed.

In the file repeated rows of costs stand once, and -1 is absent.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from weftline.cluster import Device
from weftline.cluster.rules import LEAST_SPEED
from weftline.cost import CostTable
from weftline.cost.table import check_table_size, distinct_rows
from weftline.errors import InputError
from weftline.graph import Graph, assemble
from weftline.graph.arrays import Indices, Ints
from weftline.lazy import notebook_html
from weftline.units import MAX_QUANTITY

__all__ = [
    "NO_LIMIT",
    "PROBLEM_FORMAT",
    "Problem",
    "ProblemFile",
    "Rules",
    "problem_from_file",
    "problem_from_json",
    "problem_hash",
    "problem_to_file",
    "problem_to_json",
]

NO_LIMIT = 2**62
"""Capacity of a device without a memory limit."""


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which of the meanings of time and memory apply."""

    objective: Literal["latency", "throughput"] = "latency"
    runtime: Literal["parallel", "sequential"] = "parallel"
    """Latency: devices work at the same time, or sub-graphs run one after another."""
    transfers: Literal["per-tensor", "per-edge"] = "per-tensor"
    """Latency: a tensor is sent once per destination device, or once per consumer."""
    communication: Literal["added", "overlapped"] = "added"
    """Throughput: a stage's transfers add to its compute, or hide behind it (double buffering)."""
    memory: Literal["dynamic", "static"] = "dynamic"
    """Weights + peak of live activations + workspace, or the plain sum of op memory."""
    stages: int = 0
    """Throughput: at most so many devices may be used; 0 = all of them."""


@dataclass(frozen=True, eq=False)
class Problem:
    """One question. n ops, m tensors, K devices."""

    graph: Graph
    devices: tuple[Device, ...]
    cost: CostTable
    rules: Rules = field(default_factory=Rules)
    together: tuple[tuple[int, ...], ...] = ()
    """Disjoint sets of two or more ops that must share a device."""
    buses: tuple[tuple[int, int, str], ...] = ()
    """(from device, to device, bus name): transfers over one bus exclude each other."""

    def __post_init__(self) -> None:
        n, m, k = len(self.graph.ops), len(self.graph.tensors), len(self.devices)
        if self.cost.time.shape != (n, k) or self.cost.transfer_row.shape != (m,):
            raise InputError(f"the costs do not fit {n} ops, {m} tensors and {k} devices")
        if len({device.id for device in self.devices}) < k:
            raise InputError("two devices have the same id")
        members = [op for group in self.together for op in group]
        if any(not 0 <= op < n for op in members) or len(set(members)) < len(members):
            raise InputError("must be disjoint sets of existing ops", where="together")
        if any(len(group) < 2 or list(group) != sorted(group) for group in self.together):
            raise InputError("a set has two or more ops, ascending", where="together")
        if any(not (0 <= a < k and 0 <= b < k) for a, b, _ in self.buses):
            raise InputError("a bus refers to a device that does not exist", where="buses")
        if len({(a, b) for a, b, _ in self.buses}) < len(self.buses):
            raise InputError("a link stands on two buses", where="buses")
        if not 0 <= self.rules.stages <= k:
            raise InputError(f"stages = {self.rules.stages!s:.30} does not fit {k} devices", where="rules.stages")

    @property
    def stage_limit(self) -> int:
        """How many devices a pipeline may use."""
        return self.rules.stages or len(self.devices)

    @cached_property
    def capacity(self) -> Ints:
        """Bytes each device can hold."""
        limits = [NO_LIMIT if device.capacity is None else device.capacity for device in self.devices]
        return np.array(limits, np.int64)

    @cached_property
    def host(self) -> NDArray[np.bool_]:
        """Devices whose memory is where tensors rest."""
        return np.array([device.host for device in self.devices], np.bool_)

    @cached_property
    def bus(self) -> Indices:
        """(K, K): number of the shared bus of a link, -1 = none."""
        names = sorted({name for _, _, name in self.buses})
        table = np.full((len(self.devices), len(self.devices)), -1, np.int32)
        for a, b, name in self.buses:
            table[a, b] = names.index(name)
        return table

    @cached_property
    def group(self) -> Indices:
        """(n,): number of the `together` set of an op; ops outside any set have a number of their own."""
        number = np.full(len(self.graph.ops), -1, np.int32)
        for g, members in enumerate(self.together):
            number[list(members)] = g
        alone = np.flatnonzero(number < 0)
        number[alone] = len(self.together) + np.arange(len(alone))
        return number

    @cached_property
    def device_index(self) -> dict[str, int]:
        """Device id -> index."""
        return {device.id: i for i, device in enumerate(self.devices)}

    def with_rules(self, rules: Rules) -> Problem:
        """The same problem under other rules; itself where they are the same, so that what is known of it stays."""
        return self if rules == self.rules else replace(self, rules=rules)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return notebook_html(self)

    def __repr__(self) -> str:
        return f"Problem({self.graph.name!r}, {len(self.graph.ops)} ops, {len(self.devices)} devices, {self.rules})"


PROBLEM_FORMAT = "weftline-problem"
DEVICE_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


class DeviceFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A device as a plan needs to know it."""

    id: str
    kind: str
    capacity: int | None = None
    """Bytes it can hold, reserve already taken off; null = no limit."""
    host: bool = False
    runtime: str = ""
    speed: float | msgspec.UnsetType = msgspec.UNSET
    """`Device.speed` where it is not 1; the times of the file have it in them."""

    @classmethod
    def of(cls, device: Device) -> DeviceFile:
        """What a file says of a device."""
        speed = msgspec.UNSET if device.speed == 1 else device.speed
        return cls(device.id, device.kind, device.capacity, device.host, device.runtime, speed)

    def device(self) -> Device:
        """The other way round."""
        speed = 1.0 if isinstance(self.speed, msgspec.UnsetType) else self.speed
        return Device(self.id, self.kind, self.capacity, runtime=self.runtime, host=self.host, speed=speed)


class ProblemFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON form."""

    format: Literal["weftline-problem"]
    version: Literal[1]
    graph: Graph
    devices: tuple[DeviceFile, ...]
    time_rows: tuple[tuple[int, ...], ...]
    """Distinct rows of op times, one entry per device."""
    time_row: tuple[int, ...]
    """Op -> row of `time_rows`."""
    transfer_rows: tuple[tuple[int, ...], ...]
    """Distinct transfer matrices, K * K entries each, row = from."""
    transfer_row: tuple[int, ...]
    """Tensor -> row of `transfer_rows`."""
    together: tuple[tuple[int, ...], ...]
    buses: tuple[tuple[int, int, str], ...]
    rules: Rules
    cost_source: str


def problem_to_file(problem: Problem) -> ProblemFile:
    """Flatten."""
    time_rows, time_row = distinct_rows(problem.cost.time)
    flat = problem.cost.transfer.reshape(len(problem.cost.transfer), len(problem.devices) ** 2)
    used = flat[problem.cost.transfer_row] if len(problem.cost.transfer_row) else flat[:0]
    transfer_rows, transfer_row = distinct_rows(used)
    return ProblemFile(
        format="weftline-problem",
        version=1,
        graph=problem.graph,
        devices=tuple(DeviceFile.of(device) for device in problem.devices),
        time_rows=_tuples(time_rows),
        time_row=tuple(time_row.tolist()),
        transfer_rows=_tuples(transfer_rows),
        transfer_row=tuple(transfer_row.tolist()),
        together=problem.together,
        buses=problem.buses,
        rules=problem.rules,
        cost_source=problem.cost.source,
    )


def problem_from_file(file: ProblemFile) -> Problem:
    """Check and build."""
    graph = assemble(file.graph.name, file.graph.ops, file.graph.tensors, file.graph.tied)
    if any(a.name != b.name for a, b in zip(graph.ops, file.graph.ops, strict=True)):
        raise InputError("the ops of a problem file must be in topological order", where="graph.ops")
    k = len(file.devices)
    check_table_size(len(file.time_row), len(file.transfer_rows), k)
    _check_devices(file.devices)
    time = _rows(file.time_rows, file.time_row, k, "time_rows")[list(file.time_row)]
    transfer = _rows(file.transfer_rows, file.transfer_row, k * k, "transfer_rows").reshape(-1, k, k)
    return Problem(
        graph=graph,
        devices=tuple(device.device() for device in file.devices),
        cost=CostTable(time, transfer, np.array(file.transfer_row, np.int32), file.cost_source),
        rules=file.rules,
        together=file.together,
        buses=file.buses,
    )


def problem_to_json(problem: Problem) -> bytes:
    """The canonical bytes of a problem."""
    return msgspec.json.encode(problem_to_file(problem))


def problem_hash(file: ProblemFile) -> str:
    """sha256 of the canonical form, which the checker re-computes with the standard library."""
    return hashlib.sha256(canonical(msgspec.to_builtins(file))).hexdigest()


def canonical(value: Any) -> bytes:
    """Keys sorted, no spaces, ASCII only: what `json.dumps` of any Python gives."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def problem_from_json(data: bytes) -> Problem:
    """Read a problem; a broken file gives an `InputError` with the path inside it."""
    try:
        file = msgspec.json.decode(data, type=ProblemFile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"not a weftline problem: {error}") from error
    return problem_from_file(file)


def _tuples(rows: Ints) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(row) for row in rows.tolist())


def _check_devices(devices: tuple[DeviceFile, ...]) -> None:
    if not devices:
        raise InputError("a problem has at least one device", where="devices")
    for i, device in enumerate(devices):
        if not DEVICE_ID.fullmatch(device.id):
            hint = "use 1 to 64 letters, digits or any of _ . : -"
            raise InputError(f"{device.id[:80]!r} is not a device id", where=f"devices[{i}].id", hint=hint)
        if not (device.kind + device.runtime).isprintable() or len(device.kind + device.runtime) > 400:
            raise InputError("kind or runtime is too long or cannot be printed", where=f"devices[{i}]")
        if device.capacity is not None and not 0 <= device.capacity <= MAX_QUANTITY:
            raise InputError(f"{device.capacity!s:.30} is not in 0..2^60", where=f"devices[{i}].capacity")
        speed = device.device().speed
        if not LEAST_SPEED <= speed <= 1:
            raise InputError(f"{speed!r:.30} is not in {LEAST_SPEED}..1", where=f"devices[{i}].speed")


def _rows(rows: tuple[tuple[int, ...], ...], index: tuple[int, ...], width: int, where: str) -> Ints:
    if any(len(row) != width for row in rows):
        raise InputError(f"every row needs {width} entries", where=where)
    if any(not 0 <= i < len(rows) for i in index):
        raise InputError("refers to a row that does not exist", where=where.removesuffix("s"))
    try:
        return np.array(rows, np.int64).reshape(len(rows), width)
    except OverflowError:
        raise InputError("an entry does not fit in 64 bits", where=where) from None
