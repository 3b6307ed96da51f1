"""The same meaning of time and memory, written to be obviously right rather than fast. Tests compare it bit for bit.

Plain Python integers, dictionaries and lists; no numba, nothing shared with the kernels but the input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from weftline.problem import Problem

__all__ = ["ReferenceTimeline", "reference_latency", "reference_loads", "reference_prefix", "reference_replay"]

Interval = tuple[int, int, int, int]
"""device, start, end, bytes"""


@dataclass
class ReferenceTimeline:
    """What happened, as lists."""

    start: dict[int, int] = field(default_factory=dict)
    end: dict[int, int] = field(default_factory=dict)
    transfers: list[tuple[int, int, int, int, int, int]] = field(default_factory=list)
    """tensor, source, target, consumer or -1, start, end"""
    peak: list[int] = field(default_factory=list)

    @property
    def value(self) -> int:
        """The latency."""
        return max(self.end.values())


class _Machine:
    """Devices, ports and buses that remember until when they are taken."""

    def __init__(self, problem: Problem, placement: Sequence[int]) -> None:
        self.problem, self.placement, self.result = problem, placement, ReferenceTimeline()
        self.free: dict[tuple[str, object], int] = {}
        self.arrived: dict[tuple[int, int], int] = {}
        self.buses = {(a, b): name for a, b, name in problem.buses}
        self.sequential = problem.rules.runtime == "sequential"
        self.per_edge = problem.rules.transfers == "per-edge"

    def duration(self, tensor: int, target: int) -> int:
        source = self.placement[self.problem.graph.tensors[tensor].producer]
        return int(self.problem.cost.transfer[self.problem.cost.transfer_row[tensor], source, target])

    def take(self, resources: list[tuple[str, object]], earliest: int, length: int) -> int:
        begin = max([earliest, *(self.free.get(resource, 0) for resource in resources)])
        for resource in resources:
            self.free[resource] = begin + length
        return begin

    def send(self, tensor: int, consumer: int) -> None:
        """Bring a tensor to the device of a consumer."""
        maker = self.problem.graph.tensors[tensor].producer
        source, target = self.placement[maker], self.placement[consumer]
        length = self.duration(tensor, target)
        if length < 0:
            raise ValueError("no link")
        begin = self.result.end[maker]
        if length > 0:
            resources: list[tuple[str, object]] = [("send", source), ("receive", target)]
            if (source, target) in self.buses:
                resources.append(("bus", self.buses[source, target]))
            if self.sequential:
                resources, begin = [("clock", 0)], 0
            begin = self.take(resources, begin, length)
            receiver = consumer if self.per_edge else -1
            self.result.transfers.append((tensor, source, target, receiver, begin, begin + length))
        self.arrived[tensor, consumer if self.per_edge else target] = begin + length

    def run(self, op: int) -> None:
        """Run an op whose inputs have all arrived."""
        device = self.placement[op]
        duration = int(self.problem.cost.time[op, device])
        if duration < 0:
            raise ValueError("cannot run there")
        ready = 0
        for t, tensor in enumerate(self.problem.graph.tensors):
            if op in tensor.consumers and tensor.producer >= 0:
                if self.placement[tensor.producer] == device:
                    ready = max(ready, self.result.end[tensor.producer])
                else:
                    ready = max(ready, self.arrived[t, op if self.per_edge else device])
        if self.sequential:
            ready = self.take([("clock", 0)], 0, duration)
        elif duration > 0:
            ready = self.take([("device", device)], ready, duration)
        self.result.start[op], self.result.end[op] = ready, ready + duration

    def finish(self) -> ReferenceTimeline:
        self.result.peak = _peaks(self.problem, self.placement, _latency_intervals(self))
        return self.result


def reference_latency(problem: Problem, placement: Sequence[int], order: Sequence[int]) -> ReferenceTimeline:
    """Book op after op; before each op its missing inputs, those first whose producer ended first."""
    machine = _Machine(problem, placement)
    for op in order:
        missing = [
            t
            for t, tensor in enumerate(problem.graph.tensors)
            if op in tensor.consumers
            and tensor.producer >= 0
            and placement[tensor.producer] != placement[op]
            and (t, op if machine.per_edge else placement[op]) not in machine.arrived
        ]
        for t in sorted(missing, key=lambda t: (machine.result.end[problem.graph.tensors[t].producer], t)):
            machine.send(t, op)
        machine.run(op)
    return machine.finish()


def reference_replay(problem: Problem, placement: Sequence[int], actions: Sequence[Sequence[int]]) -> ReferenceTimeline:
    """Follow an explicit list; transfers of no duration are not in it and happen by themselves."""
    return _follow(problem, placement, actions).finish()


def reference_prefix(problem: Problem, placement: Sequence[int], actions: Sequence[Sequence[int]]) -> ReferenceTimeline:
    """Follow the beginning of a list: times without memory."""
    return _follow(problem, placement, actions).result


def _follow(problem: Problem, placement: Sequence[int], actions: Sequence[Sequence[int]]) -> _Machine:
    machine = _Machine(problem, placement)
    for what, target, consumer in actions:
        if target < 0:
            for t, tensor in enumerate(problem.graph.tensors):
                remote = tensor.producer >= 0 and placement[tensor.producer] != placement[what]
                if what in tensor.consumers and remote and machine.duration(t, placement[what]) == 0:
                    machine.send(t, what)
            machine.run(what)
        else:
            receivers = [op for op in problem.graph.tensors[what].consumers if placement[op] == target]
            machine.send(what, consumer if consumer >= 0 else receivers[0])
    return machine


def _latency_intervals(machine: _Machine) -> list[Interval]:
    problem, placement, result = machine.problem, machine.placement, machine.result
    rows = [
        (placement[i], result.start[i], result.end[i], op.workspace_bytes) for i, op in enumerate(problem.graph.ops)
    ]
    for t, tensor in enumerate(problem.graph.tensors):
        maker = tensor.producer
        home = placement[maker] if maker >= 0 else -1
        sends = [row for row in result.transfers if row[0] == t]
        if maker >= 0:
            ends = [result.end[maker], *(row[5] for row in sends)]
            ends += [result.end[op] for op in tensor.consumers if placement[op] == home]
            rows.append((home, result.start[maker], result.value if tensor.output else max(ends), tensor.bytes))
        remote = [op for op in tensor.consumers if placement[op] != home]
        copies = [[op] for op in remote]  # one copy per consumer, or one per device
        if maker < 0 or not machine.per_edge:
            copies = [[op for op in remote if placement[op] == d] for d in sorted({placement[op] for op in remote})]
        for users in copies:
            device = placement[users[0]]
            since = 0
            if maker >= 0:
                key = users[0] if machine.per_edge else -1
                begins = [row[4] for row in sends if row[2] == device and row[3] == key]
                since = begins[0] if begins else result.end[maker]
            rows.append((device, since, max(result.end[op] for op in users), tensor.bytes))
    return rows


def _peaks(problem: Problem, placement: Sequence[int], intervals: list[Interval]) -> list[int]:
    graph, static = problem.graph, problem.rules.memory == "static"
    peaks = []
    for device in range(len(problem.devices)):
        mine = [op for i, op in enumerate(graph.ops) if placement[i] == device]
        base = sum(op.weight_bytes for op in mine)
        base += sum(op.workspace_bytes for op in mine) if static else 0
        base += sum(tied.bytes for tied in graph.tied if any(placement[op] == device for op in tied.ops))
        levels = [0]
        if not static:
            for _, moment, _, _ in (row for row in intervals if row[0] == device):
                levels.append(sum(size for d, a, b, size in intervals if d == device and a <= moment < b))
        peaks.append(base + max(levels))
    return peaks


def reference_loads(problem: Problem, placement: Sequence[int]) -> tuple[list[list[int]], list[int]]:
    """Rows compute, entering, leaving, load by device, and the memory peaks. ValueError if it is not a pipeline."""
    devices = range(len(problem.devices))
    compute, entering, leaving = ([0] * len(devices) for _ in range(3))
    for op, device in enumerate(placement):
        if problem.cost.time[op, device] < 0:
            raise ValueError("cannot run there")
        compute[device] += int(problem.cost.time[op, device])
    if len(set(placement)) > problem.stage_limit:
        raise ValueError("too many stages")
    for t, tensor in enumerate(problem.graph.tensors):
        if tensor.producer < 0:
            continue
        home = placement[tensor.producer]
        lengths = {
            placement[op]: int(problem.cost.transfer[problem.cost.transfer_row[t], home, placement[op]])
            for op in tensor.consumers
        }
        lengths.pop(home, None)
        if any(length < 0 for length in lengths.values()):
            raise ValueError("no link")
        for device, length in lengths.items():
            entering[device] += 0 if problem.devices[device].host else length
        if lengths and not problem.devices[home].host:
            leaving[home] += max(lengths.values())
    if _has_cycle(problem, placement):
        raise ValueError("cycle")
    combine = max if problem.rules.communication == "overlapped" else lambda *parts: sum(parts)
    load = [combine(compute[d], entering[d], leaving[d]) for d in devices]
    return [compute, entering, leaving, load], _peaks(problem, placement, _stage_intervals(problem, placement))


def _has_cycle(problem: Problem, placement: Sequence[int]) -> bool:
    """Remove nodes of the quotient graph that nothing points at until none is left, or none can be removed."""
    graph = problem.graph
    node = [("op", i) if problem.devices[d].host else ("stage", d) for i, d in enumerate(placement)]
    forward = [not op.backward for op in graph.ops]
    edges = {
        (node[tensor.producer], node[op])
        for tensor in graph.tensors
        for op in tensor.consumers
        if tensor.producer >= 0 and forward[tensor.producer] and forward[op]
    }
    edges = {(a, b) for a, b in edges if a != b}
    while edges:
        sources = {a for a, _ in edges} - {b for _, b in edges}
        if not sources:
            return True
        edges = {(a, b) for a, b in edges if a not in sources}
    return False


def _stage_intervals(problem: Problem, placement: Sequence[int]) -> list[Interval]:
    """Like the latency intervals, with positions inside the stage as time."""
    graph = problem.graph
    position = [sum(1 for j in range(i) if placement[j] == placement[i]) for i in range(len(placement))]
    length = [sum(1 for d in placement if d == device) for device in range(len(problem.devices))]
    copies = 2 if problem.rules.communication == "overlapped" else 1
    rows = [(placement[i], position[i], position[i] + 1, op.workspace_bytes) for i, op in enumerate(graph.ops)]
    for tensor in graph.tensors:
        maker = tensor.producer
        home = placement[maker] if maker >= 0 else -1
        others = sorted({placement[op] for op in tensor.consumers} - {home})
        if maker >= 0:
            if others or tensor.output:
                rows.append((home, position[maker], length[home], copies * tensor.bytes))
            else:
                last = max([position[maker], *(position[op] for op in tensor.consumers)])
                rows.append((home, position[maker], last + 1, tensor.bytes))
        for device in others:
            last = max(position[op] for op in tensor.consumers if placement[op] == device)
            rows.append((device, 0, last + 1, copies * tensor.bytes))
    return rows
