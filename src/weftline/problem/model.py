"""Problem and Rules: what is asked, in one immutable value."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from weftline.cluster import Device
from weftline.cost import CostTable
from weftline.errors import InputError
from weftline.graph import Graph
from weftline.graph.arrays import Indices, Ints

__all__ = ["UNLIMITED", "Problem", "Rules"]

UNLIMITED = 2**62
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
        limits = [UNLIMITED if device.capacity is None else device.capacity for device in self.devices]
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
        """The same problem under other rules."""
        return replace(self, rules=rules)

    def __repr__(self) -> str:
        return f"Problem({self.graph.name!r}, {len(self.graph.ops)} ops, {len(self.devices)} devices, {self.rules})"
