"""Bytes beside the weights: the cache (keys and values, KV) per layer, and what driver and engine take.

In: layers, settings, a device. Out: integers. Simplified: pages of layers with unlike windows have no waste but their
own rounding.
"""

from __future__ import annotations

from weftline.cost.llm.buffers import window_cells
from weftline.cost.llm.devices import CostClass, LlmDevice
from weftline.cost.llm.settings import LlmEngine, LlmSettings, cache_bytes
from weftline.importers.llm import AttentionKind, LlmLayer

__all__ = [
    "cache_per_token",
    "cache_read",
    "engine_overhead",
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
        return window_cells(layer, settings) * (1 if settings.unified_cache else settings.concurrency)
    tokens = settings.context
    if layer.attention is AttentionKind.SLIDING and layer.window:
        most = -(-(layer.window - 1 + settings.prompt_batch) // settings.block) + 1
        tokens = min(tokens, most * settings.block)
    return -(-tokens // settings.block) * settings.block * settings.concurrency


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
