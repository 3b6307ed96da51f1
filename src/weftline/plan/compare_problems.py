"""What differs between the problems of two plans, and a placement of one on the problem of the other.

In: plans or their embedded problems. Out: sentences; a value by the simulator. Simplified: for latency the placement
runs in the simulator's default order, since an order of another problem may mean nothing.
"""

from __future__ import annotations

import numpy as np

from weftline.errors import InfeasibleError, WeftlineError
from weftline.plan.model import Plan
from weftline.problem.json_form import ProblemFile
from weftline.simulate import simulate_latency, simulate_throughput, violations
from weftline.units import format_name, format_names

__all__ = ["crossed", "problem_changes"]


def problem_changes(a: ProblemFile, b: ProblemFile) -> tuple[str, ...]:
    """In words: model, devices, rules, costs, limits."""
    found = []
    names = [[op.name for op in file.graph.ops] for file in (a, b)]
    if a.graph != b.graph:
        what = "the same ops, but other sizes or tensors" if names[0] == names[1] else _sizes(a, b)
        found.append(f"another model: {what}")
    devices = [[device.id for device in file.devices] for file in (a, b)]
    if devices[0] != devices[1]:
        found.append(f"other devices: {format_names(devices[0])} and {format_names(devices[1])}")
    elif a.devices != b.devices:
        found.append("the devices have other kinds, memories or runtimes")
    for field in a.rules.__struct_fields__:
        x, y = getattr(a.rules, field), getattr(b.rules, field)
        found += [f"{field}: {x} and {y}"] if x != y else []
    if names[0] == names[1] and devices[0] == devices[1]:
        found += _costs(a, b)
    if a.together != b.together:
        found.append(f"sets of ops that stay together: {len(a.together)} and {len(b.together)}")
    if a.buses != b.buses:
        found.append("other buses")
    return tuple(found)


def _sizes(a: ProblemFile, b: ProblemFile) -> str:
    x, y = (f"{format_name(file.graph.name)} of {len(file.graph.ops)} ops" for file in (a, b))
    return f"{x}, {y}"


def _costs(a: ProblemFile, b: ProblemFile) -> list[str]:
    """Times and transfers, op by op and tensor by tensor."""
    found = []
    pairs = zip(a.time_row, b.time_row, strict=True)
    changed = sum(a.time_rows[x] != b.time_rows[y] for x, y in pairs)
    if changed:
        found.append(f"{changed} of {len(a.time_row)} ops have other times or may run elsewhere ({_sources(a, b)})")
    if len(a.transfer_row) == len(b.transfer_row):
        sent = zip(a.transfer_row, b.transfer_row, strict=True)
        changed = sum(a.transfer_rows[x] != b.transfer_rows[y] for x, y in sent)
        found += [f"{changed} of {len(a.transfer_row)} tensors have other transfer times"] if changed else []
    return found


def _sources(a: ProblemFile, b: ProblemFile) -> str:
    x, y = format_name(a.cost_source), format_name(b.cost_source)
    return f"costs: {x}" if x == y else f"costs: {x} and {y}"


def crossed(plan: Plan, other: Plan) -> int | None:
    """The value of a plan's placement on another plan's problem; None if it does not fit, or breaks a limit there."""
    if set(plan.placement) != {op.name for op in other.problem.graph.ops}:
        return None
    if not set(plan.placement.values()) <= {device.id for device in other.problem.devices}:
        return None
    try:
        problem = other.load_problem()
        placement = np.array([problem.device_index[plan.placement[op.name]] for op in problem.graph.ops], np.int32)
        simulate = simulate_latency if problem.rules.objective == "latency" else simulate_throughput
        result = simulate(problem, placement)
    except (InfeasibleError, WeftlineError):
        return None
    return None if violations(problem, result) else result.value
