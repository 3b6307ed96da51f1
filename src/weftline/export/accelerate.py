"""accelerate: device_map.json, {module: device}, for `dispatch_model` and `from_pretrained(device_map=...)`.

In: a plan whose ops carry blocks; modules are the blocks that hold weights. Out: `device_map.json`, in which every
module is covered by one entry. Devices are "cpu" or the number of a GPU: that of its runtime (`torch:cuda:1`,
`ort:CUDAExecutionProvider:1`), else its place among the devices that are no CPUs. Simplified: ops without weights run
where accelerate's hooks bring their inputs; a block is moved whole; names are not compared with a torch model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from weftline.cluster import Device
from weftline.errors import InputError, UsageError
from weftline.export.exporter import ExportOptions, PlanExporter
from weftline.export.layers import HINT, placed_devices
from weftline.files import write_atomically
from weftline.plans.plan import Plan
from weftline.units import format_names

__all__ = ["PLAN_EXPORTER", "accelerate_map", "check_device_map"]

TARGET = "accelerate"
MOST_CONSTANT = 64
"""Bytes; axes, scalars and the like are no parameters of a module."""
_RUNTIME = re.compile(r"(?:torch:cuda|ort:CUDAExecutionProvider)(?::(\d{1,4}))?")


def accelerate_map(plan: Plan, runtimes: Mapping[str, str] | None = None) -> dict[str, int | str]:
    """Module -> "cpu" or the number of a GPU."""
    graph, devices = placed_devices(plan)
    weighted = {op for tied in graph.tied if tied.bytes > MOST_CONSTANT for op in tied.ops}
    weighted |= {i for i, op in enumerate(graph.ops) if op.weight_bytes > MOST_CONSTANT}
    if not weighted:
        raise UsageError(f"{TARGET} places weights, and this model has none")
    modules: dict[str, str] = {}
    for i, op in enumerate(graph.ops):
        name = _module(op.block)
        if i in weighted and not name:
            raise UsageError(f"{TARGET} needs names of modules; op {op.name[:80]!r} has weights and no block")
        if i in weighted:
            modules.setdefault(name, devices[i].id)
    for op, device in zip(graph.ops, devices, strict=True):
        name = _module(op.block)
        if modules.get(name, device.id) != device.id:
            used = format_names(sorted({device.id, modules[name]}))
            raise UsageError(f"{TARGET} cannot cut inside block {name[:80]!r}, which the plan has on {used} ({HINT})")
    numbers = _numbers(plan.load_problem().devices, runtimes or {})
    found = {name: numbers[device] for name, device in _without_children(modules).items()}
    check_device_map(found, modules)
    return found


def _module(block: str) -> str:
    """The module of a block; exporters repeat the path of a list in its members: layers/layers.3 is layers.3."""
    parts = block.split("/")
    kept = [part for part, after in zip(parts, [*parts[1:], ""], strict=True) if not after.startswith(f"{part}.")]
    return ".".join(kept)


def check_device_map(device_map: Mapping[str, object], modules: Collection[str]) -> None:
    """The rules of a device map: devices are "cpu", "disk" or numbers; each module is covered exactly once."""
    for name, device in device_map.items():
        number = isinstance(device, int) and not isinstance(device, bool) and device >= 0
        if not number and device not in ("cpu", "disk"):
            raise InputError(f"{device!r:.40} is not a device", where=f"module {name[:80]!r}")
        if not any(_covers(name, module) for module in modules):
            raise InputError("covers no module", where=f"module {name[:80]!r}")
    for module in modules:
        covering = [name for name in device_map if _covers(name, module)]
        if len(covering) != 1:
            raise InputError(f"is covered {len(covering)} times", where=f"module {module[:80]!r}")


def _covers(name: str, module: str) -> bool:
    return not name or name == module or module.startswith(f"{name}.")


def _without_children(modules: Mapping[str, str]) -> dict[str, str]:
    """A module inside another one goes with it."""
    kept: dict[str, str] = {}
    for name, device in sorted(modules.items()):
        outer = next((other for other in kept if _covers(other, name)), None)
        if outer is None:
            kept[name] = device
        elif kept[outer] != device:
            used = format_names(sorted({device, kept[outer]}))
            raise UsageError(f"{TARGET} cannot cut inside module {outer[:80]!r}, which the plan has on {used} ({HINT})")
    return {name: kept[name] for name in modules if name in kept}


def _numbers(devices: Sequence[Device], runtimes: Mapping[str, str]) -> dict[str, int | str]:
    others = [device.id for device in devices if device.kind != "cpu"]
    found: dict[str, int | str] = {}
    for device in devices:
        runtime = runtimes.get(device.id, device.runtime)
        match = _RUNTIME.fullmatch(runtime)
        if device.id in runtimes and match is None and runtime != "torch:cpu":
            raise UsageError(f"the runtime {runtime[:60]!r} is neither torch:cpu nor torch:cuda:N")
        if match is not None:
            found[device.id] = int(match[1] or 0)
        elif runtime == "torch:cpu" or device.kind == "cpu":
            found[device.id] = "cpu"
        else:
            found[device.id] = others.index(device.id)
    gpus = [number for number in found.values() if number != "cpu"]
    if len(gpus) != len(set(gpus)):
        raise UsageError(f"two devices are the same GPU; say which is which: --runtime {others[0]}=torch:cuda:0")
    return found


def _export(plan: Plan, folder: Path, options: ExportOptions) -> list[Path]:
    path = folder / "device_map.json"
    text = json.dumps(accelerate_map(plan, options.runtimes), indent=1, ensure_ascii=False)
    write_atomically(path, f"{text}\n".encode())
    return [path]


PLAN_EXPORTER = PlanExporter(TARGET, "device_map of Hugging Face accelerate, by module", _export)
