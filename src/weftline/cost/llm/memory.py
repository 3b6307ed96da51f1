"""Bytes beside the weights: the cache (keys and values, KV) per layer, compute buffers, what driver and engine take.

In: layers or a model, settings, where a device stands in the chain of devices. Out: integers.
Simplified: pages of layers with unlike windows have no waste but their own rounding. Compute buffers are closed forms
of llama.cpp's worst case graph, exact for llama-like models; for others they are estimates, and `buffers_are_exact`
says so. vLLM and SGLang measure their peak at the start: here it is an estimate.
"""

from __future__ import annotations

from enum import Enum

from weftline.cost.llm.devices import CostClass, LlmDevice
from weftline.cost.llm.settings import CACHE_PADDING, LlmEngine, LlmSettings, cache_bytes
from weftline.importers.llm import AttentionKind, LanguageModel, LlmLayer

__all__ = [
    "Position",
    "buffers_are_exact",
    "cache_per_token",
    "cache_read",
    "compute_buffer",
    "engine_overhead",
    "host_buffer",
    "layer_cache",
    "layer_cells",
    "usable_memory",
]

ONE_MIB = 1 << 20
CUDA_CONTEXT = 400 * ONE_MIB
"""llama.cpp on NVIDIA: 0.2 to 0.6 GB that its breakdown calls unaccounted."""
OTHER_CONTEXT = 256 * ONE_MIB
VLLM_PERMILLE = 920
SGLANG_PERMILLE = 880
VLLM_GRAPHS = 1024 * ONE_MIB
"""vLLM, SGLang: CUDA graphs, NCCL and what the profiling run leaves."""

_CACHELESS = {AttentionKind.RECURRENT, AttentionKind.NONE}


def cache_per_token(layer: LlmLayer, settings: LlmSettings, width: int = 1) -> int:
    """Bytes that one token leaves in the cache of a layer, on one rank; 0 where the layer keeps nothing per token.

    Key and value heads are copied where there are more ranks than heads; a latent row is on every rank."""
    if layer.attention in _CACHELESS:
        return 0
    if layer.attention is AttentionKind.LATENT:
        return cache_bytes(layer.latent_length, settings.kv_type_k)
    heads = max(1, -(-layer.kv_heads // width))
    keys = cache_bytes(heads * layer.key_length, settings.kv_type_k)
    return keys + cache_bytes(heads * layer.value_length, settings.kv_type_v)


def layer_cells(layer: LlmLayer, settings: LlmSettings) -> int:
    """Tokens that the cache of a layer has room for, all requests together."""
    if settings.engine is LlmEngine.LLAMACPP:
        return _llamacpp_cells(layer, settings)
    tokens = settings.context
    if layer.attention is AttentionKind.SLIDING and layer.window:
        most = -(-(layer.window - 1 + settings.prompt_batch) // settings.block) + 1
        tokens = min(tokens, most * settings.block)
    return -(-tokens // settings.block) * settings.block * settings.concurrency


def _llamacpp_cells(layer: LlmLayer, settings: LlmSettings) -> int:
    requests = settings.concurrency
    streams = 1 if settings.unified_cache else requests
    cells = _padded(settings.context * (requests if settings.unified_cache else 1))
    if layer.attention is AttentionKind.SLIDING and layer.window and not settings.full_windows:
        seen = layer.window * (requests if settings.unified_cache else 1)
        cells = _padded(min(cells, seen + settings.micro_batch))
    return cells * streams


def _padded(cells: int) -> int:
    return -(-cells // CACHE_PADDING) * CACHE_PADDING


def layer_cache(layer: LlmLayer, settings: LlmSettings, width: int = 1) -> int:
    """Bytes of the cache of a layer on one rank, for all requests, allocated at the start."""
    if layer.attention is AttentionKind.RECURRENT:
        return -(-layer.state_bytes // width) * settings.concurrency
    return layer_cells(layer, settings) * cache_per_token(layer, settings, width)


def cache_read(layer: LlmLayer, settings: LlmSettings, width: int = 1) -> int:
    """Bytes of the cache that one token of each request reads, at `settings.timed_at` tokens."""
    if layer.attention is AttentionKind.RECURRENT:
        return -(-layer.state_bytes // width) * settings.concurrency
    seen = settings.timed_at
    if layer.attention is AttentionKind.SLIDING and layer.window:
        seen = min(seen, layer.window)
    return seen * cache_per_token(layer, settings, width) * settings.concurrency


class Position(Enum):
    """Where a device stands among those that hold layers."""

    ONLY = "only"
    FIRST = "first"
    MIDDLE = "middle"
    LAST = "last"
    OUTPUT = "output"
    """The last of several, with the output layer and no other."""


def buffers_are_exact(model: LanguageModel, settings: LlmSettings) -> bool:
    """Whether the closed forms were tested for such a model: full attention, flash attention, llama.cpp."""
    full = all(layer.attention is AttentionKind.FULL for layer in model.layers)
    return full and settings.flash_attention and settings.engine is LlmEngine.LLAMACPP


def _widest(model: LanguageModel) -> int:
    """Numbers per token of the widest feed-forward: all experts of a token side by side."""
    return max((max(y.ffn, y.expert_ffn * y.experts_used) for y in model.layers), default=0)


def _cells(settings: LlmSettings) -> int:
    """Cells that the mask of one request spans."""
    cells = settings.context * (settings.concurrency if settings.unified_cache else 1)
    return -(-cells // CACHE_PADDING) * CACHE_PADDING


def _tokens(settings: LlmSettings) -> int:
    return min(_cells(settings), settings.micro_batch)


def compute_buffer(
    model: LanguageModel, settings: LlmSettings, position: Position = Position.ONLY, *, pipelined: bool = True
) -> int:
    """Bytes of a device's compute buffer. `pipelined`: micro-batches overlap over the devices (llama.cpp keeps four
    copies of the inputs then; not with `-ot`, nor with layers on the CPU)."""
    if settings.engine is not LlmEngine.LLAMACPP:
        return _activations(model, settings)
    hidden, head, cells = model.hidden, 4 * model.vocabulary, _cells(settings)
    wide = 12 * _widest(model)
    if not settings.flash_attention:
        return _without_flash_attention(model, settings, position)
    if position is Position.ONLY or not pipelined:
        last = position in (Position.ONLY, Position.LAST, Position.OUTPUT)
        return _tokens(settings) * (max(head if last else 0, wide) + 16 * hidden + 2 * cells)
    if position is Position.OUTPUT:
        return _tokens(settings) * (head + 20 * hidden)
    wide = max(wide, 8 * hidden)
    per_token = {
        Position.FIRST: wide + 64 * hidden,
        Position.MIDDLE: wide + 44 * hidden,
        Position.LAST: max(head + 36 * hidden, wide + 44 * hidden),
    }[position]
    return _tokens(settings) * (per_token + 8 * cells)


def _without_flash_attention(model: LanguageModel, settings: LlmSettings, position: Position) -> int:
    cells = _cells(settings)
    heads = max((layer.heads for layer in model.layers), default=1)
    scores = 4 * heads * cells + 22 * model.hidden
    head = 4 * model.vocabulary if position in (Position.ONLY, Position.LAST, Position.OUTPUT) else 0
    return _tokens(settings) * (max(head + 16 * model.hidden, 12 * _widest(model), scores) + 4 * cells)


def _activations(model: LanguageModel, settings: LlmSettings) -> int:
    """vLLM, SGLang: the peak of a profiling run with a full batch of prompts."""
    wide = 2 * 3 * max(_widest(model), model.hidden)
    logits = 4 * model.vocabulary * min(settings.concurrency, 256) * 2
    return settings.prompt_batch * (wide + 8 * model.hidden) + logits


def host_buffer(model: LanguageModel, settings: LlmSettings, devices: int = 1, *, pipelined: bool = True) -> int:
    """llama.cpp: bytes of the host's compute buffer with so many devices."""
    if settings.engine is not LlmEngine.LLAMACPP:
        return 0
    several = devices > 1 and pipelined
    hidden, cells = model.hidden, _cells(settings)
    if not settings.flash_attention:
        return _tokens(settings) * (18 * hidden + 4 * cells)
    return _tokens(settings) * (40 * hidden + 8 * cells if several else 16 * hidden + 2 * cells)


def engine_overhead(device: LlmDevice, settings: LlmSettings) -> int:
    """Bytes that the driver and the engine take from a device beside weights, cache and compute buffer."""
    if device.kind == "cpu" or device.remote:
        return 0
    if settings.engine is not LlmEngine.LLAMACPP:
        return VLLM_GRAPHS
    nvidia = device.cost_class in (CostClass.GDDR, CostClass.HBM)
    return CUDA_CONTEXT if nvidia else OTHER_CONTEXT


def usable_memory(device: LlmDevice, settings: LlmSettings) -> int:
    """Bytes of a device that the engine may fill: a share of the whole card for vLLM and SGLang, one for all ranks."""
    if settings.engine is LlmEngine.LLAMACPP:
        return device.memory_bytes
    default = VLLM_PERMILLE if settings.engine is LlmEngine.VLLM else SGLANG_PERMILLE
    return min(device.memory_bytes, device.card_bytes * (settings.memory_permille or default) // 1000)
