"""Costs that a file brings with it: devices by class, times per op and class, transfer times per pair of classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["DeviceClass", "FileCosts"]


@dataclass(frozen=True)
class DeviceClass:
    """`count` devices that are all alike."""

    id: str
    """Device id; with several devices of the class their number is appended: acc0, acc1 ..."""
    kind: str
    """What it is: accelerator, cpu ..."""
    count: int = 1
    memory: int | None = None
    """Bytes one device holds, None = no limit."""
    host: bool = False
    """Tensors rest in its memory: it pays for no transfer of a pipeline and its ops need not be contiguous."""


@dataclass(frozen=True, eq=False)
class FileCosts:
    """What a cost file says about devices. C = number of classes."""

    classes: tuple[DeviceClass, ...]
    time: NDArray[np.int64]
    """(ops, C) nanoseconds, -1 = cannot run there."""
    transfer: NDArray[np.int64]
    """(rows, C, C) nanoseconds from a device of one class to ANOTHER device of the other (or same) class."""
    transfer_row: NDArray[np.int32]
    """Tensor -> row of `transfer`."""
    together: tuple[tuple[int, ...], ...] = ()
    """Sets of ops that must share a device."""
    transfers: Literal["per-tensor", "per-edge"] = "per-tensor"
    memory: Literal["static", "dynamic"] = "static"
    source: str = ""
    """Where the numbers come from, in a few words."""
