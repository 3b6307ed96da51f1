"""llama.cpp: -ngl, -ts, -ot and the rest of a llama-server line.

In: how many layers each device holds, in a row, the output layer counted as one more on the device that has it; tensors
that are elsewhere. Out: words, held to llama.cpp's own rule: cumulative shares in float32, the first device whose share
is above (layer - first) / offloaded. Shares are whole numbers of layers, never percent: those round to other layers.
Simplified: the rule of builds from 2025 on, where the output layer counts among those that -ngl sends away.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from ctypes import c_float

import msgspec

from weftline.errors import InputError, UsageError
from weftline.plans.launch.line import LaunchLine

__all__ = [
    "LlamaCppLaunch",
    "assigned_layers",
    "llamacpp_line",
    "offload_words",
    "overridden_tensors",
    "override_words",
]

CPU_BUFFER = "CPU"
"""What llama.cpp calls memory of the host."""
MOST_IN_A_BATCH = 2048
"""Tokens of a batch (-b) unless told: a micro-batch is no larger."""
PADDED_CONTEXT = 256
"""Contexts are multiples of it."""
_BLOCK = re.compile(r"blk\.(\d{1,6})\.(.+)")
_EXPERTS = re.compile(r"blk\.(\d{1,6})\.ffn_(?:up|down|gate|gate_up)_(?:ch|)exps(?:\.weight)?")
_BUFFER = re.compile(r"[A-Za-z0-9_.:\[\]-]{1,80}")


class LlamaCppLaunch(msgspec.Struct, frozen=True):
    """What one llama-server is told."""

    model: str
    """A file, or what -hf takes where `from_hub`."""
    blocks: int
    """Layers of the model, without the output layer."""
    devices: tuple[str, ...] = ()
    """As --device calls them, in the order of the layers."""
    layers: tuple[int, ...] = ()
    """Of each device, in a row; the output layer is the last one, and counts."""
    context: int = 0
    """Of one request; 0: that of the model."""
    slots: int = 1
    """Requests at the same time."""
    moved: tuple[tuple[str, str], ...] = ()
    """Tensors that are not where their layer is: (name, buffer type)."""
    tensors: tuple[str, ...] = ()
    """All names of tensors, against which `moved` is checked; needed where something is moved."""
    kv_type_k: str = "f16"
    kv_type_v: str = "f16"
    micro_batch: int = 0
    """0: the default."""
    flash_attention: bool = True
    servers: tuple[str, ...] = ()
    """host:port of RPC servers, in their order."""
    port: int = 8080
    from_hub: bool = False
    name_devices: bool = True
    """False: the machine has one card, and --device is left out."""
    environment: tuple[tuple[str, str], ...] = ()
    note: str = ""


def llamacpp_line(launch: LlamaCppLaunch) -> LaunchLine:
    """The line of llama-server."""
    words = ["llama-server", "-hf" if launch.from_hub else "-m", launch.model]
    if launch.servers:
        words += ["--rpc", ",".join(launch.servers)]
    offload = offload_words(launch.blocks, launch.devices, launch.layers)
    if not launch.name_devices and len(set(launch.devices)) == 1:
        offload = offload[:2]
    words += offload
    words += override_words(launch.moved, launch.tensors)
    if launch.context:
        words += ["-c", str(_padded(launch.context) * launch.slots), "-np", str(launch.slots)]
    quantised = {launch.kv_type_k, launch.kv_type_v} - {"f16", "f32", "bf16"}
    if quantised and not launch.flash_attention:
        raise UsageError("llama.cpp quantises the KV cache with flash attention only; leave one of both out")
    if launch.kv_type_k != "f16":
        words += ["-ctk", launch.kv_type_k]
    if launch.kv_type_v != "f16":
        words += ["-ctv", launch.kv_type_v]
    if launch.micro_batch:
        words += ["-ub", str(launch.micro_batch)]
        words += ["-b", str(launch.micro_batch)] if launch.micro_batch > MOST_IN_A_BATCH else []
    words += ["-fa", "on" if launch.flash_attention else "off", "--port", str(launch.port)]
    return LaunchLine(tuple(words), launch.environment, launch.note)


def _padded(context: int) -> int:
    return -(-context // PADDED_CONTEXT) * PADDED_CONTEXT


def offload_words(blocks: int, devices: Sequence[str], layers: Sequence[int]) -> list[str]:
    """-ngl, --device, -sm and -ts for layers in a row; the first ones, where the sum is smaller, stay on the CPU."""
    if len(devices) != len(layers) or any(count < 0 for count in layers) or sum(layers) > blocks + 1:
        raise UsageError(
            f"{list(layers)} on {len(devices)} devices are not parts of {blocks} layers and the output layer"
        )
    used = [(device, count) for device, count in zip(devices, layers, strict=True) if count]
    if not used:
        return ["-ngl", "0", "--device", "none"]
    names, counts = [device for device, _ in used], [count for _, count in used]
    offloaded = sum(counts)
    planned = [CPU_BUFFER] * (blocks + 1 - offloaded) + [name for name, count in used for _ in range(count)]
    if assigned_layers(blocks, offloaded, names, counts) != planned:
        raise InputError(f"llama.cpp would not read -ts {','.join(map(str, counts))} as these layers")
    words = ["-ngl", str(offloaded), "--device", ",".join(names)]
    return words if len(used) == 1 else [*words, "-sm", "layer", "-ts", ",".join(map(str, counts))]


def assigned_layers(blocks: int, n_gpu_layers: int, devices: Sequence[str], tensor_split: Sequence[float]) -> list[str]:
    """llama.cpp's own rule: the device of each layer, and last of the output layer."""
    total, points = c_float(0.0), []
    for share in tensor_split:
        total = c_float(total.value + share)
        points.append(total.value)
    points = [c_float(point / total.value).value for point in points]
    first, active = max(blocks + 1 - n_gpu_layers, 0), min(n_gpu_layers, blocks + 1)
    found = [CPU_BUFFER] * first
    for layer in range(first, blocks + 1):
        place = c_float((layer - first) / active).value
        found.append(devices[next(n for n, point in enumerate(points) if point > place)])
    return found


def override_words(moved: Sequence[tuple[str, str]], tensors: Sequence[str]) -> list[str]:
    """--n-cpu-moe or -ot for tensors that are not where their layer is, held to all names of the model."""
    if not moved:
        return []
    wanted = dict(moved)
    if unknown := sorted(set(wanted) - set(tensors)):
        raise InputError(f"the model has no tensor {unknown[0][:80]!r} to move")
    for device in wanted.values():
        if not _BUFFER.fullmatch(device):
            raise UsageError(f"{device[:80]!r} is no buffer type of llama.cpp, such as CPU or CUDA0")
    count = _first_experts(wanted, tensors)
    if count:
        return ["--n-cpu-moe", str(count)]
    patterns = _patterns(wanted)
    if overridden_tensors(patterns, tensors) != wanted:
        raise InputError("the patterns for -ot would move other tensors than planned")
    return ["-ot", ",".join(f"{pattern}={device}" for pattern, device in patterns)]


def _first_experts(wanted: Mapping[str, str], tensors: Sequence[str]) -> int:
    """N where what moves is exactly the experts of blocks 0..N-1, to the CPU; else 0."""
    if set(wanted.values()) != {CPU_BUFFER}:
        return 0
    blocks = [_EXPERTS.fullmatch(name) for name in wanted]
    if not all(blocks):
        return 0
    last = max(int(match[1]) for match in blocks if match)
    first = {name for name in tensors if (match := _EXPERTS.search(name)) and int(match[1]) <= last}
    return last + 1 if first == set(wanted) else 0


def _patterns(wanted: Mapping[str, str]) -> list[tuple[str, str]]:
    """(pattern, buffer type): one pattern for each kind of tensor and device; no commas, which -ot is cut at."""
    blocks: dict[tuple[str, str], list[int]] = {}
    patterns = []
    for name, device in wanted.items():
        if match := _BLOCK.fullmatch(name):
            blocks.setdefault((match[2], device), []).append(int(match[1]))
        else:
            patterns.append((f"^{_escaped(name)}$", device))
    kinds: dict[tuple[str, str], list[str]] = {}
    for (kind, device), numbers in blocks.items():
        kinds.setdefault(("|".join(map(str, sorted(numbers))), device), []).append(kind)
    for (which, device), names in kinds.items():
        patterns.append((rf"^blk\.({which})\.({'|'.join(map(_escaped, names))})$", device))
    return patterns


def _escaped(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,200}", name):
        raise InputError(f"a tensor called {name[:80]!r} cannot be named in a pattern of -ot")
    return name.replace(".", r"\.")


def overridden_tensors(patterns: Sequence[tuple[str, str]], tensors: Sequence[str]) -> dict[str, str]:
    """What -ot moves: tensor -> buffer type. A pattern is searched anywhere in a name, the first that is found wins."""
    compiled = [(re.compile(pattern), device) for pattern, device in patterns]
    found = ((name, next((device for pattern, device in compiled if pattern.search(name)), None)) for name in tensors)
    return {name: device for name, device in found if device is not None}
