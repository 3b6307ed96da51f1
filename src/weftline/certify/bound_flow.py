"""The cheapest stage around one op: a minimum cut, by augmenting paths.

In: the embedded problem and the op. Out: what every stage with that op costs at least. Simplified: stages need not be
contiguous.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from weftline.certify.problem import MAX_NUMBER, PlanProblem, group_times, groups_of, need, whole

__all__ = ["cut_witness"]


def cut_witness(problem: PlanProblem, witness: dict[str, Any]) -> int:
    """The cheapest set of ops around one op: a minimum cut, by augmenting paths."""
    added = problem.rule("objective", "throughput") and problem.rule("communication", "added")
    need(added, "witness", "a cut bounds throughput with added communication alone")
    op = whole(witness["op"], "op of the witness", 0, len(problem.names) - 1)
    hosts = any(problem.host)
    groups = [[op] for op in range(len(problem.names))] if hosts else groups_of(problem)
    node = {op: number for number, group in enumerate(groups) for op in group}
    times = [group_times(problem, group) for group in groups]
    sink, room = len(groups), dict[int, dict[int, int]]()
    for v, row in enumerate(times):
        able = [t for t, host in zip(row, problem.host, strict=True) if t >= 0 and not host]
        _join(room, v, sink, min(able, default=MAX_NUMBER), 0)
    least: dict[int, int] = {}  # of each distinct row of transfer times
    for row in {id(row): row for row in problem.transfer}.values():
        lengths = [x for i, x in enumerate(row) if x >= 0 and i % (len(problem.ids) + 1)]
        least[id(row)] = min(lengths, default=MAX_NUMBER)
    for t, maker in enumerate(problem.producer):
        readers = {node[reader] for reader in problem.consumers[t]} - {node.get(maker)}
        if maker >= 0 and readers and least[id(problem.transfer[t])] > 0:
            _join_tensor(room, node[maker], sorted(readers), least[id(problem.transfer[t])])
    on_host = [t for t, host in zip(times[node[op]], problem.host, strict=True) if t >= 0 and host]
    return min([_largest_flow(room, node[op], sink), *on_host])


def _join(room: dict[int, dict[int, int]], a: int, b: int, there: int, back: int) -> None:
    for tail, head, more in ((a, b, there), (b, a, back)):
        arcs = room.setdefault(tail, {})
        arcs[head] = arcs.get(head, 0) + more


def _join_tensor(room: dict[int, dict[int, int]], maker: int, readers: list[int], cost: int) -> None:
    """Maker inside and a reader outside cost a transfer, and so does a reader inside and the maker outside."""
    if len(readers) == 1:
        _join(room, maker, readers[0], cost, cost)
        return
    leaves, enters = -2 * len(room) - 1, -2 * len(room) - 2  # new nodes: every call adds some
    _join(room, maker, leaves, cost, 0)
    _join(room, enters, maker, cost, 0)
    for reader in readers:
        _join(room, leaves, reader, MAX_NUMBER, 0)
        _join(room, reader, enters, MAX_NUMBER, 0)


def _largest_flow(room: dict[int, dict[int, int]], source: int, sink: int) -> int:
    total = 0
    while total < MAX_NUMBER:
        came, queue = {source: source}, [source]
        for v in queue:
            for head, left in room[v].items():
                if left > 0 and head not in came:
                    came[head] = v
                    queue.append(head)
            if sink in came:
                break
        if sink not in came:
            break
        path = [sink]
        while path[-1] != source:
            path.append(came[path[-1]])
        most = min(room[b][a] for a, b in pairwise(path))
        for a, b in pairwise(path):
            room[b][a] -= most
            room[a][b] = room[a].get(b, 0) + most
        total += most
    return total
