"""CostTable: the numbers every solver and the simulator read.

Costs that a problem file brings (by class of device) -> devices and a CostTable (by device).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from weftline.cluster import Device
from weftline.errors import InputError
from weftline.graph.arrays import Indices, Ints
from weftline.importers import FileCosts
from weftline.units import MAX_QUANTITY

__all__ = ["NO_TIME", "CostTable", "check_table_size", "devices_of_file", "distinct_rows", "expand_file_costs"]

NO_TIME = -1
"""Time of an op that a device cannot run, or of a transfer between devices that have no link."""


MAX_ENTRIES = 2**26
"""The tables of times and of transfers have no more entries in all (512 MiB)."""


def check_table_size(ops: int, transfer_rows: int, devices: int) -> None:
    """Raise before a table is made that no memory would hold."""
    entries = ops * devices + transfer_rows * devices * devices
    if entries > MAX_ENTRIES:
        raise InputError(
            f"{devices} devices with {ops} ops and {transfer_rows} sizes of tensors need a table of {entries} times",
            hint=f"the limit is {MAX_ENTRIES}; use fewer devices",
        )


@dataclass(frozen=True, eq=False)
class CostTable:
    """Times in nanoseconds. n ops, m tensors, K devices; equal transfer matrices are stored once."""

    time: Ints
    """(n, K): op on device, `NO_TIME` = cannot run there."""
    transfer: Ints
    """(rows, K, K): from device to device, 0 on the diagonal, `NO_TIME` = no link."""
    transfer_row: Indices
    """(m,): tensor -> row of `transfer`."""
    source: str = ""
    """Where the numbers come from, in a few words."""

    def __post_init__(self) -> None:
        n_devices = self.time.shape[1] if self.time.ndim == 2 else -1
        if self.time.ndim != 2 or self.transfer.shape[1:] != (n_devices, n_devices):
            raise InputError("the cost table's shapes do not fit each other")
        if self.transfer_row.size and not 0 <= self.transfer_row.min() <= self.transfer_row.max() < len(self.transfer):
            raise InputError("a tensor refers to a transfer row that does not exist")
        for name, values in (("time", self.time), ("transfer", self.transfer)):
            if values.size and not NO_TIME <= values.min() <= values.max() <= MAX_QUANTITY:
                raise InputError(f"a {name} lies outside 0..2^60 ns")
        if np.any(self.transfer[:, range(n_devices), range(n_devices)]):
            raise InputError("a transfer from a device to itself must take 0 ns")
        worst = float(self.time.max(axis=1, initial=0).sum(dtype=np.float64))
        per_row = self.transfer.max(axis=(1, 2), initial=0).astype(np.float64)
        worst += float(per_row[self.transfer_row].sum()) * n_devices
        if worst > MAX_QUANTITY:
            raise InputError(
                "the sum of all times is more than 2^60 ns (36 years)", hint="check the units of the costs"
            )

    def with_time(self, time: Ints) -> CostTable:
        """The same table with other op times."""
        return replace(self, time=time)


def distinct_rows(rows: Ints) -> tuple[Ints, Indices]:
    """Distinct rows in order of first appearance, and the row number of each original row."""
    if not len(rows):
        return rows, np.zeros(0, np.int32)
    _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return rows[first[order]], rank[inverse.ravel()]


def devices_of_file(costs: FileCosts) -> tuple[Device, ...]:
    """Every device of every class, numbered where a class has several."""
    return tuple(
        Device(
            id=f"{group.id}{number}" if group.count > 1 else group.id,
            kind=group.kind,
            memory=group.memory,
            host=group.host,
        )
        for group in costs.classes
        for number in range(group.count)
    )


def expand_file_costs(costs: FileCosts) -> CostTable:
    """Repeat the columns of each class for each of its devices."""
    check_table_size(len(costs.time), len(costs.transfer), sum(group.count for group in costs.classes))
    column = np.repeat(np.arange(len(costs.classes)), [group.count for group in costs.classes])
    transfer = costs.transfer[:, column[:, None], column]
    transfer[:, range(len(column)), range(len(column))] = 0
    return CostTable(costs.time[:, column], transfer, costs.transfer_row, source=costs.source)
