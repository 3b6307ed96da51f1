"""What is asked of a language model, as far as costs depend on it: engine, context, requests, types of the cache.

In: numbers of a request. Out: a frozen struct, checked. Simplified: all requests have the same context and as many
live tokens.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from weftline.errors import InputError
from weftline.units import MAX_QUANTITY

__all__ = ["CACHE_PADDING", "CACHE_TYPES", "LlmEngine", "LlmSettings", "cache_bytes"]

CACHE_TYPES: dict[str, tuple[int, int]] = {
    "f32": (1, 4),
    "f16": (1, 2),
    "bf16": (1, 2),
    "fp8": (1, 1),
    "q8_0": (32, 34),
    "q5_1": (32, 24),
    "q5_0": (32, 22),
    "q4_1": (32, 20),
    "q4_0": (32, 18),
    "iq4_nl": (32, 18),
}
"""Types of the cache: numbers in a block, and bytes of a block."""

CACHE_PADDING = 256
"""llama.cpp rounds the cells of a cache up to a multiple of this."""

LONGEST_CONTEXT = 1 << 28
MOST_REQUESTS = 1 << 16


class LlmEngine(Enum):
    """Who runs the model: what memory is counted, and what splits are possible, depends on it."""

    LLAMACPP = "llamacpp"
    VLLM = "vllm"
    SGLANG = "sglang"


class LlmSettings(msgspec.Struct, frozen=True):
    """What is asked of a model."""

    context: int = 4096
    """Tokens that one request may hold; memory is kept for all of them."""
    live: int = 0
    """Tokens in the cache of a request when a token is timed; 0: the whole context."""
    concurrency: int = 1
    """Requests at the same time."""
    kv_type_k: str = "f16"
    kv_type_v: str = "f16"
    micro_batch: int = 512
    """Tokens of a prompt that are computed at once (llama.cpp: -ub)."""
    flash_attention: bool = True
    engine: LlmEngine = LlmEngine.LLAMACPP
    unified_cache: bool = False
    """llama.cpp: one cache for all requests (--kv-unified), not one for each."""
    full_windows: bool = False
    """llama.cpp: layers with a sliding window keep all tokens (--swa-full)."""
    block: int = 16
    """vLLM, SGLang: tokens of a page."""
    memory_permille: int = 0
    """vLLM: --gpu-memory-utilization, SGLang: --mem-fraction-static, in thousandths; 0: the engine's default."""
    prompt_batch: int = 8192
    """vLLM, SGLang: tokens of prompts in one step (--max-num-batched-tokens, --chunked-prefill-size)."""

    @property
    def timed_at(self) -> int:
        """Tokens in the cache when a token is timed."""
        return self.live or self.context

    def check(self) -> LlmSettings:
        """Itself, or an InputError that says which number cannot be."""
        for what, number, most in (
            ("context", self.context, LONGEST_CONTEXT),
            ("concurrency", self.concurrency, MOST_REQUESTS),
            ("micro-batch", self.micro_batch, LONGEST_CONTEXT),
            ("block of the cache", self.block, LONGEST_CONTEXT),
            ("batch of prompts", self.prompt_batch, LONGEST_CONTEXT),
        ):
            if not 1 <= number <= most:
                raise InputError(f"{what} is {number}", hint=f"give a number from 1 to {most}")
        if not 0 <= self.live <= self.context:
            raise InputError(f"{self.live} live tokens do not fit a context of {self.context}", hint="raise --context")
        if not 0 <= self.memory_permille <= 1000:
            raise InputError(f"memory fraction of {self.memory_permille} thousandths", hint="give 1 to 1000")
        for name in (self.kv_type_k, self.kv_type_v):
            if name not in CACHE_TYPES:
                raise InputError(f"unknown type of the cache {name[:20]!r}", hint=f"one of {', '.join(CACHE_TYPES)}")
        return self


def cache_bytes(elements: int, kind: str) -> int:
    """Bytes of so many numbers of a type of the cache; blocks are whole."""
    if kind not in CACHE_TYPES:
        raise InputError(f"unknown type of the cache {kind[:20]!r}", hint=f"one of {', '.join(CACHE_TYPES)}")
    numbers, size = CACHE_TYPES[kind]
    return min(-(-elements // numbers) * size, MAX_QUANTITY)
