"""Suites for every solver of fleets, and the optimum of tiny problems of layers by trying everything.

In: a `FleetSolver` and a tiny problem. Out: nothing, or an `AssertionError` that says what does not hold. Optima of
layers: every choice of what every unit holds, each with a linear program over all lanes; nothing of it is shared with
the solvers. Choices whose smallest cut is below the best so far are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, pairwise
from math import isfinite
from random import Random

import msgspec
import numpy as np
from numpy.typing import NDArray

from weftline.certify.check_fleet import fleet_bound_of
from weftline.certify.check_layers import refuted_rate
from weftline.errors import InfeasibleError
from weftline.fleet.search import FleetSearch, FleetSolver, LayerSearch
from weftline.graph.arrays import Indices
from weftline.problem import Problem
from weftline.problem.layers import (
    SINK_NODE,
    SOURCE_NODE,
    DevicePool,
    LayerInstance,
    LayerProblem,
    LayerUnit,
    check_layers,
)
from weftline.problem.model import problem_to_file
from weftline.search.lp import Program, minimise
from weftline.simulate.fleet import LaneLoads, deployment_violations, lane_loads, simulate_deployment
from weftline.simulate.layers import layer_violations, simulate_layers

__all__ = [
    "LAYER_KINDS",
    "best_layer_rate",
    "check_fleet_solver",
    "check_layer_solver",
    "lanes_rate",
    "random_layers",
    "solve_layer_problem",
]

LAYER_KINDS = (
    "free",
    "partial",
    "depth",
    "partial-depth",
    "groups",
    "groups-depth",
    "links",
    "links-partial",
    "links-depth",
    "ports",
    "links-ports-partial-depth",
    "copies",
    "links-copies",
)
"""Options of generated problems of layers: the words of a kind say which it has."""
UNIT_RATE = 10**6
"""Rates of generated problems are about so much, so that rounding to whole numbers is little."""
MOST_STATES = 400_000
CLOSE_SHARE = 1e-6
"""Of a rate: what rounding to whole numbers may change."""

Whole = NDArray[np.int64]
Holding = tuple[int, int, int]
"""(unit, first, last)."""
Hop = tuple[int, int, int]


def random_layers(seed: int, kind: str = "free") -> LayerProblem:
    """A tiny problem with the options that are in the kind's name."""
    dice, words = Random(f"{kind}/{seed}"), kind.split("-")
    single = "links" in words or "ports" in words
    layers = dice.randint(2, 4 if single else 5)
    most = (4 if layers == 2 else 3 if layers == 3 else 2) if single else 5
    counts = [1] * dice.randint(1, 3)
    for _ in range(dice.randint(len(counts), most) - len(counts) if most > len(counts) else 0):
        counts[dice.randrange(len(counts))] += 1
    counts = counts[:most]
    pools = tuple(DevicePool(f"p{i}", count) for i, count in enumerate(counts))
    style = dice.choice(("falling", "any", "zeros"))
    units = [LayerUnit(f"u{i}", i, _table(dice, layers, style)) for i in range(len(pools))]
    if "groups" in words:
        for i, count in enumerate(counts):
            if count > 1 and dice.random() < 0.8:
                units.append(LayerUnit(f"pair{i}", i, _table(dice, layers, style, 2), 2))
    depth = dice.randint(1, layers) if "depth" in words else None
    total = sum(counts)
    links = tuple(_links(dice, total)) if "links" in words else None
    ports = tuple((_room(dice), _room(dice)) for _ in range(total)) if "ports" in words else None
    copies = dice.randint(1, 2) if "copies" in words else msgspec.UNSET
    return check_layers(
        LayerProblem(f"{kind}-{seed}", layers, pools, tuple(units), links, ports, "partial" in words, depth, copies)
    )


def _table(dice: Random, layers: int, style: str, scale: int = 1) -> tuple[int, ...]:
    top = dice.randint(1, 9) * UNIT_RATE * scale + dice.randrange(7)
    length = dice.randint(max(1, layers - 2), layers + 1)
    if style == "falling":
        power = dice.choice((0.5, 1.0, 1.3))
        return tuple(int(top / (k + 1) ** power) for k in range(length))
    table = [dice.randint(1, 9) * UNIT_RATE * scale // dice.randint(1, 3) for _ in range(length)]
    return tuple(0 if style == "zeros" and dice.random() < 0.35 else rate for rate in table)


def _room(dice: Random) -> int:
    return dice.choice((dice.randint(0, 4), dice.randint(1, 12), 10**9)) * UNIT_RATE // dice.randint(1, 3)


def _links(dice: Random, count: int) -> Iterator[tuple[int, int, int]]:
    dense = dice.choice((0.6, 0.9, 1.0))
    for source in (SOURCE_NODE, *range(count)):
        for target in (*range(count), SINK_NODE):
            through = source == SOURCE_NODE and target == SINK_NODE
            if source != target and dice.random() < (0.1 if through else dense):
                yield source, target, _room(dice)


def _lanes(problem: LayerProblem, instances: Sequence[LayerInstance]) -> Iterator[list[Hop]]:
    """Every way through the instances that comes to none of them twice: a second visit could be left out."""
    linked = None if problem.links is None else {(a, b) for a, b, rate in problem.links if rate}
    stack: list[tuple[int, list[Hop]]] = [(0, [])]
    while stack:
        position, hops = stack.pop()
        at = instances[hops[-1][0]].devices[0] if hops else SOURCE_NODE
        if position == problem.layers and (linked is None or (at, SINK_NODE) in linked):
            yield hops
        if problem.max_depth is not None and len(hops) >= problem.max_depth:
            continue
        for i, one in enumerate(instances):
            fits = one.first <= position < one.last and (problem.partial or one.first == position)
            if not fits or i in {hop[0] for hop in hops} or (linked and (at, one.devices[0]) not in linked):
                continue
            if linked is not None and not linked:
                continue
            for end in range(position + 1, one.last + 1) if problem.partial else (one.last,):
                stack.append((end, [*hops, (i, position, end)]))


def lanes_rate(problem: LayerProblem, instances: Sequence[LayerInstance]) -> float:
    """The most that these instances serve together, by a linear program over every lane."""
    usable = [one for one in instances if problem.rate(one.unit, one.held)]
    lanes = list(_lanes(problem, usable))
    if not lanes:
        return 0.0
    rows: dict[object, dict[int, float]] = {}
    limit: dict[object, int] = {("serve", i): problem.rate(one.unit, one.held) for i, one in enumerate(usable)}
    top = max(limit.values())
    limit |= {("link", a, b): min(rate, top * len(usable)) for a, b, rate in problem.links or ()}
    for device, (into, out) in enumerate(problem.ports or ()):
        limit |= {("in", device): into, ("out", device): out}
    for column, hops in enumerate(lanes):
        devices = [SOURCE_NODE, *(usable[i].devices[0] for i, _, _ in hops), SINK_NODE]
        names: list[object] = [("serve", i) for i, _, _ in hops]
        names += [("link", a, b) for a, b in pairwise(devices)]
        names += [(way, device) for device in devices[1:-1] for way in ("in", "out")]
        for name in names:
            if name in limit:
                row = rows.setdefault(name, {})
                row[column] = row.get(column, 0.0) + 1.0
    entries = [(r, column, value) for r, row in enumerate(rows.values()) for column, value in row.items()]
    places = np.array([[r, column] for r, column, _ in entries], np.int64)
    high = np.array([min(limit[name], top * len(usable)) / top for name in rows])
    count = len(lanes)
    answer = minimise(
        Program(
            -np.ones(count),
            np.zeros(count),
            np.full(count, float(len(usable))),
            np.full(len(rows), -np.inf),
            high,
            places[:, 0],
            places[:, 1],
            np.array([value for _, _, value in entries]),
        )
    )
    if not isfinite(answer.value):
        raise ArithmeticError(f"the linear program of lanes ended with {answer.value}")
    return -answer.value * top


def _choices(problem: LayerProblem) -> list[list[list[tuple[Holding, tuple[int, ...]]]]]:
    """Of every pool (of every device where links tell them apart) all that it can hold."""
    spans = [(a, b) for a in range(problem.layers) for b in range(a + 1, problem.layers + 1)]
    apart, found = problem.links is not None or problem.ports is not None, []
    for pool, (first, last) in enumerate(zip(problem.offsets, problem.offsets[1:], strict=False)):
        own = [u for u, unit in enumerate(problem.units) if unit.pool == pool]
        holdings = [(u, a, b) for u in own for a, b in spans if problem.rate(u, b - a)]
        for group in [[device] for device in range(first, last)] if apart else [list(range(first, last))]:
            held: list[list[tuple[Holding, tuple[int, ...]]]] = []
            for count in range(len(group) + 1):
                for some in combinations_with_replacement(holdings, count):
                    sizes = [problem.units[u].size for u, _, _ in some]
                    if sum(sizes) <= len(group):
                        begins = [sum(sizes[:i]) for i in range(count)]
                        taken = [tuple(group[b : b + size]) for b, size in zip(begins, sizes, strict=True)]
                        held.append(list(zip(some, taken, strict=True)))
            found.append(held)
    return found


def _cuts(problem: LayerProblem, holding: Holding, devices: tuple[int, ...]) -> NDArray[np.int64]:
    """What a holding adds to every cut of the positions; ports count as a part of the unit."""
    unit, first, last = holding
    rate, inner = problem.rate(unit, last - first), problem.layers - 1
    if problem.ports is not None:
        rate = min(rate, *problem.ports[devices[0]])
    behind = np.ones((2**inner, problem.layers + 1), bool)
    behind[:, 0] = False
    for position in range(1, problem.layers):
        behind[:, position] = (np.arange(2**inner) >> (position - 1)) & 1
    ends = range(first, last + 1) if problem.partial else (first, last)
    crossed = (~behind[:, ends]).any(axis=1) & behind[:, ends].any(axis=1)
    if not problem.partial:
        crossed &= ~behind[:, first]
    return np.where(crossed, rate, 0).astype(np.int64)


def _most_holders(problem: LayerProblem, choices: list[list[list[tuple[Holding, tuple[int, ...]]]]]) -> Whole:
    """Of every state the number of instances that hold the same layer."""
    total = np.zeros((1, problem.layers), np.int64)
    for held in choices:
        own = np.zeros((len(held), problem.layers), np.int64)
        for state, some in enumerate(held):
            for (_, first, last), _ in some:
                own[state, first:last] += 1
        total = (total[:, None, :] + own[None, :, :]).reshape(-1, problem.layers)
    found: Whole = total.max(axis=1)
    return found


def best_layer_rate(problem: LayerProblem) -> float:
    """The highest rate of any deployment, 0 if there is none; `ValueError` where that are too many to try."""
    choices = _choices(problem)
    shape = [len(held) for held in choices]
    if np.prod(shape, dtype=float) > MOST_STATES:
        raise ValueError(f"{np.prod(shape, dtype=float):.3g} choices are too many")
    total = np.zeros((1, 2 ** (problem.layers - 1)), np.int64)
    for held in choices:
        own = np.array([sum((_cuts(problem, *one) for one in some), np.zeros_like(total[0])) for some in held])
        total = (total[:, None, :] + own[None, :, :]).reshape(-1, total.shape[1])
    most = total.min(axis=1)
    if (
        problem.max_copies is not msgspec.UNSET
    ):  # what is above the limit holds nothing here; a part of it is a state, too
        most[_most_holders(problem, choices) > problem.max_copies] = 0
    if problem.links is None and problem.ports is None and problem.max_depth is None:
        return float(most.max())
    best = 0.0
    for state in np.argsort(-most, kind="stable").tolist():
        if most[state] <= best * (1 + 1e-12):
            break
        numbers = np.unravel_index(state, shape)
        chosen = [one for some, number in zip(choices, numbers, strict=True) for one in some[int(number)]]
        best = max(best, lanes_rate(problem, [LayerInstance(u, taken, a, b) for (u, a, b), taken in chosen]))
    return best


@dataclass
class _WatchedLayers(LayerSearch):
    """A search that counts what is offered after it has an answer and a stop rule has fired."""

    late: int = 0

    def offer(self, instances: Sequence[LayerInstance]):  # type: ignore[no-untyped-def]
        self.late += self.best is not None and bool(self.stopped_by)
        return LayerSearch.offer(self, instances)


@dataclass
class _WatchedLanes(FleetSearch):
    """The same for lanes."""

    late: int = 0

    def offer(self, lanes: Sequence[LaneLoads], rates: Sequence[float]):  # type: ignore[no-untyped-def]
        self.late += self.best is not None and bool(self.stopped_by)
        return FleetSearch.offer(self, lanes, rates)


def solve_layer_problem(
    solver: FleetSolver,
    problem: LayerProblem,
    *,
    seed: int = 0,
    work_limit: int | None = 100,
    time_limit: float | None = None,
    gap: float = 0.0,
) -> tuple[_WatchedLayers, InfeasibleError | None]:
    """Run a solver -> the search, and how it gave up if it did."""
    search = _WatchedLayers(problem=problem, work_limit=work_limit, time_limit=time_limit, seed=seed, gap=gap)
    try:
        solver.solve(search)
    except InfeasibleError as error:
        return search, error
    return search, None


def check_layer_solver(solver: FleetSolver, problem: LayerProblem, *, optimum: float | None = None) -> None:
    """Hold a solver of layers to the rules, on a tiny problem; its optimum is found by trying everything."""

    def demand(holds: bool, what: str) -> None:
        if not holds:
            raise AssertionError(f"solver {solver.name!r} {what}\non {problem}")

    most = best_layer_rate(problem) if optimum is None else optimum
    search, error = solve_layer_problem(solver, problem)
    demand(error is None or not error.proved or most < 1, f"proves infeasible ({error}), but {most} can be reached")
    if (best := search.best) is not None:
        broken = layer_violations(problem, best)
        demand(not broken, f"breaks limits: {broken}")
        demand(
            best == simulate_layers(problem, best.instances, best.lanes), "has an answer that is not the simulator's"
        )
        demand(0 < best.rate <= most * (1 + CLOSE_SHARE) + 1, f"says {best.rate}, but the optimum is {most}")
    if (bound := search.bound) is not None:
        demand(best is None or bound.rate > best.rate, f"refutes {bound.rate}, which it reaches")
        demand(bound.rate > most * (1 - CLOSE_SHARE) - 1, f"refutes {bound.rate}, but the optimum is {most}")
        again = refuted_rate(msgspec.to_builtins(problem), bound.witness())
        demand(again == bound.rate, f"has a witness of {again} for {bound.rate}")
    for seed in (0, 1):
        first, second = (solve_layer_problem(solver, problem, seed=seed)[0] for _ in range(2))
        same = (first.best, first.bound, first.offered) == (second.best, second.bound, second.offered)
        demand(same, f"gives two answers for seed {seed}: {first.best} and {second.best}")
    for work, time, gap in ((1, None, 0.0), (2, None, 0.0), (None, 0.0, 0.0), (40, None, 1.0)):
        late = solve_layer_problem(solver, problem, work_limit=work, time_limit=time, gap=gap)[0].late
        demand(late == 0, f"offers {late} deployments after limits {work, time, gap} have stopped it")


def _solve_fleet(
    solver: FleetSolver,
    problem: Problem,
    *,
    seed: int = 0,
    work_limit: int | None = 200,
    time_limit: float | None = None,
    gap: float = 0.0,
) -> tuple[_WatchedLanes, InfeasibleError | None]:
    search = _WatchedLanes(problem=problem, work_limit=work_limit, time_limit=time_limit, seed=seed, gap=gap)
    try:
        solver.solve(search)
    except InfeasibleError as error:
        return search, error
    return search, None


def _answer(search: FleetSearch) -> object:
    best = search.best
    lanes = None if best is None else [lane.placement.tolist() for lane in best.lanes]
    return lanes, None if best is None else best.rates, search.bound, search.offered


def check_fleet_solver(solver: FleetSolver, problem: Problem) -> None:
    """Hold a solver of lanes to the rules: limits, the simulator's value, a bound below it, seeds, stop rules."""

    def demand(holds: bool, what: str) -> None:
        if not holds:
            raise AssertionError(f"solver {solver.name!r} {what}\non {problem}")

    def costed(placement: Indices) -> LaneLoads:
        return lane_loads(problem, placement)

    search, error = _solve_fleet(solver, problem)
    if (best := search.best) is not None:
        demand(error is None or not error.proved, f"proves infeasible ({error}), but has an answer")
        again = simulate_deployment(problem, [costed(lane.placement) for lane in best.lanes], best.rates)
        broken = deployment_violations(problem, again)
        demand(not broken, f"breaks limits: {broken}")
        demand((again.rate, again.busy) == (best.rate, best.busy), "has an answer that is not the simulator's")
        demand(best.rate > 0, "has an answer without a rate")
    if (bound := search.bound) is not None:
        demand(best is None or bound.value <= best.value, f"has bound {bound.value}, above its own answer")
        if bound.witness is not None:
            proved = fleet_bound_of(msgspec.to_builtins(problem_to_file(problem)), bound.witness)
            demand(proved >= bound.value, f"has a witness of {proved} for {bound.value}")
    for seed in (0, 1):
        first, second = (_solve_fleet(solver, problem, seed=seed)[0] for _ in range(2))
        same = _answer(first) == _answer(second)
        demand(same, f"gives two answers for seed {seed}: {_answer(first)} and {_answer(second)}")
    for work, time, gap in ((1, None, 0.0), (2, None, 0.0), (None, 0.0, 0.0), (200, None, 1.0)):
        late = _solve_fleet(solver, problem, work_limit=work, time_limit=time, gap=gap)[0].late
        demand(late == 0, f"offers {late} deployments after limits {work, time, gap} have stopped it")
