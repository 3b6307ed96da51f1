"""A plan of rows on devices -> the lines that start an engine so.

In: a task, its segments. Out: a `LaunchLine` for each process. Simplified: cards have the numbers of their maker's
tools, in the order in which the user named them; one server per plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from weftline.ask.fit_build import FIT_PARTS, FitTask
from weftline.cost.llm import CostClass, LlmEngine, moved_part
from weftline.errors import UsageError
from weftline.importers.llm import find_quantisation
from weftline.plans.launch import LaunchLine, LlamaCppLaunch, RankLaunch, llamacpp_line, sglang_line, vllm_line
from weftline.problem.fit import FitProblem, FitSegment

__all__ = ["fit_launches", "launch_notes"]

_BACKENDS = {CostClass.AMD: "ROCm", CostClass.INTEL: "SYCL", CostClass.APPLE: "MTL"}
"""What llama.cpp calls devices; all others are CUDA's."""
_VISIBLE = {CostClass.AMD: "HIP_VISIBLE_DEVICES", CostClass.INTEL: "ZE_AFFINITY_MASK"}
DEFAULT_MICRO_BATCH = 512
_SERVERS = {LlmEngine.VLLM: ("vLLM", vllm_line), LlmEngine.SGLANG: ("SGLang", sglang_line)}
RPC_PORT, LLAMACPP_PORT, RANKS_PORT = 50052, 8080, 8000
_CACHE_NAMES = {"fp8": "fp8_e4m3"}


def fit_launches(
    task: FitTask, problem: FitProblem, segments: Sequence[FitSegment], number: int = 0
) -> tuple[LaunchLine, ...]:
    """All processes; `number`: of servers beside each other, which have ports of their own."""
    if task.settings.engine is LlmEngine.LLAMACPP:
        return (*_rpc_servers(task, problem, segments), _llamacpp(task, problem, segments, number))
    return (_ranks(task, problem, segments, number),)


def launch_notes(task: FitTask, segments: Sequence[FitSegment]) -> list[str]:
    """What a user must know before pasting the line."""
    notes = []
    cards = task.machine.cards
    if task.settings.engine is LlmEngine.LLAMACPP and not _is_file(task):
        notes.append(f"in the command, put the path of your GGUF file in place of {_model_word(task)}")
    elif task.settings.engine is not LlmEngine.LLAMACPP and not _is_file(task):
        notes.append(f"in the command, put the folder or hub name of the model in place of {_model_word(task)}")
    if task.settings.engine is not LlmEngine.LLAMACPP and _is_gguf(task):
        notes.append("its readers of GGUF files are experiments, and slow: awq or fp8 weights are what it is made for")
    elif task.settings.engine is LlmEngine.LLAMACPP and not _runs_in_llamacpp(task):
        notes.append(
            f"llama.cpp runs no {task.model.quantisation} weights: convert them, and say as what (--quant q8_0)"
        )
    if len(cards) > 1:
        tool = "llama-server --list-devices" if task.settings.engine is LlmEngine.LLAMACPP else "nvidia-smi -L"
        notes.append(
            f"gpu0 to gpu{len(cards) - 1} are meant to be cards 0 to {len(cards) - 1} of your machine ({tool} lists "
            "them); name them here in that order"
        )
    if _could_be_sliced(task, segments):
        notes.append(
            "cards are equal: -sm tensor, which is not planned here, was 1.3 to 1.5 times as fast for one request "
            "where it was measured, and slower for prompts; try it"
        )
    if any(device.remote for device in cards):
        notes.append("in the commands, put the address of its machine in place of gpuN-host")
    if task.settings.engine is not LlmEngine.LLAMACPP and len(segments) > 1 and task.settings.concurrency == 1:
        notes.append("a pipeline makes one request no faster; with --concurrency the plan is for several at once")
    return notes


def _runs_in_llamacpp(task: FitTask) -> bool:
    quantisation = task.model.quantisation
    return not quantisation or find_quantisation(quantisation).format != "packed"


def _could_be_sliced(task: FitTask, segments: Sequence[FitSegment]) -> bool:
    """llama.cpp could give every card a slice of each matrix: equal cards, nothing elsewhere, a plain cache."""
    settings, cards = task.settings, task.machine.cards
    if settings.engine is not LlmEngine.LLAMACPP or len(segments) < 2 or task.machine.host is not None:
        return False
    plain = settings.flash_attention and {settings.kv_type_k, settings.kv_type_v} <= {"f16", "bf16", "f32"}
    same = len({device.name for device in cards}) == 1 and not any(device.remote for device in cards)
    held = sum(len(one.devices) for one in segments)
    return plain and same and held == len(segments) <= len(cards)


def _is_file(task: FitTask) -> bool:
    return Path(task.model.source).exists()


def _is_gguf(task: FitTask) -> bool:
    """The weights are those of a GGUF file, which vLLM and SGLang read as an experiment."""
    quantisation = task.model.quantisation
    return task.model.source.endswith(".gguf") or (
        bool(quantisation) and find_quantisation(quantisation).format == "gguf" and quantisation != "mxfp4"
    )


def _model_word(task: FitTask) -> str:
    model = task.model
    if task.settings.engine is not LlmEngine.LLAMACPP and _is_gguf(task) and Path(model.source).suffix != ".gguf":
        return f"{model.name}-{model.quantisation}.gguf"
    if _is_file(task):
        path = Path(model.source)
        if task.settings.engine is LlmEngine.LLAMACPP and path.suffix != ".gguf":
            return f"{model.name}{f'-{model.quantisation}' if model.quantisation else ''}.gguf"
        word = str(path.parent if path.name == "config.json" else path)
        return f"./{word}" if word.startswith("-") else word  # no option of the engine
    if task.settings.engine is LlmEngine.LLAMACPP:
        return f"{model.name}{f'-{model.quantisation}' if model.quantisation else ''}.gguf"
    return model.name


def _llamacpp(task: FitTask, problem: FitProblem, segments: Sequence[FitSegment], number: int = 0) -> LaunchLine:
    settings, machine = task.settings, task.machine
    remote = _used_remote(task, problem, segments)
    names = _names(task, remote)
    held = [segment for segment in segments if not problem.is_host(segment.unit)]
    devices = tuple(names[problem.devices[segment.devices[0]].id] for segment in held)
    layers = [segment.last - segment.first for segment in held]
    blocks = problem.blocks + len(task.model.mtp)
    if held and held[-1].last == len(problem.rows):
        layers[-1] += len(task.model.mtp)  # they count as layers, and are loaded only when asked for
    nvidia = any(device.cost_class in (CostClass.GDDR, CostClass.HBM) for device in machine.cards)
    several = len(machine.all_cards) > 1
    return llamacpp_line(
        LlamaCppLaunch(
            _model_word(task),
            blocks,
            devices,
            tuple(layers),
            context=settings.context,
            slots=settings.concurrency,
            moved=_moved(task, segments),
            tensors=tuple(tensor.name for tensor in task.model.tensors),
            kv_type_k=settings.kv_type_k,
            kv_type_v=settings.kv_type_v,
            micro_batch=0 if settings.micro_batch == DEFAULT_MICRO_BATCH else settings.micro_batch,
            flash_attention=settings.flash_attention,
            name_devices=several,
            port=LLAMACPP_PORT + number,
            servers=tuple(map(_address, remote)),
            environment=(("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),) if nvidia and several else (),
        )
    )


def _used_remote(task: FitTask, problem: FitProblem, segments: Sequence[FitSegment]) -> list[str]:
    """Cards on other machines that hold layers, in the order in which they are named."""
    used = {problem.devices[number].id for segment in segments for number in segment.devices}
    return [device.id for device in task.machine.cards if device.remote and device.id in used]


def _address(name: str) -> str:
    return f"{name}-host:{RPC_PORT}"


def _rpc_servers(task: FitTask, problem: FitProblem, segments: Sequence[FitSegment]) -> list[LaunchLine]:
    """A server on each other machine; it asks for no password."""
    return [
        LaunchLine(
            ("ggml-rpc-server", "-H", f"{name}-host", "-p", str(RPC_PORT)),
            machine=name,
            note=f"on the machine of {name}; it asks for no password, so only inside a network that you trust",
        )
        for name in _used_remote(task, problem, segments)
    ]


def _names(task: FitTask, remote: Sequence[str]) -> dict[str, str]:
    """What llama.cpp calls the cards: CUDA0, CUDA1, ROCm0 ..."""
    found: dict[str, str] = {}
    counts: dict[str, int] = {}
    for device in task.machine.all_cards:
        backend = "RPC" if device.remote and device.id in remote else _BACKENDS.get(device.cost_class, "CUDA")
        found[device.id] = f"{backend}{counts.get(backend, 0)}"
        counts[backend] = counts.get(backend, 0) + 1
    return found


def _moved(task: FitTask, segments: Sequence[FitSegment]) -> tuple[tuple[str, str], ...]:
    """Tensors of parts that lie on the host."""
    found = []
    for segment in segments:
        for row, number in segment.moved:
            part = FIT_PARTS[number]
            if row == len(task.model.layers):
                found += [(tensor.name, "CPU") for tensor in task.model.output if len(tensor.shape) > 1]
            else:
                tensors = task.model.layers[row].tensors
                found += [(tensor.name, "CPU") for tensor in tensors if moved_part(tensor) == part]
    return tuple(found)


def _ranks(task: FitTask, problem: FitProblem, segments: Sequence[FitSegment], number: int = 0) -> LaunchLine:
    settings = task.settings
    engine, line = _SERVERS[settings.engine]
    used = [problem.devices[number].id for segment in segments for number in segment.devices]
    classes = {device.id: device.cost_class for device in task.machine.cards}
    makers = {_VISIBLE.get(classes[name], "CUDA_VISIBLE_DEVICES") for name in used}
    if any(device.remote for device in task.machine.cards):
        raise UsageError(f"lines for {engine} are for one machine; leave cards over a network out, or --for llamacpp")
    if any(classes[name] is CostClass.APPLE for name in used):
        raise UsageError(f"{engine} does not run on Apple's GPUs; plan for llama.cpp: --for llamacpp")
    if len(makers) > 1:
        raise UsageError(f"{engine} runs cards of one maker together; leave the others out, or say --for llamacpp")
    widths = {len(segment.devices) for segment in segments}
    if len(widths) > 1:
        raise UsageError(f"{engine} has groups of one size only, and the plan has {sorted(widths)}")
    numbers = {device.id: number for number, device in enumerate(task.machine.all_cards)}
    layers = [segment.last - segment.first for segment in segments]
    layers[-1] -= 1  # the output layer is no layer here
    return line(
        RankLaunch(
            _model_word(task),
            tuple(layers),
            tuple(numbers[name] for name in used),
            widths.pop(),
            context=settings.context,
            concurrency=settings.concurrency,
            memory_share=settings.memory_permille / 1000,
            kv_type=_CACHE_NAMES.get(settings.kv_type_k, settings.kv_type_k),
            visible=makers.pop(),
            quantisation="gguf" if _is_gguf(task) else "",
            port=RANKS_PORT + number,
        )
    )
