"""Problems written out by hand, for tests whose answer is worked out on paper.

In: a table of op times and the wires between ops. Out: a Problem. Ops are called op0, op1 ..., devices d0, d1 ...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from weftline.cluster import Device
from weftline.cost import CostTable
from weftline.graph import Op, Tensor, Tied, assemble
from weftline.problem import Problem, Rules

__all__ = ["Wire", "problem_of"]


class Wire(NamedTuple):
    """One tensor."""

    producer: int
    """An op, or -1 for an input of the model."""
    consumers: tuple[int, ...]
    length: int | Sequence[Sequence[int]] = 0
    """ns between any two devices, or from each device (row) to each device (column)."""
    bytes: int = 0
    output: bool = False


def problem_of(
    time: Sequence[Sequence[int]],
    wires: Sequence[Wire] = (),
    *,
    weights: Sequence[int] = (),
    workspace: Sequence[int] = (),
    backward: Sequence[int] = (),
    tied: Sequence[tuple[int, tuple[int, ...]]] = (),
    capacity: Sequence[int | None] = (),
    hosts: Sequence[int] = (),
    together: tuple[tuple[int, ...], ...] = (),
    buses: tuple[tuple[int, int, str], ...] = (),
    **rules: object,
) -> Problem:
    """Rows of `time` are ops, its columns devices; what is left out is 0, or without limit. `rules` sets `Rules`."""
    n, k = len(time), len(time[0])
    ops = [
        Op(
            f"op{i}",
            weight_bytes=weights[i] if weights else 0,
            workspace_bytes=workspace[i] if workspace else 0,
            backward=i in backward,
        )
        for i in range(n)
    ]
    tensors = [
        Tensor(f"t{i}", wire.producer, wire.consumers, wire.bytes, output=wire.output) for i, wire in enumerate(wires)
    ]
    shared = [Tied(f"w{i}", size, users) for i, (size, users) in enumerate(tied)]
    transfer = np.zeros((max(len(wires), 1), k, k), np.int64)
    for row, wire in zip(transfer, wires, strict=False):
        row[:] = np.array(wire.length)
        row[range(k), range(k)] = 0
    return Problem(
        graph=assemble("by hand", ops, tensors, shared),
        devices=tuple(Device(f"d{i}", "gpu", capacity[i] if capacity else None, host=i in hosts) for i in range(k)),
        cost=CostTable(np.array(time, np.int64), transfer, np.arange(len(wires), dtype=np.int32), "by hand"),
        rules=Rules(**rules),  # type: ignore[arg-type]
        together=together,
        buses=buses,
    )
