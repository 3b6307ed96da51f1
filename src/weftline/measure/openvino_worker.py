"""The process in which OpenVINO is timed on one device: it may crash or hang without harm to the caller.

In: a line of JSON on standard input, an `OpenvinoSetup`. Out: an `Answer`: whole runs without a profiler, the nodes of
the compiled graph with the tensors of ours that they make, and the time of each by OpenVINO's own counters. Simplified:
random inputs, full precision, one inference at a time.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from weftline.errors import WeftlineError
from weftline.graph import Graph
from weftline.importers.openvino import last_line, openvino_module
from weftline.measure.job import Answer
from weftline.measure.kernels import RunNode
from weftline.measure.ort_worker import WARM_UP, middle_of
from weftline.run.openvino.devices import OpenvinoDevice, core_for, read_model, resolve
from weftline.run.openvino.job import OpenvinoSetup
from weftline.run.openvino.worker import CONFIG, fix_shapes, make_inputs
from weftline.worker.lines import open_lines

__all__ = ["main", "run_nodes"]

NO_WORK = ("Const", "Output")


def measure(setup: OpenvinoSetup) -> Answer:
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
        for _ in range(WARM_UP):
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
    return Answer(
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


def main() -> int:
    """One question, one answer."""
    lines, answers = open_lines()
    try:
        answer = measure(msgspec.json.decode(lines.get(), type=OpenvinoSetup))
    except WeftlineError as error:
        answer = Answer(str(error), "input")
    except Exception as error:  # OpenVINO raises RuntimeError, and now and then others
        answer = Answer(last_line(error), "run")
    answers.write(msgspec.json.encode(answer) + b"\n")
    return 1 if answer.error else 0


if __name__ == "__main__":
    sys.exit(main())
