"""What a plan takes and holds, computed again from docs/concepts.md alone: nothing of `weftline.simulate` is used.

In: `Question`, a problem as plain numbers, and decisions. Out: the value and the peak of every device, or `Broken`.
Latency: ops and transfers are appended in a given order. Pipelines: loads, a quotient without circles, positions inside
a stage. Simplified: slow, and meant to be read beside the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from weftline.problem import Problem

__all__ = ["Broken", "Question", "Sent", "append", "pipeline"]


class Broken(Exception):
    """A plan does what the page does not allow."""


class Sent(NamedTuple):
    """A transfer of a list of actions; ops are plain numbers."""

    tensor: int
    target: int
    consumer: int
    """-1: for all consumers on the target."""


class Carried(NamedTuple):
    """A tensor."""

    producer: int
    consumers: tuple[int, ...]
    size: int
    output: bool
    length: list[list[int]]
    """From each device (row) to each device; -1 without a link."""


@dataclass(frozen=True)
class Question:
    """A problem as lists of whole numbers."""

    time: list[list[int]]
    """-1: this device cannot run this op."""
    weights: list[int]
    workspace: list[int]
    backward: list[bool]
    tensors: list[Carried]
    tied: list[tuple[int, tuple[int, ...]]]
    capacity: list[int | None]
    host: list[bool]
    together: tuple[tuple[int, ...], ...]
    bus: dict[tuple[int, int], str]
    stages: int
    sequential: bool
    per_edge: bool
    static: bool
    overlapped: bool

    @classmethod
    def of(cls, problem: Problem) -> Question:
        """The numbers of a problem."""
        graph, cost, rules = problem.graph, problem.cost, problem.rules
        length = cost.transfer.tolist()
        rows = cost.transfer_row.tolist()
        return cls(
            time=cost.time.tolist(),
            weights=[op.weight_bytes for op in graph.ops],
            workspace=[op.workspace_bytes for op in graph.ops],
            backward=[op.backward for op in graph.ops],
            tensors=[
                Carried(tensor.producer, tensor.consumers, tensor.bytes, tensor.output, length[row])
                for tensor, row in zip(graph.tensors, rows, strict=True)
            ],
            tied=[(tied.bytes, tied.ops) for tied in graph.tied],
            capacity=[device.capacity for device in problem.devices],
            host=[device.host for device in problem.devices],
            together=problem.together,
            bus={(a, b): name for a, b, name in problem.buses},
            stages=rules.stages or len(problem.devices),
            sequential=rules.runtime == "sequential",
            per_edge=rules.transfers == "per-edge",
            static=rules.memory == "static",
            overlapped=rules.communication == "overlapped",
        )

    def receivers(self, tensor: Carried, placement: Sequence[int]) -> list[list[int]]:
        """The consumers that share one copy away from the producer's device, copy by copy."""
        away = [op for op in tensor.consumers if tensor.producer < 0 or placement[op] != placement[tensor.producer]]
        if self.per_edge and tensor.producer >= 0:
            return [[op] for op in away]
        return [[op for op in away if placement[op] == device] for device in sorted({placement[op] for op in away})]

    def held_always(self, placement: Sequence[int], device: int) -> int:
        """Weights; under the static rule workspaces, too."""
        mine = [op for op, where in enumerate(placement) if where == device]
        tied = sum(size for size, users in self.tied if any(placement[op] == device for op in users))
        more = sum(self.workspace[op] for op in mine) if self.static else 0
        return sum(self.weights[op] for op in mine) + tied + more

    def check(self, placement: Sequence[int], peaks: Sequence[int]) -> None:
        """Capacity, and sets that stay together."""
        for device, (peak, capacity) in enumerate(zip(peaks, self.capacity, strict=True)):
            if capacity is not None and peak > capacity:
                raise Broken(f"device {device} holds {peak}, may hold {capacity}")
        if any(len({placement[op] for op in members}) > 1 for members in self.together):
            raise Broken("a set is torn apart")
        if any(self.time[op][device] < 0 for op, device in enumerate(placement)):
            raise Broken("an op stands where it cannot run")


def append(q: Question, placement: Sequence[int], actions: Sequence[int | Sent]) -> int:
    """Each action as early as it can, after those before it in the list -> the latency, or `Broken`."""
    free: dict[tuple[str, object], int] = {}
    start: dict[int, int] = {}
    end: dict[int, int] = {}
    sent: dict[tuple[int, int], tuple[int, int]] = {}

    def book(resources: list[tuple[str, object]], ready: int, length: int) -> int:
        if q.sequential:
            resources, ready = [("clock", 0)], 0
        begin = max([ready, *(free.get(one, 0) for one in resources)])
        free.update(dict.fromkeys(resources, begin + length))
        return begin

    for action in actions:
        if isinstance(action, Sent):
            tensor = q.tensors[action.tensor]
            if tensor.producer not in end:
                raise Broken("a tensor is sent before it is made")
            source, target = placement[tensor.producer], action.target
            length = tensor.length[source][target]
            if length <= 0 or source == target:
                raise Broken("a transfer without a link, or of no length")
            resources: list[tuple[str, object]] = [("send", source), ("receive", target)]
            if (source, target) in q.bus:
                resources.append(("bus", q.bus[source, target]))
            key = (action.tensor, action.consumer if q.per_edge else target)
            if key in sent:
                raise Broken("sent twice")
            begin = book(resources, end[tensor.producer], length)
            sent[key] = (begin, begin + length)
            continue
        here, ready = placement[action], 0
        for number, tensor in enumerate(q.tensors):
            if action in tensor.consumers and tensor.producer >= 0:
                if tensor.producer not in end:
                    raise Broken("an op runs before its input is made")
                key = (number, action if q.per_edge else here)
                if placement[tensor.producer] == here or tensor.length[placement[tensor.producer]][here] == 0:
                    ready = max(ready, end[tensor.producer])
                elif key in sent:
                    ready = max(ready, sent[key][1])
                else:
                    raise Broken("an op runs before its input has arrived")
        length = q.time[action][here]
        start[action] = book([("device", here)], ready, length) if length > 0 or q.sequential else ready
        end[action] = start[action] + length
    if len(end) < len(placement):
        raise Broken("not all ops run")
    q.check(placement, _peaks(q, placement, start, end, sent))
    return max(end.values())


def _peaks(
    q: Question,
    placement: Sequence[int],
    start: dict[int, int],
    end: dict[int, int],
    sent: dict[tuple[int, int], tuple[int, int]],
) -> list[int]:
    """By the table of intervals."""
    held: list[tuple[int, int, int, int]] = []
    last = max(end.values())
    for op, device in enumerate(placement):
        held.append((device, start[op], end[op], q.workspace[op]))
    for number, tensor in enumerate(q.tensors):
        maker = tensor.producer
        if maker >= 0:
            home = placement[maker]
            until = [end[maker], *(end[op] for op in tensor.consumers if placement[op] == home)]
            until += [to for (which, _), (_, to) in sent.items() if which == number]
            held.append((home, start[maker], last if tensor.output else max(until), tensor.size))
        for users in q.receivers(tensor, placement):
            device = placement[users[0]]
            begin = 0
            if maker >= 0:
                key = (number, users[0] if q.per_edge else device)
                begin = sent[key][0] if key in sent else end[maker]
            held.append((device, begin, max(end[op] for op in users), tensor.size))
    peaks = []
    for device in range(len(q.capacity)):
        mine = [] if q.static else [row for row in held if row[0] == device]
        levels = [sum(size for _, a, b, size in mine if a <= moment < b) for _, moment, _, _ in mine]
        peaks.append(q.held_always(placement, device) + max(levels, default=0))
    return peaks


def pipeline(q: Question, placement: Sequence[int]) -> int:
    """The period of a pipeline, or `Broken`."""
    devices = range(len(q.capacity))
    if len(set(placement)) > q.stages:
        raise Broken("more stages than allowed")
    loads = []
    for device in devices:
        compute = sum(q.time[op][device] for op, where in enumerate(placement) if where == device)
        enters = leaves = 0
        for tensor in q.tensors:
            if tensor.producer < 0:
                continue
            source = placement[tensor.producer]
            others = {placement[op] for op in tensor.consumers} - {source}
            if any(tensor.length[source][other] < 0 for other in others):
                raise Broken("no link")
            if device in others:
                enters += tensor.length[source][device]
            if device == source and others:
                leaves += max(tensor.length[source][other] for other in others)
        parts = (compute, 0, 0) if q.host[device] else (compute, enters, leaves)
        loads.append(max(parts) if q.overlapped else sum(parts))
    _require_order(q, placement)
    q.check(placement, [_stage_peak(q, placement, device) for device in devices])
    return max(loads)


def _require_order(q: Question, placement: Sequence[int]) -> None:
    """Forward ops alone; on a host every op is a node of its own."""
    node = [("op", op) if q.host[device] else ("stage", device) for op, device in enumerate(placement)]
    before: dict[tuple[str, int], set[tuple[str, int]]] = {one: set() for one in node}
    for tensor in q.tensors:
        for op in tensor.consumers:
            if tensor.producer >= 0 and not q.backward[tensor.producer] and not q.backward[op]:
                before[node[op]] |= {node[tensor.producer]} - {node[op]}
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        raise Broken("stages wait for each other") from error


def _stage_peak(q: Question, placement: Sequence[int], device: int) -> int:
    mine = [op for op, where in enumerate(placement) if where == device]
    level = 0
    for op in [] if q.static else mine:
        now = q.workspace[op]
        for tensor in q.tensors:
            users = [other for other in tensor.consumers if placement[other] == device]
            made = tensor.producer >= 0 and placement[tensor.producer] == device
            crosses = tensor.output or len(users) < len(tensor.consumers) if made else bool(users)
            first = tensor.producer if made else -1
            last = len(placement) if made and crosses else max([first, *users])
            if (made or users) and first <= op <= last:
                now += tensor.size * (2 if crosses and q.overlapped else 1)
        level = max(level, now)
    return q.held_always(placement, device) + level
