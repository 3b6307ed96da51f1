"""CostTable refuses numbers that make no sense."""

from __future__ import annotations

import numpy as np
import pytest

from weftline.cost import NO_TIME, CostTable
from weftline.errors import InputError

TIME = np.array([[1, 2], [3, NO_TIME]], np.int64)
TRANSFER = np.array([[[0, 5], [6, 0]]], np.int64)
ROW = np.zeros(1, np.int32)


def test_a_good_table() -> None:
    """Tests that absent times are allowed and that times can be replaced."""
    table = CostTable(TIME, TRANSFER, ROW, "by hand")
    other = table.with_time(TIME + 1)
    assert other.time.tolist() == [[2, 3], [4, 0]]
    assert other.transfer is TRANSFER
    assert other.source == "by hand"


@pytest.mark.parametrize(
    ("time", "transfer", "row", "complaint"),
    [
        (TIME[0], TRANSFER, ROW, "shapes"),
        (TIME, TRANSFER[:, :1], ROW, "shapes"),
        (TIME[:, :1], TRANSFER, ROW, "shapes"),
        (TIME, TRANSFER, ROW + 1, "row that does not exist"),
        (TIME, TRANSFER, ROW - 1, "row that does not exist"),
        (TIME - 1, TRANSFER, ROW, "a time lies outside"),
        (TIME, TRANSFER - np.array([[0, 7], [0, 0]]), ROW, "a transfer lies outside"),
        (TIME + 2**61, TRANSFER, ROW, "a time lies outside"),
        (TIME, TRANSFER + 1, ROW, "from a device to itself"),
        (np.full((2, 2), 2**60, np.int64), TRANSFER, ROW, "sum of all times"),
        (TIME, TRANSFER * 2**57, ROW, "sum of all times"),
    ],
)
def test_bad_tables(time: np.ndarray, transfer: np.ndarray, row: np.ndarray, complaint: str) -> None:
    """Tests that each kind of nonsense is named."""
    with pytest.raises(InputError, match=complaint):
        CostTable(time, transfer, row)
