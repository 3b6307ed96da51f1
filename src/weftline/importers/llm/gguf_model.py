"""The header of a GGUF file -> a language model, with the bytes that its tensors really have.

In: a `GgufHeader`. Out: a `LanguageModel`. Simplified: what a layer caches follows from the keys and from which tensors
it has; where windows slide in a pattern that the file does not hold, it is the one that llama.cpp sets for the
architecture.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from weftline.arguments import shown
from weftline.errors import InputError
from weftline.importers.llm.gguf import GgufHeader, GgufTensor
from weftline.importers.llm.model import AttentionKind, LanguageModel, LlmLayer, LlmTensor, TensorPart

__all__ = ["GGUF_ARCHITECTURES", "model_from_gguf", "part_of"]

_MOST_LAYERS, _MOST_NUMBER = 2000, 2**40
_FILE_TYPES = (
    *("f32", "f16", "q4_0", "q4_1", "", "", "", "q8_0", "q5_0", "q5_1", "q2_k", "q3_k_s", "q3_k_m", "q3_k_l", "q4_k_s"),
    *("q4_k_m", "q5_k_s", "q5_k_m", "q6_k", "iq2_xxs", "iq2_xs", "q2_k_s", "iq3_xs", "iq3_xxs", "iq1_s", "iq4_nl"),
    *("iq3_s", "iq3_m", "iq2_s", "iq2_m", "iq4_xs", "iq1_m", "bf16", "", "", "", "tq1_0", "tq2_0", "mxfp4", "nvfp4"),
)
"""Names of `general.file_type`."""
GGUF_ARCHITECTURES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("mistral", "mixtral", "ministral"), "llama"),
        **dict.fromkeys(("kimi_k25", "glm4_moe_lite"), "deepseek2"),
        **{"qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe", "qwen3_next": "qwen3next", "qwen3_5": "qwen35"},
        **{"qwen3_5_moe": "qwen35moe", "gpt_oss": "gpt-oss", "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2"},
        **{
            "kimi_k2": "deepseek2",
            "kimi_k25": "deepseek2",
            "glm4_moe_lite": "deepseek2",
            "glm_moe_dsa": "glm-dsa",
            "glm4_moe": "glm4moe",
            "cohere": "command-r",
        },
        **{"qwen2_5_vl": "qwen2vl", "qwen3_vl": "qwen3vl", "qwen3_vl_moe": "qwen3vlmoe", "minimax_m2": "minimax-m2"},
        **{"olmo3": "olmo2", "granitemoe": "granite-moe", "ernie4_5": "ernie4_5", "ernie4_5_moe": "ernie4_5-moe"},
    }
)
"""Names of architectures in config.json -> their names in GGUF files, where these differ."""
_PATTERNS = {
    **{"gemma2": 2, "gemma3": 6, "gemma3n": 5, "gemma-embedding": 6, "gpt-oss": 2, "cohere2": 4, "llama4": 4},
    **{"olmo2": 4, "exaone4": 4, "exaone-moe": 4, "afmoe": 4},
}
"""Architecture -> every so many layers one looks back all the way, where the file does not say."""
_WINDOWS = {"gemma2": 4096, "llama4": 8192}
"""Architecture -> its window, where the file does not say."""
_NO_WINDOW = frozenset({"phi3", "phimoe", "llama", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "mistral3"})
"""Architectures whose windows llama.cpp leaves aside."""
_OTHER = re.compile(r"(v|mm|a)\.|mtmd\.|rope_")
"""Tensors of towers for pictures and sounds, and factors of rotations: kilobytes, on every device."""
_WIDE_NORM = re.compile(r"(attn_(post_|sub_)?norm|(post|pre|ffn)_\w*norm|layer_\w*(norm|scale))")
"""Norms of a whole layer; those of queries, keys and states belong to the attention."""


def part_of(name: str) -> TensorPart:  # noqa: PLR0911 (one for each part)
    """What a tensor is for, by its name in GGUF files."""
    if not name.startswith("blk."):
        inward = name.startswith(("token_", "position_embd", "per_layer_token_embd"))
        return TensorPart.EMBEDDING if inward else TensorPart.OUTPUT
    own = name.split(".", 2)[2] if name.count(".") > 1 else ""
    if own.startswith("nextn."):
        return TensorPart.OUTPUT
    if "_shexp" in own or "_chexp" in own:
        return TensorPart.SHARED
    if "_exps" in own:
        return TensorPart.EXPERTS
    if own.startswith(("ffn_gate_inp", "exp_probs_b", "ffn_exp_probs_b")):
        return TensorPart.ROUTER
    if _WIDE_NORM.match(own):
        return TensorPart.NORM
    return TensorPart.FFN if own.startswith("ffn_") else TensorPart.ATTENTION


def model_from_gguf(header: GgufHeader, *, name: str, source: str) -> LanguageModel:
    """The model that a header describes."""
    keys = _Keys(header, source)
    count = keys.whole("block_count", least=1, most=_MOST_LAYERS)
    further = keys.whole("nextn_predict_layers", default=0, most=count - 1)
    blocks: dict[int, dict[str, GgufTensor]] = defaultdict(dict)
    embedding: list[LlmTensor] = []
    output: list[LlmTensor] = []
    for tensor in header.tensors:
        found = re.match(r"blk\.(\d{1,5})\.(.+)", tensor.name)
        if found:
            blocks[int(found[1])][found[2]] = tensor
        elif not _OTHER.match(tensor.name):
            (embedding if part_of(tensor.name) is TensorPart.EMBEDDING else output).append(_tensor(tensor))
    missing = next((i for i in range(count) if i not in blocks), None)
    if missing is not None or max(blocks) >= count:
        what = f"has no tensors for layer {missing}" if missing is not None else f"has a layer {max(blocks)}"
        raise InputError(f"{what}, but {keys.architecture}.block_count is {count}", where=source)
    table = next((t for t in embedding if t.name == "token_embd.weight"), None)
    if table is None or len(table.shape) != 2:
        raise InputError("has no table token_embd.weight", where=source, hint="a language model has one")
    layers = [_layer(keys, i, blocks[i], count - further) for i in range(count)]
    kind = keys.header.values.get("general.file_type")
    return LanguageModel(
        name=name,
        architecture=keys.architecture,
        source=source,
        hidden=keys.whole("embedding_length", default=table.shape[0]),
        vocabulary=table.shape[1],
        context=keys.whole("context_length", default=0),
        layers=tuple(layers[: count - further]),
        embedding=tuple(embedding),
        output=tuple(output),
        tied=not any(tensor.name == "output.weight" for tensor in output),
        mtp=tuple(layers[count - further :]),
        quantisation=_FILE_TYPES[kind] if isinstance(kind, int) and 0 <= kind < len(_FILE_TYPES) else "",
        exact_bytes=True,
        notes=header.notes,
    )


def _tensor(tensor: GgufTensor) -> LlmTensor:
    return LlmTensor(tensor.name, part_of(tensor.name), tensor.shape, tensor.type, tensor.bytes)


class _Keys:
    """Keys of the architecture: one number for all layers, or one for each."""

    def __init__(self, header: GgufHeader, where: str) -> None:
        self.header, self.where = header, where
        architecture = header.values.get("general.architecture")
        if not isinstance(architecture, str) or not architecture:
            raise InputError("has no general.architecture", where=where, hint="give the first part of a split file")
        if architecture in ("clip", "mmproj") or header.values.get("general.type") not in (None, "model"):
            what = f"holds no language model but {header.values.get('general.type') or architecture!r}"
            raise InputError(what, where=where, hint="give the GGUF file of the model that it belongs to")
        self.architecture = architecture[:100]

    def whole(
        self, name: str, layer: int = 0, *, default: int | None = None, least: int = 0, most: int = _MOST_NUMBER
    ) -> int:
        """A whole number; of an array the one of this layer."""
        key = f"{self.architecture}.{name}"
        value: Any = self.header.values.get(key)
        if isinstance(value, tuple):
            value = value[layer] if layer < len(value) else None
        if isinstance(value, bool):
            value = int(value)
        if value is None and default is not None:
            return default
        if not isinstance(value, int) or not least <= value <= most:
            wrong = f"must be a whole number from {least} to {most}, not {shown(value)}"
            raise InputError(f"{key} {'is missing' if value is None else wrong}", where=self.where)
        return value

    def given(self, name: str) -> bool:
        """Is there such a key?"""
        return f"{self.architecture}.{name}" in self.header.values

    def listed(self, name: str) -> bool:
        """Is there such a key, with a value for each layer?"""
        return isinstance(self.header.values.get(f"{self.architecture}.{name}"), tuple)


def _slides(keys: _Keys, layer: int, layers: int) -> bool:
    """Has this layer a window?"""
    if keys.architecture in _NO_WINDOW:
        return False
    if keys.listed("attention.sliding_window_pattern"):
        return bool(keys.whole("attention.sliding_window_pattern", layer, default=0))
    period = keys.whole("attention.sliding_window_pattern", default=_PATTERNS.get(keys.architecture, 0))
    if keys.architecture == "exaone4" and layers < 64:
        return False  # only the large one has windows
    return period > 0 and (layer + 1) % period != 0


def _layer(keys: _Keys, index: int, tensors: dict[str, GgufTensor], layers: int) -> LlmLayer:
    def size(name: str, axis: int, default: int = 0) -> int:
        found = tensors.get(name)
        return found.shape[axis] if found and axis < len(found.shape) else default

    heads = keys.whole("attention.head_count", index, default=0, most=2**20)
    groups = keys.whole("attention.head_count_kv", index, default=heads, most=2**20)
    experts = size("ffn_down_exps.weight", 2)
    used = keys.whole("expert_used_count", index, default=0)
    made = tuple(_tensor(tensor) for tensor in tensors.values())
    attention, lengths, window = _attention(keys, index, tensors, layers, heads, groups)
    latent, looks = attention is AttentionKind.LATENT, bool(lengths[0])
    return LlmLayer(
        attention=attention,
        tensors=made,
        heads=heads if looks else 0,
        kv_heads=(1 if latent else groups) if looks else 0,
        key_length=lengths[0],
        value_length=lengths[1],
        latent_length=_latent_length(keys, index) if latent else 0,
        window=window,
        state_bytes=_state_bytes(keys, size) if _has_state(tensors) else 0,
        ffn=size("ffn_down.weight", 0),
        experts=experts,
        experts_used=min(used, experts),
        expert_ffn=size("ffn_down_exps.weight", 0),
        shared_ffn=size("ffn_down_shexp.weight", 0),
    )


def _has_state(tensors: dict[str, GgufTensor]) -> bool:
    return any(name.startswith(("ssm_", "shortconv.", "time_mix_")) for name in tensors)


def _latent_length(keys: _Keys, index: int) -> int:
    index_row = keys.whole("attention.indexer.key_length", index, default=0)
    return keys.whole("attention.kv_lora_rank", index) + keys.whole("rope.dimension_count", default=64) + index_row


def _attention(
    keys: _Keys, index: int, tensors: dict[str, GgufTensor], layers: int, heads: int, groups: int
) -> tuple[AttentionKind, tuple[int, int], int]:
    """How a layer looks back, the lengths of its keys and values, its window."""
    looks = any(name.startswith(("attn_output.", "attn_out.")) for name in tensors)
    if not looks or not heads:
        return (AttentionKind.RECURRENT if _has_state(tensors) else AttentionKind.NONE), (0, 0), 0
    plain = keys.whole("embedding_length", default=0) // heads
    if "attn_k_b.weight" in tensors:
        key = keys.whole("attention.key_length_mla", default=192)
        return AttentionKind.LATENT, (key, keys.whole("attention.value_length_mla", default=128)), 0
    key = keys.whole("attention.key_length", index, default=plain)
    value = keys.whole("attention.value_length", index, default=plain)
    window = keys.whole("attention.sliding_window", index, default=_WINDOWS.get(keys.architecture, 0))
    shared = keys.whole("attention.shared_kv_layers", default=0)
    if window and _slides(keys, index, layers):
        key = keys.whole("attention.key_length_swa", index, default=key)
        value = keys.whole("attention.value_length_swa", index, default=value)
        kind = AttentionKind.SLIDING
    else:
        kind, window = AttentionKind.FULL, 0
    if groups == 0 or layers - shared <= index < layers:
        return AttentionKind.NONE, (key, value), 0
    return kind, (key, value), window


def _state_bytes(keys: _Keys, size: Callable[..., int]) -> int:
    """Of one sequence, 32-bit, as llama.cpp keeps it: the state, and the last tokens of the convolution."""
    if keys.given("shortconv.l_cache"):
        return 4 * max(0, keys.whole("shortconv.l_cache") - 1) * keys.whole("embedding_length")
    if not keys.given("ssm.state_size"):
        width = keys.whole("wkv.head_size", default=0)
        return 4 * keys.whole("embedding_length") * (width + 2) if width else 0
    state, inner = keys.whole("ssm.state_size"), keys.whole("ssm.inner_size")
    kernel = keys.whole("ssm.conv_kernel", default=size("ssm_conv1d.weight", 0, 4))
    channels = inner + 2 * keys.whole("ssm.group_count", default=0) * state
    return 4 * (state * inner + max(0, kernel - 1) * channels)
