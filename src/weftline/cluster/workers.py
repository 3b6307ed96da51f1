"""Workers of this machine as devices: one core each, perhaps slowed down, to try unequal devices without owning any.

In: a speed for each. Out: a Cluster. Simplified: rates and links are guesses until `weftline profile` measures them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

from weftline.cluster.model import Cluster, Device, Link, Rate
from weftline.cluster.rules import check_cluster

__all__ = ["worker_cluster"]

RATE = Rate(fp32=50 * 10**9, bandwidth=10 * 10**9, launch=2_000, source="guess")


def worker_cluster(speeds: Sequence[float]) -> Cluster:
    """Devices w0, w1, ... that run by ONNX Runtime."""
    devices = tuple(
        Device(f"w{number}", "cpu", None, rate=RATE, runtime="ort:CPUExecutionProvider", speed=speed)
        for number, speed in enumerate(speeds)
    )
    links = tuple(
        Link(a.id, b.id, bandwidth=5 * 10**9, latency=30_000, origin="guess") for a, b in permutations(devices, 2)
    )
    return check_cluster(Cluster(name=f"{len(devices)} workers of this machine", devices=devices, links=links))
