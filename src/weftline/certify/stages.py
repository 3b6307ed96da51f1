"""The stages of a pipeline, and what every device holds: everything is re-computed from the placement.

In: the embedded problem and a placement. Out: loads, pipeline order, intervals of memory and their peaks, or a
`Refusal`. Simplified: time inside a stage is the position of an op among the ops of its stage (docs/concepts.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weftline.certify.problem import MAX_NUMBER, Interval, PlanProblem, need, same

__all__ = ["check_stages", "peak_of", "peaks", "stage_intervals"]


def check_stages(problem: PlanProblem, placement: list[int], stages: Sequence[dict[str, Any]]) -> list[int]:
    """The load of every device."""
    k = len(problem.ids)
    count, compute, entering, leaving = [0] * k, [0] * k, [0] * k, [0] * k
    for op, device in enumerate(placement):
        compute[device] += problem.time[op][device]
        count[device] += 1
    for t, readers in enumerate(problem.consumers):
        if problem.producer[t] < 0:
            continue
        home = placement[problem.producer[t]]
        lengths = {placement[c]: problem.length(t, home, placement[c]) for c in readers if placement[c] != home}
        need(min(lengths.values(), default=0) >= 0, "link", f"there is no link for {problem.tensors[t]!r}")
        for device, length in lengths.items():
            entering[device] += 0 if problem.host[device] else length
        leaving[home] += 0 if problem.host[home] else max(lengths.values(), default=0)
    used, most = k - count.count(0), problem.stage_limit
    need(used <= most, "too-many-stages", f"{used} devices are used, {most} stages are allowed")
    order = _quotient_order(problem, placement)
    combine: Callable[[Iterable[int]], int] = max if problem.rule("communication", "overlapped") else sum
    load = [combine(parts) for parts in zip(compute, entering, leaving, strict=True)]
    inside, devices = {problem.ids[d] for d in order}, [stage["device"] for stage in stages]
    need(sorted(devices) == sorted(inside), "stage-devices", "the stages are not the devices that hold ops")
    need(devices == [problem.ids[d] for d in order], "stage-order", "the stages are not in pipeline order")
    for d, stage in zip(order, stages, strict=True):
        again = {"ops": count[d], "compute_ns": compute[d], "in_ns": entering[d], "out_ns": leaving[d]}
        same(stage, {**again, "load_ns": load[d]}, "stage", f"stage on {problem.ids[d]}")
    return load


def _quotient_order(problem: PlanProblem, placement: list[int]) -> list[int]:
    """Devices by the first time their node is removed in a breadth-first topological sort of the quotient graph.

    A node is a device, or an op on a host device (K + op); only forward ops count.
    """
    k = len(problem.ids)
    node = [k + op if problem.host[device] else device for op, device in enumerate(placement)]
    outputs: list[list[int]] = [[] for _ in placement]
    for t, maker in enumerate(problem.producer):
        if maker >= 0:
            outputs[maker].append(t)
    edges: dict[int, list[int]] = {node[op]: [] for op in range(len(node)) if problem.forward[op]}
    waiting = dict.fromkeys(edges, 0)
    for op, v in enumerate(node):
        if problem.forward[op]:
            readers = (c for t in outputs[op] for c in problem.consumers[t])
            edges[v] += [node[c] for c in readers if problem.forward[c] and node[c] != v]
    for target in (target for targets in edges.values() for target in targets):
        waiting[target] += 1
    queue = [v for v in sorted(waiting) if waiting[v] == 0]
    rank: dict[int, int] = {}
    for position, v in enumerate(queue):  # grows while it is read
        rank.setdefault(v if v < k else placement[v - k], position)
        for target in edges[v]:
            waiting[target] -= 1
            if waiting[target] == 0:
                queue.append(target)
    need(len(queue) == len(waiting), "cycle", "the stages depend on each other in a cycle")
    return sorted(set(placement), key=lambda d: (rank.get(d, MAX_NUMBER), d))


def stage_intervals(problem: PlanProblem, placement: list[int]) -> list[list[Interval]]:
    """What each stage holds; time is the position of an op among the ops of its stage."""
    copies = 2 if problem.rule("communication", "overlapped") else 1
    held: list[list[Interval]] = [[] for _ in problem.ids]
    place, count = [0] * len(placement), [0] * len(problem.ids)
    for op, device in enumerate(placement):
        place[op] = count[device]
        count[device] += 1
        held[device].append((place[op], place[op] + 1, problem.workspace[op]))
    for t, readers in enumerate(problem.consumers):
        maker, size = problem.producer[t], problem.bytes[t]
        last: dict[int, int] = {}
        for c in readers:
            last[placement[c]] = max(last.get(placement[c], 0), place[c] + 1)
        if maker >= 0:
            home = placement[maker]
            until = max(last.pop(home, 0), place[maker] + 1)
            leaves = bool(last) or problem.output[t]
            held[home].append((place[maker], count[home] if leaves else until, size * copies if leaves else size))
        for device, until in last.items():
            held[device].append((0, until, size * copies))
    return held


def peaks(problem: PlanProblem, placement: list[int], held: list[list[Interval]]) -> list[int]:
    """The most that each device holds at one time."""
    static = problem.rule("memory", "static")
    base = [0] * len(problem.ids)
    for op, device in enumerate(placement):
        base[device] += problem.weight[op] + (problem.workspace[op] if static else 0)
    for size, users in problem.tied:
        for device in {placement[op] for op in users}:
            base[device] += size
    return base if static else [b + peak_of(intervals) for b, intervals in zip(base, held, strict=True)]


def peak_of(intervals: Iterable[Interval]) -> int:
    """Largest sum of bytes at one time; what ends at t is gone before what starts at t."""
    steps = [step for a, b, size in intervals if a < b for step in ((a, 1, size), (b, 0, -size))]
    level = best = 0
    for _, _, change in sorted(steps):
        level += change
        best = max(best, level)
    return best
