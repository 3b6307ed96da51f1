"""What a step from one worker to another costs this model beyond what a step of tiny ops does.

In: a model, its profile so far, two devices. Out: ns that every transfer of the model takes longer than the profile's
links say: segments that run in turns find their weights gone from the caches, and each is a call of its own. The model
is cut into segments that go to and fro between two workers, one request at a time, and runs so in turns with the whole
model on one of them; the difference is what all steps take. Simplified: both devices at full speed, as good as each
other; a segment waits for the one before it; one number for all transfers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import numpy as np

from weftline.cluster import Cluster
from weftline.cost import Profile
from weftline.errors import WeftlineError
from weftline.execute.feeds import make_feeds
from weftline.execute.local_baselines import whole_model
from weftline.execute.local_engine import Engine, Seat
from weftline.execute.local_folder import run_folder
from weftline.execute.local_layout import lay_out
from weftline.execute.ort_devices import OrtDevice
from weftline.execute.segments import Parts
from weftline.execute.split import split_model
from weftline.graph import Graph
from weftline.graph.arrays import Indices
from weftline.problem import Problem, Rules, build_problem

__all__ = ["even_cuts", "longer_transfers", "measure_steps"]

SEGMENTS, FEWEST = 24, 4
TURNS, WARM_UP = 12, 4
MOST = 1_000_000
"""Ns; more than that is no step."""


def measure_steps(
    model: Path,
    graph: Graph,
    cluster: Cluster,
    profile: Profile,
    pair: Sequence[tuple[str, OrtDevice]],
    seconds: float,
) -> int:
    """Ns, 0 if the model has too few kernels to tell, or cannot be run with random inputs."""
    problem = build_problem(graph, cluster, rules=Rules(objective="latency"), costs=profile)
    part = even_cuts(problem, SEGMENTS)
    devices = [problem.device_index[id] for id, _ in pair]
    if part.max() + 1 < FEWEST:
        return 0
    parts = Parts(part, tuple(devices[number % 2] for number in range(int(part.max()) + 1)))
    try:
        alone, steps = _run(model, problem, parts, pair, seconds)
    except WeftlineError:  # random inputs, which not every model bears
        return 0
    return longer_transfers(problem, parts, steps - alone)


def even_cuts(problem: Problem, most: int) -> Indices:
    """(n,): segments of about equal time, in topological order, that divide no kernel."""
    last = {int(number): op for op, number in enumerate(problem.group.tolist())}
    done = np.cumsum(problem.cost.time.max(axis=1))
    part = np.zeros(len(done), np.int32)
    until, segment = 0, 0
    for op, number in enumerate(problem.group.tolist()):
        until = max(until, last[number])
        part[op] = segment
        if until == op and done[op] * most >= (segment + 1) * done[-1] and op + 1 < len(done):
            segment += 1
    return part


def longer_transfers(problem: Problem, parts: Parts, extra: float) -> int:
    """Ns by which each of the transfers from a segment to the next takes longer, if all steps take `extra` together."""
    source, target, tensor = problem.graph.arrays.edges()
    steps = parts.part[target] == parts.part[source] + 1
    sent = {(int(t), int(parts.part[op])) for t, op in zip(tensor[steps], source[steps], strict=True)}
    planned = sum(
        int(problem.cost.transfer[problem.cost.transfer_row[t], parts.device[s], parts.device[s + 1]]) for t, s in sent
    )
    return min(max(0, round((extra - planned) / max(len(sent), 1))), MOST)


def _run(
    model: Path, problem: Problem, parts: Parts, pair: Sequence[tuple[str, OrtDevice]], seconds: float
) -> tuple[float, float]:
    """Ns of a request: the whole model on the first worker; its segments to and fro."""
    seats = {id: Seat(place) for id, place in pair}
    first, model = pair[0][0], model.parent.resolve() / model.name
    with run_folder() as folder:
        ids = [device.id for device in problem.devices]
        manifest = split_model(model, problem.graph, parts, ids, folder, in_place=True)
        feeds = make_feeds(manifest, None, 0)
        whole = lay_out(whole_model(manifest, model.name, first), str(model.parent), pipelined=False)
        split = lay_out(manifest, str(folder), pipelined=False)
        with Engine([(whole, {first: seats[first]})]) as one, Engine([(split, seats)]) as both:
            taken = [mean(engine.run([WARM_UP], feeds)[0].latencies) for engine in (one, both)]
            count = max(2, round(seconds * 1e9 / 2 / TURNS / taken[1]))
            rows = [[mean(engine.run([count], feeds)[0].latencies) for engine in (one, both)] for _ in range(TURNS)]
    alone, steps = np.array(rows).mean(axis=0).tolist()
    return float(alone), float(steps)
