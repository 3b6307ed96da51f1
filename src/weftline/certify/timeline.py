"""The timeline of a latency plan: it is taken as it is, and every rule is tested on it.

In: the embedded problem, the placement, the timeline of the file. Out: loads and what is held when, or a `Refusal`.
Simplified: times are not searched for; whatever could start earlier is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from weftline.certify.problem import Interval, PlanProblem, need, rows, whole

__all__ = ["PlanTimeline"]


class PlanTimeline:
    """When everything happens; `arrived`: (tensor, device) or (tensor, consumer) -> start and end of its transfer."""

    def __init__(self, problem: PlanProblem, placement: list[int], form: dict[str, Any]) -> None:
        self.problem, self.placement = problem, placement
        self.per_edge, self.sequential = problem.rule("transfers", "per-edge"), problem.rule("runtime", "sequential")
        self.start, self.end = [-1] * len(placement), [-1] * len(placement)
        self.arrived: dict[tuple[int, int], tuple[int, int]] = {}
        self.held: list[tuple[str, list[tuple[str, str]], int, int, int]] = []
        """What happens: name, (code, resource) pairs it holds, start, end, and when all it needs is there."""
        for row in rows(form["ops"], "timeline.ops"):
            self._run(row)
        idle = next((name for name, begin in zip(problem.names, self.start, strict=True) if begin < 0), None)
        need(idle is None, "never-runs", f"op {idle!r} is not in the timeline")
        for row in rows(form["transfers"], "timeline.transfers"):
            self._send(row)
        for op, tensors in enumerate(problem.inputs):
            ready = max((self._check_input(t, op) for t in tensors), default=0)
            lanes = [("overlap", f"device {problem.ids[placement[op]]}")]
            self._hold(f"op {problem.names[op]!r}", lanes, self.start[op], self.end[op], ready)
        self._check_exclusive()

    def _run(self, row: Sequence[Any]) -> None:
        number, begin, finish = row
        op = whole(number, "op of the timeline", 0, len(self.start) - 1)
        name, device = self.problem.names[op], self.placement[op]
        need(self.start[op] < 0, "runs-twice", f"op {name!r} stands in the timeline twice")
        self.start[op], self.end[op] = whole(begin, f"start of op {name!r}"), whole(finish, f"end of op {name!r}")
        took, expected = finish - begin, self.problem.time[op][device]
        need(took == expected, "op-duration", f"op {name!r} takes {took} ns, not {expected}")

    def _send(self, row: Sequence[Any]) -> None:
        tensor, source, target, consumer, begin, finish = row
        problem, k = self.problem, len(self.problem.ids)
        t = whole(tensor, "tensor of the timeline", 0, len(problem.tensors) - 1)
        a, b = whole(source, "source", 0, k - 1), whole(target, "target", 0, k - 1)
        name, maker = problem.tensors[t], problem.producer[t]
        need(maker >= 0 and self.placement[maker] == a, "wrong-source", f"{name!r} is not made on {problem.ids[a]}")
        reader = whole(consumer, "consumer", -1, len(self.start) - 1)
        readers = [op for op in problem.consumers[t] if self.placement[op] == b and (not self.per_edge or op == reader)]
        wanted = bool(readers) and (self.per_edge or reader == -1)
        need(wanted, "useless-transfer", f"nobody on {problem.ids[b]} needs this transfer of {name!r}")
        took, length = whole(finish, "end") - whole(begin, "start"), problem.length(t, a, b)
        need(took == length > 0, "transfer-duration", f"the transfer of {name!r} takes {took} ns, not {length}")
        need(begin >= self.end[maker], "sent-early", f"{name!r} is sent before it is made")
        key = (t, reader if self.per_edge else b)
        need(key not in self.arrived, "sent-twice", f"{name!r} is sent twice to one place")
        self.arrived[key] = (begin, finish)
        lanes = [("send-port", f"send port of {problem.ids[a]}"), ("receive-port", f"receive port of {problem.ids[b]}")]
        if (a, b) in problem.bus:
            lanes.append(("bus", f"bus {problem.bus[a, b]}"))
        self._hold(f"the transfer of {name!r}", lanes, begin, finish, self.end[maker])

    def _hold(self, what: str, lanes: list[tuple[str, str]], begin: int, finish: int, ready: int) -> None:
        lanes = [("sequential", "the sequential runtime")] if self.sequential else lanes
        self.held.append((what, lanes, begin, finish, ready))

    def _check_exclusive(self) -> None:
        """Nothing is used twice at a time, and nothing waits on purpose: a plan is an order, times follow from it."""
        busy: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for _, lanes, begin, finish, _ in self.held:
            for lane in lanes if begin < finish else ():
                busy.setdefault(lane, []).append((begin, finish))
        free: dict[tuple[tuple[str, str], int], int] = {}
        """(resource, start of a use) -> end of the use before it."""
        for (code, what), spans in busy.items():
            spans.sort()
            for before, after in pairwise(spans):
                need(before[1] <= after[0], code, f"{what} is used twice at {after[0]} ns")
                free[(code, what), after[0]] = before[1]
        over = {0, *(finish for _, _, begin, finish, _ in self.held if begin < finish)}
        for what, lanes, begin, finish, ready in self.held:
            if begin == finish and self.sequential:  # takes no time: at the beginning, or when something else has ended
                need(begin in over, "waits", f"{what} takes no time at {begin} ns, but inside or after everything else")
                continue
            earliest = 0 if self.sequential else ready
            if begin < finish:
                earliest = max([earliest, *(free.get((lane, begin), 0) for lane in lanes)])
            need(begin == earliest, "waits", f"{what} could start at {earliest} ns, but waits until {begin}")

    def _check_input(self, t: int, op: int) -> int:
        """When the tensor is on the op's device."""
        maker, name, reader = self.problem.producer[t], self.problem.tensors[t], self.problem.names[op]
        length = self.problem.length(t, self.placement[maker], self.placement[op])
        need(length >= 0, "link", f"there is no link to bring {name!r} to op {reader!r}")
        ready = self.end[maker]
        if length > 0:
            key = (t, op if self.per_edge else self.placement[op])
            need(key in self.arrived, "no-transfer", f"{name!r} never reaches the device of op {reader!r}")
            ready = self.arrived[key][1]
        code = "starts-early" if length > 0 else "precedence"
        need(self.start[op] >= ready, code, f"op {reader!r} starts before its input {name!r} is there")
        return ready

    def loads(self) -> list[int]:
        """Busy time of each device."""
        load = [0] * len(self.problem.ids)
        for op, device in enumerate(self.placement):
            load[device] += self.end[op] - self.start[op]
        return load

    def intervals(self) -> list[list[Interval]]:
        """What each device holds from when to when."""
        problem, end, finish = self.problem, self.end, max(self.end)
        held: list[list[Interval]] = [[] for _ in problem.ids]
        last_send: dict[int, int] = {}
        for (t, _), (_, done) in self.arrived.items():
            last_send[t] = max(last_send.get(t, 0), done)
        for op, device in enumerate(self.placement):
            held[device].append((self.start[op], end[op], problem.workspace[op]))
        for t, readers in enumerate(problem.consumers):
            maker, size = problem.producer[t], problem.bytes[t]
            home = self.placement[maker] if maker >= 0 else -1
            if maker >= 0:
                until = max([end[maker], last_send.get(t, 0), *(end[c] for c in readers if self.placement[c] == home)])
                held[home].append((self.start[maker], finish if problem.output[t] else until, size))
            copies: dict[tuple[int, int], int] = {}  # one per device, or one per consumer
            for c in readers:
                if self.placement[c] != home:
                    key = (self.placement[c], c if self.per_edge and maker >= 0 else -1)
                    copies[key] = max(copies.get(key, 0), end[c])
            for (device, c), until in copies.items():
                sent = (0, 0) if maker < 0 else self.arrived.get((t, c if self.per_edge else device), (end[maker], 0))
                held[device].append((sent[0], until, size))
        return held
