"""Tell OpenVINO on which device each operation runs. This file needs OpenVINO alone and may be copied anywhere.

In: a model (a file, or an `openvino.Model`) and affinity.json: {friendly name of an operation: device}. Out: the model
with an affinity on EVERY operation, or compiled by HETERO. Constants, inputs, results and helpers that OpenVINO made
while it read the model take the device of their neighbours. A name that the model does not have, or an operation that
the file does not name, is an error: nothing is guessed.

    python load_affinity.py model.xml affinity.json            # checks and compiles
    from load_affinity import compile_with_affinity
    compiled = compile_with_affinity("model.xml", "affinity.json")
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["AffinityError", "compile_with_affinity", "hetero", "open_core", "placed_operations", "set_affinity"]

_STATE_OR_CHANCE = ("ReadValue", "Assign", "RandomUniform", "Multinomial", "RandomPoisson", "Bernoulli")
_SECOND_CPU = re.compile(r"CPU[A-Z0-9]+")


class AffinityError(ValueError):
    """The file does not fit the model."""


def compile_with_affinity(model: Any, affinity: Any, config: Mapping[str, Any] | None = None, core: Any = None) -> Any:
    """Compile a model (path or `openvino.Model`) as affinity.json (path or mapping) says."""
    if not isinstance(affinity, Mapping):
        affinity = _read(Path(affinity))
    core = core or open_core(affinity.values())
    if isinstance(model, str | Path):
        model = core.read_model(str(model))
    return core.compile_model(model, hetero(set_affinity(model, affinity)), dict(config or {}))


def open_core(devices: Any) -> Any:
    """An OpenVINO core; CPU2, CPUB and the like are the CPU's plugin once more, as a device of its own."""
    import openvino

    core = openvino.Core()
    for device in sorted(set(devices)):
        if _SECOND_CPU.fullmatch(device) and device not in core.available_devices:
            found = sorted(Path(openvino.__file__).parent.rglob("*openvino_intel_cpu_plugin*"))
            if not found:
                raise AffinityError(f"device {device!r}: the CPU's plugin is not where OpenVINO is installed")
            core.register_plugin(str(found[0]), device)
    return core


def hetero(devices: Any) -> str:
    """The name under which HETERO runs on these devices."""
    return "HETERO:" + ",".join(devices)


def set_affinity(model: Any, affinity: Mapping[str, str]) -> list[str]:
    """Set the device of every operation, by name; returns the devices that are used."""
    operations = list(model.get_ordered_ops())
    placed = placed_operations(model)
    _check(affinity, placed)
    device: dict[str, str] = {
        node.get_name(): affinity[node.get_friendly_name()] for node in placed if node.get_friendly_name() in affinity
    }
    for node in reversed(operations):  # what has no device of its own takes its reader's ...
        for reader in (entry.get_node() for output in node.outputs() for entry in output.get_target_inputs()):
            if node.get_name() not in device and reader.get_name() in device:
                device[node.get_name()] = device[reader.get_name()]
    for node in operations:  # ... and what nobody reads that of the operation it reads
        for entry in node.inputs():
            source = entry.get_source_output().get_node()
            device.setdefault(node.get_name(), device.get(source.get_name(), ""))
    fallback = next(iter(affinity.values()))
    for node in operations:
        node.get_rt_info()["affinity"] = device.get(node.get_name()) or fallback
    return list(dict.fromkeys(device.get(node.get_name()) or fallback for node in operations))


def placed_operations(model: Any) -> list[Any]:
    """The operations that a plan places: all but inputs, results, constants and what follows from those alone."""
    fixed: set[str] = set()
    placed = []
    for node in model.get_ordered_ops():
        kind = node.get_type_name()
        sources = [entry.get_source_output().get_node().get_name() for entry in node.inputs()]
        if kind == "Constant" or (sources and fixed.issuperset(sources) and kind not in _STATE_OR_CHANCE):
            fixed.add(node.get_name())
        elif kind not in ("Parameter", "Result"):
            placed.append(node)
    return placed


def _read(path: Path) -> dict[str, str]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as problem:
        raise AffinityError(f"{path} is not JSON: {problem}") from None
    if not isinstance(found, dict) or not all(isinstance(device, str) for device in found.values()):
        raise AffinityError(f"{path} is not {{name: device}}")
    return found


def _check(affinity: Mapping[str, str], placed: list[Any]) -> None:
    if not affinity or not all(isinstance(name, str) for pair in affinity.items() for name in pair):
        raise AffinityError("the affinities are not {name: device}")
    names = [node.get_friendly_name() for node in placed]
    known = set(names)
    unknown = [name for name in affinity if name not in known]
    if unknown:
        raise AffinityError(f"the model has no operation {unknown[0]!r} ({len(unknown)} unknown names in all)")
    # An operation that nobody named was made by OpenVINO itself, while it read the model.
    missing = [
        name for name, node in zip(names, placed, strict=True) if name not in affinity and name != node.get_name()
    ]
    if missing:
        raise AffinityError(f"no device is given for operation {missing[0]!r} ({len(missing)} in all)")
    twice = [name for name in affinity if names.count(name) > 1] if len(known) < len(names) else []
    if twice:
        raise AffinityError(f"{names.count(twice[0])} operations are called {twice[0]!r}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python load_affinity.py MODEL affinity.json")
    try:
        compile_with_affinity(sys.argv[1], sys.argv[2])
    except (AffinityError, OSError, RuntimeError) as problem:
        sys.exit(f"error: {problem}")
    sys.stdout.write("every operation has a device, and the model compiles\n")
