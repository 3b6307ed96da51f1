"""Zoo models as OpenVINO IR, and plans for them that really use two devices."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from weftline.ask import make_plan
from weftline.cluster import Cluster, Limits, OpDevice
from weftline.graph import Graph
from weftline.importers.openvino import openvino_module
from weftline.plans import Plan
from weftline.problem import Rules, build_problem, read_model
from weftline.zoo import build, save

RUNTIMES = {"cpu": "openvino:CPU", "gpu": "openvino:CPU2", "igpu": "openvino:CPU3"}
"""What stands for the devices of the laptop on a machine that has only a CPU."""


def openvino() -> Any:
    """The module, as weftline loads it."""
    return openvino_module()


@cache
def _files(name: str, size: str) -> dict[str, bytes]:
    ov = openvino()
    with TemporaryDirectory() as folder:
        onnx, xml = Path(folder) / "model.onnx", Path(folder) / "model.xml"
        save(build(name, size=size), onnx)
        ov.save_model(ov.convert_model(str(onnx)), str(xml), compress_to_fp16=False)
        return {path.suffix: path.read_bytes() for path in (onnx, xml, xml.with_suffix(".bin"))}


def model_files(name: str, folder: Path, size: str = "small") -> tuple[Path, Path]:
    """Write a zoo model -> its IR (weights beside it) and its ONNX file."""
    for suffix, data in _files(name, size).items():
        (folder / f"{name}{suffix}").write_bytes(data)
    return folder / f"{name}.xml", folder / f"{name}.onnx"


def graph_of(model: Path) -> Graph:
    """Read a file without costs."""
    graph = read_model(model)
    assert isinstance(graph, Graph)
    return graph


def split_plan(model: Path) -> Plan:
    """The best cut on the laptop, sequential runtime, if the model begins on its CPU and ends on its GPU."""
    graph = graph_of(model)
    laptop = Cluster.preset("laptop")
    ends = tuple(OpDevice(op.name, device) for op, device in ((graph.ops[0], "cpu"), (graph.ops[-1], "gpu")))
    laptop = msgspec.structs.replace(laptop, limits=Limits(pin=ends))
    return make_plan(build_problem(graph, laptop, rules=Rules(runtime="sequential")), solver="min-cut", work_limit=1000)
