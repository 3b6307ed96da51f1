"""What a step from one worker to another costs this model beyond what a step of tiny ops does.

In: a model, its profile so far, two devices. Out: ns that every transfer of the model takes longer than the profile's
links say: segments that run in turns find their weights gone from the caches, and each is a call of its own. The model
is cut into segments that go to and fro between two workers, one request at a time, and runs so in turns with the whole
model on either of them; the difference is what all steps take. Simplified: full speed; a segment waits for the one
before it; one number for all transfers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import mean

import msgspec
import numpy as np

from weftline.cluster import Cluster, Device, Link
from weftline.cost import Profile
from weftline.errors import WeftlineError
from weftline.graph import Graph
from weftline.graph.arrays import Indices, Ints
from weftline.problem import Problem, Rules, build_problem
from weftline.run.devices import OrtDevice
from weftline.run.inputs import make_feeds
from weftline.run.local.engine import Engine, Seat
from weftline.run.local.layout import lay_out
from weftline.run.local.run import whole_model
from weftline.run.local.start import run_folder
from weftline.run.split.segments import Parts, cut_places
from weftline.run.split.split import split_model

__all__ = ["even_cuts", "longer_transfers", "measure_steps"]

STEP_SEGMENTS, FEWEST_SEGMENTS = 24, 4
MOST_TURNS, LEAST_TURNS, WARM_UP_TURNS = 12, 4, 4
MOST_SECONDS = 20.0
MOST_STEP_NS = 1_000_000
"""Ns; more than that is no step."""
LARGEST_MODEL_BYTES = 2**30
"""Bytes of weights; three times as many are held."""


def measure_steps(
    model: Path, graph: Graph, profile: Profile, pair: Sequence[tuple[Device, OrtDevice]], seconds: float
) -> int:
    """Ns that a transfer takes longer; `WeftlineError` says why it cannot be told."""
    if sum(op.weight_bytes for op in graph.ops) + sum(tied.bytes for tied in graph.tied) > LARGEST_MODEL_BYTES:
        raise WeftlineError("the model is too large to be held three times")
    problem = build_problem(graph, _alone(profile, pair), rules=Rules(objective="latency"), costs=profile)
    part = even_cuts(problem, STEP_SEGMENTS)
    count = int(part.max()) + 1
    if count < FEWEST_SEGMENTS:
        raise WeftlineError(f"the model has too few kernels: {count}")
    parts = Parts(part, tuple(number % 2 for number in range(count)))
    first, second, steps = _run(model, problem, parts, pair, seconds)
    return longer_transfers(problem, parts, steps - (first + second) / 2)


def _alone(profile: Profile, pair: Sequence[tuple[Device, OrtDevice]]) -> Cluster:
    """The two devices at full speed, without limits, with the profile's links."""
    devices = tuple(msgspec.structs.replace(device, memory=None, reserve=0, speed=1.0) for device, _ in pair)
    ids = {device.id for device in devices}
    found = [link for link in profile.links if {link.source, link.target} == ids]
    links = {(link.source, link.target): (link.bandwidth, link.latency_ns) for link in found}
    back = {(target, source): link for (source, target), link in links.items()}
    return Cluster("steps", devices, tuple(Link(*ends, *link) for ends, link in {**back, **links}.items()))


def even_cuts(problem: Problem, most: int) -> Indices:
    """(n,): segments of about equal time, in topological order, that divide no kernel."""
    done: Ints = np.cumsum(problem.cost.time.max(axis=1))
    part, segment = np.zeros(len(done), np.int32), 0
    for place in cut_places(problem.group):
        if done[place - 1] * most >= (segment + 1) * done[-1]:
            segment += 1
            part[place:] = segment
    return part


def longer_transfers(problem: Problem, parts: Parts, extra: float) -> int:
    """Ns by which each of the transfers from a segment to the next takes longer, if all steps take `extra` together."""
    source, target, tensor = problem.graph.arrays.edges()
    steps = parts.part[target] == parts.part[source] + 1
    sent = {(int(t), int(parts.part[op])) for t, op in zip(tensor[steps], source[steps], strict=True)}
    planned = sum(
        int(problem.cost.transfer[problem.cost.transfer_row[t], parts.device[s], parts.device[s + 1]]) for t, s in sent
    )
    return min(max(0, round((extra - planned) / max(len(sent), 1))), MOST_STEP_NS)


def _run(
    model: Path, problem: Problem, parts: Parts, pair: Sequence[tuple[Device, OrtDevice]], seconds: float
) -> tuple[float, float, float]:
    """Ns of a request: the whole model on either worker, and its segments to and fro, in turns."""
    seats = {device.id: Seat(place) for device, place in pair}
    model = model.parent.resolve() / model.name
    with run_folder() as folder, ExitStack() as engines:
        manifest = split_model(model, problem.graph, parts, list(seats), folder, in_place=True)
        feeds = make_feeds(manifest, None, 0)
        lanes = [
            (lay_out(whole_model(manifest, model.name, id), str(model.parent), pipelined=False), {id: seat})
            for id, seat in seats.items()
        ]
        lanes.append((lay_out(manifest, str(folder), pipelined=False), seats))
        ready = [engines.enter_context(Engine([lane])) for lane in lanes]

        def turn(count: int) -> list[float]:
            return [mean(engine.run([count], feeds)[0].latencies) for engine in ready]

        once = sum(turn(WARM_UP_TURNS)) / 1e9
        turns = min(MOST_TURNS, int(MOST_SECONDS / once / 2))
        if turns < LEAST_TURNS:
            raise WeftlineError(f"a run takes too long: {once / len(ready):.1f} s")
        count = max(2, round(seconds / turns / once))
        first, second, steps = np.mean([turn(count) for _ in range(turns)], axis=0).tolist()
    return float(first), float(second), float(steps)
