"""Targets for ONNX Runtime: onnx-stages (one file per segment) and ort (one session, every node where the plan has it).

onnx-stages: one ONNX file per segment, one file of weights, and manifest.json that says how they fit together. In: a
plan for an ONNX model, the model's file (needed), a folder. Out: files that run by onnxruntime, numpy and json alone
(examples/run_stages.py does). The folder is self-contained: large weights are in it once, however many segments use
them. Of a fleet plan a segment is a piece that no lane cuts, and router.json says on which device each lane runs it.
Simplified: see `run.split`.

ort: placement.json, {first output of a node: execution provider}, providers.json (options of the providers), and
`load_ort.py`, which annotates and checks and needs nothing of weftline. In: a latency plan whose devices have a runtime
of ONNX Runtime (`ort:CUDAExecutionProvider:0`), and its model file. One session has each provider once, so two devices
of the same provider are refused. Simplified: ONNX Runtime runs nodes one after another, whatever the plan thought;
nodes of constants alone are left to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weftline.errors import InputError, UsageError
from weftline.export import load_ort
from weftline.export.exporter import Exporter, ExportOptions
from weftline.export.layers import placed_devices
from weftline.export.router import lane_plans, old_router, router_of, write_router
from weftline.files import write_atomically
from weftline.graph import Graph
from weftline.importers.onnx.scope import looks_like_onnx
from weftline.plans.fleet import FleetPlan
from weftline.plans.plan import Plan
from weftline.problem import Problem
from weftline.run.inputs import check_planned_model
from weftline.run.split.manifest import MANIFEST, read_manifest, segment_file
from weftline.run.split.segments import Parts, parts_by_level, parts_of_plan
from weftline.run.split.split import split_model
from weftline.run.split.weights import WEIGHTS, open_weights

__all__ = ["EXPORTERS", "ort_placement", "ort_providers"]

HEAD_BYTES = 4096


def _model_to_cut(options: ExportOptions) -> Path:
    if options.model is None:
        raise UsageError("onnx-stages cuts the model itself: add --model FILE.onnx")
    if options.runtimes:
        raise UsageError("onnx-stages writes devices as the plan names them; it takes no --runtime")
    return options.model


def _check_stages(plan: Plan, options: ExportOptions) -> None:
    """Refuse what is no ONNX file, and weights that are not beside it."""
    path = _model_to_cut(options)
    if not path.is_file():
        raise InputError("no such file", where=str(path))
    with path.open("rb") as file:
        if not looks_like_onnx(file.read(HEAD_BYTES)):
            raise UsageError("onnx-stages cuts ONNX files; this model is none")
    stored = [tensor for tensor in _read(path).graph.initializer if tensor.data_location == tensor.EXTERNAL]
    places = {entry.value for tensor in stored for entry in tensor.external_data if entry.key == "location"}
    for place in sorted(places):
        with open_weights(path.parent, place):
            pass


def _export_stages(plan: Plan, folder: Path, options: ExportOptions) -> list[Path]:
    model = _model_to_cut(options)
    problem = _planned(plan, model, folder)
    return _cut(model, problem.graph, parts_of_plan(plan), [device.id for device in problem.devices], folder)


def _export_fleet(answer: FleetPlan, folder: Path, options: ExportOptions) -> list[Path]:
    """Segments by level and by the devices that run them on all lanes."""
    model, lanes = _model_to_cut(options), lane_plans(answer)
    graph = _planned(answer, model, folder).graph
    every = [tuple(lane.placement[op.name] for lane in lanes) for op in graph.ops]
    ways = list(dict.fromkeys(every))
    known = {devices: n for n, devices in enumerate(ways)}
    parts = parts_by_level(graph, np.array([known[devices] for devices in every], np.int32))
    router = router_of(answer, segments=[[ways[number][n] for number in parts.device] for n in range(len(lanes))])
    names = ["+".join(dict.fromkeys(devices)) for devices in ways]
    return [*_cut(model, graph, parts, names, folder), write_router(folder, router)]


def _planned(plan: Plan | FleetPlan, model: Path, folder: Path) -> Problem:
    """The problem, of a plan for this model, into another folder than the model's own."""
    if model.parent.resolve() == folder.resolve():
        raise UsageError("the folder of the model itself is no place for its segments: name another one with -o")
    check_planned_model(plan, model)
    return plan.load_problem()


def _cut(model: Path, graph: Graph, parts: Parts, devices: Sequence[str], folder: Path) -> list[Path]:
    """Write the segments, and remove those of an export that was there before."""
    weights, before = folder / WEIGHTS, {path: path.stat().st_ino for path in _old(folder)}
    (folder / MANIFEST).unlink(missing_ok=True)  # whatever happens now, nobody takes old and new files for one export
    manifest = split_model(model, graph, parts, devices, folder)
    for path, number in before.items():
        if path.is_file() and path.stat().st_ino == number:
            path.unlink()
    files = [folder / MANIFEST, *(folder / segment.file for segment in manifest.segments)]
    return [*files, weights] if weights.exists() else files


def _old(folder: Path) -> list[Path]:
    """Files of an export, if this folder had one; a manifest of something else is not ours to replace."""
    if not (folder / MANIFEST).is_file():
        return []
    try:
        names = [segment.file for segment in read_manifest(folder).segments]
    except InputError as error:
        raise InputError(f"is not of an export: {error.what}", where=error.where, hint="name another folder") from error
    for number, name in enumerate(names):
        if name != segment_file(number, len(names)):
            what = f"is not of an export: no segment is named {name[:80]!r}"
            raise InputError(what, where=str(folder / MANIFEST), hint="name another folder")
    return [
        path for path in (*(folder / name for name in names), folder / WEIGHTS, *old_router(folder)) if path.is_file()
    ]


_RUNTIME = re.compile(r"ort:(?P<name>[A-Za-z]{1,40}ExecutionProvider)(?::(?P<rest>[\d,-]{1,40}))?")


def ort_providers(plan: Plan, options: ExportOptions) -> dict[str, tuple[str, str]]:
    """Device id -> (execution provider, what stands after it), for the devices that the plan uses."""
    used = set(plan.placement.values())
    found: dict[str, tuple[str, str]] = {}
    for device in plan.load_problem().devices:
        if device.id not in used:
            continue
        runtime = options.runtimes.get(device.id, device.runtime)
        match = _RUNTIME.fullmatch(runtime)
        if match is None:
            said = f"its runtime is {runtime[:60]!r}" if runtime else "it has no runtime"
            hint = f"try --runtime {device.id}=ort:CUDAExecutionProvider:0"
            raise InputError(f"device {device.id!r} cannot be run by ONNX Runtime: {said}", hint=hint)
        found[device.id] = (match["name"], match["rest"] or "")
    names = [name for name, _ in found.values()]
    for name in names:
        if names.count(name) > 1:
            both = ", ".join(id for id, (other, _) in found.items() if other == name)
            raise UsageError(f"one session of ONNX Runtime has {name} once, and the plan uses it for {both}")
    return found


def _check_ort(plan: Plan, options: ExportOptions) -> tuple[dict[str, tuple[str, str]], Path]:
    if plan.objective != "latency":
        raise UsageError("one session of ONNX Runtime runs plans for latency; this one is for throughput")
    if options.model is None:
        raise UsageError("the names of outputs stand in the model file: add --model model.onnx")
    return ort_providers(plan, options), options.model


def ort_placement(plan: Plan, options: ExportOptions) -> dict[str, str]:
    """First output of every node -> execution provider; checked against the model file."""
    providers, model = _check_ort(plan, options)
    check_planned_model(plan, model)
    graph, devices = placed_devices(plan)
    outputs = _outputs(graph, _read(model))
    return {output: providers[device.id][0] for output, device in zip(outputs, devices, strict=True)}


def _read(path: Path) -> Any:
    import onnx

    try:
        return onnx.load(str(path), load_external_data=False)
    except Exception as error:  # onnx raises what protobuf raises
        raise InputError(f"is not an ONNX model: {str(error)[:200]}", where=str(path)) from error


def _outputs(graph: Graph, model: Any) -> list[str]:
    """The first output of the node of every op: found by a tensor that the op makes, else by its name."""
    by_output: dict[str, str] = {}
    by_name: dict[str, str] = {}
    for node in model.graph.node:
        first = next((name for name in node.output if name), "")
        by_output |= {name: first for name in node.output if name}
        by_name.setdefault(node.name, first)
    made: dict[int, str] = {}
    for tensor in graph.tensors:
        if tensor.producer >= 0 and tensor.name in by_output:
            made.setdefault(tensor.producer, by_output[tensor.name])
    found = [made.get(i, by_name.get(op.name, "")) for i, op in enumerate(graph.ops)]
    if "" in found or len(set(found)) != len(found):
        lost = next((op.name for op, name in zip(graph.ops, found, strict=True) if not name), "one of a function")
        raise InputError(f"op {lost[:80]!r} of the plan is not a node of the model: functions cannot be annotated")
    return found


def _export_ort(plan: Plan, folder: Path, options: ExportOptions) -> list[Path]:
    placement = ort_placement(plan, options)
    about = {
        name: {"device_id": rest} if rest and name != "CPUExecutionProvider" else {}
        for name, rest in ort_providers(plan, options).values()
    }
    files = [folder / "placement.json", folder / "providers.json", folder / "load_ort.py"]
    write_atomically(files[0], (json.dumps(placement, indent=1, ensure_ascii=False) + "\n").encode())
    write_atomically(files[1], (json.dumps(about, indent=1) + "\n").encode())
    write_atomically(files[2], Path(load_ort.__file__).read_bytes())
    return files


EXPORTERS = (
    Exporter(
        "onnx-stages",
        "one ONNX file per segment, with a manifest of what goes where",
        _export_stages,
        "plan",
        _check_stages,
        fleet=_export_fleet,
    ),
    Exporter(
        "ort", "annotations for one session of ONNX Runtime, and a loader that checks", _export_ort, "plan", _check_ort
    ),
)
