"""Costs that a problem file brings (by class of device) -> devices and a CostTable (by device)."""

from __future__ import annotations

import numpy as np

from weftline.cluster import Device
from weftline.cost.table import CostTable, check_table_size
from weftline.importers import FileCosts

__all__ = ["devices_of_file", "expand_file_costs"]


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
