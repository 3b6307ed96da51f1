"""llamacpp: the arguments of llama.cpp that place layers.

In: a plan that keeps layers whole. Out: `llamacpp.args`. Where all layers are on GPUs and each has its own in a
row: --n-gpu-layers, --device and --tensor-split, checked by llama.cpp's rule; the output layer is one more layer.
Otherwise -ot, a pattern for the weights of every layer. The embedding stays on the CPU unless -ot moves it. Devices are
called CPU, CUDA0, CUDA1 ... by the number of their runtime or in the order of the cluster, or as --runtime says:
gpu0=llamacpp:Vulkan1. Simplified: -ot
moves weights; the KV cache stays where the layers would be without it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from weftline.cluster import Device
from weftline.errors import UsageError
from weftline.export.exporter import ExportOptions, PlanExporter
from weftline.export.layers import Layers, layers_of
from weftline.files import write_atomically
from weftline.plans.plan import Plan

__all__ = ["PLAN_EXPORTER", "layer_devices", "llamacpp_arguments"]

TARGET = "llamacpp"
CPU = "CPU"
_RUNTIME = re.compile(r"llamacpp:([A-Za-z]{1,16}\d{0,3})")
_CUDA = re.compile(r"(?:torch:cuda|ort:CUDAExecutionProvider)(?::(\d{1,4}))?")
EMBEDDING, HEAD = r"^(token_embd|position_embd|token_types)", r"^(output|cls)"


def llamacpp_arguments(plan: Plan, runtimes: Mapping[str, str] | None = None) -> list[str]:
    """One argument with its value per entry."""
    layers = layers_of(plan, TARGET)
    names = _names(plan.load_problem().devices, runtimes or {})
    at = [names[device] for device in layers.devices]
    embedding, head = names[layers.embedding], names[layers.head]
    split = _tensor_split([*at, head])
    if split is None:
        return _overrides(layers, at, embedding, head)
    moved = [] if embedding == CPU else [f"-ot '{EMBEDDING}={embedding}'"]
    return [*split, *moved]


def layer_devices(layers: int, n_gpu_layers: int, devices: Sequence[str], tensor_split: Sequence[int]) -> list[str]:
    """llama.cpp's rule: the device of each layer, and last of the output layer."""
    points = np.cumsum(np.array(tensor_split, np.float32)) / np.float32(sum(tensor_split))
    first = max(layers + 1 - n_gpu_layers, 0)
    active = min(n_gpu_layers, layers + 1)
    found = [CPU] * first
    for layer in range(first, layers + 1):
        share = np.float32(layer - first) / np.float32(active)
        found.append(devices[int(np.searchsorted(points, share, side="right"))])
    return found


def _tensor_split(at: Sequence[str]) -> list[str] | None:
    """Arguments for layers and output layer in a row, CPU first; None if they are not."""
    on_cpu = next((n for n, name in enumerate(at) if name != CPU), len(at))
    devices = list(dict.fromkeys(at[on_cpu:]))
    if not devices:
        return ["--n-gpu-layers 0"]
    if on_cpu:
        return None  # builds of llama.cpp differ in whether the output layer counts among those that stay
    counts = [at[on_cpu:].count(device) for device in devices]
    offloaded = len(at) - on_cpu
    if CPU in devices or layer_devices(len(at) - 1, offloaded, devices, counts) != list(at):
        return None
    return [
        f"--n-gpu-layers {offloaded}",
        "--split-mode layer",
        f"--device {','.join(devices)}",
        f"--tensor-split {','.join(map(str, counts))}",
    ]


def _overrides(layers: Layers, at: Sequence[str], embedding: str, head: str) -> list[str]:
    patterns = [f"{EMBEDDING}={embedding}"]
    for device in dict.fromkeys(at):
        numbers = "|".join(str(n) for n, name in enumerate(at) if name == device)
        patterns.append(rf"^blk\.({numbers})\.={device}")
    gpus = [device for device in dict.fromkeys((*at, head)) if device != CPU]
    return [
        f"--n-gpu-layers {layers.number + 1}",
        f"--device {','.join(gpus)}",
        *(f"-ot '{pattern}'" for pattern in (*patterns, f"{HEAD}={head}")),
    ]


def _names(devices: Sequence[Device], runtimes: Mapping[str, str]) -> dict[str, str]:
    gpus = [device.id for device in devices if device.kind != "cpu"]
    found: dict[str, str] = {}
    for device in devices:
        given = runtimes.get(device.id, "")
        match = _RUNTIME.fullmatch(given)
        if given and match is None:
            raise UsageError(f"the runtime {given[:60]!r} is not like llamacpp:CUDA0 or llamacpp:CPU")
        own = _CUDA.fullmatch(device.runtime)
        number = gpus.index(device.id) if own is None and device.id in gpus else int((own and own[1]) or 0)
        found[device.id] = match[1] if match else CPU if device.kind == "cpu" else f"CUDA{number}"
    named = [name for name in found.values() if name != CPU]
    if len(named) != len(set(named)):
        raise UsageError("two devices have the same name for llama.cpp; say --runtime for each of them")
    return found


def _export(plan: Plan, folder: Path, options: ExportOptions) -> list[Path]:
    path = folder / "llamacpp.args"
    write_atomically(path, ("\n".join(llamacpp_arguments(plan, options.runtimes)) + "\n").encode())
    return [path]


PLAN_EXPORTER = PlanExporter(TARGET, "--tensor-split of llama.cpp, or -ot where layers are not in a row", _export)
