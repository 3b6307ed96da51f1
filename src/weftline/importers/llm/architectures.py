"""What each architecture of Hugging Face means by the fields of its configuration.

In: `Fields`. Out: a `Body`: layers, style of tensors, tables. Simplified: windows that engines ignore (Mistral 7B v0.1,
Qwen 2, Phi 3) count as full attention.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from weftline.importers.llm.fields import Fields
from weftline.importers.llm.model import AttentionKind
from weftline.importers.llm.stack import LatentShape, LayerShape, TensorStyle

__all__ = ["ARCHITECTURES", "OTHER_KINDS", "Body", "llama_like"]


class Body(msgspec.Struct, frozen=True):
    """What an architecture makes of a configuration."""

    hidden: int
    vocabulary: int
    layers: tuple[LayerShape, ...]
    style: TensorStyle = TensorStyle()
    tied: bool = False
    """Where the configuration does not say."""
    mtp: tuple[LayerShape, ...] = ()
    positions: int = 0
    notes: tuple[str, ...] = ()


OTHER_KINDS = frozenset({"bert", "roberta", "clip", "vit", "whisper", "t5", "bart", "distilbert", "wav2vec2", "siglip"})


def _attention(fields: Fields, *, heads: int | None = None, kv_heads: int | None = None, length: int = 0) -> LayerShape:
    """Full attention by the usual fields; the arguments stand in for fields that are missing."""
    hidden = fields.whole("hidden_size", "n_embd", least=1)
    count = fields.whole("num_attention_heads", "n_head", default=heads, least=1)
    groups = fields.whole("num_key_value_heads", "num_kv_heads", default=kv_heads or count, least=1)
    size = fields.whole("head_dim", default=length or max(1, hidden // count), least=1)
    return LayerShape(AttentionKind.FULL, heads=count, kv_heads=groups, key_length=size, value_length=size)


def _body(fields: Fields, layers: list[LayerShape], style: TensorStyle, **more: object) -> Body:
    hidden = fields.whole("hidden_size", "n_embd", least=1)
    words = more.pop("vocabulary", None) or fields.words("vocab_size")
    return Body(hidden=hidden, vocabulary=words, layers=tuple(layers), style=style, **more)  # type: ignore[arg-type]


def _count(fields: Fields) -> int:
    return fields.layers("num_hidden_layers", "n_layer", least=1)


def _ffn(fields: Fields) -> int:
    return fields.whole("intermediate_size", "ffn_hidden_size", "n_inner", least=1)


def _dense(style: TensorStyle, *, tied: bool = False) -> Callable[[Fields], Body]:
    """An architecture of equal, dense layers with full attention."""

    def read(fields: Fields) -> Body:
        layer = replace(_attention(fields), ffn=_ffn(fields))
        return _body(fields, [layer] * _count(fields), style, tied=tied)

    return read


def _llama(fields: Fields) -> Body:
    bias = fields.flag("attention_bias")
    style = TensorStyle(query_bias=bias, output_bias=bias, ffn_bias=fields.flag("mlp_bias"))
    return _dense(style)(fields)


def llama_like(fields: Fields) -> Body:
    """An architecture that is not known: whatever its fields say, read as Llama's or Mixtral's."""
    layer = _attention(fields)
    experts = fields.experts("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", default=0)
    bias = fields.flag("attention_bias")
    style = TensorStyle(query_bias=bias, output_bias=bias)
    if not experts:
        return _body(fields, [replace(layer, ffn=_ffn(fields))] * _count(fields), style)
    return _body(fields, _sparse_layers(fields, layer, experts), style)


def _sparse_layers(fields: Fields, layer: LayerShape, experts: int) -> list[LayerShape]:
    """Layers with experts, and those that stay dense by the fields that architectures use for that."""
    width = fields.whole("moe_intermediate_size", "intermediate_size", least=1)
    shared = fields.whole("shared_expert_intermediate_size", default=0)
    many = fields.whole("n_shared_experts", "num_shared_experts", "num_shared_expert", default=0, most=1024)
    used = fields.experts("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_topk", "moe_k")
    sparse = replace(
        layer, experts=experts, experts_used=min(used, experts), expert_ffn=width, shared_ffn=shared or many * width
    )
    first = fields.layers("first_k_dense_replace", default=0)
    step = fields.layers("decoder_sparse_step", "moe_layer_freq", default=1, least=1)
    plain = set(fields.numbers("mlp_only_layers"))
    return [
        replace(layer, ffn=_ffn(fields)) if i < first or i in plain or (i + 1) % step else sparse
        for i in range(_count(fields))
    ]


def _sparse(style: TensorStyle) -> Callable[[Fields], Body]:
    def read(fields: Fields) -> Body:
        experts = fields.experts("num_local_experts", "num_experts", "n_routed_experts")
        return _body(fields, _sparse_layers(fields, _attention(fields), experts), style)

    return read


def _kinds(fields: Fields, default: Callable[[int], bool]) -> list[bool]:
    """Which layers look back all the way: by `layer_types`, else as the architecture does."""
    count, told = _count(fields), fields.texts("layer_types")
    if told and len(told) != count:
        raise fields.wrong("layer_types", f"has {len(told)} entries for {count} layers")
    return [kind == "full_attention" for kind in told] if told else [default(i) for i in range(count)]


def _every(period: int) -> Callable[[int], bool]:
    """Each `period`-th layer is full."""
    return lambda i: period > 0 and (i + 1) % period == 0


def _sliding(layer: LayerShape, window: int) -> LayerShape:
    return replace(layer, attention=AttentionKind.SLIDING, window=window) if window else layer


_GEMMA_NORMS = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")


def _gemma(fields: Fields) -> Body:
    layer = replace(_attention(fields, heads=16, length=256), ffn=_ffn(fields))
    return _body(fields, [layer] * _count(fields), TensorStyle(), tied=True)


def _gemma2(fields: Fields) -> Body:
    layer = replace(_attention(fields, heads=8, kv_heads=4, length=256), ffn=_ffn(fields))
    window = fields.tokens("sliding_window", default=4096)
    layers = [layer if full else _sliding(layer, window) for full in _kinds(fields, _every(2))]
    return _body(fields, layers, TensorStyle(norms=_GEMMA_NORMS), tied=True)


def _gemma3(fields: Fields) -> Body:
    layer = replace(_attention(fields, heads=8, kv_heads=4, length=256), ffn=_ffn(fields))
    window = fields.tokens("sliding_window", default=4096)
    period = fields.layers("sliding_window_pattern", "_sliding_window_pattern", default=6)
    layers = [layer if full else _sliding(layer, window) for full in _kinds(fields, _every(period))]
    style = TensorStyle(norms=_GEMMA_NORMS, head_norms=True)
    return _body(fields, layers, style, tied=True, vocabulary=fields.words("vocab_size", default=262_208))


def _gpt_oss(fields: Fields) -> Body:
    experts = fields.experts("num_local_experts", "num_experts", default=128)
    whole = _sparse_layers(fields, _attention(fields, heads=64, kv_heads=8, length=64), experts)
    window = fields.tokens("sliding_window", default=128)
    kinds = _kinds(fields, _every(2))
    layers = [layer if full else _sliding(layer, window) for layer, full in zip(whole, kinds, strict=True)]
    style = TensorStyle(
        query_bias=True,
        output_bias=True,
        sinks=True,
        router_bias=True,
        expert_bias=True,
        norms=("attn_norm", "post_attention_norm"),
    )
    return _body(fields, layers, style)


def _latent(fields: Fields) -> LayerShape:
    heads = fields.whole("num_attention_heads", least=1)
    latent = LatentShape(
        query_rank=fields.whole("q_lora_rank", default=0),
        row=fields.whole("kv_lora_rank", least=1),
        rotary=fields.whole("qk_rope_head_dim", default=64),
        plain=fields.whole("qk_nope_head_dim", default=128, least=1),
        value=fields.whole("v_head_dim", default=128, least=1),
        index_heads=fields.whole("index_n_heads", default=0),
        index_length=fields.whole("index_head_dim", default=0),
    )
    key = latent.plain + latent.rotary
    return LayerShape(
        AttentionKind.LATENT, heads=heads, kv_heads=1, key_length=key, value_length=latent.value, latent=latent
    )


def _deepseek(fields: Fields, *, score_bias: bool) -> Body:
    layers = _sparse_layers(fields, _latent(fields), fields.experts("n_routed_experts", "num_experts"))
    further = fields.whole("num_nextn_predict_layers", default=0, most=16)
    return _body(fields, layers, TensorStyle(score_bias=score_bias), mtp=(layers[-1],) * further)


_WITHOUT_SECOND = ("attn_norm",)
ARCHITECTURES: Mapping[str, Callable[[Fields], Body]] = MappingProxyType(
    {
        "llama": _llama,
        "mistral": _dense(TensorStyle()),
        "ministral": _dense(TensorStyle()),
        "mixtral": _sparse(TensorStyle()),
        "qwen2": _dense(TensorStyle(query_bias=True)),
        "qwen2_5_vl": _dense(TensorStyle(query_bias=True)),
        "qwen2_moe": _sparse(TensorStyle(query_bias=True, shared_gate=True)),
        "qwen3": _dense(TensorStyle(head_norms=True)),
        "qwen3_vl": _dense(TensorStyle(head_norms=True)),
        "qwen3_moe": _sparse(TensorStyle(head_norms=True)),
        "qwen3_vl_moe": _sparse(TensorStyle(head_norms=True)),
        "phi3": _dense(TensorStyle(fused_attention=True, fused_gate=True)),
        "gemma": _gemma,
        "gemma2": _gemma2,
        "gemma3": _gemma3,
        "gpt_oss": _gpt_oss,
        "deepseek_v2": lambda fields: _deepseek(fields, score_bias=False),
        "deepseek_v3": lambda fields: _deepseek(fields, score_bias=True),
        "kimi_k2": lambda fields: _deepseek(fields, score_bias=True),
        "granite": _llama,
    }
)
"""By model_type, without "_text" at its end."""
