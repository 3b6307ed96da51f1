"""Costs by class of device become costs by device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from weftline.cost import NO_TIME, devices_of_file, expand_file_costs
from weftline.errors import InputError
from weftline.importers import DeviceClass, FileCosts

COSTS = FileCosts(
    classes=(DeviceClass("acc", "accelerator", count=2, memory=100), DeviceClass("cpu", "cpu", host=True)),
    time=np.array([[3, 9], [NO_TIME, 8]], np.int64),
    transfer=np.array([[[4, 5], [6, 0]]], np.int64),
    transfer_row=np.zeros(1, np.int32),
    source="a file",
)


def test_devices_are_numbered() -> None:
    """Tests that a class of several gets numbers, a class of one keeps its name."""
    devices = devices_of_file(COSTS)
    assert [(d.id, d.kind, d.memory, d.host) for d in devices] == [
        ("acc0", "accelerator", 100, False),
        ("acc1", "accelerator", 100, False),
        ("cpu", "cpu", None, True),
    ]


def test_columns_are_repeated() -> None:
    """Tests that two devices of a class pay the class's transfer between them, and nothing at home."""
    table = expand_file_costs(COSTS)
    assert table.time.tolist() == [[3, 3, 9], [NO_TIME, NO_TIME, 8]]
    assert table.transfer.tolist() == [[[0, 4, 5], [4, 0, 5], [6, 6, 0]]]
    assert table.source == "a file"


def test_absurdly_many_devices() -> None:
    """Tests that a file cannot ask for a table of terabytes."""
    many = replace(COSTS, classes=(DeviceClass("acc", "accelerator", count=10**6), COSTS.classes[1]))
    with pytest.raises(InputError, match="1000001 devices"):
        expand_file_costs(many)
