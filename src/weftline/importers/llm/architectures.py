"""What each architecture of Hugging Face means by the fields of its configuration.

In: `Fields`. Out: a `Body`: layers, style of tensors, tables. Simplified: windows that engines ignore (Mistral 7B v0.1,
Qwen 2, Phi 3) count as full attention.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from msgspec.structs import replace

from weftline.importers.llm.bodies import (
    Body,
    body_of,
    every,
    ffn_width,
    full_attention,
    full_layers,
    latent_attention,
    layer_count,
    sliding,
    sparse_layers,
)
from weftline.importers.llm.fields import Fields
from weftline.importers.llm.model import AttentionKind
from weftline.importers.llm.stack import LayerShape, LinearShape, MambaShape, TensorStyle

__all__ = ["ARCHITECTURES", "OTHER_KINDS", "llama_like"]


OTHER_KINDS = frozenset({"bert", "roberta", "clip", "vit", "whisper", "t5", "bart", "distilbert", "wav2vec2", "siglip"})


def _dense(style: TensorStyle, *, tied: bool = False) -> Callable[[Fields], Body]:
    """An architecture of equal, dense layers with full attention."""

    def read(fields: Fields) -> Body:
        layer = replace(full_attention(fields), ffn=ffn_width(fields))
        return body_of(fields, [layer] * layer_count(fields), style, tied=tied)

    return read


def _llama(fields: Fields) -> Body:
    bias = fields.flag("attention_bias")
    style = TensorStyle(query_bias=bias, output_bias=bias, ffn_bias=fields.flag("mlp_bias"))
    return _dense(style)(fields)


def llama_like(fields: Fields) -> Body:
    """An architecture that is not known: whatever its fields say, read as Llama's, Mixtral's or DeepSeek's."""
    if fields.has("kv_lora_rank"):
        return _deepseek(fields, score_bias=True)
    layer = full_attention(fields)
    experts = fields.experts("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", default=0)
    bias = fields.flag("attention_bias")
    style = TensorStyle(query_bias=bias, output_bias=bias)
    if not experts:
        return body_of(fields, [replace(layer, ffn=ffn_width(fields))] * layer_count(fields), style)
    return body_of(fields, sparse_layers(fields, layer, experts), style)


def _sparse(style: TensorStyle) -> Callable[[Fields], Body]:
    def read(fields: Fields) -> Body:
        experts = fields.experts("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
        return body_of(fields, sparse_layers(fields, full_attention(fields), experts), style)

    return read


_GEMMA_NORMS = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")


def _gemma(fields: Fields) -> Body:
    layer = replace(full_attention(fields, heads=16, length=256), ffn=ffn_width(fields))
    return body_of(fields, [layer] * layer_count(fields), TensorStyle(), tied=True)


def _gemma2(fields: Fields) -> Body:
    layer = replace(full_attention(fields, heads=8, kv_heads=4, length=256), ffn=ffn_width(fields))
    window = fields.tokens("sliding_window", default=4096)
    layers = [layer if full else sliding(layer, window) for full in full_layers(fields, every(2))]
    return body_of(fields, layers, TensorStyle(norms=_GEMMA_NORMS), tied=True)


def _gemma3(fields: Fields) -> Body:
    layer = replace(full_attention(fields, heads=8, kv_heads=4, length=256), ffn=ffn_width(fields))
    window = fields.tokens("sliding_window", default=4096)
    period = fields.layers("sliding_window_pattern", "_sliding_window_pattern", default=6)
    layers = [layer if full else sliding(layer, window) for full in full_layers(fields, every(period))]
    style = TensorStyle(norms=_GEMMA_NORMS, head_norms=True)
    return body_of(fields, layers, style, tied=True, vocabulary=fields.words("vocab_size", default=262_208))


def _gpt_oss(fields: Fields) -> Body:
    experts = fields.experts("num_local_experts", "num_experts", default=128)
    whole = sparse_layers(fields, full_attention(fields, heads=64, kv_heads=8, length=64), experts)
    window = fields.tokens("sliding_window", default=128)
    kinds = full_layers(fields, every(2))
    layers = [layer if full else sliding(layer, window) for layer, full in zip(whole, kinds, strict=True)]
    style = TensorStyle(
        query_bias=True,
        output_bias=True,
        sinks=True,
        router_bias=True,
        expert_bias=True,
        norms=("attn_norm", "post_attention_norm"),
    )
    return body_of(fields, layers, style)


def _deepseek(fields: Fields, *, score_bias: bool) -> Body:
    layers = sparse_layers(fields, latent_attention(fields), fields.experts("n_routed_experts", "num_experts"))
    further = fields.whole("num_nextn_predict_layers", default=0, most=16)
    return body_of(fields, layers, TensorStyle(score_bias=score_bias), mtp=(layers[-1],) * further)


_GLM_NORMS = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")


def _indexed(fields: Fields) -> Body:
    """DeepSeek V3.2 and GLM 5: an indexer chooses the tokens that are looked at."""
    latent = latent_attention(fields).latent
    assert latent is not None
    many = 32 if fields.text("model_type").startswith("glm") else 64
    heads, length = fields.whole("index_n_heads", default=many), fields.whole("index_head_dim", default=128)
    layer = replace(latent_attention(fields), latent=replace(latent, index_heads=heads, index_length=length))
    layers = sparse_layers(fields, layer, fields.experts("n_routed_experts"))
    further = fields.whole("num_nextn_predict_layers", default=0, most=16)
    style = TensorStyle(score_bias=True)
    return body_of(fields, layers, style, mtp=(layers[-1],) * further)


def _gemma4(fields: Fields) -> Body:
    small = replace(full_attention(fields, heads=8, kv_heads=4, length=256), ffn=ffn_width(fields))
    length = fields.whole("global_head_dim", default=512, least=1)
    groups = fields.whole("num_global_key_value_heads", default=small.kv_heads, least=1)
    same = fields.flag("attention_k_eq_v")
    wide = replace(small, key_length=length, value_length=length, shares_values=same)
    wide = replace(wide, kv_heads=groups if same else small.kv_heads)
    small = sliding(small, fields.tokens("sliding_window", default=512))
    if fields.flag("enable_moe_block"):
        experts, width = fields.experts("num_experts"), fields.whole("moe_intermediate_size", least=1)
        used = min(fields.experts("top_k_experts", "num_experts_per_tok"), experts)
        small = replace(small, experts=experts, experts_used=used, expert_ffn=width)
        wide = replace(wide, experts=experts, experts_used=used, expert_ffn=width)
    layers = [wide if full else small for full in full_layers(fields, every(6))]
    notes: tuple[str, ...] = ()
    if fields.whole("hidden_size_per_layer_input", default=0) or fields.whole("num_kv_shared_layers", default=0):
        notes = ("tables of inputs for each layer, and caches that layers share, are not counted: give the GGUF file",)
    further = ("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2")
    style = TensorStyle(norms=_GEMMA_NORMS, head_norms=True, scales=True, expert_norms=further)
    return body_of(fields, layers, style, tied=True, notes=notes)


def _qwen_hybrid(fields: Fields, *, split_gates: bool = True) -> Body:
    """Qwen3-Next, 3.5, 3.6: three layers with a state, then one that looks back."""
    full = full_attention(fields, kv_heads=2, length=256)
    linear = LinearShape(
        key_heads=fields.whole("linear_num_key_heads", default=16, least=1),
        value_heads=fields.whole("linear_num_value_heads", default=32, least=1),
        key_length=fields.whole("linear_key_head_dim", default=128, least=1),
        value_length=fields.whole("linear_value_head_dim", default=128, least=1),
        kernel=fields.whole("linear_conv_kernel_dim", default=4, least=1, most=1024),
        split_gates=split_gates,
    )
    state = LayerShape(AttentionKind.RECURRENT, linear=linear)
    experts = fields.experts("num_experts", default=0)
    count = layer_count(fields)
    if experts:
        looking, passing = (sparse_layers(fields, layer, experts) for layer in (full, state))
    else:
        looking, passing = ([replace(layer, ffn=ffn_width(fields))] * count for layer in (full, state))
    kinds = full_layers(fields, every(fields.layers("full_attention_interval", default=4, least=1)))
    layers = [one if kind else other for one, other, kind in zip(looking, passing, kinds, strict=True)]
    style = TensorStyle(norms=("attn_norm", "post_attention_norm"), head_norms=True, gated_query=True, shared_gate=True)
    further = fields.whole("mtp_num_hidden_layers", default=0, most=16)
    return body_of(fields, layers, style, mtp=(looking[-1],) * further)


def _glm4(fields: Fields) -> Body:
    style = TensorStyle(query_bias=fields.flag("attention_bias"), fused_gate=True, norms=_GLM_NORMS)
    return _dense(style)(fields)


def _glm4_moe(fields: Fields) -> Body:
    layers = sparse_layers(fields, full_attention(fields), fields.experts("n_routed_experts"))
    style = TensorStyle(
        query_bias=fields.flag("attention_bias", default=True),
        head_norms=fields.flag("use_qk_norm"),
        score_bias=True,
        norms=("attn_norm", "post_attention_norm"),
    )
    further = fields.whole("num_nextn_predict_layers", default=0, most=16)
    return body_of(fields, layers, style, mtp=(layers[-1],) * further)


def _windows(style: TensorStyle, period: int, window: int, *, tied: bool = False) -> Callable[[Fields], Body]:
    """Dense layers, of which each `period`-th looks back all the way."""

    def read(fields: Fields) -> Body:
        layer = replace(full_attention(fields), ffn=ffn_width(fields))
        slides = fields.tokens("sliding_window", default=window)
        every_so_many = fields.layers("sliding_window_pattern", default=period)
        layers = [layer if full else sliding(layer, slides) for full in full_layers(fields, every(every_so_many))]
        return body_of(fields, layers, style, tied=tied)

    return read


def _cohere(fields: Fields) -> Body:
    style = TensorStyle(norms=("attn_norm",), per_head_norms=fields.flag("use_qk_norm"))
    return _dense(style, tied=True)(fields)


def _starcoder2(fields: Fields) -> Body:
    bias = fields.flag("use_bias", default=True)
    style = TensorStyle(query_bias=bias, output_bias=bias, ffn_bias=bias, norm_bias=True, gate=False)
    return _dense(style, tied=True)(fields)


def _gpt2(fields: Fields) -> Body:
    hidden = fields.whole("n_embd", "hidden_size", least=1)
    layer = replace(full_attention(fields), ffn=fields.whole("n_inner", default=4 * hidden, least=1))
    style = TensorStyle(
        query_bias=True, output_bias=True, ffn_bias=True, norm_bias=True, gate=False, fused_attention=True
    )
    rows = fields.words("n_positions", "n_ctx", "max_position_embeddings", default=1024)
    return body_of(fields, [layer] * layer_count(fields), style, tied=True, positions=rows)


def _llama4(fields: Fields) -> Body:
    layer, count = full_attention(fields), layer_count(fields)
    experts, width = fields.experts("num_local_experts"), fields.whole("intermediate_size", least=1)
    used = min(fields.experts("num_experts_per_tok", default=1), experts)
    step = fields.layers("interleave_moe_layer_step", default=1, least=1)
    dense = replace(layer, ffn=fields.whole("intermediate_size_mlp", default=2 * width, least=1))
    sparse = replace(layer, experts=experts, experts_used=used, expert_ffn=width, shared_ffn=width)
    chunk = fields.tokens("attention_chunk_size", default=8192)
    kinds = full_layers(fields, every(fields.layers("no_rope_layer_interval", default=4, least=1)))
    whole = [dense if (i + 1) % step else sparse for i in range(count)]
    layers = [one if full else sliding(one, chunk) for one, full in zip(whole, kinds, strict=True)]
    return body_of(fields, layers, TensorStyle())


def _mistral4(fields: Fields) -> Body:
    """Mistral Small 4 and Large 3: latent attention and experts."""
    return _deepseek(fields, score_bias=False) if fields.has("kv_lora_rank") else _dense(TensorStyle())(fields)


def _nemotron_h(fields: Fields) -> Body:
    """Layers of one thing each: a state (M), experts (E), a feed-forward (-), or attention (*)."""
    pattern, count = fields.text("hybrid_override_pattern", most=4000), layer_count(fields)
    if len(pattern) != count or set(pattern) - set("ME-*"):
        raise fields.wrong("hybrid_override_pattern", f"must be {count} letters of M, E, - and *")
    mamba = MambaShape(
        heads=fields.whole("mamba_num_heads", least=1),
        head_length=fields.whole("mamba_head_dim", least=1),
        state=fields.whole("ssm_state_size", default=128, least=1),
        groups=fields.whole("n_groups", default=8, least=1),
        kernel=fields.whole("conv_kernel", default=4, least=1, most=1024),
    )
    kinds = {"M": LayerShape(AttentionKind.RECURRENT, mamba=mamba), "*": full_attention(fields)}
    if "-" in pattern:
        kinds["-"] = LayerShape(AttentionKind.NONE, ffn=ffn_width(fields))
    if "E" in pattern:
        experts = fields.experts("n_routed_experts")
        kinds["E"] = LayerShape(
            AttentionKind.NONE,
            experts=experts,
            experts_used=min(fields.experts("num_experts_per_tok"), experts),
            expert_ffn=fields.whole("moe_intermediate_size", least=1),
            shared_ffn=fields.whole("moe_shared_expert_intermediate_size", default=0),
        )
    style = TensorStyle(norms=("attn_norm",), gate=False, score_bias=True)
    return body_of(fields, [kinds[letter] for letter in pattern], style)


def _chatglm(fields: Fields) -> Body:
    groups = fields.whole("multi_query_group_num", default=2, least=1)
    style = TensorStyle(query_bias=fields.flag("add_qkv_bias", default=True), fused_attention=True, fused_gate=True)
    layer = replace(full_attention(fields, kv_heads=groups, length=128), ffn=ffn_width(fields))
    return body_of(fields, [layer] * layer_count(fields), style)


_PARTS = TensorStyle(norms=("post_attention_norm", "post_ffw_norm"), wide_norms=True)
ARCHITECTURES: Mapping[str, Callable[[Fields], Body]] = MappingProxyType(
    {
        "llama": _llama,
        "granite": _llama,
        "smollm3": _llama,
        "mistral": _dense(TensorStyle()),
        "ministral3": _dense(TensorStyle()),
        "mistral4": _mistral4,
        "mixtral": _sparse(TensorStyle()),
        "qwen2": _dense(TensorStyle(query_bias=True)),
        "qwen2_5_vl": _dense(TensorStyle(query_bias=True)),
        "qwen2_moe": _sparse(TensorStyle(query_bias=True, shared_gate=True)),
        "qwen3": _dense(TensorStyle(head_norms=True)),
        "qwen3_vl": _dense(TensorStyle(head_norms=True)),
        "qwen3_moe": _sparse(TensorStyle(head_norms=True)),
        "qwen3_vl_moe": _sparse(TensorStyle(head_norms=True)),
        "qwen3_next": lambda fields: _qwen_hybrid(fields, split_gates=False),
        "qwen3_5": _qwen_hybrid,
        "qwen3_5_moe": _qwen_hybrid,
        "phi3": _dense(TensorStyle(fused_attention=True, fused_gate=True)),
        "gemma": _gemma,
        "gemma2": _gemma2,
        "gemma3": _gemma3,
        "gemma4": _gemma4,
        "gpt_oss": _gpt_oss,
        "deepseek_v2": lambda fields: _deepseek(fields, score_bias=False),
        "deepseek_v3": lambda fields: _deepseek(fields, score_bias=True),
        "deepseek_v32": _indexed,
        "kimi_k2": lambda fields: _deepseek(fields, score_bias=True),
        "kimi_k25": lambda fields: _deepseek(fields, score_bias=True),
        "glm4": _glm4,
        "glm4_moe": _glm4_moe,
        "glm4_moe_lite": lambda fields: _deepseek(fields, score_bias=True),
        "glm_moe_dsa": _indexed,
        "cohere": _cohere,
        "cohere2": _windows(TensorStyle(norms=("attn_norm",)), 4, 4096, tied=True),
        "chatglm": _chatglm,
        "ernie4_5_moe": _sparse(TensorStyle(score_bias=True)),
        "olmo2": _dense(_PARTS),
        "olmo3": _windows(_PARTS, 4, 4096),
        "starcoder2": _starcoder2,
        "gpt2": _gpt2,
        "llama4": _llama4,
        "minimax_m2": _sparse(TensorStyle(wide_norms=True, score_bias=True)),
        "nemotron_h": _nemotron_h,
        "seed_oss": _dense(TensorStyle(query_bias=True, norms=("attn_norm", "post_attention_norm"))),
        "olmoe": _sparse(TensorStyle(wide_norms=True)),
    }
)
"""By model_type, without "_text" at its end."""
