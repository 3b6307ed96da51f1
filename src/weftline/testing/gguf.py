"""GGUF files that are all header: what llama.cpp needs to lay out a model, with a hole instead of weights.

In: a `LanguageModel`, as the readers make it. Out: a file. Simplified: weights are zeros that take no room on disk; the
vocabulary is bytes and numbered words; where a model has bf16 norms it becomes one of f16 with f32 norms.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from weftline.importers.llm import (
    AttentionKind,
    LanguageModel,
    LlmLayer,
    LlmTensor,
    TensorPart,
    number_type,
    requantised,
)
from weftline.importers.llm.gguf_model import GGUF_ARCHITECTURES

__all__ = ["gguf_header", "write_gguf_header"]

_ALIGNMENT = 32
_WITH_MTP = ("qwen35", "qwen35moe", "glm4moe", "glm-dsa")
_FURTHER: dict[str, dict[str, int | float]] = {
    "gemma2": {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    "cohere2": {"logit_scale": 0.0625},
    "ernie4_5-moe": {"interleave_moe_layer_step": 1},
    "command-r": {"logit_scale": 0.0625},
    "granite": {"logit_scale": 8.0, "residual_scale": 1.0, "embedding_scale": 1.0, "attention.scale": 1.0},
}
"""Keys that llama.cpp asks for, and that say nothing about sizes."""
_BYTE_TOKENS = 259
"""Unknown, begin, end, and one for each byte."""
Value = int | float | str | bool | list[int] | list[bool] | list[float] | list[str]


def write_gguf_header(path: Path | str, model: LanguageModel, *, full_size: bool = True, words: bool = True) -> None:
    """Write the header; with `full_size` the file is as long as the real one, and takes no room for it.

    Without `words` there is no vocabulary: llama.cpp lays such a model out, but cannot talk to it.
    """
    head, data = gguf_header(model, words=words)
    with Path(path).open("wb") as file:
        file.write(head)
        if full_size:
            file.truncate(len(head) + data)


def gguf_header(model: LanguageModel, *, words: bool = True) -> tuple[bytes, int]:
    """The header, padded, and how many bytes of data follow it."""
    if any(len(tensor.shape) == 1 and tensor.type != "f32" for tensor in model.tensors):
        model = requantised(model, "f16")
    architecture = GGUF_ARCHITECTURES.get(model.architecture, model.architecture)
    if architecture == "nemotron_h" and any(layer.experts for layer in model.layers):
        architecture = "nemotron_h_moe"
    layers = (*model.layers, *(model.mtp if architecture in _WITH_MTP else ()))
    tensors = [*model.embedding, *model.output, *(tensor for layer in layers for tensor in layer.tensors)]
    if architecture == "gemma4":
        half = max(layer.key_length for layer in layers) // 2
        tensors.append(LlmTensor("rope_freqs.weight", TensorPart.NORM, (half,), "f32", 4 * half))
    values: dict[str, Value] = {"general.architecture": architecture, "general.name": "a header"}
    values["general.quantization_version"] = 2
    values |= {f"{architecture}.{key}": value for key, value in _keys(model, layers, architecture)}
    values |= dict(_tokenizer(model.vocabulary if words else 0))
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(values))]
    parts += [_text(key) + _value(value) for key, value in values.items()]
    offset = 0
    for tensor in tensors:
        parts.append(_tensor(tensor, offset))
        offset += -(-tensor.bytes // _ALIGNMENT) * _ALIGNMENT
    head = b"".join(parts)
    return head + bytes(-len(head) % _ALIGNMENT), offset


def _tensor(tensor: LlmTensor, offset: int) -> bytes:
    count = len(tensor.shape)
    shape = struct.pack(f"<I{count}Q", count, *tensor.shape)
    return _text(tensor.name) + shape + struct.pack("<IQ", number_type(tensor.type).id, offset)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Value) -> bytes:
    if isinstance(value, list):
        kind = _kind(value[0]) if value else 4
        kind = 5 if kind == 4 else kind  # rows of integers are signed, as llama.cpp wants them
        head = struct.pack("<IIQ", 9, kind, len(value))
        return head + b"".join(_text(one) if isinstance(one, str) else struct.pack(_FORMS[kind], one) for one in value)
    kind = _kind(value)
    packed = _text(value) if isinstance(value, str) else struct.pack(_FORMS[kind], value)
    return struct.pack("<I", kind) + packed


_FORMS = {4: "<I", 5: "<i", 6: "<f", 7: "<?"}


def _kind(value: object) -> int:
    if isinstance(value, str):
        return 8
    if isinstance(value, bool):
        return 7
    return 6 if isinstance(value, float) else 4


def _one_or_each(values: Iterable[int]) -> int | list[int]:
    """One number where all are the same."""
    found = list(values)
    return found[0] if len(set(found)) == 1 else found


def _keys(model: LanguageModel, layers: tuple[LlmLayer, ...], architecture: str) -> Iterator[tuple[str, Value]]:
    """Keys of the architecture, without its name."""
    yield "block_count", len(layers)
    yield "context_length", model.context or 4096
    yield "embedding_length", model.hidden
    yield "vocab_size", model.vocabulary
    yield "feed_forward_length", _one_or_each(layer.ffn or layer.expert_ffn for layer in layers)
    yield "attention.layer_norm_rms_epsilon", 1e-6
    yield "attention.layer_norm_epsilon", 1e-6
    yield "rope.freq_base", 1e6
    if len(layers) > len(model.layers):
        yield "nextn_predict_layers", len(layers) - len(model.layers)
    yield from _attention_keys(layers, architecture)
    yield from _expert_keys(layers, architecture)
    states = [layer for layer in layers if layer.attention is AttentionKind.RECURRENT]
    if states:
        yield from _state_keys(states[0], layers)


def _attention_keys(layers: tuple[LlmLayer, ...], architecture: str) -> Iterator[tuple[str, Value]]:
    looking = [layer for layer in layers if layer.heads] or list(layers)
    full = next((layer for layer in looking if layer.attention is not AttentionKind.SLIDING), looking[0])
    sliding = [layer for layer in looking if layer.attention is AttentionKind.SLIDING]
    yield "attention.head_count", full.heads
    lone = architecture.startswith("nemotron_h")  # there a layer without heads is told by 0
    others = 0 if lone else full.kv_heads
    yield "attention.head_count_kv", _one_or_each(layer.kv_heads if layer.heads else others for layer in layers)
    if full.attention is AttentionKind.LATENT:
        yield from _latent_keys(full)
    else:
        yield "attention.key_length", full.key_length
        yield "attention.value_length", full.value_length
        yield "rope.dimension_count", full.key_length
    if architecture in ("qwen35", "qwen35moe"):
        yield "rope.dimension_sections", [11, 11, 10, 0]
    if sliding:
        yield "attention.sliding_window", sliding[0].window
    if architecture == "gemma4":
        yield "attention.sliding_window_pattern", [layer.attention is AttentionKind.SLIDING for layer in layers]
        yield "attention.key_length_swa", sliding[0].key_length
        yield "attention.value_length_swa", sliding[0].value_length
        yield "embedding_length_per_layer_input", 0
        yield "rope.dimension_count_swa", sliding[0].key_length
    yield from _FURTHER.get(architecture, {}).items()


def _shapes(layer: LlmLayer) -> dict[str, tuple[int, ...]]:
    return {tensor.name.split(".", 2)[2]: tensor.shape for tensor in layer.tensors}


def _latent_keys(layer: LlmLayer) -> Iterator[tuple[str, Value]]:
    shapes = _shapes(layer)
    row = shapes["attn_kv_a_norm.weight"][0]
    yield "attention.kv_lora_rank", row
    if "attn_q_a.weight" in shapes:
        yield "attention.q_lora_rank", shapes["attn_q_a.weight"][1]
    yield "attention.key_length", layer.latent_length - shapes.get("indexer.k_norm.weight", (0,))[0]
    yield "attention.value_length", row
    yield "attention.key_length_mla", layer.key_length
    yield "attention.value_length_mla", layer.value_length
    yield "rope.dimension_count", layer.latent_length - row - shapes.get("indexer.k_norm.weight", (0,))[0]
    if "indexer.k_norm.weight" in shapes:
        yield "attention.indexer.head_count", shapes["indexer.proj.weight"][1]
        yield "attention.indexer.key_length", shapes["indexer.k_norm.weight"][0]
        yield "attention.indexer.top_k", 2048


def _expert_keys(layers: tuple[LlmLayer, ...], architecture: str) -> Iterator[tuple[str, Value]]:
    sparse = next((layer for layer in layers if layer.experts), None)
    if sparse is None:
        return
    yield "expert_count", sparse.experts
    yield "expert_used_count", sparse.experts_used
    yield "expert_feed_forward_length", sparse.expert_ffn
    yield "leading_dense_block_count", next(i for i, layer in enumerate(layers) if layer.experts)
    if architecture == "llama4":
        yield "interleave_moe_layer_step", 1 + next(i for i, layer in enumerate(layers) if layer.experts)
    if sparse.shared_ffn:
        yield "expert_shared_feed_forward_length", sparse.shared_ffn
        yield "expert_shared_count", max(1, sparse.shared_ffn // sparse.expert_ffn)
    if architecture in ("deepseek2", "glm-dsa", "glm4moe", "minimax-m2"):
        yield "expert_weights_scale", 2.5
        yield "expert_weights_norm", True
        yield "expert_gating_func", 2


def _state_keys(layer: LlmLayer, layers: tuple[LlmLayer, ...]) -> Iterator[tuple[str, Value]]:
    shapes = _shapes(layer)
    inner, ranks = shapes["ssm_out.weight"][0], shapes["ssm_a"][-1]
    kernel, channels = shapes["ssm_conv1d.weight"]
    groups = shapes["ssm_norm.weight"][1] if len(shapes["ssm_norm.weight"]) > 1 else 0
    state = (channels - inner) // (2 * groups) if groups else shapes["ssm_norm.weight"][0]
    yield "ssm.conv_kernel", kernel
    yield "ssm.inner_size", inner
    yield "ssm.state_size", state
    yield "ssm.time_step_rank", ranks
    yield "ssm.group_count", (channels - inner) // (2 * state)
    if not groups:
        yield "full_attention_interval", 1 + next(i for i, one in enumerate(layers) if one.heads)


def _tokenizer(count: int) -> Iterator[tuple[str, Value]]:
    """A vocabulary of this size: none, where it is too small for all bytes."""
    if count < _BYTE_TOKENS:
        yield "tokenizer.ggml.model", "no_vocab"
        return
    words = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    words += [f"\N{LOWER ONE EIGHTH BLOCK}w{i}" for i in range(count - len(words))]
    yield "tokenizer.ggml.model", "llama"
    yield "tokenizer.ggml.tokens", words
    yield "tokenizer.ggml.scores", [0.0] * 3 + [-float(i) for i in range(count - 3)]
    yield "tokenizer.ggml.token_type", [2, 3, 3] + [6] * 256 + [1] * (count - _BYTE_TOKENS)
    yield "tokenizer.ggml.bos_token_id", 1
    yield "tokenizer.ggml.eos_token_id", 2
    yield "tokenizer.ggml.unknown_token_id", 0
