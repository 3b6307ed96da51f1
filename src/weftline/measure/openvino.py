"""Devices that OpenVINO runs, measured: the times of its fused nodes, mapped back to ops.

In: a model, its graph, devices of OpenVINO. Out: a `DeviceProfile` for each. A process of its own, which runs this
module, may crash or hang without harm: it times whole runs without a profiler, and every node of the compiled graph by
OpenVINO's own counters. Where the nodes cannot be found again in the graph, every op has a share of the whole run by
the roofline, and the profile says so. Simplified: OpenVINO's HETERO runs one sub-model after another, so a device is
measured alone, and `busy` is the same; random inputs, full precision, one inference at a time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from weftline.cluster import Cluster, Device
from weftline.cost.profile_file import DeviceProfile, Kernel
from weftline.cost.profiled import roofline_shares
from weftline.errors import UsageError
from weftline.graph import Graph
from weftline.importers.openvino import last_line, openvino_module
from weftline.measure.kernels import RunNode, kernel_groups
from weftline.measure.ort_worker import WARM_UP_RUNS, middle_of
from weftline.measure.processes import ANSWER_SECONDS, DeviceProcess, OpenvinoSetup, ProfileAnswer
from weftline.reduce.fusion.oracle import OracleError
from weftline.run.openvino.devices import OpenvinoDevice, core_for, read_model, resolve
from weftline.run.openvino.worker import CONFIG, fix_shapes, make_inputs
from weftline.worker.child import Conversation, serve

__all__ = ["LEVEL", "measure_openvino", "run_nodes"]

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
    worker = DeviceProcess(id, "weftline.measure.openvino")
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


NO_WORK = ("Const", "Output")


def measure(setup: OpenvinoSetup) -> ProfileAnswer:
    """Whole runs, then kernels."""
    core = core_for([OpenvinoDevice(setup.device, setup.properties)])
    model = read_model(core, setup.model)
    operations = resolve(setup.graph, model, exact=Path(setup.model).suffix == ".xml")
    fix_shapes(model, setup.graph)
    inputs = make_inputs(model, setup.seed)

    def request(**more: str) -> tuple[Any, Any]:
        compiled = core.compile_model(model, setup.device, {**CONFIG, **more})
        made = compiled.create_infer_request()
        for number, tensor in enumerate(inputs):
            made.set_input_tensor(number, tensor)
        for _ in range(WARM_UP_RUNS):
            made.infer()
        return compiled, made

    _, plain = request()
    whole, _ = _runs(plain, setup)
    compiled, counting = request(PERF_COUNT="YES")
    _, counted = _runs(counting, setup)
    owner = {node.get_friendly_name(): op for op, nodes in enumerate(operations) for node in nodes}
    nodes, names = run_nodes(setup.graph, compiled.get_runtime_model(), owner)
    times = np.array([[sum(row.get(name, 0.0) for name in of_node) for of_node in names] for row in counted])
    middle, spread = middle_of(times)
    version = openvino_module().get_version()
    return ProfileAnswer(
        version=version,
        nodes=nodes,
        ns=whole,
        kernel_ns=tuple(middle.tolist()),
        kernel_spread=tuple(spread.tolist()),
        threads=_threads(compiled),
    )


def _threads(compiled: Any) -> int:
    """Of the device's plugin; 1 where it does not say."""
    try:
        return max(int(compiled.get_property("INFERENCE_NUM_THREADS")), 1)
    except (RuntimeError, TypeError, ValueError):
        return 1


def _runs(request: Any, setup: OpenvinoSetup) -> tuple[tuple[int, ...], list[dict[str, float]]]:
    """Ns of every run, and ns of every node in it where the request counts."""
    taken: list[int] = []
    counted: list[dict[str, float]] = []
    begin = time.monotonic()
    while True:
        spent = time.monotonic() - begin
        enough = len(taken) >= setup.runs and spent > setup.least_seconds
        if len(taken) >= 3 and (enough or spent > setup.most_seconds):
            return tuple(taken), counted
        start = time.perf_counter_ns()
        request.infer()
        taken.append(time.perf_counter_ns() - start)
        if len(counted) < setup.runs:
            counted.append(_counters(request))


def _counters(request: Any) -> dict[str, float]:
    try:
        return {entry.node_name: entry.real_time.total_seconds() * 1e9 for entry in request.profiling_info}
    except RuntimeError:  # this request does not count
        return {}


def run_nodes(graph: Graph, runtime: Any, owner: dict[str, int]) -> tuple[tuple[RunNode, ...], list[tuple[str, ...]]]:
    """The nodes of a compiled graph that work, and the names under which the time of each is counted.

    A node makes the tensors of the last of our ops that it stands for; what stands for none makes a tensor without a
    name of ours. A node behind which nothing but an output comes belongs to the one before it.
    """
    outputs: list[list[str]] = [[] for _ in graph.ops]
    for tensor in graph.tensors:
        if tensor.producer >= 0:
            outputs[tensor.producer].append(tensor.name)
    makes: dict[str, tuple[str, ...]] = {}
    found: dict[str, RunNode] = {}
    counted: dict[str, tuple[str, ...]] = {}
    for node in runtime.get_ordered_ops():
        name, kind = node.get_friendly_name(), _word(node, "layerType")
        before = [entry.get_source_output().get_node().get_friendly_name() for entry in node.inputs()]
        reads = tuple(tensor for source in before for tensor in makes.get(source, ()))
        ops = {owner[word] for word in (name, *_word(node, "originalLayersNames").split(",")) if word in owner}
        if kind == "Input":
            makes[name] = (name,)
            continue
        if kind in NO_WORK or not (ops or reads):
            continue
        if not ops and _is_last(node):
            maker = next((source for source in before if source in found), None)
            if maker is not None:
                counted[maker] = (*counted[maker], name)
                makes[name] = makes[maker]
                continue
        makes[name] = tuple(outputs[max(ops)]) if ops else (f"weftline-lost:{name}",)
        found[name] = RunNode(kind, name, reads, makes[name])
        counted[name] = (name,)
    return tuple(found.values()), [counted[name] for name in found]


def _is_last(node: Any) -> bool:
    readers = [entry.get_node() for output in node.outputs() for entry in output.get_target_inputs()]
    return all(_word(reader, "layerType") == "Output" for reader in readers)


def _word(node: Any, key: str) -> str:
    information = node.get_rt_info()
    return str(information[key].astype(str)) if key in information else ""


def answer(conversation: Conversation) -> None:
    """One question, one answer."""
    conversation.send(measure(conversation.receive(OpenvinoSetup)))


if __name__ == "__main__":
    sys.exit(serve(answer, in_short=last_line))
