"""The layers of a model as a plan places them, and the targets that take whole layers in a row: vllm and megatron.

In: a plan whose ops carry blocks (`encoder/layer.3`). Out: `Layers`: the device of every numbered layer, of what comes
before them (embedding) and after them (final norm, head). A plan that cuts inside a layer is refused, and so is a model
with no such layers, or with two stacks of them (`stack.py`). What is to be written is read back and held to the model.

vllm: VLLM_PP_LAYER_PARTITION, the number of layers of each pipeline rank (`vllm.env`), and the number of ranks
(`vllm.args`). vLLM runs the embedding on the first rank, final norm and head on the last; other plans are refused.

megatron: the string for --pipeline-model-parallel-layout of Megatron-LM (`megatron.args`, quoted as for a shell). E
(embedding) and L (output layer and loss) are written where the plan has them, also on a device of their own before the
first or after the last layer. Simplified: one stage for each device (no virtual stages), every layer is a decoder
layer.

Beside both stand stages.json, an account of what was exported, and launch.sh, one line that starts it with rank r on
the GPU of the r-th stage. Stages on CPUs are refused. Of a fleet plan launch.sh has one line for each lane, and
router.json the weights of the lanes. Simplified: the lines are for one machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from weftline.cluster import Device
from weftline.errors import InputError, UsageError
from weftline.export.exporter import Exporter, ExportOptions
from weftline.export.router import LaneLaunch, Placed, about_lane, separate_lanes, write_lanes
from weftline.files import write_atomically
from weftline.graph import Graph
from weftline.graph.stack import one_device, one_stack
from weftline.plans.fleet import AnyFleet
from weftline.plans.launch.line import visible_gpus
from weftline.plans.launch.servers import VLLM_PARTITION, check_partition, partition_words
from weftline.plans.plan import Plan
from weftline.units import format_names

__all__ = [
    "EXPORTERS",
    "Layers",
    "check_fits",
    "check_layers",
    "check_no_cpu",
    "gpu_numbers",
    "layers_of",
    "megatron_layout",
    "placed_devices",
    "read_layout",
    "run_lengths",
    "vllm_partition",
    "write_launch",
    "write_stages",
]

_STAGE = re.compile(r"E?(?:t(?:\*[1-9]\d{0,5})?)?L?")
CUDA_RUNTIME = re.compile(r"(?:torch:cuda|ort:CUDAExecutionProvider)(?::(\d{1,4}))?")


@dataclass(frozen=True)
class Layers:
    """Where the layers are; devices by their id."""

    stack: str
    """What the layers are called without their number: `encoder/layer`."""
    devices: tuple[str, ...]
    """Of layer 0, 1, ..."""
    embedding: str
    """Device of everything before the layers."""
    head: str
    """Device of everything after the layers."""

    @property
    def number(self) -> int:
        """How many layers there are."""
        return len(self.devices)


def placed_devices(plan: Placed) -> tuple[Graph, list[Device]]:
    """The graph, and the device of every op of it."""
    problem = plan.load_problem()
    try:
        return problem.graph, [
            problem.devices[problem.device_index[plan.placement[op.name]]] for op in problem.graph.ops
        ]
    except KeyError as error:
        raise InputError(f"the placement does not fit: {error.args[0]!r:.80}", hint="try weftline verify") from None


def layers_of(plan: Placed, target: str) -> Layers:
    """The layers of a plan; `target` stands in the errors."""
    graph, devices = placed_devices(plan)
    if any(op.backward for op in graph.ops):
        raise UsageError(f"{target} takes plans of forward ops; this graph is for training")
    stack = one_stack(graph, target)
    ids = [device.id for device in devices]
    whole = [
        one_device(f"layer {n} ({stack.name})", graph, ids, ops, target)
        for n, ops in zip(stack.numbers, stack.layers, strict=True)
    ]
    before, after = _around(graph, {op for ops in stack.layers for op in ops})
    embedding = one_device("what comes before the layers", graph, ids, before, target) if before else whole[0]
    head = one_device("what comes after the layers", graph, ids, after, target) if after else whole[-1]
    return Layers(stack.name, tuple(whole), embedding, head)


def check_layers(plan: Placed, found: Sequence[str], target: str, names: Mapping[str, str] | None = None) -> None:
    """Hold what a file says, the device of each layer, to the model: every layer once, its ops as placed.

    `names` says what devices are called in the file, where that is not their id.
    """
    graph, devices = placed_devices(plan)
    stack = one_stack(graph, target)
    if len(found) != len(stack.layers):
        raise InputError(f"{target}: the file has {len(found)} layers, the model {len(stack.layers)} ({stack.name})")
    for n, (name, ops) in enumerate(zip(found, stack.layers, strict=True)):
        used = {devices[op].id for op in ops}
        if {names[device] if names else device for device in used} != {name}:
            raise InputError(f"{target}: the file has layer {n} on {name}, the plan on {format_names(sorted(used))}")


def check_no_cpu(plan: Placed, stages: Sequence[tuple[str, int]], target: str) -> None:
    """Refuse stages on CPUs: the targets do not mix them with GPUs in one pipeline."""
    devices, used = plan.load_problem().devices, {device for device, _ in stages}
    cpus = [device.id for device in devices if device.id in used and _is_cpu(device)]
    if cpus:
        what = "plan for GPUs" if all(map(_is_cpu, devices)) else "plan again with --without cpus"
        raise UsageError(f"{target} has no stages on CPUs, the plan has one on {format_names(cpus)}; {what}")


def _is_cpu(device: Device) -> bool:
    return device.kind.lower() == "cpu"


def gpu_numbers(plan: Placed, stages: Sequence[tuple[str, int]], runtimes: Mapping[str, str]) -> list[int]:
    """CUDA's number of the device of each stage: that of its runtime, else its place among the GPUs."""
    devices = plan.load_problem().devices
    places = [device.id for device in devices if not _is_cpu(device)]
    said = {device.id: runtimes.get(device.id, device.runtime) for device in devices}
    found = [_gpu_number(said[device], places.index(device), device in runtimes) for device, _ in stages]
    if len(set(found)) != len(found):
        raise UsageError(
            f"two devices are the same GPU; say which is which: --runtime {stages[0][0]}=torch:cuda:{found[0]}"
        )
    return found


def _gpu_number(runtime: str, place: int, asked: bool) -> int:
    match = CUDA_RUNTIME.fullmatch(runtime)
    if match is None and asked:
        raise UsageError(f"the runtime {runtime[:60]!r} is not like torch:cuda:0")
    return place if match is None else int(match[1] or 0)


def run_lengths(devices: Iterable[str], target: str) -> list[tuple[str, int]]:
    """[(device, layers in a row)]; refused if a device comes twice."""
    runs: list[tuple[str, int]] = []
    for device in devices:
        if runs and runs[-1][0] == device:
            runs[-1] = (device, runs[-1][1] + 1)
        else:
            runs.append((device, 1))
    names = [device for device, _ in runs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(
            f"{target} needs layers in a row on each device; those of {format_names(twice)} are not: pin them "
            "([limits] pin in the cluster file) and plan again"
        )
    return runs


def check_fits(expected: str, found: str, what: str, target: str) -> None:
    """Refuse a plan whose embedding or head is not where the target puts it."""
    if expected != found:
        raise UsageError(f"{target} runs {what} on {expected}, the plan on {found}; pin it there and plan again")


def _around(graph: Graph, inside: Collection[int]) -> tuple[list[int], list[int]]:
    """Ops outside the layers: those that no layer leads to, and those after one. Ops are in topological order."""
    led = [op in inside for op in range(len(graph.ops))]
    for tensor in sorted(graph.tensors, key=lambda tensor: tensor.producer):
        if tensor.producer >= 0 and led[tensor.producer]:
            for op in tensor.consumers:
                led[op] = True
    outside = [op for op in range(len(graph.ops)) if op not in inside]
    return [op for op in outside if not led[op]], [op for op in outside if led[op]]


def write_stages(path: Path, layers: Layers, stages: Sequence[tuple[str, int]], gpus: Sequence[int]) -> Path:
    """Write the account; stages are (device, layers) in order, GPUs the numbers of their devices."""
    first = 0
    rows = []
    for rank, ((device, count), gpu) in enumerate(zip(stages, gpus, strict=True)):
        rows.append({"rank": rank, "device": device, "gpu": gpu, "first_layer": first, "layers": count})
        first += count
    about = {"stack": layers.stack, "layers": layers.number, "embedding": layers.embedding, "head": layers.head}
    write_atomically(path, (json.dumps({**about, "stages": rows}, indent=1) + "\n").encode())
    return path


def write_launch(path: Path, stages: Sequence[tuple[str, int]], gpus: Sequence[int], usage: str, line: str) -> Path:
    """Write a script of one line, with the GPUs of the stages in the order of the ranks."""
    ranks = [f"# {note}" for note in _rank_notes(stages, gpus)]
    lines = ["#!/bin/sh", f"# {usage}", *ranks, f': "${{1:?{usage}}}"', f"{_visible(gpus)} {line}"]
    write_atomically(path, ("\n".join(lines) + "\n").encode())
    return path


def _rank_notes(stages: Sequence[tuple[str, int]], gpus: Sequence[int]) -> list[str]:
    pairs = enumerate(zip(stages, gpus, strict=True))
    return [f"rank {rank} is {device}, GPU {gpu}" for rank, ((device, _), gpu) in pairs]


def _visible(gpus: Sequence[int]) -> str:
    return " ".join(f"{name}={value}" for name, value in visible_gpus(gpus, by_bus=False))


def _lane_launch(stages: Sequence[tuple[str, int]], gpus: Sequence[int], line: str, *, listens: bool) -> LaneLaunch:
    return LaneLaunch(f"{_visible(gpus)} {line}", tuple(_rank_notes(stages, gpus)), tuple(map(str, gpus)), listens)


def _each_layer(stages: Sequence[tuple[str, int]], counts: Sequence[int]) -> list[str]:
    """The device of each layer, by the numbers of layers that a file has."""
    return [device for (device, _), count in zip(stages, counts, strict=True) for _ in range(count)]


VLLM, VLLM_USAGE = "vllm", "sh launch.sh MODEL [OPTION ...]"


def vllm_partition(plan: Placed) -> tuple[Layers, list[tuple[str, int]]]:
    """The layers, and (device, how many of them) of each rank."""
    layers = layers_of(plan, VLLM)
    stages = run_lengths(layers.devices, VLLM)
    check_no_cpu(plan, [*stages, (layers.embedding, 0), (layers.head, 0)], VLLM)
    check_fits(stages[0][0], layers.embedding, "the embedding", VLLM)
    check_fits(stages[-1][0], layers.head, "final norm and head", VLLM)
    return layers, stages


def _vllm_ranks(plan: Placed, options: ExportOptions) -> tuple[Layers, list[tuple[str, int]], list[int]]:
    layers, stages = vllm_partition(plan)
    return layers, stages, gpu_numbers(plan, stages, options.runtimes)


def _vllm_words(plan: Placed, layers: Layers, stages: Sequence[tuple[str, int]]) -> tuple[str, str]:
    """The variable and the argument, held to the model."""
    variable, text = partition_words(VLLM_PARTITION, [count for _, count in stages], layers.number)
    counts = check_partition(text, layers=layers.number, ranks=len(stages))
    check_layers(plan, _each_layer(stages, counts), VLLM)
    return f"{variable}={text}", f"--pipeline-parallel-size {len(stages)}"


def _export_vllm(plan: Plan, folder: Path, options: ExportOptions) -> list[Path]:
    layers, stages, gpus = _vllm_ranks(plan, options)
    variable, argument = _vllm_words(plan, layers, stages)
    files = [folder / "vllm.env", folder / "vllm.args"]
    write_atomically(files[0], f"{variable}\n".encode())
    write_atomically(files[1], f"{argument}\n".encode())
    line = f'{variable} vllm serve "$@" {argument}'
    files.append(write_stages(folder / "stages.json", layers, stages, gpus))
    return [*files, write_launch(folder / "launch.sh", stages, gpus, VLLM_USAGE, line)]


def _fleet_vllm(answer: AnyFleet, folder: Path, options: ExportOptions) -> list[Path]:
    """One server for each lane."""
    launches = []
    for n, plan in enumerate(separate_lanes(answer, VLLM)):
        with about_lane(n):
            layers, stages, gpus = _vllm_ranks(plan, options)
            variable, argument = _vllm_words(plan, layers, stages)
        line = f'{variable} vllm serve "$@" {argument} --port {LaneLaunch.port(n)}'
        launches.append(_lane_launch(stages, gpus, line, listens=True))
    return write_lanes(folder, answer, launches, VLLM_USAGE)


MEGATRON, MEGATRON_USAGE = "megatron", "sh launch.sh pretrain_gpt.py [OPTION ...]"


def megatron_layout(plan: Placed) -> tuple[str, Layers, list[tuple[str, int]]]:
    """The string, the layers, and (device, layers) of each stage."""
    layers = layers_of(plan, MEGATRON)
    # Embedding and head take part as layers of no length: the order of devices must hold with them.
    order = run_lengths([layers.embedding, *layers.devices, layers.head], MEGATRON)
    stages = [(device, layers.devices.count(device)) for device, _ in order]
    check_no_cpu(plan, stages, MEGATRON)
    words = ["" if count == 0 else "t" if count == 1 else f"t*{count}" for _, count in stages]
    words[0] = f"E{words[0]}"
    words[-1] += "L"
    text = "|".join(words)
    if read_layout(text) != [count for _, count in stages]:
        raise InputError(f"the layout {text[:200]!r} does not say what it should")
    return text, layers, stages


def read_layout(text: str) -> list[int]:
    """The layers of each stage; strict: E first, L last, no other signs."""
    stages = text.split("|")
    if not text.startswith("E") or not text.endswith("L") or text.count("E") != 1 or text.count("L") != 1:
        raise InputError(f"a layout begins with E and ends with L, not {text[:80]!r}")
    for stage in stages:
        if not stage or not _STAGE.fullmatch(stage):
            raise InputError(f"{stage[:80]!r} is not a stage of a layout")
    counts = [re.search(r"t(?:\*(\d+))?", stage) for stage in stages]
    return [0 if found is None else int(found[1] or 1) for found in counts]


def _megatron_ranks(plan: Placed, options: ExportOptions) -> tuple[str, Layers, list[tuple[str, int]], list[int]]:
    text, layers, stages = megatron_layout(plan)
    return text, layers, stages, gpu_numbers(plan, stages, options.runtimes)


def _megatron_words(plan: Placed, text: str, layers: Layers, stages: Sequence[tuple[str, int]]) -> tuple[str, ...]:
    """The arguments, held to the model."""
    check_layers(plan, _each_layer(stages, read_layout(text)), MEGATRON)
    return (
        f"--num-layers {layers.number}",
        f"--pipeline-model-parallel-size {len(stages)}",
        f"--pipeline-model-parallel-layout '{text}'",
    )


def _export_megatron(plan: Plan, folder: Path, options: ExportOptions) -> list[Path]:
    text, layers, stages, gpus = _megatron_ranks(plan, options)
    path, words = folder / "megatron.args", _megatron_words(plan, text, layers, stages)
    write_atomically(path, ("\n".join(words) + "\n").encode())
    line = f'torchrun --nproc-per-node {len(stages)} "$@" {" ".join(words)}'
    files = [path, write_stages(folder / "stages.json", layers, stages, gpus)]
    return [*files, write_launch(folder / "launch.sh", stages, gpus, MEGATRON_USAGE, line)]


def _fleet_megatron(answer: AnyFleet, folder: Path, options: ExportOptions) -> list[Path]:
    """One torchrun for each lane."""
    launches = []
    for n, plan in enumerate(separate_lanes(answer, MEGATRON)):
        with about_lane(n):
            text, layers, stages, gpus = _megatron_ranks(plan, options)
            words = " ".join(_megatron_words(plan, text, layers, stages))
        ranks = f"--nproc-per-node {len(stages)} --master-port {LaneLaunch.port(n)}"
        launches.append(_lane_launch(stages, gpus, f'torchrun {ranks} "$@" {words}', listens=False))
    return write_lanes(folder, answer, launches, MEGATRON_USAGE)


EXPORTERS = (
    Exporter(
        VLLM,
        "VLLM_PP_LAYER_PARTITION, for layers kept whole and in a row",
        _export_vllm,
        "plan",
        _vllm_ranks,
        fleet=_fleet_vllm,
    ),
    Exporter(
        MEGATRON,
        "--pipeline-model-parallel-layout, for layers kept whole and in a row",
        _export_megatron,
        "plan",
        _megatron_ranks,
        fleet=_fleet_megatron,
    ),
)
