"""Links between devices of this machine, measured over the channel that runs plans: memory, or gloo.

In: a cluster, the cores of its devices, the channel. Out: latency and bandwidth of every ordered pair that the cluster
links (of all pairs, where it has no links). Over memory, latency is that of a step between two workers (`measure_hop`:
a chain of tiny ops to and fro, as segments of a plan do), which is more than the way of the first byte; what a model
adds to it, `step_meter` tells. Simplified: both directions of a pair are alike, and so are pairs whose runtimes are;
pairs with another provider than the CPU keep the cluster's numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise, permutations
from statistics import median
from typing import Literal

import numpy as np

from weftline.cluster import Cluster
from weftline.cost.profile_file import LinkProfile
from weftline.importers import read_file
from weftline.measure.gloo_meter import measure_gloo
from weftline.run.devices import CPU, OrtDevice
from weftline.run.local.channel import measure_channel
from weftline.run.local.engine import Engine, Seat
from weftline.run.local.layout import lay_out
from weftline.run.local.start import run_folder
from weftline.run.split.segments import parts_by_level
from weftline.run.split.split import split_model

__all__ = ["Channel", "measure_hop", "measure_links"]

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
