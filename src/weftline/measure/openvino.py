"""Devices that OpenVINO runs, measured: the times of its fused nodes, mapped back to ops.

In: a model, its graph, devices of OpenVINO. Out: a `DeviceProfile` for each. Simplified: OpenVINO's HETERO runs one
sub-model after another, so a device is measured alone, and `busy` is the same. Where the nodes cannot be found again in
the graph, every op has a share of the whole run by the roofline, and the profile says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

import numpy as np

from weftline.cluster import Cluster, Device
from weftline.cost.profile_file import DeviceProfile, Kernel
from weftline.cost.profiled import roofline_shares
from weftline.errors import UsageError
from weftline.graph import Graph
from weftline.measure.job import ProfileAnswer
from weftline.measure.kernels import kernel_groups
from weftline.measure.processes import ANSWER_SECONDS, DeviceProcess
from weftline.reduce.fusion.oracle import OracleError
from weftline.run.openvino.devices import OpenvinoDevice
from weftline.run.openvino.job import OpenvinoSetup

__all__ = ["LEVEL", "measure_openvino"]

LEVEL = "f32, LATENCY"
"""Precision and performance hint of the runs."""

Wait = tuple[int, float, float]
"""Runs, least and most seconds of one measurement."""


def measure_openvino(
    model: Path,
    graph: Graph,
    cluster: Cluster,
    devices: Mapping[str, OpenvinoDevice],
    wait: Wait,
    seed: int,
    say: Callable[[str], None],
) -> tuple[str, tuple[DeviceProfile, ...]]:
    """(version of OpenVINO, devices), one after another."""
    version, found = "", []
    for device in cluster.devices:
        if device.speed != 1:
            raise UsageError(f"device {device.id!r} has a speed of {device.speed:g}; OpenVINO slows no device down")
        say(f"{device.id}: whole runs and kernels")
        here = devices[device.id]
        setup = OpenvinoSetup(str(model.absolute()), graph, here.name, dict(here.properties), *wait, seed)
        answer = _ask(device.id, setup)
        version = answer.version
        found.append(_device_profile(graph, device, here, answer))
    return version, tuple(found)


def _ask(id: str, setup: OpenvinoSetup) -> ProfileAnswer:
    worker = DeviceProcess(id, "weftline.measure.openvino_worker")
    with worker.child:
        worker.send(setup)
        return worker.receive(time.monotonic() + ANSWER_SECONDS)


def _device_profile(graph: Graph, device: Device, here: OpenvinoDevice, answer: ProfileAnswer) -> DeviceProfile:
    total = round(median(answer.ns))
    low, middle, high = np.quantile(np.array(answer.ns, np.float64), (0.25, 0.5, 0.75))
    try:
        kernels, level, note = _kernels(graph, answer, total), "nodes", ""
    except OracleError as error:
        share = roofline_shares(graph, device, total).tolist()
        kernels = tuple(Kernel((op.name,), ns, ns) for op, ns in zip(graph.ops, share, strict=True))
        level, note = "roofline", f"the nodes of OpenVINO were not found again: {error}"[:400]
    return DeviceProfile(
        id=device.id,
        runtime=",".join((f"openvino:{here.name}", *(f"{key}={value}" for key, value in here.properties.items()))),
        speed=1.0,
        threads=answer.threads,
        alone_ns=total,
        busy_ns=total,
        spread=round(float((high - low) / middle), 4),
        stolen=0.0,
        kernels_from=level,
        note=note,
        kernels=kernels,
    )


def _kernels(graph: Graph, answer: ProfileAnswer, total: int) -> tuple[Kernel, ...]:
    """Groups of ops with the time of their nodes, scaled so that they add up to a whole run."""
    groups = kernel_groups(graph, answer.nodes, answer.nodes)
    count = int(max(groups.group.max(), groups.of_node.max())) + 1
    time_of = np.bincount(groups.of_node, np.array(answer.kernel_ns), count)
    if not time_of.sum() > 0:
        raise OracleError("its counters say nothing")
    members: dict[int, list[str]] = {}
    for op, group in zip(graph.ops, groups.group.tolist(), strict=True):
        members.setdefault(group, []).append(op.name)
    spread = np.zeros(count)
    np.maximum.at(spread, groups.of_node, np.array(answer.kernel_spread))
    numbers = np.array(list(members))
    edges = np.rint(np.cumsum(time_of[numbers]) * (total / time_of[numbers].sum())).astype(np.int64)
    scaled = np.diff(edges, prepend=0).tolist()
    return tuple(
        Kernel(tuple(members[group]), ns, ns, round(float(spread[group]), 4))
        for group, ns in zip(numbers.tolist(), scaled, strict=True)
    )
