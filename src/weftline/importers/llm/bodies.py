"""What architectures share: how fields of a configuration become layers.

In: `Fields`. Out: pieces of a `Body`. Simplified: field names of all architectures are tried, in the order of how often
they are met.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from weftline.importers.llm.fields import Fields
from weftline.importers.llm.model import AttentionKind
from weftline.importers.llm.stack import LatentShape, LayerShape, TensorStyle

__all__ = [
    "Body",
    "body_of",
    "every",
    "ffn_width",
    "full_attention",
    "full_layers",
    "latent_attention",
    "layer_count",
    "sliding",
    "sparse_layers",
]


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


def full_attention(
    fields: Fields, *, heads: int | None = None, kv_heads: int | None = None, length: int = 0
) -> LayerShape:
    """Full attention by the usual fields; the arguments stand in for fields that are missing."""
    hidden = fields.whole("hidden_size", "n_embd", least=1)
    count = fields.whole("num_attention_heads", "n_head", default=heads, least=1)
    groups = fields.whole("num_key_value_heads", "num_kv_heads", default=kv_heads or count, least=1)
    size = fields.whole("head_dim", "kv_channels", default=length or max(1, hidden // count), least=1)
    return LayerShape(AttentionKind.FULL, heads=count, kv_heads=groups, key_length=size, value_length=size)


def body_of(fields: Fields, layers: list[LayerShape], style: TensorStyle, **more: object) -> Body:
    """The body of these layers, with the sizes that every configuration has."""
    hidden = fields.whole("hidden_size", "n_embd", least=1)
    words = more.pop("vocabulary", None) or fields.words("vocab_size", "padded_vocab_size")
    return Body(hidden=hidden, vocabulary=words, layers=tuple(layers), style=style, **more)  # type: ignore[arg-type]


def layer_count(fields: Fields) -> int:
    """How many layers there are."""
    return fields.layers("num_hidden_layers", "n_layer", "num_layers", least=1)


def ffn_width(fields: Fields) -> int:
    """The width of the dense feed-forward."""
    return fields.whole("intermediate_size", "ffn_hidden_size", "n_inner", least=1)


_SHARED_COUNTS = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")


def sparse_layers(fields: Fields, layer: LayerShape, experts: int) -> list[LayerShape]:
    """Layers with experts, and those that stay dense by the fields that architectures use for that."""
    width = fields.whole("moe_intermediate_size", "intermediate_size", least=1)
    shared = fields.whole("shared_expert_intermediate_size", default=0)
    many = fields.whole(*_SHARED_COUNTS, default=0, most=1024)
    used = fields.experts("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_topk", "moe_k")
    sparse = replace(
        layer, experts=experts, experts_used=min(used, experts), expert_ffn=width, shared_ffn=shared or many * width
    )
    first = fields.layers("first_k_dense_replace", "moe_layer_start_index", default=0)
    step = fields.layers("decoder_sparse_step", "moe_layer_freq", default=1, least=1)
    plain = set(fields.numbers("mlp_only_layers"))
    return [
        replace(layer, ffn=ffn_width(fields)) if i < first or i in plain or (i + 1) % step else sparse
        for i in range(layer_count(fields))
    ]


def full_layers(fields: Fields, default: Callable[[int], bool]) -> list[bool]:
    """Which layers look back all the way: by `layer_types`, else as the architecture does."""
    count, told = layer_count(fields), fields.texts("layer_types")
    if told and len(told) != count:
        raise fields.wrong("layer_types", f"has {len(told)} entries for {count} layers")
    return [kind == "full_attention" for kind in told] if told else [default(i) for i in range(count)]


def every(period: int) -> Callable[[int], bool]:
    """Each `period`-th layer is full."""
    return lambda i: period > 0 and (i + 1) % period == 0


def sliding(layer: LayerShape, window: int) -> LayerShape:
    """The same layer with a window; without one, itself."""
    return replace(layer, attention=AttentionKind.SLIDING, window=window) if window else layer


def latent_attention(fields: Fields) -> LayerShape:
    """A layer of multi-head latent attention."""
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
