"""Bounds that are one sum: loads with a weight per device, work, the cheapest device of a group, the longest path.

`load`: weights w and prices p on bytes. Whatever a plan does, the sum of w_d x load_d is at least the sum over groups
of the least w_d t_d + p_d size, less p_d x capacity_d, because what a device holds fits its memory. A pipeline uses at
most S devices, so the largest load is at least that sum over the S largest weights.
`work`: one thing at a time, so all least times add up. `group`: what shares a device runs there one after another.
`path`: with the earliest end of every op of the path on every device, by dynamic programming along the ops.

In: the embedded problem and a witness. Out: what it proves, in exact integers. Simplified: each ignores what others
use.
"""

from __future__ import annotations

from operator import add
from typing import Any

from weftline.certify.problem import (
    MAX_NUMBER,
    NO_WAY,
    PlanProblem,
    group_times,
    groups_of,
    need,
    rows,
    whole,
    witness_ops,
)

__all__ = ["group_witness", "load_witness", "path_witness", "work_witness"]


def load_witness(problem: PlanProblem, witness: dict[str, Any]) -> int:
    """Loads and bytes, each at its price."""
    weights = [whole(weight, "weight") for weight in rows(witness["weights"], "weights")]
    need(len(weights) == len(problem.ids) and sum(weights) > 0, "witness", "one weight per device, not all 0")
    # What is on a device fits its memory, so a price on every byte beyond the capacity never adds to a plan's cost.
    prices = [whole(price, "price") for price in rows(witness.get("prices", [0] * len(weights)), "prices")]
    limits = zip(prices, problem.capacity, strict=True)
    need(all(limit is not None or price == 0 for price, limit in limits), "witness", "a price without a memory limit")
    static = problem.rule("memory", "static")
    total = -sum(price * (limit or 0) for price, limit in zip(prices, problem.capacity, strict=True))
    for group in groups_of(problem):
        size = sum(problem.weight[op] + (problem.workspace[op] if static else 0) for op in group)
        times = group_times(problem, group)
        total += min(w * t + p * size for w, p, t in zip(weights, prices, times, strict=True) if t >= 0)
    # A plan uses at most so many devices, so the weights of those it uses sum to this at most.
    used = problem.stage_limit if problem.rule("objective", "throughput") else len(weights)
    return -(-total // sum(sorted(weights)[-used:]))


def work_witness(problem: PlanProblem, witness: dict[str, Any]) -> int:
    """All least times, one after another."""
    sequential = problem.rule("objective", "latency") and problem.rule("runtime", "sequential")
    need(sequential, "witness", "work bounds the sequential runtime alone")
    return sum(min(t for t in group_times(problem, group) if t >= 0) for group in groups_of(problem))


def group_witness(problem: PlanProblem, witness: dict[str, Any]) -> int:
    """The least time of ops that share a device."""
    ops = witness_ops(problem, witness)
    shared = len(ops) == 1 or any(set(ops) <= set(group) for group in problem.together)
    need(shared, "witness", f"ops {ops[:6]} need not share a device")
    return min(t for t in group_times(problem, ops) if t >= 0)


def path_witness(problem: PlanProblem, witness: dict[str, Any]) -> int:
    """The earliest end of the last op of a path."""
    need(problem.rule("objective", "latency"), "witness", "a path bounds latency alone")
    k, earliest = len(problem.ids), dict[int, list[int]]()
    columns: dict[
        int, list[list[int]]
    ] = {}  # of each distinct row of transfer times: target -> length from each source
    for op in witness_ops(problem, witness):
        ends = [t if t >= 0 else MAX_NUMBER for t in problem.time[op]]
        known = [(t, earliest[problem.producer[t]]) for t in problem.inputs[op] if problem.producer[t] in earliest]
        for t, _ in known:
            if id(problem.transfer[t]) not in columns:
                columns[id(problem.transfer[t])] = [_lengths_to(problem, t, d) for d in range(k)]
        for d in range(k):
            arrivals = [min(map(add, before, columns[id(problem.transfer[t])][d])) for t, before in known]
            ends[d] += max([MAX_NUMBER if arrival >= NO_WAY else arrival for arrival in arrivals], default=0)
        earliest[op] = ends
    return max(min(ends) for ends in earliest.values())


def _lengths_to(problem: PlanProblem, tensor: int, target: int) -> list[int]:
    """Of the transfers from each device."""
    lengths = [problem.length(tensor, source, target) for source in range(len(problem.ids))]
    return [length if length >= 0 else NO_WAY for length in lengths]
