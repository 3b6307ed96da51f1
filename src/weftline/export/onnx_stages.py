"""onnx-stages: one ONNX file per segment, one file of weights, and manifest.json that says how they fit together.

In: a plan for an ONNX model, the model's file (needed), a folder. Out: files that run by onnxruntime, numpy and json
alone (examples/run_stages.py does). The folder is self-contained: large weights are in it once, however many segments
use them. Simplified: see `execute.split`.
"""

from __future__ import annotations

from pathlib import Path

from weftline.errors import UsageError
from weftline.export.exporter import ExportOptions, PlanExporter
from weftline.plans.plan import Plan
from weftline.run.inputs import check_planned_model
from weftline.run.split.manifest import MANIFEST
from weftline.run.split.segments import parts_of_plan
from weftline.run.split.split import split_model
from weftline.run.split.weights import WEIGHTS

__all__ = ["PLAN_EXPORTER"]


def _export(plan: Plan, folder: Path, options: ExportOptions) -> list[Path]:
    if options.model is None:
        raise UsageError("onnx-stages cuts the model itself: add --model FILE.onnx")
    if options.runtimes:
        raise UsageError("onnx-stages writes devices as the plan names them; it takes no --runtime")
    if options.model.parent.resolve() == folder.resolve():
        raise UsageError("the folder of the model itself is no place for its segments: name another one with -o")
    check_planned_model(plan, options.model)
    problem = plan.load_problem()
    devices = [device.id for device in problem.devices]
    weights, before = folder / WEIGHTS, {path: path.stat().st_ino for path in _old(folder)}
    (folder / MANIFEST).unlink(missing_ok=True)  # whatever happens now, nobody takes old and new files for one export
    manifest = split_model(options.model, problem.graph, parts_of_plan(plan), devices, folder)
    for path in _old(folder):
        if path.stat().st_ino == before.get(path):
            path.unlink()
    files = [folder / MANIFEST, *(folder / segment.file for segment in manifest.segments)]
    return [*files, weights] if weights.exists() else files


def _old(folder: Path) -> list[Path]:
    """Files of an export, if this folder had one."""
    if not (folder / MANIFEST).is_file():
        return []
    return [path for path in (*folder.glob("segment_*.onnx"), folder / WEIGHTS) if path.is_file()]


PLAN_EXPORTER = PlanExporter("onnx-stages", "one ONNX file per segment, with a manifest of what goes where", _export)
