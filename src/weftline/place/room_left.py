"""What the simple heuristics share: where an op may still go, given memory and ops that must stay together."""

from __future__ import annotations

import numpy as np

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.problem import Problem
from weftline.problem.feasible import allowed_devices, least_memory

__all__ = ["RoomLeft"]


class RoomLeft:
    """Memory left on each device, counting weights alone, and the device of every group that has one."""

    def __init__(self, problem: Problem, capacity: Ints | None = None) -> None:
        self._problem = problem
        self._allowed = [[d for d, yes in enumerate(row) if yes] for row in allowed_devices(problem).tolist()]
        self._need = least_memory(problem).tolist()
        self._group: list[int] = problem.group.tolist()
        self._left: list[int] = (problem.capacity if capacity is None else capacity).tolist()
        self._device: dict[int, int] = {}
        self._tied: dict[int, list[tuple[int, int]]] = {}
        for number, tied in enumerate(problem.graph.tied):
            for op in tied.ops:
                self._tied.setdefault(self._group[op], []).append((number, tied.bytes))
        self._holds: set[tuple[int, int]] = set()

    def choices(self, op: int) -> list[int]:
        """Devices the op may go to. Raises `InfeasibleError` if there is none."""
        group = self._group[op]
        if group in self._device:
            return [self._device[group]]
        fitting = [d for d in self._allowed[group] if self._extra(group, d) <= self._left[d]]
        if not fitting:
            raise InfeasibleError(f"no device has memory left for op {self._problem.graph.ops[op].name!r}")
        return fitting

    def put(self, op: int, device: int) -> None:
        """Place the op, and with it its whole group."""
        group = self._group[op]
        if group not in self._device:
            self._left[device] -= self._extra(group, device)
            self._holds.update((number, device) for number, _ in self._tied.get(group, ()))
            self._device[group] = device

    def placement(self) -> Indices:
        """The device of every op, once all are placed."""
        return np.array([self._device[group] for group in self._group], np.int32)

    def _extra(self, group: int, device: int) -> int:
        need: int = self._need[group]
        if group in self._tied:
            # A group may use one tied weight several times: it counts once.
            need += sum(
                {number: size for number, size in self._tied[group] if (number, device) not in self._holds}.values()
            )
        return need
