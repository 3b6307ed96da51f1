"""From devices of a cluster to devices of OpenVINO, what those can run, and ops <-> operations of OpenVINO's model.

In: the `runtime` of devices, `openvino:GPU.1`, perhaps with properties: `openvino:CPU2,INFERENCE_NUM_THREADS=1`. CPU2,
CPUB and the like are the CPU's plugin once more: a second real device on a machine that has only a CPU. Out: names and
properties; the ops that a device cannot run, as forbids of a cluster, from OpenVINO's own answer (`query_model`); for
every op of a graph its operations in an `openvino.Model` of the same file. In an IR file, and in a live model, names
are the same. In an ONNX file an op goes by its node's name or by the name of a tensor it makes; where OpenVINO writes
one node as several operations, those without a name belong to the op that reads them.
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
from weftline.errors import InputError, UsageError, no_such_file
from weftline.graph import Graph
from weftline.graph.ir import MODEL_INPUT
from weftline.importers.openvino import last_line, openvino_module
from weftline.run.openvino.load_affinity import AffinityError, open_core, placed_operations

__all__ = [
    "OpenvinoDevice",
    "affinity_of",
    "core_for",
    "forbid_unsupported",
    "openvino_device",
    "openvino_devices",
    "read_model",
    "resolve",
    "run_by_openvino",
    "unsupported_ops",
]


def read_model(core: Any, path: Path | str) -> Any:
    """The model of an IR or ONNX file with nothing changed, so that names stay."""
    path = Path(path)
    if not path.is_file():
        raise no_such_file(path)
    try:
        return core.read_model(str(path))
    except RuntimeError as error:
        hint = "the .bin file must lie beside the .xml" if path.suffix == ".xml" else ""
        raise InputError(f"OpenVINO cannot read the model: {last_line(error)}", where=str(path), hint=hint) from error


def resolve(graph: Graph, model: Any, *, exact: bool) -> list[list[Any]]:
    """The operations of each op. With `exact`, an operation that no op has is an error, as is an op without any."""
    placed = placed_operations(model)
    owner = _owners(graph, placed)
    if exact:
        _require_all(graph, placed)
    found: list[list[Any]] = [[] for _ in graph.ops]
    for node in placed:
        op = owner.get(node.get_name())
        if op is not None:
            found[op].append(node)
    missing = [op.name for op, nodes in zip(graph.ops, found, strict=True) if not nodes]
    if missing:
        raise InputError(
            f"the model has no operation {missing[0][:80]!r} ({len(missing)} ops of the plan are not in it)",
            hint="run a plan on the file it was made for; names change when a model is converted again",
        )
    return found


def affinity_of(nodes: list[list[Any]], devices: list[str]) -> dict[str, str]:
    """Friendly name -> device, for `load_affinity`; `devices` has one for each op. Nameless helpers are left out."""
    return {
        node.get_friendly_name(): device
        for found, device in zip(nodes, devices, strict=True)
        for node in found
        if node.get_friendly_name() != node.get_name()
    }


def _owners(graph: Graph, placed: list[Any]) -> dict[str, int]:
    """Unique name of an operation -> index of its op."""
    makes = {tensor.name: tensor.producer for tensor in graph.tensors if tensor.producer != MODEL_INPUT}
    owner: dict[str, int] = {}
    for node in placed:
        names = [name for output in node.outputs() for name in output.get_names()]
        op = graph.index.get(node.get_friendly_name())
        if op is None:
            op = next((makes[name] for name in sorted(names) if name in makes), None)
        if op is not None:
            owner[node.get_name()] = op
    for node in reversed(placed):
        for reader in (entry.get_node() for output in node.outputs() for entry in output.get_target_inputs()):
            if node.get_name() not in owner and reader.get_name() in owner:
                owner[node.get_name()] = owner[reader.get_name()]
    return owner


def _require_all(graph: Graph, placed: list[Any]) -> None:
    for node in placed:
        name = node.get_friendly_name()
        if name not in graph.index:
            raise InputError(
                f"the plan does not know operation {name[:80]!r} ({node.get_type_name()}) of the model",
                hint="run a plan on the file it was made for",
            )


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
