"""Targets that place weights by name: accelerate and llamacpp.

accelerate: device_map.json, {module: device}, for `dispatch_model` and `from_pretrained(device_map=...)`. In: a plan
whose ops carry blocks; modules are the blocks that hold weights, each covered by one entry. Devices are "cpu" or the
number of a GPU: that of its runtime (`torch:cuda:1`, `ort:CUDAExecutionProvider:1`), else its place among the devices
that are no CPUs. Simplified: ops without weights run where accelerate's hooks bring their inputs; a block is moved
whole; names are not compared with a torch model.

llamacpp: the arguments of llama.cpp that place layers (`llamacpp.args`). In: a plan that keeps layers whole. Where all
layers are on GPUs and each has its own in a row: --n-gpu-layers, --device and --tensor-split, checked by llama.cpp's
rule; the output layer is one more layer. Otherwise -ot, a pattern for the weights of every layer. The embedding stays
on the CPU unless -ot moves it. Devices are called CPU, CUDA0, CUDA1 ... by the number of their runtime or in the order
of the cluster, or as --runtime says: gpu0=llamacpp:Vulkan1. Simplified: -ot moves weights; the KV cache stays where the
layers would be without it. Of a fleet plan launch.sh starts one llama-server for each lane, and router.json has
their weights.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from weftline.cluster import Device
from weftline.errors import InputError, UsageError
from weftline.export.exporter import Exporter, ExportOptions
from weftline.export.layers import CUDA_RUNTIME, Layers, check_layers, layers_of, placed_devices
from weftline.export.router import LaneLaunch, Placed, about_lane, separate_lanes, write_lanes
from weftline.files import write_atomically
from weftline.graph import Graph
from weftline.graph.stack import named_stacks, one_device, path_of, whole_hint
from weftline.plans.fleet import AnyFleet
from weftline.plans.launch.llamacpp import assigned_layers
from weftline.plans.plan import Plan
from weftline.units import format_names

__all__ = ["EXPORTERS", "accelerate_map", "check_device_map", "llamacpp_arguments", "read_arguments"]

ACCELERATE = "accelerate"
MOST_CONSTANT = 64
"""Bytes; axes, scalars and the like are no parameters of a module."""
_TORCH = re.compile(r"(?:torch:cuda|ort:CUDAExecutionProvider)(?::(\d{1,4}))?")


def accelerate_map(plan: Plan, runtimes: Mapping[str, str] | None = None) -> dict[str, int | str]:
    """Module -> "cpu" or the number of a GPU."""
    graph, devices = placed_devices(plan)
    weighted = {op for tied in graph.tied if tied.bytes > MOST_CONSTANT for op in tied.ops}
    weighted |= {i for i, op in enumerate(graph.ops) if op.weight_bytes > MOST_CONSTANT}
    if not weighted:
        raise UsageError(f"{ACCELERATE} places weights, and this model has none")
    ids = [device.id for device in devices]
    inside = _whole_layers(graph, ids)
    names = [inside.get(i, _module(path_of(op))) for i, op in enumerate(graph.ops)]
    ops: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        if i in weighted and not name:
            raise UsageError(
                f"{ACCELERATE} needs names of modules; op {graph.ops[i].name[:80]!r} has weights and no block"
            )
        ops.setdefault(name, []).append(i)
    held = {names[i] for i in weighted}
    modules = {
        name: one_device(f"block {name[:80]!r}", graph, ids, members, ACCELERATE)
        for name, members in ops.items()
        if name in held
    }
    numbers = _numbers(plan.load_problem().devices, runtimes or {})
    found = {name: numbers[device] for name, device in _without_children(graph, modules, ops).items()}
    check_device_map(found, modules)
    return found


def _whole_layers(graph: Graph, ids: Sequence[str]) -> dict[int, str]:
    """Op -> the module of its layer; transformers has layers on one device each (`_no_split_modules`)."""
    found: dict[int, str] = {}
    for stack in named_stacks(graph):
        for number, ops in zip(stack.numbers, stack.layers, strict=True):
            one_device(f"layer {number} ({stack.name})", graph, ids, ops, ACCELERATE)
            found |= dict.fromkeys(ops, _module(f"{stack.key}{number}"))
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


def _without_children(graph: Graph, modules: Mapping[str, str], ops: Mapping[str, list[int]]) -> dict[str, str]:
    """A module inside another one goes with it."""
    kept: dict[str, str] = {}
    for name, device in sorted(modules.items()):
        outer = next((other for other in kept if _covers(other, name)), None)
        if outer is None:
            kept[name] = device
        elif kept[outer] != device:
            both = sorted(op for inner, members in ops.items() if _covers(outer, inner) for op in members)
            used = format_names(sorted({device, kept[outer]}))
            raise UsageError(
                f"{ACCELERATE} cannot cut inside module {outer[:80]!r}, which the plan has on {used} "
                f"({whole_hint(graph, both)})"
            )
    return {name: kept[name] for name in modules if name in kept}


def _numbers(devices: Sequence[Device], runtimes: Mapping[str, str]) -> dict[str, int | str]:
    others = [device.id for device in devices if device.kind != "cpu"]
    found: dict[str, int | str] = {}
    for device in devices:
        runtime = runtimes.get(device.id, device.runtime)
        match = _TORCH.fullmatch(runtime)
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


def _export_accelerate(plan: Plan, folder: Path, options: ExportOptions) -> list[Path]:
    path = folder / "device_map.json"
    text = json.dumps(accelerate_map(plan, options.runtimes), indent=1, ensure_ascii=False)
    write_atomically(path, f"{text}\n".encode())
    return [path]


LLAMACPP = "llamacpp"
CPU = "CPU"
_LLAMACPP_RUNTIME = re.compile(r"llamacpp:([A-Za-z]{1,16}\d{0,3})")
_MOVED = re.compile(r"-ot '\^blk\\\.\(([\d|]+)\)\\\.=(\w+)'")
EMBEDDING, HEAD = r"^(token_embd|position_embd|token_types)", r"^(output|cls)"


def llamacpp_arguments(plan: Placed, runtimes: Mapping[str, str] | None = None) -> list[str]:
    """One argument with its value per entry."""
    layers = layers_of(plan, LLAMACPP)
    names = _names(plan.load_problem().devices, runtimes or {})
    at = [names[device] for device in layers.devices]
    embedding, head = names[layers.embedding], names[layers.head]
    split = _tensor_split([*at, head])
    if split is None:
        words = _overrides(layers, at, embedding, head)
    else:
        words = [*split, *([] if embedding == CPU else [f"-ot '{EMBEDDING}={embedding}'"])]
    check_layers(plan, read_arguments(words, layers.number), LLAMACPP, names)
    return words


def read_arguments(words: Sequence[str], layers: int) -> list[str]:
    """The device of each layer, as llama.cpp reads the arguments."""
    given = dict(word.split(" ", 1) for word in words if not word.startswith("-ot "))
    if "--tensor-split" in given:
        shares = [int(share) for share in given["--tensor-split"].split(",")]
        return assigned_layers(layers, int(given["--n-gpu-layers"]), given["--device"].split(","), shares)[:-1]
    found = dict.fromkeys(range(layers), CPU)
    for word in words:
        if moved := _MOVED.fullmatch(word):
            found |= dict.fromkeys(map(int, moved[1].split("|")), moved[2])
    return list(found.values())


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
    if CPU in devices or assigned_layers(len(at) - 1, offloaded, devices, counts) != list(at):
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
        match = _LLAMACPP_RUNTIME.fullmatch(given)
        if given and match is None:
            raise UsageError(f"the runtime {given[:60]!r} is not like llamacpp:CUDA0 or llamacpp:CPU")
        own = CUDA_RUNTIME.fullmatch(device.runtime)
        number = gpus.index(device.id) if own is None and device.id in gpus else int((own and own[1]) or 0)
        found[device.id] = match[1] if match else CPU if device.kind == "cpu" else f"CUDA{number}"
    named = [name for name in found.values() if name != CPU]
    if len(named) != len(set(named)):
        raise UsageError("two devices have the same name for llama.cpp; say --runtime for each of them")
    return found


def _export_llamacpp(plan: Plan, folder: Path, options: ExportOptions) -> list[Path]:
    path = folder / "llamacpp.args"
    write_atomically(path, ("\n".join(llamacpp_arguments(plan, options.runtimes)) + "\n").encode())
    return [path]


def _fleet_llamacpp(answer: AnyFleet, folder: Path, options: ExportOptions) -> list[Path]:
    """One server for each lane."""
    launches = []
    for n, plan in enumerate(separate_lanes(answer, LLAMACPP)):
        with about_lane(n):
            words = " ".join(llamacpp_arguments(plan, options.runtimes))
        used = ", ".join(dict.fromkeys(plan.placement.values()))
        line = f'llama-server "$@" {words} --port {LaneLaunch.port(n)}'
        launches.append(LaneLaunch(line, (f"on {used}",)))
    return write_lanes(folder, answer, launches, "sh launch.sh -m MODEL [OPTION ...]")


EXPORTERS = (
    Exporter(
        ACCELERATE,
        "device_map of Hugging Face accelerate, by module",
        _export_accelerate,
        "plan",
        lambda plan, options: accelerate_map(plan, options.runtimes),
    ),
    Exporter(
        LLAMACPP,
        "--tensor-split of llama.cpp, or -ot where layers are not in a row",
        _export_llamacpp,
        "plan",
        lambda plan, options: llamacpp_arguments(plan, options.runtimes),
        fleet=_fleet_llamacpp,
    ),
)
