"""vLLM and SGLang: a server of T x P ranks, layers by pipeline rank.

In: layers of each pipeline rank, GPUs in the order of the ranks. Out: words; the partition is read back by the engines'
own rule: P whole numbers from 1, whose sum is the number of layers. Simplified: one node; equal tensor-parallel groups,
one share of memory for all GPUs, which is all that these engines know.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor

import msgspec

from weftline.errors import InputError, UsageError
from weftline.plans.launch.line import LaunchLine, visible_gpus

__all__ = ["RankLaunch", "check_partition", "partition_words", "sglang_line", "vllm_line"]

VLLM_PARTITION, SGLANG_PARTITION = "VLLM_PP_LAYER_PARTITION", "SGLANG_PP_LAYER_PARTITION"
VLLM_KV, SGLANG_KV = ("auto", "fp8", "fp8_e4m3", "fp8_e5m2"), ("auto", "fp8_e4m3", "fp8_e5m2")
FULL_PRECISION = ("", "f16", "bf16", "auto")


class RankLaunch(msgspec.Struct, frozen=True):
    """What one server is told."""

    model: str
    """A folder, or a name on the hub."""
    layers: tuple[int, ...]
    """Of each pipeline rank."""
    gpus: tuple[int, ...]
    """Numbers of the GPUs: those of pipeline rank 0 first."""
    tensor_parallel: int = 1
    context: int = 0
    """Longest request; 0: that of the model."""
    concurrency: int = 0
    """Requests at the same time; 0: the engine decides."""
    memory_share: float = 0.0
    """Of each GPU; 0: the engine's default."""
    kv_type: str = ""
    quantisation: str = ""
    """As the engine calls it; empty: as the model says."""
    offload_gib: int = 0
    """Weights of each GPU that stay in the memory of the host."""
    port: int = 8000
    visible: str = "CUDA_VISIBLE_DEVICES"
    """The variable that says which GPUs there are, and in which order."""
    note: str = ""


def check_partition(text: str, *, layers: int, ranks: int) -> list[int]:
    """vLLM's and SGLang's own rules: whole numbers, one for each rank, all layers in all."""
    words = text.split(",")
    if not all(word.isascii() and word.isdigit() and int(word) >= 1 for word in words):
        raise InputError(f"{text[:80]!r} is not a list of numbers of layers")
    counts = [int(word) for word in words]
    if len(counts) != ranks or sum(counts) != layers:
        raise InputError(f"{text[:80]!r} is not for {layers} layers on {ranks} ranks")
    return counts


def partition_words(variable: str, counts: Sequence[int], layers: int) -> tuple[str, str]:
    """(variable, value), held to the number of layers."""
    text = ",".join(map(str, counts))
    check_partition(text, layers=layers, ranks=len(counts))
    return variable, text


def vllm_line(launch: RankLaunch) -> LaunchLine:
    """The line of `vllm serve`."""
    _check(launch, "vLLM", VLLM_KV)
    words = ["vllm", "serve", launch.model]
    words += ["--tensor-parallel-size", str(launch.tensor_parallel)]
    words += ["--pipeline-parallel-size", str(len(launch.layers))]
    if launch.memory_share:
        words += ["--gpu-memory-utilization", _share(launch.memory_share)]
    if launch.context:
        words += ["--max-model-len", str(launch.context)]
    if launch.concurrency:
        words += ["--max-num-seqs", str(launch.concurrency)]
    if launch.kv_type not in FULL_PRECISION:
        words += ["--kv-cache-dtype", launch.kv_type]
    if launch.quantisation:
        words += ["--quantization", launch.quantisation]
    if launch.offload_gib:
        words += ["--cpu-offload-gb", str(launch.offload_gib)]
    return LaunchLine((*words, "--port", str(launch.port)), _environment(launch, VLLM_PARTITION), launch.note)


def sglang_line(launch: RankLaunch) -> LaunchLine:
    """The line of `python -m sglang.launch_server`."""
    _check(launch, "SGLang", SGLANG_KV)
    words = ["python", "-m", "sglang.launch_server", "--model-path", launch.model]
    words += ["--tp-size", str(launch.tensor_parallel), "--pp-size", str(len(launch.layers))]
    if launch.memory_share:
        words += ["--mem-fraction-static", _share(launch.memory_share)]
    if launch.context:
        words += ["--context-length", str(launch.context)]
    if launch.concurrency:
        words += ["--max-running-requests", str(launch.concurrency)]
    if launch.kv_type not in FULL_PRECISION:
        words += ["--kv-cache-dtype", launch.kv_type]
    if launch.quantisation:
        words += ["--quantization", launch.quantisation]
    if launch.offload_gib:
        words += ["--cpu-offload-gb", str(launch.offload_gib)]
    return LaunchLine((*words, "--port", str(launch.port)), _environment(launch, SGLANG_PARTITION), launch.note)


def _share(share: float) -> str:
    """Never more than planned."""
    return f"{floor(share * 1000 + 1e-6) / 1000:g}"


def _environment(launch: RankLaunch, variable: str) -> tuple[tuple[str, str], ...]:
    """GPUs in the order of the ranks; the partition where there is more than one pipeline rank."""
    gpus = visible_gpus(launch.gpus, launch.visible)
    if len(launch.layers) == 1:
        return gpus
    return (*gpus, partition_words(variable, launch.layers, sum(launch.layers)))


def _check(launch: RankLaunch, engine: str, kv_types: Sequence[str]) -> None:
    if not launch.layers or min(launch.layers) < 1 or launch.tensor_parallel < 1:
        raise UsageError(f"{engine} has no rank without layers; leave the card out that would hold none")
    if len(launch.gpus) != len(launch.layers) * launch.tensor_parallel:
        raise UsageError(
            f"{engine} runs {launch.tensor_parallel} x {len(launch.layers)} ranks, one GPU each; "
            f"the plan names {len(launch.gpus)}"
        )
    if len(set(launch.gpus)) != len(launch.gpus):
        raise UsageError(f"{engine} runs one rank on a GPU; the plan names one of them twice")
    if launch.kv_type not in (*FULL_PRECISION, *kv_types):
        raise UsageError(f"{engine} has no KV cache of type {launch.kv_type[:40]!r} (there are: {', '.join(kv_types)})")
    if not 0 <= launch.memory_share < 1:
        raise UsageError(f"the share of a GPU's memory is between 0 and 1, not {launch.memory_share}")
