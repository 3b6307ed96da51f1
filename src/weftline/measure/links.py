"""Links between devices of this machine, measured over the channel that runs plans (memory or gloo); steps of a model.

In: a cluster, the cores of its devices, the channel. Out: latency and bandwidth of every ordered pair that the cluster
links (of all pairs, where it has no links). Over memory, latency is that of a step between two workers (`measure_hop`:
a chain of tiny ops to and fro, as segments of a plan do), which is more than the time of the first byte. What a model
adds to it, `measure_steps` tells: segments that run in turns find their weights gone from the caches, and each is a
call of its own. So the model is cut into segments that go to and fro between two workers, one request at a time, and
runs so in turns with the whole model on either of them; the difference is what all steps take. Simplified: both
directions of a pair are alike, and so are pairs whose runtimes are; pairs with another provider than the CPU keep the
cluster's numbers; steps at full speed, a segment waits for the one before it, one number for all transfers.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from importlib.util import find_spec
from itertools import pairwise, permutations
from pathlib import Path
from statistics import mean, median
from typing import Any, Literal

import msgspec
import numpy as np

from weftline.cluster import Cluster, Device, Link
from weftline.cost import Profile
from weftline.cost.profile_file import LinkProfile
from weftline.errors import MissingExtra, WeftlineError
from weftline.files import run_folder
from weftline.graph import Graph
from weftline.graph.arrays import Indices, Ints
from weftline.importers import read_file
from weftline.problem import Problem, Rules, build_problem
from weftline.run.devices import CPU, OrtDevice
from weftline.run.feeds import make_feeds
from weftline.run.local.channel import CHANNEL_WARM_UP, ChannelAsk, ChannelTimes, fit, measure_channel, pin
from weftline.run.local.engine import Engine, Seat
from weftline.run.local.layout import lay_out
from weftline.run.local.start import whole_model
from weftline.run.split.segments import Parts, cut_places, parts_by_level
from weftline.run.split.split import split_model
from weftline.run.train.launch import Task, run_processes, start

__all__ = ["Channel", "even_cuts", "longer_transfers", "measure_gloo", "measure_hop", "measure_links", "measure_steps"]

HOP_SEGMENTS, HOP_REQUESTS, HOP_WARM_UP = 16, 100, 20


def measure_hop(a: OrtDevice, b: OrtDevice) -> int:
    """Ns from the end of a segment on one device to where the next could have ended on the other, had it no work."""
    from onnx import TensorProto, helper

    names = [f"t{number}" for number in range(HOP_SEGMENTS + 1)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [16]) for name in (names[0], names[-1])]
    nodes = [helper.make_node("Tanh", [x], [y]) for x, y in pairwise(names)]
    made = helper.make_model(
        helper.make_graph(nodes, "hops", ends[:1], ends[1:]), opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    )
    with run_folder() as folder:
        path = folder / "hops.onnx"
        path.write_bytes(made.SerializeToString())
        graph = read_file(path).graph
        parts = parts_by_level(graph, np.arange(HOP_SEGMENTS, dtype=np.int32) % 2)
        manifest = split_model(path, graph, parts, ("a", "b"), folder)
        feeds = [{names[0]: np.ones(16, np.float32)}]
        with Engine([(lay_out(manifest, str(folder), pipelined=False), {"a": Seat(a), "b": Seat(b)})]) as engine:
            engine.run([HOP_WARM_UP], feeds)
            found = engine.run([HOP_REQUESTS], feeds)[0]
    return round(median(found.latencies) / (HOP_SEGMENTS + 1))


Channel = Literal["memory", "gloo"]
"""Shared memory, by which the local engine runs plans; or gloo, by which `run --engine torch` does."""
Key = tuple[object, ...]


def measure_links(
    cluster: Cluster, devices: Mapping[str, OrtDevice], channel: Channel = "memory"
) -> tuple[LinkProfile, ...]:
    """Every linked pair of devices that run on cores."""
    pairs = [(link.source, link.target) for link in cluster.links] or list(permutations(devices, 2))
    known: dict[Key, tuple[int, int]] = {}
    found = []
    for source, target in pairs:
        a, b = devices[source], devices[target]
        if a.provider != CPU or b.provider != CPU:
            continue
        key: Key = tuple(sorted((_place(a), _place(b))))
        if key not in known:
            known[key] = _measured(a, b, channel)
        found.append(LinkProfile(source, target, *known[key]))
    return tuple(found)


def _measured(a: OrtDevice, b: OrtDevice, channel: Channel) -> tuple[int, int]:
    """Latency and bandwidth."""
    if channel == "gloo":
        times = measure_gloo(cores=(a.cores, b.cores))
        return times.latency, max(times.bandwidth, 1)
    times = measure_channel(cores=(a.cores, b.cores))
    return max(times.latency, measure_hop(a, b)), max(times.bandwidth, 1)


def _place(device: OrtDevice) -> tuple[int, ...]:
    """Its cores where they are named; any core is as good as another where not."""
    return device.cores if device.own else (-1,)


ASK = "ask.json"


def measure_gloo(
    sizes: Iterable[int] = (1024, 2**17, 2**20, 2**24),
    *,
    cores: tuple[Sequence[int], Sequence[int]],
    rounds: int = 30,
    timeout: float = 120.0,
) -> ChannelTimes:
    """Measure between two processes, pinned to `cores`."""
    if find_spec("torch") is None:
        raise MissingExtra("torch", "torch")
    asked = tuple(sorted(set(sizes)))
    with run_folder() as folder:
        ask = ChannelAsk(asked, (tuple(cores[0]), tuple(cores[1])), rounds)
        (folder / ASK).write_bytes(msgspec.json.encode(ask))
        answer = run_processes("weftline.measure.links", folder, 2, timeout)
    times = msgspec.json.decode(answer, type=list[int])
    latency, bandwidth = fit(asked, times)
    return ChannelTimes(asked, tuple(times), latency, bandwidth)


def _load_gloo(folder: Path) -> None:
    import torch.distributed  # noqa: F401


def _time_gloo(folder: Path, store: Any, rank: int, world: int) -> bytes:
    """Ns for each size: half of the median round."""
    import torch
    import torch.distributed as dist

    ask = msgspec.json.decode((folder / ASK).read_bytes(), type=ChannelAsk)
    pin(ask.cores[rank])
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=60))
    found = []
    for size in ask.sizes:
        array, taken = torch.zeros(size, dtype=torch.uint8), []
        for _ in range(ask.rounds + CHANNEL_WARM_UP):
            begin = time.monotonic_ns()
            if rank == 0:
                dist.send(array, 1)
                dist.recv(array, 1)
            else:
                dist.recv(array, 0)
                dist.send(array, 0)
            taken.append((time.monotonic_ns() - begin) // 2)
        found.append(round(median(taken[CHANNEL_WARM_UP:])))
    dist.barrier()
    dist.destroy_process_group()
    return msgspec.json.encode(found)


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


if __name__ == "__main__":
    sys.exit(start(Task(_load_gloo, _time_gloo)))
