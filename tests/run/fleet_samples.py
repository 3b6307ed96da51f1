"""Fleet plans made by hand, for the tests of running them: the lanes and shares that a test wants, whatever is best."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from weftline import __version__
from weftline.cluster import Cluster, Device, Link, Rate
from weftline.plans.fleet import FleetDevice, FleetInstance, FleetLane, FleetPlan, hops_of
from weftline.plans.plan import Provenance
from weftline.problem import Problem, Rules, build_problem, read_model
from weftline.problem.model import problem_hash, problem_to_file
from weftline.simulate.fleet import FULL_SECOND, RATE_UNITS, lane_loads, simulate_deployment

RUNTIME = "ort:CPUExecutionProvider"
RATE = Rate(fp32=10**10, bandwidth=10**10, launch=1000, source="guess")


def fleet_problem(model: Path, speeds: Sequence[float]) -> Problem:
    """Devices d0, d1 ... of these speeds."""
    devices = tuple(
        Device(f"d{i}", "cpu", None, rate=RATE, runtime=RUNTIME, speed=speed) for i, speed in enumerate(speeds)
    )
    links = tuple(Link(a.id, b.id, 10**9, 10_000) for a in devices for b in devices if a is not b)
    graph = read_model(model)
    assert not isinstance(graph, Problem)
    return build_problem(graph, Cluster("here", devices, links), rules=Rules(objective="throughput"))


def fleet_plan(
    model: Path, lanes: Sequence[Sequence[int]], shares: Sequence[int], speeds: Sequence[float] = (1, 1)
) -> FleetPlan:
    """The device of every op, lane by lane, and their shares; rates are as high as these allow."""
    problem = fleet_problem(model, speeds)
    loads = [lane_loads(problem, np.array(lane, np.int32)) for lane in lanes]
    top = FULL_SECOND // max(simulate_deployment(problem, loads, shares).busy)
    found = simulate_deployment(problem, loads, [share * top for share in shares])
    file = problem_to_file(problem)
    plan = {
        "format": "weftline-fleet",
        "version": 1,
        "objective": "throughput",
        "value_ns": found.value,
        "bound_ns": 0,
        "gap": 1.0,
        "proof": "none",
        "bound_by": "",
        "rate": found.rate / RATE_UNITS,
        "rate_bound": None,
        "depth": found.depth,
        "solver": "hand",
        "seconds": None,
        "stopped_by": "done",
        "baselines": {},
        "devices": {
            device.id: FleetDevice(found.busy[d] / FULL_SECOND, int(found.peak[d]), device.capacity)
            for d, device in enumerate(problem.devices)
        },
        "instances": [
            FleetInstance(device.id, len(held))
            for d, device in enumerate(problem.devices)
            if (held := {op for lane in lanes for op, on in enumerate(lane) if on == d})
        ],
        "lanes": [
            FleetLane(rate, load.depth, hops_of(load.placement))
            for load, rate in zip(found.lanes, found.rates, strict=True)
        ],
        "bounds": [],
        "provenance": Provenance(__version__, problem_hash(file), {}, (), 0, None, None, 0.0),
        "problem": file,
    }
    return msgspec.convert(msgspec.to_builtins(plan), FleetPlan)
