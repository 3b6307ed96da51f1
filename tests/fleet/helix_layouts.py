"""Helix's cluster of 24 nodes and seven layouts of Llama 2 70B on it, for tests of serving.

`theirs` is the layout that Helix ships, with a largest flow through it; all others are stages of equal instances.
"""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
from ortools.graph.python import max_flow
from tests.data import present

from weftline.fleet.serving import stage_lanes
from weftline.problem.layers import (
    RATE_SCALE,
    SINK_NODE,
    SOURCE_NODE,
    DevicePool,
    LayerInstance,
    LayerLane,
    LayerProblem,
    LayerUnit,
    check_layers,
)
from weftline.problem.serving import ServingProfile, ServingRules, profile_for, read_serving

HELIX_COPY_NS = 7373
"""Of a token into the memory of a node: 16,384 bytes at 4 GB/s and again at 5 GB/s, as in Helix's simulator."""
HELIX_RULES = ServingRules(copy_ns=HELIX_COPY_NS)


class Layout(NamedTuple):
    """What is to be served."""

    instances: tuple[LayerInstance, ...]
    lanes: tuple[LayerLane, ...]


STAGES = {
    "S9": [("A100", 12, 1)] * 4 + [("L4", 7, 2)] * 4 + [("T4", 4, 2)],
    "S11": [("A100", 11, 1)] * 4 + [("L4", 6, 2)] * 4 + [("T4", 4, 2)] * 3,
    "S12": [("A100", 10, 1)] * 4 + [("L4", 6, 2)] * 4 + [("T4", 4, 2)] * 4,
    "S14": [("A100", 9, 1)] * 4 + [("L4", 5, 2)] * 4 + [("T4", 4, 2)] * 6,
    "S20": [("A100", 9, 1)] * 4 + [("L4", 3, 1)] * 8 + [("T4", 3, 2)] * 4 + [("T4", 2, 1)] * 4,
    "chain": [("A100", 8, 1)] * 4 + [("L4", 3, 1)] * 8 + [("T4", 2, 1)] * 12,
    "kp1": [("A100", 10, 1)] * 4 + [("L4", 7, 2)] * 4 + [("T4", 4, 4)] * 3,
}
"""(kind, layers, how many nodes side by side) of each stage. kp1 is named in the specification; the others are what
its depths and rates leave open.
"""


def helix_problem(name: str) -> tuple[LayerProblem, dict[int, int], dict[str, Any]]:
    """(the problem, number of each of their nodes in it, their file)."""
    file = json.loads(present(f"helix/{name}.json").read_bytes())
    kinds = [kind for kind in file["kinds"] if kind in file["nodes"]]
    order = [node for kind in kinds for node, own in enumerate(file["nodes"]) if own == kind]
    number: dict[Any, int] = {node: place for place, node in enumerate(order)}
    ends = number | {"source": SOURCE_NODE, "sink": SINK_NODE}
    units = [LayerUnit(kind, pool, tuple(map(_whole, file["kinds"][kind]))) for pool, kind in enumerate(kinds)]
    pools = [DevicePool(kind, file["nodes"].count(kind)) for kind in kinds]
    links = tuple((ends[a], ends[b], _whole(rate)) for a, b, rate, _ in file["links"])
    return check_layers(LayerProblem(name, file["layers"], tuple(pools), tuple(units), links)), number, file


def _whole(rate: float) -> int:
    return int(Fraction(rate) * RATE_SCALE)


def helix_profile(problem: LayerProblem) -> ServingProfile:
    """What Helix measured."""
    return profile_for(problem, read_serving(present("helix/profiles.json")))


def helix_latencies(number: dict[int, int], file: dict[str, Any]) -> tuple[tuple[int, int, int], ...]:
    """Of all links, ns."""
    ends: dict[Any, int] = number | {"source": SOURCE_NODE, "sink": SINK_NODE}
    return tuple((ends[a], ends[b], round(ms * 10**6)) for a, b, _, ms in file["links"])


def stage_layout(problem: LayerProblem, stages: list[tuple[str, int, int]]) -> Layout:
    """Stages one behind the other, each on the next free devices of its pool."""
    unit = {own.name: number for number, own in enumerate(problem.units)}
    free, first = list(problem.offsets), 0
    instances = []
    for kind, layers, side_by_side in stages:
        pool = problem.units[unit[kind]].pool
        for _ in range(side_by_side):
            assert free[pool] < problem.offsets[pool + 1], f"too few {kind}"
            instances.append(LayerInstance(unit[kind], (free[pool],), first, first + layers))
            free[pool] += 1
        first += layers
    return Layout(tuple(instances), stage_lanes(problem, instances))


def their_layout(problem: LayerProblem, number: dict[int, int], file: dict[str, Any]) -> Layout:
    """The layout in the file, with a largest flow through its links as lanes."""
    pool_of = [pool for pool, own in enumerate(problem.pools) for _ in range(own.count)]
    instances = [
        LayerInstance(pool_of[number[int(node)]], (number[int(node)],), *span)
        for node, span in file["theirs"]["layout"].items()
    ]
    flow, source, sink = max_flow.SimpleMaxFlow(), 2 * len(instances), 2 * len(instances) + 1
    most = {(a, b): rate for a, b, rate in problem.links or ()}
    arcs = {}
    for i, one in enumerate(instances):
        here = one.devices[0]
        arcs[2 * i, 2 * i + 1] = problem.rate(one.unit, one.held)
        arcs |= {(source, 2 * i): most.get((SOURCE_NODE, here), 0)} if one.first == 0 else {}
        arcs |= {(2 * i + 1, sink): most.get((here, SINK_NODE), 0)} if one.last == problem.layers else {}
        for j, other in enumerate(instances):
            if one.last == other.first:
                arcs[2 * i + 1, 2 * j] = most.get((here, other.devices[0]), 0)
    names = {flow.add_arc_with_capacity(a, b, room): (a, b) for (a, b), room in arcs.items()}
    flow.solve(source, sink)
    left = {ends: flow.flow(arc) for arc, ends in names.items()}
    lanes = []
    while True:
        path = [source]
        while path[-1] != sink:
            onward = [(amount, b) for (a, b), amount in left.items() if a == path[-1] and amount > 0]
            if not onward:
                break
            path.append(max(onward)[1])
        if path[-1] != sink:
            break
        steps = list(pairwise(path))
        amount = min(left[step] for step in steps)
        for step in steps:
            left[step] -= amount
        hops = tuple((node // 2, instances[node // 2].first, instances[node // 2].last) for node in path[1:-1:2])
        lanes.append(LayerLane(amount, hops))
    used = sorted({i for lane in lanes for i, _, _ in lane.hops})
    place = {i: k for k, i in enumerate(used)}
    lanes = [msgspec.structs.replace(one, hops=tuple((place[i], p, q) for i, p, q in one.hops)) for one in lanes]
    return Layout(tuple(instances[i] for i in used), tuple(lanes))
