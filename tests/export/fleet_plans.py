"""Fleet plans with lanes made by hand, costed by the simulator; every one holds for the checker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import msgspec
import numpy as np

from weftline.ask import make_fleet
from weftline.cluster import Cluster
from weftline.graph import Graph, Op
from weftline.plans.fleet import FleetDevice, FleetInstance, FleetLane, FleetPlan, hops_of
from weftline.problem import Problem, Rules, build_problem
from weftline.simulate.fleet import FULL_SECOND, RATE_UNITS, lane_loads, simulate_deployment
from weftline.testing.generate import Feed, problem_of
from weftline.zoo import zoo_graph

__all__ = ["HOSTILE", "fleet_of", "hostile_fleet", "layered_fleet", "small_fleet", "small_problem"]

HOSTILE = "</script><img src=x onerror=alert(1)>"


def small_problem() -> Problem:
    """Three ops on two unequal devices: whole copies are not the best."""
    problem = problem_of([[900, 400], [300, 900], [500, 700]], [Feed(0, (1, 2), 40), Feed(1, (2,), 30)])
    return replace(problem, rules=msgspec.structs.replace(problem.rules, objective="throughput"))


@cache
def small_fleet(solver: str = "auto") -> FleetPlan:
    """Its best fleet (two lanes that share both devices), or its replicas."""
    return make_fleet(small_problem(), solver=solver, work_limit=100)


def fleet_of(problem: Problem, lanes: Sequence[Callable[[Op], str]], rates: Sequence[int] = ()) -> FleetPlan:
    """Lanes by the device of each op; without rates each device is shared evenly among its lanes."""
    ids = [device.id for device in problem.devices]
    placements = [np.array([ids.index(choose(op)) for op in problem.graph.ops], np.int32) for choose in lanes]
    loads = [lane_loads(problem, placement) for placement in placements]
    given = rates or [FULL_SECOND // (len(lanes) * max(1, int(lane.limited.max()))) for lane in loads]
    found = simulate_deployment(problem, loads, given)
    held = [{op for p in placements for op, on in enumerate(p.tolist()) if on == d} for d in range(len(ids))]
    return msgspec.structs.replace(
        make_fleet(problem, solver="replicas", work_limit=1),
        value_ns=found.value,
        rate=found.rate / RATE_UNITS,
        depth=found.depth,
        bound_ns=0,
        rate_bound=None,
        gap=1.0,
        proof="none",
        bound_by="",
        bounds=(),
        devices={
            device.id: FleetDevice(found.busy[d] / FULL_SECOND, int(found.peak[d]), device.capacity)
            for d, device in enumerate(problem.devices)
        },
        instances=tuple(FleetInstance(id, len(ops)) for id, ops in zip(ids, held, strict=True) if ops),
        lanes=tuple(
            FleetLane(rate, lane.depth, hops_of(lane.placement)) for rate, lane in zip(given, loads, strict=True)
        ),
    )


def layered_fleet(*lanes: Callable[[Op], str], cluster: str = "two-gpus", layers: int = 4) -> FleetPlan:
    """The same for a GPT of so many layers."""
    graph = zoo_graph("gpt2", size="small", layers=layers)
    return fleet_of(build_problem(graph, Cluster.preset(cluster), rules=Rules(objective="throughput")), lanes)


def hostile_fleet() -> FleetPlan:
    """Every text that a file can bring is an attack."""
    clean = small_problem()
    graph = Graph(
        name=f"model {HOSTILE}",
        ops=tuple(
            msgspec.structs.replace(op, name=f"{i}{HOSTILE}", kind=HOSTILE) for i, op in enumerate(clean.graph.ops)
        ),
        tensors=tuple(msgspec.structs.replace(t, name=f"{i}{HOSTILE}") for i, t in enumerate(clean.graph.tensors)),
    )
    dirty = replace(clean, graph=graph, cost=replace(clean.cost, source=HOSTILE))
    plan = make_fleet(dirty, work_limit=60, argv=(HOSTILE,), inputs={HOSTILE: HOSTILE})
    bounds = tuple(msgspec.structs.replace(bound, by=HOSTILE) for bound in plan.bounds)
    changes = {"solver": HOSTILE, "stopped_by": HOSTILE, "baselines": {HOSTILE: 1.0}}
    return msgspec.structs.replace(plan, bounds=bounds, bound_by=HOSTILE, **changes)
