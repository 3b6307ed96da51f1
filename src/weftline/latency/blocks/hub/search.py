"""The hub bound: branch and bound over the way of a chain, with the program of what stands beside it at every node.

In: a hub, segments with lower bounds, who knows better lengths of arcs. Out: a lower bound that rises with every step,
claimed, and ways that plans may take. A node fixes the hub and some more ops of the chain to devices. Its program lets
the rest of the way be a mixture, and a mixture pays only a part of each change of devices; so the op whose device is
least certain is fixed next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from heapq import heapify, heappop, heappush
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.latency.blocks.hub.program import Hub, SideProgram, Step, make_side_program
from weftline.latency.blocks.spans import Segment, distances
from weftline.search.lp import Answer
from weftline.simulate.tables import Tables

__all__ = ["Lengths", "Mixture", "SideSearch"]

ROOM = 1e-6
FIRST_ROUNDS, ROUNDS = 60, 3
"""Of longer arcs and cuts, at the first node of a device and at the others."""
HELPS = 1e-5
"""A round that brings less, in shares of the upper limit, is the last one of a node that is not the first."""
CERTAIN = 1e-4
"""An op of the chain with less than this elsewhere is on one device."""
SECONDS = 20.0
"""Of one linear program."""

Lengths = Callable[[Mapping[int, int]], list[Ints]]
"""Lower bounds by segment, with ops of the chain (by place) on devices."""


class Raised(Protocol):
    """Who knows better lengths of arcs."""

    def __call__(self, step: Step, held: Mapping[int, int]) -> int:
        """A lower bound, found with these ops of the chain on these devices."""


class Mixture(NamedTuple):
    """What the program of a node would do."""

    held: dict[int, int]
    devices: Indices
    """Of each op of the chain: where most of it is."""
    side: Indices
    """Of each side op."""
    certain: bool
    """No op of the chain is on several devices."""


@dataclass(order=True)
class _Node:
    bound: int
    number: int
    held: dict[int, int] = field(compare=False)


@dataclass(eq=False)
class SideSearch:
    """Nodes in the order of their bounds; `step` works on the lowest."""

    table: Tables
    hub: Hub
    segments: list[Segment]
    lengths: Lengths
    raised: Raised | None = None
    """A better length of an arc."""
    _open: list[_Node] = field(default_factory=list)
    _settled: list[int] = field(default_factory=list)
    """Bounds of nodes that cannot be divided."""
    _programs: dict[int, SideProgram | None] = field(default_factory=dict)
    _made: int = 0

    def __post_init__(self) -> None:
        for device in np.flatnonzero(self.table.time[self.hub.op] >= 0).tolist():
            self._add({self.hub.place: device}, 0)

    def bound(self, upper: int) -> int:
        """No plan is shorter, or none is shorter than `upper`, which must not rise from call to call."""
        lowest = [self._open[0].bound] if self._open else []
        return min([upper, *self._settled, *lowest])

    def is_over(self, upper: int) -> bool:
        """Nothing is left that could raise the bound."""
        return not self._open or self._open[0].bound >= min([upper, *self._settled])

    def refresh(self) -> None:
        """Lengths have become longer."""
        for node in self._open:
            node.bound = max(node.bound, self._chain_bound(node.held))
        heapify(self._open)

    def step(self, upper: int, stop: Callable[[], bool]) -> Mixture | None:
        """Raise the bound of the lowest node, and divide it -> what its program would do, if there is such a thing."""
        node = heappop(self._open)
        node.bound = max(node.bound, self._chain_bound(node.held))
        if self._open and node.bound > self._open[0].bound:
            heappush(self._open, node)
            return None
        program = self._program(node.held[self.hub.place], upper, stop)
        found = None if program is None else self._work_on(program, node, upper, stop)
        if stop():
            heappush(self._open, node)
        elif program is not None and found is not None:
            return self._divide(program, node, found, upper)
        elif node.bound < upper:
            self._settled.append(node.bound)
        return None

    def _program(self, device: int, upper: int, stop: Callable[[], bool]) -> SideProgram | None:
        if device not in self._programs:
            lengths = self.lengths({self.hub.place: device})
            made = make_side_program(self.table, self.hub, device, self.segments, lengths, upper, stop)
            if stop():
                return None
            self._programs[device] = made
        return self._programs[device]

    def _work_on(self, program: SideProgram, node: _Node, upper: int, stop: Callable[[], bool]) -> Answer | None:
        """Few rounds are enough for a node that will be divided."""
        found = self._raise(program, node, ROUNDS if len(node.held) > 1 else FIRST_ROUNDS, upper, stop)
        if found is not None and len(node.held) > 1 and _least_certain(self._flows(program, found), node.held) < 0:
            found = self._raise(program, node, FIRST_ROUNDS, upper, stop)
        return found

    def _raise(
        self, program: SideProgram, node: _Node, rounds: int, upper: int, stop: Callable[[], bool]
    ) -> Answer | None:
        """Solve, lengthen and cut again and again -> the last answer; None if there is none below the upper limit."""
        found, last = None, 0.0
        for turn in range(rounds):
            answer = program.solve(node.held, SECONDS, stop)
            if answer.value > 1 + ROOM:
                node.bound = max(node.bound, program.upper)
                return None
            if answer.value == -np.inf:
                break
            found = answer
            node.bound = max(node.bound, int(np.ceil((answer.value - ROOM) * program.upper)))
            if node.bound >= upper:
                return None
            if stop() or (turn and rounds < FIRST_ROUNDS and answer.value < last + HELPS):
                break
            last = answer.value
            longer = 0
            if self.raised is not None:
                longer = program.lengthen(answer, partial(self.raised, held=node.held), stop)
            if not longer and not program.cut(answer, stop):
                break
        return found

    def _flows(self, program: SideProgram, answer: Answer) -> NDArray[np.float64]:
        return program.flows(answer, self.table.time.shape[1])

    def _divide(self, program: SideProgram, node: _Node, answer: Answer, upper: int) -> Mixture:
        flows = self._flows(program, answer)
        devices = flows.argmax(axis=1).astype(np.int32)
        place = _least_certain(flows, node.held)
        if place < 0:
            self._settled.append(node.bound)
        else:
            for device in np.flatnonzero(self.table.time[self._chain_op(place)] >= 0).tolist():
                self._add({**node.held, place: device}, node.bound, upper)
        return Mixture(node.held, devices, program.side_devices(answer), place < 0)

    def _chain_op(self, place: int) -> int:
        segment = self.segments[place]
        return int(segment.ops[segment.last])

    def _add(self, held: dict[int, int], bound: int, upper: int | None = None) -> None:
        bound = max(bound, self._chain_bound(held))
        if upper is None or bound < upper:
            self._made += 1
            heappush(self._open, _Node(bound, self._made, held))

    def _chain_bound(self, held: Mapping[int, int]) -> int:
        return int(distances(self.lengths(held))[0][-1][0])


def _least_certain(flows: NDArray[np.float64], held: Mapping[int, int]) -> int:
    """The op of the chain (by place) that is most on several devices; of equal ones the middle; -1 if there is none."""
    doubt = 1.0 - flows.max(axis=1)
    doubt[list(held)] = 0.0
    if doubt.max(initial=0.0) < CERTAIN:
        return -1
    like = np.flatnonzero(doubt > 0.98 * doubt.max())
    return int(like[len(like) // 2])
