"""Transfers as nodes of Moirai's MILP, and which of them can never meet."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices
from weftline.simulate.tables import Tables

__all__ = ["Node", "Row", "reachable"]

Row = dict[Any, float]
"""Variable -> coefficient."""


class Node(NamedTuple):
    """One transfer that may happen."""

    tensor: int
    maker: int
    readers: list[int]
    alike: bool
    """All readers share the device to which it goes."""
    consumer: int
    """-1 = for all consumers on the target device."""
    start: Any
    """None where latency is a sum."""
    pairs: list[tuple[int, int, float, Any]]
    """(source, target, length, variable): at most one of them is 1."""
    ready: float
    """It does not start before."""
    done: float
    """It has ended by then."""

    def minus_end(self) -> Row:
        """The terms of minus its end."""
        return {self.start: -1.0, **{u: -length for _, _, length, u in self.pairs}}

    def uses(self, bus: Indices) -> dict[tuple[str, int], list[Any]]:
        """Ports and buses -> the variables of which at most one is 1, if it uses them."""
        found: dict[tuple[str, int], list[Any]] = {}
        for a, b, _, u in self.pairs:
            found.setdefault(("send", a), []).append(u)
            found.setdefault(("receive", b), []).append(u)
            if bus[a, b] >= 0:
                found.setdefault(("bus", int(bus[a, b])), []).append(u)
        return found

    def before(self, other: Node, reach: NDArray[np.bool_]) -> bool:
        """Always over when the other begins: what reads it comes before what makes the other."""
        led = [bool(reach[reader, other.maker]) for reader in self.readers]
        return any(led) if self.alike else all(led)


def reachable(table: Tables) -> NDArray[np.bool_]:
    """(n, n): the second op depends on the first, or is it."""
    n = len(table.time)
    reach = np.eye(n, dtype=np.bool_)
    for op in range(n - 1, -1, -1):
        for tensor in table.output_of[table.output_ptr[op] : table.output_ptr[op + 1]].tolist():
            for reader in table.consumer_of[table.consumer_ptr[tensor] : table.consumer_ptr[tensor + 1]].tolist():
                reach[op] |= reach[reader]
    return reach
