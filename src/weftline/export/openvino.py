"""openvino: affinity.json, {friendly name of an operation: device}, and the loader that sets it.

In: a latency plan whose devices have a runtime of OpenVINO; its model file where that is ONNX (names of operations may
differ from those of nodes then) or is to be checked. Out: `affinity.json` and `load_affinity.py`, which needs nothing
of weftline. Affinities do not survive in a saved model, hence a file beside it. Simplified: HETERO runs sub-graphs one
after another, whatever the plan thought.
"""

from __future__ import annotations

import json
from pathlib import Path

from weftline.errors import InputError, UsageError
from weftline.export.exporter import Exporter, ExportOptions
from weftline.files import read_limited, write_atomically
from weftline.plans.plan import Plan
from weftline.run.inputs import check_planned_model
from weftline.run.openvino import load_affinity
from weftline.run.openvino.devices import OpenvinoDevice, affinity_of, core_for, openvino_devices, read_model, resolve

__all__ = ["EXPORTERS", "openvino_affinity", "read_affinity"]

MOST_BYTES = 512 * 2**20


def openvino_affinity(plan: Plan, options: ExportOptions | None = None) -> dict[str, str]:
    """Friendly name -> device of OpenVINO, for every operation; checked against the model file if there is one."""
    options = options or ExportOptions()
    problem = plan.load_problem()
    names = _devices(plan, options)
    try:
        devices = [names[plan.placement[op.name]].name for op in problem.graph.ops]
    except KeyError as error:
        raise InputError(f"the placement does not fit: {error.args[0]!r:.80}", hint="try weftline verify") from None
    if options.model is None:
        return {op.name: device for op, device in zip(problem.graph.ops, devices, strict=True)}
    check_planned_model(plan, options.model)
    model = read_model(core_for(()), options.model)
    return affinity_of(resolve(problem.graph, model, exact=options.model.suffix == ".xml"), devices)


def _devices(plan: Plan, options: ExportOptions) -> dict[str, OpenvinoDevice]:
    """Device id -> what it is for OpenVINO, for the devices that the plan uses."""
    if plan.objective != "latency":
        raise UsageError("OpenVINO's HETERO runs plans for latency; this one is for throughput")
    problem = plan.load_problem()
    unknown = sorted(set(options.runtimes) - {device.id for device in problem.devices})
    if unknown:
        raise UsageError(f"there is a runtime for devices that the plan does not have: {', '.join(unknown)}")
    used = set(plan.placement.values())
    return openvino_devices((device for device in problem.devices if device.id in used), options.runtimes)


def read_affinity(path: Path | str) -> dict[str, str]:
    """Read affinity.json back."""
    path = Path(path)
    data = read_limited(path, MOST_BYTES)
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not JSON: {str(error)[:200]}", where=str(path)) from error
    if not isinstance(found, dict) or not all(isinstance(device, str) for device in found.values()):
        raise InputError("is not {name of an operation: device}", where=str(path))
    return found


def _export(plan: Plan, folder: Path, options: ExportOptions) -> list[Path]:
    text = json.dumps(openvino_affinity(plan, options), indent=1, ensure_ascii=False)
    files = [folder / "affinity.json", folder / "load_affinity.py"]
    write_atomically(files[0], f"{text}\n".encode())
    write_atomically(files[1], Path(load_affinity.__file__).read_bytes())
    return files


EXPORTERS = (
    Exporter("openvino", "affinities for OpenVINO's HETERO by friendly name, and a loader", _export, "plan", _devices),
)
