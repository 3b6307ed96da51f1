"""A cluster of k equal devices with one kind of link between all pairs: the machines of the papers.

In: the number of devices. Out: a Cluster whose device and link are those of the preset eight-gpus, without its memory
limit. Simplified: no network has 64 devices at full speed between all pairs.
"""

from __future__ import annotations

import msgspec

from weftline.cluster import Cluster, Link

__all__ = ["PRESET", "flat_cluster"]

PRESET = "eight-gpus"


def flat_cluster(count: int) -> Cluster:
    """`count` copies of the preset's first device, linked like its first pair; memory is unlimited."""
    preset = Cluster.preset(PRESET)
    device, link = preset.devices[0], preset.links[0]
    names = [f"gpu{i}" for i in range(count)]
    devices = tuple(msgspec.structs.replace(device, id=name, memory=None, reserve=0, runtime="") for name in names)
    links = tuple(Link(a, b, link.bandwidth, link.latency, origin=link.origin) for a in names for b in names if a != b)
    return Cluster(f"{count} x {PRESET}", devices, links)
