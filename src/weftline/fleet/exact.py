"""`exact`: the best deployment of a small problem of layers, by one integer program with CP-SAT.

In: a LayerSearch. Out: instances that are offered; where the program is solved, no others give more. Where links and
ports do not limit, equal units are counted: how many of each unit hold which layers, and what flows from layer to
layer. Else every device has its own choice, and flows go along links. Where depth is limited, flows are told apart by
how many instances are behind them. Simplified: flows are whole numbers, so the last few units of a rate may be missed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from weftline.errors import InfeasibleError
from weftline.fleet.coverage import coverage_limit
from weftline.fleet.flows import unlinked
from weftline.fleet.search import FleetSolver, LayerSearch
from weftline.problem.layers import SINK_NODE, SOURCE_NODE, LayerInstance, LayerProblem
from weftline.search.cp_sat import run_model

__all__ = ["ExactLayersParameters", "model_size", "solve_exact"]

Holding = tuple[int, int, int]
"""(unit, first, last)."""


@dataclass(frozen=True)
class ExactLayersParameters:
    """Numbers of `exact`."""

    most_variables: int = 60_000
    """A program with more is not built."""
    seconds: float = 60.0
    """For the program, where time is not limited."""
    work: float = 20.0
    """The same in CP-SAT's own measure of work, where work is limited."""


def solve_exact(search: LayerSearch) -> None:
    """Build the program, offer what it finds."""
    numbers, problem = search.parameters(ExactLayersParameters), search.problem
    free = search.free or unlinked(problem, coverage_limit(problem))
    size = model_size(problem, free)
    if size > numbers.most_variables:
        raise InfeasibleError(
            f"an exact program for {problem.layers} layers on {problem.offsets[-1]} devices has {size} variables, "
            f"{numbers.most_variables} are allowed; ask for --solver auto"
        )
    search.free = free
    improve_exactly(search, seconds=numbers.seconds, work=numbers.work)


def improve_exactly(search: LayerSearch, *, seconds: float, work: float) -> bool:
    """Offer what the program finds -> whether it has shown that there is no more."""
    left = search.seconds_left
    program = _Program(search)
    known = search.best

    def offer(values: Sequence[int]) -> None:
        if not (search.best is not None and search.stopped_by):
            search.offer(program.instances(values))

    if known is not None:
        program.hint(known.instances)
    outcome = run_model(
        program.model,
        seconds=seconds if left is None else max(0.05, min(seconds, left)),
        work=None if search.work_limit is None else work,
        seed=search.seed,
        on_solution=offer,
        poll=lambda: search.best is not None and bool(search.stopped_by),
    )
    return bool(outcome.optimal)


def _spans(problem: LayerProblem, unit: int) -> Iterator[tuple[int, int]]:
    """Layers that a unit can hold."""
    for held in range(1, min(problem.layers, len(problem.units[unit].rates)) + 1):
        if problem.rate(unit, held):
            yield from ((first, first + held) for first in range(problem.layers - held + 1))


def _levels(problem: LayerProblem) -> tuple[int, bool]:
    """(numbers of instances that may be behind a flow, whether they are counted: only where depth can bind)."""
    free = min(problem.layers, problem.offsets[-1])
    deep = problem.max_depth is not None and problem.max_depth < free
    return (problem.max_depth or 1) if deep else 1, deep


def _parts(problem: LayerProblem, first: int, last: int) -> list[tuple[int, int]]:
    """What a request may use of what is held."""
    if not problem.partial:
        return [(first, last)]
    return [(p, q) for p in range(first, last) for q in range(p + 1, last + 1)]


def model_size(problem: LayerProblem, free: bool) -> int:
    """About how many variables the program has."""
    longest = min(problem.layers, max(len(unit.rates) for unit in problem.units))
    held = sum(problem.layers - k + 1 for k in range(1, longest + 1))
    parts = sum((problem.layers - k + 1) * (k * (k + 1) // 2 if problem.partial else 1) for k in range(1, longest + 1))
    levels, _ = _levels(problem)
    if free:
        return held * len(problem.units) + parts * levels
    count = problem.offsets[-1]
    return count * (held + held * levels) + (count + 1) * (count + 1) * problem.layers * levels


class _Program:
    """The variables: how often a unit (or whether a device) holds layers, and what flows."""

    def __init__(self, search: LayerSearch) -> None:
        from ortools.sat.python import cp_model

        self.problem, self.free, self.model = search.problem, search.free, cp_model.CpModel()
        self.most = coverage_limit(search.problem) if search.limit is None else search.limit
        self.levels, self.deep = _levels(search.problem)
        self.held: dict[tuple[int, Holding], Any] = {}
        """(device, or -1 where equal units are counted, holding) -> variable."""
        self.balance: dict[Hashable, list[Any]] = defaultdict(list)
        """Terms that add up to 0: what enters a place less what leaves it."""
        self.rate: list[Any] = []
        self._hold()
        if self.free:
            self._flow_at_positions()
        else:
            self._flow_along_links()
        for terms in self.balance.values():
            self.model.add(sum(terms) == 0)
        self.model.add(sum(self.rate) <= self.most)
        if search.best is not None:
            self.model.add(sum(self.rate) >= search.best.rate)
        self.model.maximize(sum(self.rate))

    def _hold(self) -> None:
        problem, model = self.problem, self.model
        for number, pool in enumerate(problem.pools):
            devices = range(problem.offsets[number], problem.offsets[number + 1])
            for who in (-1,) if self.free else devices:
                taken = []
                for unit, about in enumerate(problem.units):
                    most = pool.count // about.size if self.free else 1
                    for span in _spans(problem, unit) if about.pool == number else ():
                        variable = model.new_int_var(0, most, "")
                        self.held[who, (unit, *span)] = variable
                        taken.append(variable * about.size)
                model.add(sum(taken) <= (pool.count if self.free else 1))
        if problem.copies_limit < problem.offsets[-1]:
            for layer in range(problem.layers):
                here = [one for (_, (_, first, last)), one in self.held.items() if first <= layer < last]
                model.add(sum(here) <= problem.copies_limit)

    def _flow(self, room: int) -> Any:
        return self.model.new_int_var(0, min(room, self.most), "")

    def _flow_at_positions(self) -> None:
        """Holdings of the same layers are one arc."""
        problem = self.problem
        rooms: dict[tuple[int, int], list[tuple[Any, int]]] = defaultdict(list)
        for (_, (unit, first, last)), variable in self.held.items():
            rooms[first, last].append((variable, min(problem.rate(unit, last - first), self.most)))
        for span, terms in rooms.items():
            flows = []
            for p, q in _parts(problem, *span):
                for level in range(self.levels):
                    if p == 0 and level > 0:
                        continue
                    flow = self._flow(self.most)
                    flows.append(flow)
                    self._join(flow, ("at", p, level), ("at", q, level + self.deep), p, q)
            self.model.add(sum(flows) <= sum(variable * rate for variable, rate in terms))

    def _join(self, flow: Any, before: Hashable, behind: Hashable, p: int, q: int) -> None:
        """A flow leaves one place and enters another; the first and the last have no balance."""
        if p == 0:
            self.rate.append(flow)
        else:
            self.balance[before].append(-flow)
        if q < self.problem.layers:
            self.balance[behind].append(flow)

    def _flow_along_links(self) -> None:
        """Through a device: flows that enter at p and leave at q; between devices: flows at a position."""
        problem = self.problem
        enters: dict[tuple[int, int, int], list[Any]] = defaultdict(list)
        leaves: dict[tuple[int, int, int], list[Any]] = defaultdict(list)
        ports: dict[tuple[int, int], list[Any]] = defaultdict(list)
        for device in range(problem.offsets[-1]):
            self._flow_inside(device, enters, leaves)
        for a, b, room in self._links():
            flows = []
            for q, level in {key[1:] for key in leaves if key[0] == a} if a != SOURCE_NODE else {(0, 0)}:
                if b == SINK_NODE and q == problem.layers:
                    flow = self._flow(room)
                elif b != SINK_NODE and (b, q, level) in enters:
                    flow = self._flow(room)
                    self.balance["in", b, q, level].append(flow)
                    ports[b, 0].append(flow)
                else:
                    continue
                flows.append(flow)
                if a == SOURCE_NODE:
                    self.rate.append(flow)
                else:
                    self.balance["out", a, q, level].append(-flow)
                    ports[a, 1].append(flow)
            if flows:
                self.model.add(sum(flows) <= room)
        for name, sides, sign in (("in", enters, -1), ("out", leaves, 1)):
            for key, flows in sides.items():
                self.balance[(name, *key)] += [sign * flow for flow in flows]
        for (device, way), flows in ports.items() if problem.ports is not None else ():
            self.model.add(sum(flows) <= problem.ports[device][way])  # type: ignore[index]

    def _flow_inside(self, device: int, enters: Any, leaves: Any) -> None:
        """A hop (p, q) needs that the device holds these layers, and shares what it can serve with all others."""
        problem, hops = self.problem, dict[tuple[int, int], list[tuple[Any, int]]]()
        mine = [(held, variable) for (who, held), variable in self.held.items() if who == device]
        for (unit, first, last), variable in mine:
            for part in _parts(problem, first, last):
                hops.setdefault(part, []).append((variable, min(problem.rate(unit, last - first), self.most)))
        everything = []
        for (p, q), terms in hops.items():
            flows = [self._flow(self.most) for level in range(self.levels) if p > 0 or level == 0]
            for level, flow in enumerate(flows):
                enters[device, p, level].append(flow)
                leaves[device, q, level + self.deep].append(flow)
            everything += flows
            self.model.add(sum(flows) <= sum(variable * rate for variable, rate in terms))
        if problem.partial and everything:
            rates = [variable * min(problem.rate(u, b - a), self.most) for (u, a, b), variable in mine]
            self.model.add(sum(everything) <= sum(rates))

    def _links(self) -> Iterator[tuple[int, int, int]]:
        problem, devices = self.problem, range(self.problem.offsets[-1])
        if problem.links is not None:
            through = (SOURCE_NODE, SINK_NODE)
            yield from (link for link in problem.links if link[2] and link[:2] != through)
            return
        for a in (SOURCE_NODE, *devices):
            yield from ((a, b, self.most) for b in (*devices, SINK_NODE) if a != b and (a, b) != (-1, -2))

    def hint(self, instances: Sequence[LayerInstance]) -> None:
        """What is known already."""
        counts: dict[tuple[int, Holding], int] = defaultdict(int)
        for one in instances:
            counts[-1 if self.free else one.devices[0], (one.unit, one.first, one.last)] += 1
        for key, variable in self.held.items():
            self.model.add_hint(variable, counts[key])

    def instances(self, values: Sequence[int]) -> list[LayerInstance]:
        """Devices for what is held."""
        problem = self.problem
        left = [list(range(a, b)) for a, b in pairwise(problem.offsets)]
        found = []
        for (who, (unit, first, last)), variable in self.held.items():
            about = problem.units[unit]
            for _ in range(values[variable.index]):
                free = left[about.pool]
                taken = free[: about.size] if who < 0 else [who]
                left[about.pool] = [device for device in free if device not in taken]
                found.append(LayerInstance(unit, tuple(taken), first, last))
        return found


SOLVERS = (
    FleetSolver(
        "exact",
        "the best deployment of a small problem, by one integer program (CP-SAT)",
        solve_exact,
        layers=True,
        parameters=ExactLayersParameters,
    ),
)
