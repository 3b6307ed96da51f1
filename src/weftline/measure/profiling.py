"""`profile_model`: how long every kernel of a model takes on every device of a cluster, measured here.

In: an ONNX file and a cluster whose devices ONNX Runtime can run on this machine (or any file that OpenVINO reads, and
devices that it runs, see `profile_openvino`). Out: a `Profile` (costs.json). Whole runs are timed without a profiler;
kernels by ONNX Runtime's profiler, then scaled so that they add up to a whole run. `alone`: one device works; `busy`:
all run the model at the same time, as the stages of a pipeline do, and slowed ones rest as they will. Kernels are those
of the level that runs (ALL); where they cannot be found again in the graph, those of EXTENDED or of the plain graph,
scaled to what ALL takes. Links are those of `profile_links`, and as much longer as this model makes them
(`measure_steps`). Simplified: inputs are random, times do not depend on them.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import mean, median
from types import MappingProxyType
from typing import NamedTuple

import msgspec
import numpy as np

from weftline.cluster import Cluster, Device
from weftline.cost.profile_file import DeviceProfile, Kernel, LinkProfile, Profile
from weftline.errors import InputError, MissingExtra, UsageError, WeftlineError
from weftline.graph import Graph
from weftline.graph.ir import MODEL_INPUT
from weftline.importers import Imported, ImportOptions, read_file
from weftline.measure.cache import cached
from weftline.measure.kernels import KernelGroups, RunNode, kernel_groups, layout_changes
from weftline.measure.links import Channel, measure_links, measure_steps
from weftline.measure.openvino import LEVEL, measure_openvino
from weftline.measure.processes import Measure, Prepare, ProfileAnswer, Workers
from weftline.reduce.fusion.oracle import OracleError
from weftline.run.devices import OrtDevice, ort_devices
from weftline.run.openvino.devices import OpenvinoDevice, openvino_devices, run_by_openvino

__all__ = ["LEAST_SECONDS", "MOST_SECONDS", "PROFILE_REPEATS", "profile_model", "settling"]

PROFILE_REPEATS = 30
LEAST_SECONDS, MOST_SECONDS = 0.3, 20.0
"""Of one measurement."""
SETTLE_SECONDS, PER_REPEAT = 2.5, 0.1
"""Of work before whole runs are timed, and at most so much for each repeat: a rested processor is faster for
the first seconds, and plans run for longer."""
PROFILE_TURNS = 4
"""Whole runs alone and all at once take turns, and their mean counts: a shared machine changes its speed every few
seconds, back and forth, and so it will when plans run."""
LADDER = ("ALL", "EXTENDED", "NONE")
"""Levels whose kernels are looked for in the graph, the best first."""

Tell = Callable[[str], None]


def profile_model(
    model: Path | str,
    cluster: Cluster,
    *,
    shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    dims: Mapping[str, int] = MappingProxyType({}),
    runtimes: Mapping[str, str] = MappingProxyType({}),
    repeats: int = PROFILE_REPEATS,
    cache: bool = True,
    seed: int = 0,
    channel: Channel = "memory",
    tell: Tell | None = None,
) -> Profile:
    """Measure; or give back what was measured before, for the same file, devices, versions and settings.

    `channel` is what the links are measured over.
    """
    if repeats < 3:
        raise UsageError("a profile needs at least 3 repeats")
    imported = read_file(model, ImportOptions(shapes=shapes, dims=dims))
    say, path = tell or (lambda _: None), Path(model)
    measured: Callable[[], Profile]
    devices: Mapping[str, OrtDevice | OpenvinoDevice]
    if _by_openvino(cluster, runtimes):
        if imported.format not in ("onnx", "openvino"):
            raise UsageError(f"{model} is {imported.format}; OpenVINO runs ONNX models and its own IR")
        if channel != "memory":
            raise UsageError("links of OpenVINO's devices are not measured: the cluster file says how fast they are")
        known = openvino_devices(cluster.devices, runtimes)
        devices, backend = known, f"openvino {version('openvino')}"
        measured = partial(_openvino, path, imported, cluster, known, (repeats, seed), say)
    else:
        if imported.format != "onnx":
            raise UsageError(f"{model} is {imported.format}; ONNX Runtime profiles ONNX models")
        ours = ort_devices(cluster.devices, runtimes)
        devices, backend = ours, f"onnxruntime {version('onnxruntime')}"
        links = partial(measure_links, cluster, ours, channel)
        measured = partial(_measured, path, imported, cluster, ours, (repeats, seed), links, channel == "memory", say)
    if not cache:
        return measured()
    inputs = _input_shapes(imported.graph)
    settings = {
        "backend": backend,
        "channel": channel,
        "repeats": repeats,
        "seed": seed,
        "inputs": sorted(inputs.items()),
    }
    return cached(imported.sha256, cluster, devices, settings, measured, say)


def _by_openvino(cluster: Cluster, runtimes: Mapping[str, str]) -> bool:
    found = {device.id for device in run_by_openvino(cluster.devices, runtimes)}
    others = [device.id for device in cluster.devices if device.id not in found]
    if found and others:
        raise UsageError(
            f"OpenVINO runs {min(found)!r}, but not {others[0]!r}: a profile is made by one backend for all devices; "
            f"give them runtimes such as --runtime {others[0]}=openvino:CPU2"
        )
    if found and find_spec("openvino") is None:
        raise MissingExtra("openvino", "openvino")
    return bool(found)


def _openvino(
    model: Path,
    imported: Imported,
    cluster: Cluster,
    devices: Mapping[str, OpenvinoDevice],
    how: tuple[int, int],
    say: Tell,
) -> Profile:
    wait = (how[0], LEAST_SECONDS, MOST_SECONDS)
    number, found = measure_openvino(model, imported.graph, cluster, devices, wait, how[1], say)
    return _profile(imported, "openvino", number, LEVEL, how[0], found)


def _profile(
    imported: Imported,
    backend: str,
    number: str,
    level: str,
    repeats: int,
    devices: tuple[DeviceProfile, ...],
    links: tuple[LinkProfile, ...] = (),
) -> Profile:
    return Profile(
        format="weftline-costs",
        version=1,
        model=imported.graph.name,
        model_sha256=imported.sha256,
        inputs=_input_shapes(imported.graph),
        backend=backend,
        backend_version=number,
        level=level,
        machine=f"{platform.machine()} {platform.system()}, {platform.processor() or platform.node()}"[:200],
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        repeats=repeats,
        devices=devices,
        links=links,
    )


def _input_shapes(graph: Graph) -> dict[str, tuple[int, ...]]:
    return {tensor.name: tensor.shape for tensor in graph.tensors if tensor.producer == MODEL_INPUT}


class _Times(NamedTuple):
    """One device under one condition."""

    whole: int
    spread: float
    stolen: float
    kernel: Sequence[int]
    kernel_spread: Sequence[float]


class _Found(NamedTuple):
    """How the kernels of a device map to ops."""

    level: str
    note: str
    groups: KernelGroups
    nodes: tuple[RunNode, ...]


def _measured(
    model: Path,
    imported: Imported,
    cluster: Cluster,
    devices: Mapping[str, OrtDevice],
    how: tuple[int, int],
    links: Callable[[], tuple[LinkProfile, ...]],
    steps: bool,
    say: Tell,
) -> Profile:
    graph, (repeats, seed) = imported.graph, how
    speeds = {device.id: device.speed for device in cluster.devices}
    with Workers(model, _input_shapes(graph), devices, speeds=speeds, seed=seed) as workers:
        found = _find_kernels(graph, workers, devices, say)
        alone, busy = _times(workers, devices, found, repeats, say)
        number = workers.versions[next(iter(devices))]
    say("links")
    profiles = tuple(
        _device_profile(graph, device, devices[device.id], found[device.id], alone[device.id], busy[device.id])
        for device in cluster.devices
    )
    profile = _profile(imported, "onnxruntime", number, "ALL", repeats, profiles, links())
    return _with_steps(profile, model, imported.graph, cluster, devices, say) if steps else profile


def _with_steps(
    profile: Profile, model: Path, graph: Graph, cluster: Cluster, devices: Mapping[str, OrtDevice], say: Tell
) -> Profile:
    """Links as this model finds them: measured between two workers, added to all; a note where that failed."""
    if not profile.links:
        return profile
    say("steps between two workers")
    ids = (profile.links[0].source, profile.links[0].target)
    pair = [(device, devices[device.id]) for id in ids for device in cluster.devices if device.id == id]
    try:
        longer = measure_steps(model, graph, profile, pair, 2 * settling(profile.repeats))
    except WeftlineError as error:  # inputs are random, which not every model bears
        note = f"steps between workers were not measured: {error}".splitlines()[0][:400]
        say(note)
        return msgspec.structs.replace(profile, note=note)
    links = tuple(msgspec.structs.replace(link, latency_ns=link.latency_ns + longer) for link in profile.links)
    return msgspec.structs.replace(profile, links=links)


def _same(a: OrtDevice, b: OrtDevice) -> bool:
    """One is as good as the other, alone: the runtime names no cores, which need not be equal."""
    return not a.own and a.runtime == b.runtime


def _find_kernels(graph: Graph, workers: Workers, devices: Mapping[str, OrtDevice], say: Tell) -> dict[str, _Found]:
    found: dict[str, _Found] = {}
    for id, device in devices.items():
        twin = next((other for other in found if devices[other].runtime == device.runtime), None)
        if twin is None:
            say(f"{id}: kernels")
        found[id] = found[twin] if twin is not None else _climb(graph, workers, id)
    return found


def _climb(graph: Graph, workers: Workers, id: str) -> _Found:
    """Down the ladder of levels until every kernel and every op is found."""
    nodes: dict[str, tuple[RunNode, ...]] = {}
    for level in ("EXTENDED", "ALL", "NONE"):
        nodes[level] = workers.prepare(id, Prepare(level, kernels=True)).nodes
    note = ""
    for level in LADDER:
        plain = nodes["EXTENDED"] if level == "ALL" else nodes[level]
        try:
            return _Found(level, note, kernel_groups(graph, plain, nodes[level]), nodes[level])
        except OracleError as error:
            note = note or f"kernels of the fully optimised model cannot be mapped back to ops: {error}"[:400]
    raise InputError(f"the ops of {graph.name!r} were not found again in ONNX Runtime: {note}")


def _times(
    workers: Workers, devices: Mapping[str, OrtDevice], found: Mapping[str, _Found], repeats: int, say: Tell
) -> tuple[dict[str, _Times], dict[str, _Times]]:
    """Device -> times alone, and while all work."""
    twin = {id: next(other for other in devices if other == id or _same(devices[id], devices[other])) for id in devices}
    groups = [[id] for id in devices if twin[id] == id] + ([list(devices)] if len(devices) > 1 else [])
    kernels = []
    for group in groups:
        say(f"{group[0]}: kernels alone" if len(group) == 1 else "kernels, all devices at once")
        for id in group:
            workers.prepare(id, Prepare(found[id].level, kernels=True))
        kernels.append(workers.measure_together(group, Measure(repeats, LEAST_SECONDS, MOST_SECONDS)))
    for id in devices:
        workers.prepare(id, Prepare("ALL", kernels=False))
    whole = list(zip(*_whole_runs(workers, groups, repeats, say), strict=True))
    times = [
        {id: _scaled([turn[id] for turn in turns], k[id]) for id in group}
        for group, turns, k in zip(groups, whole, kernels, strict=True)
    ]
    alone = {id: measured for row in times if len(row) == 1 for id, measured in row.items()}
    return {id: alone[twin[id]] for id in devices}, times[-1] if len(devices) > 1 else alone


def _whole_runs(
    workers: Workers, groups: Sequence[Sequence[str]], repeats: int, say: Tell
) -> Iterator[list[dict[str, ProfileAnswer]]]:
    """Turn by turn: what every group of devices took."""
    settle = settling(repeats)
    say("whole runs: settling")
    workers.measure_together(groups[-1], Measure(1, settle, settle))
    part = Measure(-(-repeats // PROFILE_TURNS), settle / 2, MOST_SECONDS / PROFILE_TURNS)
    for turn in range(1, PROFILE_TURNS + 1):
        say(f"whole runs, alone and all at once: {turn} of {PROFILE_TURNS}")
        yield [workers.measure_together(group, part) for group in groups]


def settling(repeats: int) -> float:
    """Seconds of work before so many runs are timed."""
    return min(SETTLE_SECONDS, PER_REPEAT * repeats)


def _scaled(turns: Sequence[ProfileAnswer], kernels: ProfileAnswer) -> _Times:
    """Kernels add up to the mean whole run, to the nanosecond; the spread is that within a turn."""
    total = round(mean(ns for turn in turns for ns in turn.ns))
    node = np.array(kernels.kernel_ns, np.float64)
    exact = np.cumsum(node * (total / node.sum()))
    edges = np.rint(exact).astype(np.int64)
    edges[-1] = total
    return _Times(
        total,
        round(median(_spread(turn.ns) for turn in turns), 4),
        round(mean(turn.stolen for turn in turns), 4),
        np.diff(edges, prepend=0).tolist(),
        kernels.kernel_spread,
    )


def _spread(taken: Sequence[int]) -> float:
    low, middle, high = np.quantile(np.array(taken, np.float64), (0.25, 0.5, 0.75))
    return float((high - low) / middle)


def _device_profile(
    graph: Graph, device: Device, ort: OrtDevice, found: _Found, alone: _Times, busy: _Times
) -> DeviceProfile:
    members: dict[int, list[int]] = {}
    for op, group in enumerate(found.groups.group.tolist()):
        members.setdefault(group, []).append(op)
    of_group: dict[int, list[int]] = {}
    for node, group in enumerate(found.groups.of_node.tolist()):
        of_group.setdefault(group, []).append(node)
    kernels = tuple(
        Kernel(
            ops=tuple(graph.ops[op].name for op in ops),
            alone_ns=_slowed(sum(alone.kernel[node] for node in of_group.get(group, ())), device),
            busy_ns=_slowed(sum(busy.kernel[node] for node in of_group.get(group, ())), device),
            spread=round(max((alone.kernel_spread[node] for node in of_group.get(group, ())), default=0.0), 4),
        )
        for group, ops in members.items()
    )
    return DeviceProfile(
        id=device.id,
        runtime=ort.runtime,
        speed=device.speed,
        threads=ort.threads,
        alone_ns=sum(kernel.alone_ns for kernel in kernels),
        busy_ns=sum(kernel.busy_ns for kernel in kernels),
        spread=alone.spread,
        stolen=max(alone.stolen, busy.stolen),
        kernels_from=found.level,
        note=found.note,
        kernels=kernels,
        layouts=layout_changes(graph, found.groups, found.nodes, alone.kernel, device.speed),
    )


def _slowed(ns: int, device: Device) -> int:
    return round(ns / device.speed)
