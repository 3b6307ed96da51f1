"""The list schedulers and, simpler still, plans that look at no transfer: one pass over the ops each.

`even-split`: the graph's own order cut into as many equal pieces as there are devices, by number of ops. `greedy`:
every op on the device that runs it fastest, whatever the transfers cost.

`heft` (Topcuoglu, Hariri, Wu 2002), aware of contention: ops by descending upward rank, each where it ends first. An op
may be inserted into a gap of its device; its transfers are booked on ports and buses, in the order of its inputs.
Memory counts weights (and tied weights); the first op of a `together` set fixes the device of the set. `cpeft`: PEFT's
look ahead (Arabnejad, Barbosa 2014) on the same decoder: each op where its end plus the optimistic cost of what follows
is least.

`cpeft-64`: cPEFT 64 times with noise in its scores; the best decode is offered. Noise grows geometrically from 0.15 to
3 over the decodes. At scale 1 it has a standard deviation of 0.3 per op and device and 0.5 per device (times the unit
of the op: a quarter of its median time plus a quarter of the mean over ops of the least time), 0.35 for lambda and 0.25
for kappa. The first decode has none, so the answer is never worse than cPEFT.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.latency.list.decoder import Decoder, Floats
from weftline.latency.list.memory_left import MOST_ATTEMPTS, RoomLeft, offer_leaving_room, offer_plan
from weftline.latency.list.memory_left import Candidate as Plan
from weftline.problem import Problem
from weftline.search import SINGLE_DEVICE, Search, Solver
from weftline.simulate import Timeline, simulate_latency
from weftline.simulate.latency import evaluate
from weftline.simulate.sentinels import NEVER

__all__ = [
    "SOLVERS",
    "SOLVER_CPEFT",
    "SOLVER_CPEFT_RANDOM",
    "SOLVER_HEFT",
    "NoisyDecodeParameters",
    "best_row",
    "bias_unit",
    "heft",
]


def _even_split_solve(search: Search) -> None:
    room, count, devices = RoomLeft(search.problem), len(search.problem.graph.ops), len(search.problem.devices)
    for op in range(count):
        wanted = op * devices // count
        room.put(op, min(room.choices(op), key=lambda device: (abs(device - wanted), device)))
    search.offer(room.placement())


SOLVER_EVEN_SPLIT = Solver(
    "even-split", "the graph's order cut into equal pieces by op count", _even_split_solve, baseline=True
)


def _greedy_solve(search: Search) -> None:
    """Where activations overflow a device, leave that much room there and try again."""
    problem, time = search.problem, search.problem.cost.time.tolist()
    capacity = problem.capacity.copy()
    for _ in range(MOST_ATTEMPTS):
        room = RoomLeft(problem, capacity)
        for op in range(len(problem.graph.ops)):
            room.put(op, min(room.choices(op), key=time[op].__getitem__))  # the first of equals
        if search.offer(room.placement()) is not None or search.stopped_by:
            return
        try:
            overflow = simulate_latency(problem, room.placement()).peak - problem.capacity
        except InfeasibleError:  # a missing link, which more room does not mend
            return
        capacity -= np.maximum(overflow, 0)


SOLVER_GREEDY = Solver("greedy", "every op on the device that runs it fastest", _greedy_solve, baseline=True)


def _solve(search: Search) -> None:
    timeline = heft(search)
    # The order as it was found, transfers included; and the same placement booked anew, which is sometimes better.
    search.offer(timeline.placement, actions=timeline.actions(search.problem.graph.arrays.producer))
    if not search.stopped_by or search.best is None:
        search.offer(timeline.placement)


def heft(search: Search) -> Timeline:
    """Schedule every op; raises `InfeasibleError` where memory or missing links leave no device for one."""
    return Decoder(search.problem, "HEFT").decode(lam=0.0)


SOLVER_HEFT = Solver("heft", "HEFT with insertion: by upward rank, each op where it ends first", _solve, baseline=True)


def _cpeft_solve(search: Search) -> None:
    decoder = Decoder(search.problem, "cPEFT")

    def plan(capacity: Ints) -> Plan:
        timeline = decoder.decode(capacity=capacity)
        return Plan(timeline.placement, timeline=timeline)

    offer_leaving_room(search, plan)


SOLVER_CPEFT = Solver("cpeft", "like HEFT, with the optimistic cost of what follows each op", _cpeft_solve)


@dataclass(frozen=True)
class NoisyDecodeParameters:
    """Numbers of `cpeft-64`."""

    decodes: int = field(default=64, metadata={"least": 1})
    """How many, the first of them without noise."""
    least_noise: float = field(default=0.15, metadata={"least": 1e-6})
    most_noise: float = field(default=3.0, metadata={"least": 1e-6})
    """Scales of the noise in the second and in the last decode; geometric between them."""


PER_OP, PER_DEVICE, PER_LAMBDA, PER_KAPPA = 0.3, 0.5, 0.35, 0.25
BIASES_AT_ONCE = 2**20
"""Entries of the table of biases that are made at a time."""


def bias_unit(problem: Problem) -> Floats:
    """(n,): by what a bias is measured, in ns."""
    time = np.where(problem.cost.time >= 0, problem.cost.time, np.nan)
    median = np.nan_to_num(np.nanmedian(time, axis=1))
    least = float(np.nanmin(time, axis=1).mean())
    unit: Floats = 0.25 * (median + least)
    return unit


def _cpeft_random_solve(search: Search) -> None:
    """Plain cPEFT first, then the decodes with noise, a batch at a time; what fits memory and is better is offered."""
    decoder = Decoder(search.problem, "cPEFT")
    numbers, rng = search.parameters(NoisyDecodeParameters), np.random.default_rng(search.seed)
    room = search.problem.capacity.copy()
    failed: InfeasibleError | None = None

    def plain(capacity: Ints) -> Plan:
        room[:] = capacity
        timeline = decoder.decode(capacity=capacity)
        return Plan(timeline.placement, timeline=timeline)

    try:
        offer_leaving_room(search, plain)
    except InfeasibleError as error:
        failed = error
    best = NEVER if failed or search.best is None else search.best.value
    n, k = search.problem.cost.time.shape
    scales = np.geomspace(numbers.least_noise, numbers.most_noise, numbers.decodes - 1)
    at_once = max(1, BIASES_AT_ONCE // (n * k))
    for first in range(0, len(scales), at_once):
        if search.stopped_by:
            break
        noise = _noise(search.problem, rng, scales[first : first + at_once])
        row, value = best_row(search.problem, *decoder.decode_many(*noise, capacity=room))
        if value < best:
            timeline = decoder.decode(None, noise[0][row], noise[1][row], noise[2][row], capacity=room)
            found = offer_plan(search, Plan(timeline.placement, timeline=timeline))
            best = best if found is None else min(best, found)
    if failed is not None and best == NEVER:
        raise failed


def _noise(problem: Problem, rng: np.random.Generator, scales: Floats) -> tuple[Floats, Floats, Floats]:
    """(B, n, K) biases, (B,) lambdas and kappas."""
    n, k = problem.cost.time.shape
    scale = scales[:, None, None]
    biases = rng.standard_normal((len(scales), n, k)) * PER_OP + rng.standard_normal((len(scales), 1, k)) * PER_DEVICE
    lams = np.maximum(0.0, 1.0 + rng.standard_normal(len(scales)) * PER_LAMBDA * scales)
    kappas = np.maximum(-1.0, rng.standard_normal(len(scales)) * PER_KAPPA * scales)
    return biases * scale * bias_unit(problem)[:, None], lams, kappas


def best_row(problem: Problem, placements: Indices, planned: Ints, most: int | None = None) -> tuple[int, int]:
    """The row that is best as planned or booked anew, among those whose activations fit; its value or NEVER.

    In the parallel runtime only the `most` best plans are booked anew.
    """
    rows = np.flatnonzero(planned < NEVER)
    sequential = problem.rules.runtime == "sequential"
    if most is not None and not sequential:
        rows = rows[np.argsort(planned[rows], kind="stable")[:most]]
    if not len(rows):
        return 0, NEVER
    limited = problem.rules.memory == "dynamic" and any(device.capacity is not None for device in problem.devices)
    again = evaluate(problem, placements[rows], memory=limited)
    value = again.value if sequential else np.minimum(again.value, planned[rows])
    if again.peak is not None:
        value = np.where((again.peak <= problem.capacity).all(axis=1), value, NEVER)
    best = int(value.argmin())
    return int(rows[best]), int(value[best])


SOLVER_CPEFT_RANDOM = Solver(
    "cpeft-64",
    "cPEFT and 63 decodes with noise in its scores, the best of them",
    _cpeft_random_solve,
    parameters=NoisyDecodeParameters,
)


SOLVERS = (SINGLE_DEVICE, SOLVER_EVEN_SPLIT, SOLVER_GREEDY, SOLVER_HEFT, SOLVER_CPEFT, SOLVER_CPEFT_RANDOM)
