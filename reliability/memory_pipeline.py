"""The least period of a pipeline within memory as one CP-SAT model, written from docs/concepts.md alone.

In: a `Question`. Out: `Optimum`, whose plan `memory_check.pipeline` has accepted. Nothing of `weftline.pipeline` is
used. Simplified: one Boolean for every tensor, op and device; so it is slow.
"""

from __future__ import annotations

from itertools import pairwise
from math import ceil
from typing import Any

from ortools.sat.python import cp_model

from reliability.memory_check import Question, pipeline
from reliability.memory_latency import Optimum

__all__ = ["least_period"]


def least_period(q: Question, work: float) -> Optimum:
    """Within so many units of CP-SAT's deterministic time."""
    model = _Model(q)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers, solver.parameters.max_deterministic_time = 1, work
    found = solver.solve(model.model)
    if found == cp_model.INFEASIBLE:
        return Optimum(None, None)
    bound = max(0, ceil(solver.best_objective_bound - 1e-6))
    if found not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Optimum(bound, None)
    placement = [next(d for d in model.devices if solver.value(row[d])) for row in model.x]
    return Optimum(bound, pipeline(q, placement))


class _Model:
    def __init__(self, q: Question) -> None:
        self.q, self.model = q, cp_model.CpModel()
        self.devices = range(len(q.capacity))
        most = sum(max(row) for row in q.time)
        most += 2 * len(q.capacity) * sum(max(max(row) for row in tensor.length) for tensor in q.tensors)
        self.period = self.model.new_int_var(0, most, "")
        self._place()
        self._order()
        self._load()
        if not q.static:
            self._hold()
        for device, capacity in enumerate(q.capacity):
            if capacity is not None:
                self.model.add(self.always(device) <= capacity)
        self.model.minimize(self.period)

    def _place(self) -> None:
        q, model = self.q, self.model
        self.x = [[model.new_bool_var("") for _ in self.devices] for _ in q.time]
        for op, row in enumerate(self.x):
            model.add_exactly_one(row)
            model.add_bool_and(here.negated() for d, here in enumerate(row) if q.time[op][d] < 0)
        for members in q.together:
            for a, b in pairwise(members):
                for device in self.devices:
                    model.add(self.x[a][device] == self.x[b][device])
        used = [self._any([row[device] for row in self.x]) for device in self.devices]
        model.add(sum(used) <= q.stages)

    def _any(self, literals: list[Any]) -> Any:
        found = self.model.new_bool_var("")
        self.model.add_max_equality(found, literals)
        return found

    def _all(self, literals: list[Any]) -> Any:
        found = self.model.new_bool_var("")
        self.model.add_min_equality(found, literals)
        return found

    def _order(self) -> None:
        """A place for every op; those of one stage have that of the stage."""
        q, model = self.q, self.model
        most = len(q.time) + len(q.capacity)
        stage = [model.new_int_var(0, most, "") for _ in self.devices]
        place = [model.new_int_var(0, most, "") for _ in q.time]
        for op, row in enumerate(self.x):
            for device, here in enumerate(row):
                if not q.host[device]:
                    model.add(place[op] == stage[device]).only_enforce_if(here)
        for tensor in q.tensors:
            for op in tensor.consumers:
                maker = tensor.producer
                if maker < 0 or q.backward[maker] or q.backward[op]:
                    continue
                model.add(place[maker] <= place[op])
                for device, here in enumerate(self.x[maker]):
                    if q.host[device]:
                        model.add(place[maker] < place[op]).only_enforce_if(here)
                    else:
                        away = self.x[op][device].negated()
                        model.add(place[maker] < place[op]).only_enforce_if([here, away])

    def _load(self) -> None:
        q, model = self.q, self.model
        enters: list[Any] = [0 for _ in self.devices]
        leaves: list[Any] = [0 for _ in self.devices]
        for tensor in q.tensors:
            if tensor.producer < 0 or not tensor.consumers:
                continue
            for target in self.devices:
                wanted = self._any([self.x[op][target] for op in tensor.consumers])
                for source in self.devices:
                    if source == target:
                        continue
                    length = tensor.length[source][target]
                    sent = self._all([wanted, self.x[tensor.producer][source]])
                    if length < 0:
                        model.add(sent == 0)
                    elif not q.host[target]:
                        enters[target] += length * sent
            for source in self.devices:
                dearest = model.new_int_var(0, max(0, *tensor.length[source]), "")
                for op in tensor.consumers:
                    for target in self.devices:
                        if target != source and tensor.length[source][target] > 0:
                            both = [self.x[tensor.producer][source], self.x[op][target]]
                            model.add(dearest >= tensor.length[source][target]).only_enforce_if(both)
                if not q.host[source]:
                    leaves[source] += dearest
        for device in self.devices:
            compute = sum(max(q.time[op][device], 0) * row[device] for op, row in enumerate(self.x))
            parts = (compute, enters[device], leaves[device])
            for part in parts if q.overlapped else (sum(parts),):
                model.add(self.period >= part)

    def always(self, device: int) -> Any:
        """Weights on a device; under the static rule workspaces, too."""
        q = self.q
        found = sum(
            (q.weights[op] + (q.workspace[op] if q.static else 0)) * row[device] for op, row in enumerate(self.x)
        )
        for size, users in q.tied:
            found += size * self._any([self.x[op][device] for op in users])
        return found

    def _hold(self) -> None:
        """What a stage holds while each of its ops runs."""
        for device, capacity in enumerate(self.q.capacity):
            if capacity is None:
                continue
            always = self.always(device)
            held: list[Any] = list(self.q.workspace)
            for tensor in self.q.tensors:
                self._tensor(device, tensor, held)
            for op, row in enumerate(self.x):
                self.model.add(always + held[op] <= capacity).only_enforce_if(row[device])

    def _tensor(self, device: int, tensor: Any, held: list[Any]) -> None:
        q, users = self.q, [self.x[op][device] for op in tensor.consumers]
        times = 2 if q.overlapped else 1
        made = None if tensor.producer < 0 else self.x[tensor.producer][device]
        crosses = None
        if made is not None:
            leaves = self._any([self.model.new_constant(int(tensor.output)), *(user.negated() for user in users)])
            crosses = self._all([made, leaves])
        for op in range(len(self.x)):
            later = [self.x[user][device] for user in tensor.consumers if user >= op]
            if made is None or crosses is None:
                if later:
                    held[op] += times * tensor.size * self._any(later)
                continue
            if later:
                held[op] += times * tensor.size * self._all([self._any(later), made.negated()])
            if tensor.producer <= op:
                held[op] += times * tensor.size * crosses
                inside = [made] if op == tensor.producer else [made, self._any(later)] if later else []
                if inside:
                    held[op] += tensor.size * self._all([*inside, crosses.negated()])
