"""Links between devices of this machine, measured over the channel that runs plans: memory, or gloo.

In: a cluster, the cores of its devices, the channel. Out: latency and bandwidth of every ordered pair that the cluster
links (of all pairs, where it has no links). Over memory, latency is that of a step of tiny ops between two workers
(`hop_meter`), which is more than the way of the first byte; what a model adds to it, `step_meter` tells. Simplified:
both directions of a pair are alike, and so are pairs whose runtimes are; pairs with another provider than the CPU keep
the cluster's numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from typing import Literal

from weftline.cluster import Cluster
from weftline.cost.profile_file import LinkProfile
from weftline.measure.gloo_meter import measure_gloo
from weftline.measure.hop_meter import measure_hop
from weftline.run.devices import CPU, OrtDevice
from weftline.run.local.channel import measure_channel

__all__ = ["Channel", "measure_links"]

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
