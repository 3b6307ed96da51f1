"""A small model for the local engine: products in a row, a skip over all of them, two inputs, two outputs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from weftline.cluster import Device
from weftline.files import run_folder
from weftline.importers.registry import read_file
from weftline.interrupts import keep_interrupts
from weftline.run.devices import ort_devices
from weftline.run.local.engine import Engine, Seat
from weftline.run.local.layout import WorkerLayout, lay_out
from weftline.run.split.segments import parts_by_lane, parts_by_level
from weftline.run.split.split import split_lanes, split_model

LAYERS, WIDTH = 6, 16
RUNTIME = "ort:CPUExecutionProvider"
Feed = dict[str, NDArray[Any]]


def small_model(path: Path, *, layers: int = LAYERS, width: int = WIDTH) -> Path:
    """x @ w0 -> relu -> ... -> + x + shift; the middle is an output, too."""
    dice = np.random.default_rng(7)
    nodes, weights, last = [], [], "x"
    for i in range(layers):
        values = (dice.standard_normal((width, width)) / np.sqrt(width)).astype(np.float32)
        weights.append(numpy_helper.from_array(values, f"w{i}"))
        nodes.append(helper.make_node("MatMul", [last, f"w{i}"], [f"p{i}"], name=f"product{i}"))
        nodes.append(helper.make_node("Tanh", [f"p{i}"], [f"t{i}"], name=f"tanh{i}"))
        last = f"t{i}"
    nodes.append(helper.make_node("Add", [last, "x"], ["sum"], name="skip"))
    nodes.append(helper.make_node("Add", ["sum", "shift"], ["y"], name="shifted"))

    def value(name: str) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, width])

    outputs = [value("y"), value(f"t{layers // 2}")]
    graph = helper.make_graph(nodes, "small", [value("x"), value("shift")], outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, path)
    return path


def expected(path: Path, feed: Mapping[str, NDArray[Any]]) -> Feed:
    """By ONNX's own reference, without ONNX Runtime."""
    from onnx.reference import ReferenceEvaluator

    model = onnx.load(path)
    found = ReferenceEvaluator(model).run(None, dict(feed))
    return {output.name: values for output, values in zip(model.graph.output, found, strict=True)}


def seats(speeds: Sequence[float], runtime: str = RUNTIME) -> dict[str, Seat]:
    """Devices d0, d1 ... on this machine."""
    devices = [Device(f"d{i}", "cpu", None, runtime=runtime, speed=speed) for i, speed in enumerate(speeds)]
    return {id: Seat(place, devices[i].speed) for i, (id, place) in enumerate(ort_devices(devices).items())}


def stages(count: int, layers: int = LAYERS) -> list[int]:
    """Ops of the small model in as many stages."""
    ops = 2 * layers + 2
    return [op * count // ops for op in range(ops)]


@contextmanager
def split(model: Path, placement: Sequence[int], *, pipelined: bool = True) -> Iterator[WorkerLayout]:
    """A model in segments."""
    graph = read_file(model).graph
    ids = [f"d{i}" for i in range(max(placement) + 1)]
    with run_folder() as folder:
        parts = parts_by_level(graph, np.array(placement, np.int32))
        yield lay_out(split_model(model, graph, parts, ids, folder), str(folder), pipelined=pipelined)


@contextmanager
def engine(
    model: Path,
    placement: Sequence[int],
    *,
    pipelined: bool = True,
    speeds: Sequence[float] = (1, 1, 1, 1),
    timeout: float = 60.0,
) -> Iterator[Engine]:
    """Workers that are ready."""
    with (
        split(model, placement, pipelined=pipelined) as layout,
        Engine([(layout, seats(speeds))], timeout=timeout) as made,
    ):
        yield made


def feeds(count: int = 3, width: int = WIDTH) -> list[Feed]:
    """Inputs that differ from each other."""
    dice = np.random.default_rng(1)
    return [
        {name: dice.standard_normal((2, width)).astype(np.float32) for name in ("x", "shift")} for _ in range(count)
    ]


@contextmanager
def team(
    model: Path, lanes: Sequence[Sequence[int]], rates: tuple[int, ...], speeds: Sequence[float] = (1, 1, 1)
) -> Iterator[Engine]:
    """Workers of a fleet that are ready: the device of every op, lane by lane, and how inputs are shared out."""
    graph = read_file(model).graph
    parts = [parts_by_lane(graph, np.array(lane, np.int32)) for lane in lanes]
    ids = [f"d{i}" for i in range(3)]
    with run_folder() as folder:
        manifest = split_lanes(model, graph, parts, ids, folder, rates=rates)
        layout = lay_out(manifest, str(folder), pipelined=True)
        with Engine([(layout, seats(speeds))]) as made:
            yield made


def forever(path: str, fleet: bool) -> None:
    """Print the numbers of the workers, then run until someone ends it: for tests that do."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # nohup has it ignored
    keep_interrupts()
    inputs = feeds()  # not later: numpy's generators drop a Ctrl-C now and then
    lanes = [[0] * 14, stages(2)]
    with team(Path(path), lanes, (1, 2)) if fleet else engine(Path(path), stages(2)) as running:
        sys.stdout.write(" ".join(map(str, running.pids)) + "\n")
        sys.stdout.flush()
        while True:
            running.run([100], inputs)


if __name__ == "__main__":
    forever(sys.argv[1], "fleet" in sys.argv[2:])
