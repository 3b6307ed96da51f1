"""Tiny pipelines as the checker reads them, and their optimum by trying every placement.

In: a seed. Out: the form of an embedded problem with few ops; the least largest load of all plans. Simplified: static
memory; no hosts. Nothing here is shared with the checker or with a solver.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from typing import Any

Json = dict[str, Any]
MEMORY_LIMITS = (None, None, 3, 4, 6)


def tiny_form(seed: int, *, equal: bool = True, most_ops: int = 7, memory: bool = False) -> Json:
    """Ties, zeros, several readers, sets that share a device, backward ops that are read against the order."""
    dice = random.Random(seed)
    n, k = dice.randint(2, most_ops), dice.choice((2, 2, 3) if equal else (2, 3, 3))
    backward = [False] * n
    if dice.random() < 0.3:  # the second half runs backwards
        backward = [op >= (n + 1) // 2 for op in range(n)]
    tensors: list[Json] = []
    for op in range(n - 1):
        for _ in range(dice.choice((0, 1, 1, 1, 2))):
            readers = sorted(dice.sample(range(op + 1, n), min(n - op - 1, dice.choice((1, 1, 1, 2, 3)))))
            tensors.append({"name": f"t{len(tensors)}", "producer": op, "consumers": readers})
    if not tensors:
        tensors.append({"name": "t0", "producer": 0, "consumers": [1]})
    together = []
    if any(backward):  # a backward op shares the device of a forward one
        half = backward.index(True)
        together = [[op, op + half] for op in range(n - half) if dice.random() < 0.8]
    elif dice.random() < 0.2 and n > 2:
        together = [sorted(dice.sample(range(n), 2))]
    times = [[dice.choice((0, 0, 1, 2, 3, 5, 8))] * k for _ in range(n)]
    if not equal:
        times = [
            [row[0] + dice.choice((0, 0, 1, 4)) if dice.random() < 0.95 else -1 for _ in range(k)] for row in times
        ]
        times = [row if max(row) >= 0 else [1] * k for row in times]
    flat = equal or dice.random() < 0.5
    transfers = [_transfer_row(dice, k, flat) for _ in tensors]
    limit = dice.choice(MEMORY_LIMITS) if memory else None
    return {
        "format": "weftline-problem",
        "version": 1,
        "rules": {
            "objective": "throughput",
            "runtime": "parallel",
            "transfers": "per-tensor",
            "communication": "added",
            "memory": "static",
            "stages": dice.choice((0, 0, k - 1, k)),
        },
        "graph": {
            "name": "tiny",
            "ops": [
                {"name": f"op{i}", "backward": b, "weight_bytes": dice.choice((0, 0, 1, 2)) if memory else 0}
                for i, b in enumerate(backward)
            ],
            "tensors": tensors,
        },
        "devices": [{"id": f"d{d}", "kind": "gpu", "capacity": limit} for d in range(k)],
        "time_rows": times,
        "time_row": list(range(n)),
        "transfer_rows": transfers,
        "transfer_row": list(range(len(tensors))),
        "together": together,
        "buses": [],
        "cost_source": "drawn",
    }


def _transfer_row(dice: random.Random, k: int, flat: bool) -> list[int]:
    cost = dice.choice((0, 0, 1, 1, 2, 4, 7))
    row = [cost if flat else dice.choice((0, cost, cost + 1, cost + 5)) for _ in range(k * k)]
    for d in range(k):
        row[d * k + d] = 0
    return row


def brute_force(form: Json) -> int | None:
    """The least largest load; None if nothing fits."""
    values = [value for placement in placements(form) if (value := value_of(form, placement)) is not None]
    return min(values, default=None)


def placements(form: Json) -> Iterator[tuple[int, ...]]:
    """One device for each op; of devices that are all alike, new ones in their order."""
    k, n = len(form["devices"]), len(form["graph"]["ops"])
    alike = all(len(set(row)) == 1 for row in form["time_rows"]) and all(
        len({x for i, x in enumerate(row) if i % (k + 1)}) <= 1 for row in form["transfer_rows"]
    )
    for placement in product(range(k), repeat=n):
        if not alike or all(d <= max(placement[:i], default=-1) + 1 for i, d in enumerate(placement)):
            yield placement


def value_of(form: Json, placement: tuple[int, ...]) -> int | None:
    """The largest load of a placement; None if it breaks a rule."""
    ops, k = form["graph"]["ops"], len(form["devices"])
    used = len(set(placement))
    if used > (form["rules"]["stages"] or k):
        return None
    if any(len({placement[op] for op in group}) > 1 for group in form["together"]):
        return None
    load, held = [0] * k, [0] * k
    for op, d in enumerate(placement):
        if form["time_rows"][op][d] < 0:
            return None
        load[d] += form["time_rows"][op][d]
        held[d] += ops[op]["weight_bytes"]
    if any(dev["capacity"] is not None and held[d] > dev["capacity"] for d, dev in enumerate(form["devices"])):
        return None
    edges = set()
    for t, tensor in enumerate(form["graph"]["tensors"]):
        home = placement[tensor["producer"]]
        targets = {placement[reader] for reader in tensor["consumers"]} - {home}
        for target in targets:
            load[target] += form["transfer_rows"][t][home * k + target]
        load[home] += max((form["transfer_rows"][t][home * k + target] for target in targets), default=0)
        if not ops[tensor["producer"]]["backward"]:
            edges |= {(home, placement[r]) for r in tensor["consumers"] if not ops[r]["backward"]}
    left = set(range(k))
    while left:
        free = {d for d in left if not any(a in left and a != d and b == d for a, b in edges)}
        if not free:
            return None
        left -= free
    return max(load)
