"""The layers of a model as a plan places them, and the targets that take whole layers in a row: vllm and megatron.

In: a plan whose ops carry blocks (`encoder/layer.3`). Out: `Layers`: the device of every numbered layer, of what comes
before them (embedding) and after them (final norm, head). A plan that cuts inside a layer is refused, and so is a model
with no such layers, or with two stacks of them. Simplified: a block is a layer if its name ends with a number.

vllm: VLLM_PP_LAYER_PARTITION, the number of layers of each pipeline rank (`vllm.env`), and the number of ranks
(`vllm.args`). vLLM runs the embedding on the first rank, final norm and head on the last; other plans are refused.
Simplified: rank r is the r-th device in the order of the layers; which GPU that is, the user says to vLLM.

megatron: the string for --pipeline-model-parallel-layout of Megatron-LM (`megatron.args`, quoted as for a shell). E
(embedding) and L (output layer and loss) are written where the plan has them, also on a device of their own before the
first or after the last layer. Simplified: one stage for each device (no virtual stages), every layer is a decoder
layer.

Beside both stands stages.json, an account of what was exported, for the reader and for scripts.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from weftline.cluster import Device
from weftline.errors import InputError, UsageError
from weftline.export.exporter import Exporter, ExportOptions
from weftline.files import write_atomically
from weftline.graph import Graph
from weftline.plans.plan import Plan
from weftline.units import format_names

__all__ = [
    "EXPORTERS",
    "Layers",
    "check_fits",
    "check_partition",
    "layers_of",
    "megatron_layout",
    "placed_devices",
    "read_layout",
    "run_lengths",
    "vllm_partition",
    "write_stages",
]

_LAYER = re.compile(r"(?P<stack>.*?)[._/-]?(?P<number>\d{1,6})")
HINT = 'keep layers whole by sets in the cluster file: [limits] together = [["/encoder/layer.0/*"], ...]'


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


def placed_devices(plan: Plan) -> tuple[Graph, list[Device]]:
    """The graph, and the device of every op of it."""
    problem = plan.load_problem()
    try:
        return problem.graph, [
            problem.devices[problem.device_index[plan.placement[op.name]]] for op in problem.graph.ops
        ]
    except KeyError as error:
        raise InputError(f"the placement does not fit: {error.args[0]!r:.80}", hint="try weftline verify") from None


def layers_of(plan: Plan, target: str) -> Layers:
    """The layers of a plan; `target` stands in the errors."""
    graph, devices = placed_devices(plan)
    if any(op.backward for op in graph.ops):
        raise UsageError(f"{target} takes plans of forward ops; this graph is for training")
    stack, layer = _stack(graph, target)
    number = max(layer) + 1
    ids = [device.id for device in devices]
    whole = [
        _one_device(f"layer {n} ({stack})", ids, [i for i, at in enumerate(layer) if at == n], target)
        for n in range(number)
    ]
    before, after = _around(graph, layer)
    embedding = _one_device("what comes before the layers", ids, before, target) if before else whole[0]
    head = _one_device("what comes after the layers", ids, after, target) if after else whole[-1]
    return Layers(stack, tuple(whole), embedding, head)


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
        raise UsageError(f"{target} needs layers in a row on each device; those of {format_names(twice)} are not")
    return runs


def check_fits(expected: str, found: str, what: str, target: str) -> None:
    """Refuse a plan whose embedding or head is not where the target puts it."""
    if expected != found:
        raise UsageError(f"{target} runs {what} on {expected}, the plan on {found}; pin it there and plan again")


def _stack(graph: Graph, target: str) -> tuple[str, list[int]]:
    """The name of the stack of layers, and the layer of every op, -1 outside."""
    found = [_LAYER.fullmatch(op.block) for op in graph.ops]
    stacks: dict[str, set[int]] = defaultdict(set)
    for match in found:
        if match is not None:
            stacks[match["stack"]].add(int(match["number"]))
    if not stacks:
        missing = "its ops have no names of layers" if not any(op.block for op in graph.ops) else "no block is numbered"
        raise UsageError(f"{target} needs a model of numbered layers, such as encoder/layer.0; here {missing}")
    if len(stacks) > 1:
        raise UsageError(f"{target} takes one stack of layers; this model has {format_names(sorted(stacks))}")
    stack, numbers = next(iter(stacks.items()))
    if numbers != set(range(len(numbers))):
        raise UsageError(f"{target}: the layers {stack!r} are not numbered 0 to {len(numbers) - 1}")
    return stack, [-1 if match is None else int(match["number"]) for match in found]


def _one_device(what: str, ids: Sequence[str], ops: Sequence[int], target: str) -> str:
    used = sorted({ids[op] for op in ops})
    if len(used) > 1:
        raise UsageError(f"{target} cannot cut inside {what}, which the plan has on {format_names(used)} ({HINT})")
    return used[0]


def _around(graph: Graph, layer: Sequence[int]) -> tuple[list[int], list[int]]:
    """Ops outside the layers: those that no layer leads to, and those after one. Ops are in topological order."""
    led = [at >= 0 for at in layer]
    for tensor in sorted(graph.tensors, key=lambda tensor: tensor.producer):
        if tensor.producer >= 0 and led[tensor.producer]:
            for op in tensor.consumers:
                led[op] = True
    outside = [op for op, at in enumerate(layer) if at < 0]
    return [op for op in outside if not led[op]], [op for op in outside if led[op]]


def write_stages(path: Path, layers: Layers, stages: Sequence[tuple[str, int]]) -> Path:
    """Write the account; stages are (device, layers) in order."""
    first = 0
    rows = []
    for rank, (device, count) in enumerate(stages):
        rows.append({"rank": rank, "device": device, "first_layer": first, "layers": count})
        first += count
    about = {"stack": layers.stack, "layers": layers.number, "embedding": layers.embedding, "head": layers.head}
    write_atomically(path, (json.dumps({**about, "stages": rows}, indent=1) + "\n").encode())
    return path


VLLM = "vllm"


def vllm_partition(plan: Plan) -> tuple[Layers, list[tuple[str, int]]]:
    """The layers, and (device, how many of them) of each rank."""
    layers = layers_of(plan, VLLM)
    stages = run_lengths(layers.devices, VLLM)
    check_fits(stages[0][0], layers.embedding, "the embedding", VLLM)
    check_fits(stages[-1][0], layers.head, "final norm and head", VLLM)
    return layers, stages


def check_partition(text: str, *, layers: int, ranks: int) -> list[int]:
    """vLLM's own rules: whole numbers, one for each rank, all layers in all."""
    words = text.split(",")
    if not all(word.isascii() and word.isdigit() and int(word) >= 1 for word in words):
        raise InputError(f"{text[:80]!r} is not a list of numbers of layers")
    counts = [int(word) for word in words]
    if len(counts) != ranks or sum(counts) != layers:
        raise InputError(f"{text[:80]!r} is not for {layers} layers on {ranks} ranks")
    return counts


def _export_vllm(plan: Plan, folder: Path, options: ExportOptions) -> list[Path]:
    layers, stages = vllm_partition(plan)
    text = ",".join(str(count) for _, count in stages)
    check_partition(text, layers=layers.number, ranks=len(stages))
    files = [folder / "vllm.env", folder / "vllm.args"]
    write_atomically(files[0], f"VLLM_PP_LAYER_PARTITION={text}\n".encode())
    write_atomically(files[1], f"--pipeline-parallel-size {len(stages)}\n".encode())
    return [*files, write_stages(folder / "stages.json", layers, stages)]


MEGATRON = "megatron"
_STAGE = re.compile(r"E?(?:t(?:\*[1-9]\d{0,5})?)?L?")


def megatron_layout(plan: Plan) -> tuple[str, Layers, list[tuple[str, int]]]:
    """The string, the layers, and (device, layers) of each stage."""
    layers = layers_of(plan, MEGATRON)
    # Embedding and head take part as layers of no length: the order of devices must hold with them.
    order = run_lengths([layers.embedding, *layers.devices, layers.head], MEGATRON)
    stages = [(device, layers.devices.count(device)) for device, _ in order]
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


def _export_megatron(plan: Plan, folder: Path, options: ExportOptions) -> list[Path]:
    text, layers, stages = megatron_layout(plan)
    path = folder / "megatron.args"
    words = (
        f"--num-layers {layers.number}",
        f"--pipeline-model-parallel-size {len(stages)}",
        f"--pipeline-model-parallel-layout '{text}'",
    )
    write_atomically(path, ("\n".join(words) + "\n").encode())
    return [path, write_stages(folder / "stages.json", layers, stages)]


EXPORTERS = (
    Exporter(VLLM, "VLLM_PP_LAYER_PARTITION, for layers kept whole and in a row", _export_vllm, "plan"),
    Exporter(
        MEGATRON, "--pipeline-model-parallel-layout, for layers kept whole and in a row", _export_megatron, "plan"
    ),
)
