"""The least latency within memory as one CP-SAT model, written from docs/concepts.md alone.

In: a `Question`. Out: `Optimum`: a lower bound of every plan, and the best plan found, which `memory_check.append` has
accepted. First without the rule that nothing waits on purpose, which is a relaxation; if what it finds does not fit
memory once nothing waits, the rule is added: everything begins at 0, or when one of its reasons ends. Nothing of
`weftline.latency` is used. Simplified: plain intervals, no clever bounds; so it is slow.
"""

from __future__ import annotations

from itertools import pairwise
from math import ceil
from typing import Any, NamedTuple

from ortools.sat.python import cp_model

from reliability.memory_check import Broken, Question, Sent, append

__all__ = ["Optimum", "least_latency"]


class Optimum(NamedTuple):
    """What the independent model knows."""

    bound: int | None
    """No plan is shorter; None: no plan exists."""
    value: int | None
    """Of the best plan found."""


class _Action(NamedTuple):
    """What takes time and holds something, if `literal` is true."""

    literal: Any
    start: Any
    end: Any
    size: int
    resources: frozenset[object]


def least_latency(q: Question, work: float) -> Optimum:
    """Units of CP-SAT's deterministic time for each of the two models."""
    bound = 0
    for waits in (True, False):
        model = _Model(q, waits=waits and not q.sequential)
        known, value = model.solve(work)
        if known is None:
            return Optimum(None, None)
        bound = max(bound, known)
        if value is not None or q.sequential:
            return Optimum(bound, value)
    return Optimum(bound, None)


class _Model:
    def __init__(self, q: Question, *, waits: bool) -> None:
        self.q, self.model, self.waits = q, cp_model.CpModel(), waits
        self.devices = range(len(q.capacity))
        self.horizon = sum(max(row) for row in q.time)
        for tensor in q.tensors:
            copies = len(tensor.consumers)
            self.horizon += copies * max(max(row) for row in tensor.length)
        self.end = self.model.new_int_var(0, self.horizon, "")
        self.actions: list[_Action] = []
        self.held: dict[int, list[tuple[Any, int]]] = {device: [] for device in self.devices}
        self.moved: list[tuple[int, int, int, Any, Any]] = []
        self._place()
        self._run()
        for number in range(len(q.tensors)):
            self._carry(number)
        self._exclude()
        if not waits and not q.sequential:
            self._never_wait()
        self._limit()
        self.model.minimize(self.end)

    def _place(self) -> None:
        q, model = self.q, self.model
        self.x = [[model.new_bool_var("") for _ in self.devices] for _ in q.time]
        for op, row in enumerate(self.x):
            model.add_exactly_one(row)
            for device, here in enumerate(row):
                if q.time[op][device] < 0:
                    model.add(here == 0)
        for members in q.together:
            for a, b in pairwise(members):
                for device in self.devices:
                    model.add(self.x[a][device] == self.x[b][device])

    def _run(self) -> None:
        q, model = self.q, self.model
        self.start = [model.new_int_var(0, self.horizon, "") for _ in q.time]
        self.finish: list[Any] = []
        self.ready: list[list[Any]] = [[] for _ in q.time]
        """Arrivals of the inputs of every op."""
        for op, row in enumerate(self.x):
            end = model.new_int_var(0, self.horizon, "")
            model.add(end == self.start[op] + sum(max(q.time[op][d], 0) * row[d] for d in self.devices))
            model.add(self.end >= end)
            self.finish.append(end)
            for device, here in enumerate(row):
                length = q.time[op][device]
                if length > 0 or (q.sequential and length == 0):
                    self._use(here, self.start[op], end, length, [("device", device)])
                if length > 0 and not q.static:
                    self._hold(device, here, self.start[op], end, q.workspace[op])

    def _use(self, literal: Any, start: Any, end: Any, size: int, resources: list[object]) -> None:
        names = frozenset(["clock"] if self.q.sequential else resources)
        self.actions.append(_Action(literal, start, end, size, names))

    def _hold(self, device: int, literal: Any, start: Any, end: Any, size: int) -> None:
        """An interval of memory; `end` is a variable that may be as early as `start`."""
        if size and not self.q.static:
            length = self.model.new_int_var(0, self.horizon, "")
            interval = self.model.new_optional_interval_var(start, length, end, literal, "")
            self.held[device].append((interval, size))

    def _both(self, a: Any, b: Any) -> Any:
        both = self.model.new_bool_var("")
        self.model.add_bool_and(a, b).only_enforce_if(both)
        self.model.add_bool_or(a.negated(), b.negated(), both)
        return both

    def _any(self, literals: list[Any]) -> Any:
        found = self.model.new_bool_var("")
        self.model.add_max_equality(found, literals)
        return found

    def _carry(self, number: int) -> None:
        """A tensor at home, its copies, and when they arrive."""
        q, model, tensor = self.q, self.model, self.q.tensors[number]
        maker = tensor.producer
        if maker < 0:
            for device in self.devices:
                if tensor.consumers:
                    here = self._any([self.x[op][device] for op in tensor.consumers])
                    until = self._until([(op, self.x[op][device]) for op in tensor.consumers])
                    self._hold(device, here, 0, until, tensor.size)
            return
        until = self.model.new_int_var(0, self.horizon, "")
        model.add(until >= (self.end if tensor.output else self.finish[maker]))
        for device in self.devices:
            self._hold(device, self.x[maker][device], self.start[maker], until, tensor.size)
        arrivals = {op: model.new_int_var(0, self.horizon, "") for op in tensor.consumers}
        for op, arrival in arrivals.items():
            model.add(self.start[op] >= arrival)
            model.add(self.start[op] >= self.finish[maker])
            self.ready[op].append(arrival)
            for device in self.devices:
                home = self._both(self.x[maker][device], self.x[op][device])
                model.add(arrival == self.finish[maker]).only_enforce_if(home)
                model.add(until >= self.finish[op]).only_enforce_if(home)
        groups = [[op] for op in tensor.consumers] if q.per_edge else [list(tensor.consumers)]
        for users in groups:
            for target in self.devices:
                self._copy(number, users, target, arrivals, until)

    def _copy(self, number: int, users: list[int], target: int, arrivals: dict[int, Any], until: Any) -> None:
        """What comes to one device for these users, from wherever it was made."""
        q, model, tensor = self.q, self.model, self.q.tensors[number]
        maker = tensor.producer
        if not users:
            return
        wanted = self._any([self.x[op][target] for op in users])
        begin = model.new_int_var(0, self.horizon, "")
        sources = []
        for source in self.devices:
            if source == target:
                continue
            sent, length = self._both(wanted, self.x[maker][source]), tensor.length[source][target]
            sources.append(sent)
            if length < 0:
                model.add(sent == 0)
                continue
            model.add(begin >= self.finish[maker]).only_enforce_if(sent)
            if length == 0:
                model.add(begin == self.finish[maker]).only_enforce_if(sent)
            else:
                resources: list[object] = [("send", source), ("receive", target)]
                if (source, target) in q.bus:
                    resources.append(("bus", q.bus[source, target]))
                self._use(sent, begin, begin + length, length, resources)
                self.moved.append((number, target, users[0] if q.per_edge else -1, sent, begin))
                model.add(until >= begin + length).only_enforce_if(sent)
            for op in users:
                here = self._both(sent, self.x[op][target])
                model.add(arrivals[op] == begin + length).only_enforce_if(here)
        if sources:
            copied = self._any(sources)
            last = self._until([(op, self.x[op][target]) for op in users])
            self._hold(target, copied, begin, last, tensor.size)

    def _until(self, users: list[tuple[int, Any]]) -> Any:
        """Not before the end of any user that is there."""
        until = self.model.new_int_var(0, self.horizon, "")
        for op, here in users:
            self.model.add(until >= self.finish[op]).only_enforce_if(here)
        return until

    def _exclude(self) -> None:
        """One at a time on every device, port and bus; on the one clock, which never stands still."""
        by_resource: dict[object, list[Any]] = {}
        for literal, start, _, size, resources in self.actions:
            interval = self.model.new_optional_fixed_size_interval_var(start, size, literal, "")
            for name in resources:
                by_resource.setdefault(name, []).append(interval)
        for intervals in by_resource.values():
            self.model.add_no_overlap(intervals)
        if self.q.sequential:
            self.model.add(self.end == sum(action.size * action.literal for action in self.actions))

    def _never_wait(self) -> None:
        """Everything begins at 0, or when an input arrives, or when its device, port or bus becomes free."""
        q, model = self.q, self.model
        first: dict[int, list[Any]] = {}
        for place, action in enumerate(self.actions):
            reasons = first.setdefault(place, [])
            for other in self.actions:
                if other is not action and other.resources & action.resources:
                    reason = model.new_bool_var("")
                    model.add_implication(reason, other.literal)
                    model.add(action.start == other.end).only_enforce_if(reason)
                    reasons.append(reason)
        by_start = {id(action.start): [] for action in self.actions}  # type: dict[int, list[int]]
        for place, action in enumerate(self.actions):
            by_start[id(action.start)].append(place)
        for op, start in enumerate(self.start):
            data = [self._equal(start, arrival) for arrival in self.ready[op]]
            if not self.ready[op]:
                data.append(self._equal(start, 0))
            mine = {next(iter(self.actions[place].resources)): place for place in by_start.get(id(start), [])}
            for device, here in enumerate(self.x[op]):
                more = first[mine["device", device]] if ("device", device) in mine else []
                if q.time[op][device] >= 0:
                    model.add_bool_or(*data, *more).only_enforce_if(here)
        for number, _, _, sent, begin in self.moved:
            place = next(p for p in by_start[id(begin)] if self.actions[p].literal is sent)
            made = self._equal(begin, self.finish[q.tensors[number].producer])
            model.add_bool_or(made, *first[place]).only_enforce_if(sent)

    def _equal(self, a: Any, b: Any) -> Any:
        same = self.model.new_bool_var("")
        self.model.add(a == b).only_enforce_if(same)
        return same

    def _limit(self) -> None:
        q, model = self.q, self.model
        for device, capacity in enumerate(q.capacity):
            if capacity is None:
                continue
            always = sum(
                (q.weights[op] + (q.workspace[op] if q.static else 0)) * row[device] for op, row in enumerate(self.x)
            )
            for size, users in q.tied:
                always += size * self._any([self.x[op][device] for op in users])
            room = model.new_int_var(0, capacity, "")
            model.add(room + always == capacity)
            if self.held[device]:
                intervals, sizes = zip(*self.held[device], strict=True)
                model.add_cumulative(intervals, sizes, room)

    def solve(self, work: float) -> tuple[int | None, int | None]:
        """(bound or None if there is no plan, value of a plan that holds or None)."""
        solver = cp_model.CpSolver()
        solver.parameters.num_workers, solver.parameters.max_deterministic_time = 1, work
        found = solver.solve(self.model)
        if found == cp_model.INFEASIBLE:
            return None, None
        bound = max(0, ceil(solver.best_objective_bound - 1e-6))
        if found not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return bound, None
        placement = [next(d for d in self.devices if solver.value(row[d])) for row in self.x]
        lasts = [self.q.time[op][device] > 0 for op, device in enumerate(placement)]
        listed: list[tuple[tuple[int, bool, int], int | Sent]] = [
            ((solver.value(start), lasts[op], 2 * op), op) for op, start in enumerate(self.start)
        ]
        for number, target, consumer, sent, begin in self.moved:
            if solver.value(sent):
                rank = 2 * self.q.tensors[number].producer + 1
                listed.append(((solver.value(begin), True, rank), Sent(number, target, consumer)))
        actions = [action for _, action in sorted(listed, key=lambda pair: pair[0])]
        try:
            return bound, append(self.q, placement, actions)
        except Broken:
            if self.waits:
                return bound, None  # nothing may wait, and then it does not fit
            raise
