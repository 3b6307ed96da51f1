"""Tiny latency problems as the checker reads them, and their optimum by trying every placement and every order.

In: a seed. Out: the form of an embedded problem with few ops; the least latency of all plans. Simplified: static
memory; no hosts. Nothing here is shared with the checker or with a solver.
"""

from __future__ import annotations

import random
from itertools import product
from typing import Any

Json = dict[str, Any]
Action = tuple[int, list[int], list[int]]
"""Length, resources, numbers of the actions that end before it begins."""


def tiny_latency(seed: int, *, most_ops: int = 5, most_devices: int = 3) -> Json:
    """Ties, zeros, absent times, missing links, buses, several readers, sets that share a device, limits of memory."""
    dice = random.Random(seed)
    n, k = dice.randint(2, most_ops), dice.randint(2, most_devices)
    tensors: list[Json] = []
    for op in range(n - 1):
        for _ in range(dice.choice((0, 1, 1, 1, 2))):
            readers = sorted(dice.sample(range(op + 1, n), min(n - op - 1, dice.choice((1, 1, 2, 3)))))
            tensors.append({"name": f"t{len(tensors)}", "producer": op, "consumers": readers})
    if not tensors:
        tensors.append({"name": "t0", "producer": -1, "consumers": [0]})
    times = [[dice.choice((0, 1, 2, 3, 5, 8)) if dice.random() < 0.9 else -1 for _ in range(k)] for _ in range(n)]
    times = [row if max(row) >= 0 else [1] * k for row in times]
    limited = dice.random() < 0.3
    buses = [[a, b, dice.choice("xy")] for a in range(k) for b in range(k) if a != b and dice.random() < 0.3]
    return {
        "format": "weftline-problem",
        "version": 1,
        "rules": {
            "objective": "latency",
            "runtime": "parallel",
            "transfers": dice.choice(("per-tensor", "per-edge")),
            "communication": "added",
            "memory": "static",
            "stages": 0,
        },
        "graph": {
            "name": "tiny",
            "ops": [{"name": f"op{i}", "weight_bytes": dice.choice((0, 1, 2)) if limited else 0} for i in range(n)],
            "tensors": tensors,
        },
        "devices": [
            {"id": f"d{d}", "kind": "gpu", "capacity": dice.choice((2, 3, 5)) if limited else None} for d in range(k)
        ],
        "time_rows": times,
        "time_row": list(range(n)),
        "transfer_rows": [_transfers(dice, k) for _ in tensors],
        "transfer_row": list(range(len(tensors))),
        "together": [sorted(dice.sample(range(n), 2))] if n > 2 and dice.random() < 0.3 else [],
        "buses": buses,
        "cost_source": "drawn",
    }


def _transfers(dice: random.Random, k: int) -> list[int]:
    cost = dice.choice((0, 1, 1, 2, 4))
    row = [dice.choice((0, cost, cost, cost + 2)) if dice.random() < 0.95 else -1 for _ in range(k * k)]
    for d in range(k):
        row[d * k + d] = 0
    return row


def least_latency(form: Json) -> int | None:
    """Over all placements and orders; None if nothing fits."""
    n, k = len(form["time_rows"]), len(form["devices"])
    best: int | None = None
    for placement in product(range(k), repeat=n):
        actions = _actions(form, placement)
        if actions is not None:
            found = _least(actions, best)
            best = found if best is None or (found is not None and found < best) else best
    return best


def _actions(form: Json, placement: tuple[int, ...]) -> list[Action] | None:
    """Ops and transfers of a placement; None if it breaks a rule."""
    k, ops = len(form["devices"]), form["graph"]["ops"]
    held = [0] * k
    for op, d in enumerate(placement):
        held[d] += ops[op]["weight_bytes"]
    if any(dev["capacity"] is not None and held[d] > dev["capacity"] for d, dev in enumerate(form["devices"])):
        return None
    if any(len({placement[op] for op in group}) > 1 for group in form["together"]):
        return None
    if any(form["time_rows"][op][d] < 0 for op, d in enumerate(placement)):
        return None
    actions: list[Action] = [(form["time_rows"][op][d], [d], []) for op, d in enumerate(placement)]
    buses = {(a, b): name for a, b, name in form["buses"]}
    for t, tensor in enumerate(form["graph"]["tensors"]):
        maker, sent = tensor["producer"], dict[int, int]()
        for reader in tensor["consumers"] if maker >= 0 else ():
            a, b = placement[maker], placement[reader]
            length = form["transfer_rows"][t][a * k + b] if a != b else 0
            if length < 0:
                return None
            if length == 0:
                actions[reader][2].append(maker)
                continue
            key = b if form["rules"]["transfers"] == "per-tensor" else -1 - reader
            if key not in sent:
                bus = [100 + ord(buses[a, b])] if (a, b) in buses else []
                sent[key] = len(actions)
                actions.append((length, [k + a, 2 * k + b, *bus], [maker]))
            actions[reader][2].append(sent[key])
    return actions


def _least(actions: list[Action], best: int | None) -> int | None:
    """Every order in which actions can be begun, each as early as it can; only less than `best` counts."""
    found = best
    waiting = [(dict[int, int](), dict[int, int](), 0)]
    while waiting:
        ends, free, value = waiting.pop()
        if found is not None and value >= found:
            continue
        if len(ends) == len(actions):
            found = value
            continue
        for number, (length, resources, before) in enumerate(actions):
            if number in ends or any(other not in ends for other in before):
                continue
            begin = max((ends[other] for other in before), default=0)
            if length:
                begin = max([begin, *(free.get(resource, 0) for resource in resources)])
            end = begin + length
            now = {**free, **dict.fromkeys(resources, end)} if length else free
            waiting.append(({**ends, number: end}, now, max(value, end)))
            if not length:
                break  # it keeps nobody waiting
    return found
