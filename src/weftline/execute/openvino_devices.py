"""From devices of a cluster to devices of OpenVINO, and what those can run.

In: the `runtime` of devices, `openvino:GPU.1`, perhaps with properties: `openvino:CPU2,INFERENCE_NUM_THREADS=1`. CPU2,
CPUB and the like are the CPU's plugin once more: a second real device on a machine that has only a CPU. Out: names and
properties; the ops that a device cannot run, as forbids of a cluster, from OpenVINO's own answer (`query_model`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from weftline.cluster import Cluster, Device, OpDevice
from weftline.errors import InputError, UsageError
from weftline.execute.load_affinity import AffinityError, open_core
from weftline.execute.openvino_names import read_model, resolve
from weftline.graph import Graph
from weftline.importers.openvino_module import last_line, openvino_module

__all__ = [
    "OpenvinoDevice",
    "core_for",
    "forbid_unsupported",
    "openvino_device",
    "openvino_devices",
    "run_by_openvino",
    "unsupported_ops",
]

_RUNTIME = re.compile(r"openvino:(?P<name>[A-Z][A-Z0-9_]*(?:\.[0-9A-Za-z]+)*)(?P<rest>(?:,[A-Z][A-Z0-9_]*=[\w.-]+)*)")


@dataclass(frozen=True)
class OpenvinoDevice:
    """A device as OpenVINO knows it."""

    name: str
    """CPU, GPU.1, NPU, CPU2 ..."""
    properties: Mapping[str, str]
    """What is set for it before a model is compiled."""


def openvino_device(device: Device, runtimes: Mapping[str, str] = MappingProxyType({})) -> OpenvinoDevice:
    """What runs the ops of a device; `runtimes` (device id -> runtime) comes before what the cluster says."""
    runtime = runtimes.get(device.id, device.runtime)
    found = _RUNTIME.fullmatch(runtime if runtime.startswith("openvino:") else "")
    if found is None:
        said = f"its runtime is {runtime[:60]!r}" if runtime else "it has no runtime"
        raise InputError(
            f"device {device.id!r} cannot be run by OpenVINO: {said}",
            hint=f'give it one such as runtime = "openvino:GPU.0", or --runtime {device.id}=openvino:CPU2',
        )
    pairs = (part.partition("=") for part in found["rest"].split(",") if part)
    return OpenvinoDevice(found["name"], {key: value for key, _, value in pairs})


def run_by_openvino(devices: Iterable[Device], runtimes: Mapping[str, str] = MappingProxyType({})) -> list[Device]:
    """Those that have a runtime of OpenVINO; a runtime for a device that does not exist is an error."""
    known = {device.id: device for device in devices}
    for id in runtimes:
        if id not in known:
            raise UsageError(f"a runtime is given for {id[:64]!r}; the devices are {', '.join(list(known)[:16])}")
    return [device for device in known.values() if runtimes.get(device.id, device.runtime).startswith("openvino:")]


def openvino_devices(
    devices: Iterable[Device], runtimes: Mapping[str, str] = MappingProxyType({})
) -> dict[str, OpenvinoDevice]:
    """Device id -> what runs it; two devices of a plan cannot be the same device of OpenVINO."""
    found: dict[str, OpenvinoDevice] = {}
    for device in devices:
        found[device.id] = openvino_device(device, runtimes)
        twin = next((id for id in found if id != device.id and found[id].name == found[device.id].name), None)
        if twin is not None:
            raise InputError(
                f"devices {twin!r} and {device.id!r} are both OpenVINO's {found[twin].name!r}",
                hint="a second CPU is openvino:CPU2",
            )
    return found


def core_for(devices: Iterable[OpenvinoDevice]) -> Any:
    """An OpenVINO core that has all of them, with their properties."""
    openvino_module()
    wanted = list(devices)
    try:
        core = open_core(device.name for device in wanted)
        there = list(core.available_devices)
        for device in wanted:
            if not any(device.name == name or name.startswith(f"{device.name}.") for name in there):
                raise InputError(
                    f"OpenVINO has no device {device.name!r} on this machine", hint=f"it has {', '.join(there)}"
                )
            if device.properties:
                core.set_property(device.name, dict(device.properties))
    except (AffinityError, RuntimeError) as error:
        raise InputError(f"OpenVINO refuses a device: {last_line(error)}") from error
    return core


def unsupported_ops(
    graph: Graph, model: Path | str | Any, devices: Mapping[str, OpenvinoDevice]
) -> tuple[OpDevice, ...]:
    """The ops of a graph that devices (by id) cannot run, as OpenVINO's plugins say."""
    core = core_for(devices.values())
    loaded = read_model(core, model) if isinstance(model, str | Path) else model
    nodes = resolve(graph, loaded, exact=False)
    forbidden = []
    for id, device in devices.items():
        try:
            able = core.query_model(loaded, device.name)
        except RuntimeError as error:
            raise InputError(f"device {device.name!r} cannot look at the model: {last_line(error)}") from error
        forbidden += [
            OpDevice(op.name, id)
            for op, found in zip(graph.ops, nodes, strict=True)
            if any(node.get_friendly_name() not in able for node in found)
        ]
    return tuple(forbidden)


def forbid_unsupported(
    cluster: Cluster, graph: Graph, model: Path | str | Any, runtimes: Mapping[str, str] = MappingProxyType({})
) -> Cluster:
    """The cluster with a forbid for every op that a device run by OpenVINO cannot run; other devices stay free."""
    found = unsupported_ops(graph, model, openvino_devices(run_by_openvino(cluster.devices, runtimes), runtimes))
    limits = msgspec.structs.replace(cluster.limits, forbid=(*cluster.limits.forbid, *found))
    return msgspec.structs.replace(cluster, limits=limits)
