"""Language models: an encoder, a causal decoder, and a causal decoder with a mixture of experts.

BERT (Devlin et al. 2019): an encoder with normalisation after each sum, and its pooler. In: token ids, token types and
a padding mask. Out: the last hidden states and the pooled first token.

GPT-2 and GPT-3 (Radford et al. 2019, Brown et al. 2020): a causal decoder whose head is the token embedding. In: token
ids. Out: logits over the vocabulary. Simplified: no key-value cache; every attention is dense.

After Mixtral (Jiang et al. 2024): a mixture of experts in every layer. Simplified: every expert sees every token and
the router's gates, zero outside the best `active` experts, weigh the answers (dense evaluation); positions are learnt,
not rotary.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from weftline.errors import UsageError
from weftline.zoo.builder import Builder, Value
from weftline.zoo.layers import (
    attend,
    causal_mask,
    classifier,
    feed_forward,
    gelu_tanh,
    layer_norm,
    linear,
    multi_head_attention,
    padding_mask,
    rms_norm,
)
from weftline.zoo.registry import Architecture

__all__ = ["ARCHITECTURES", "MIXTURES", "language_head", "text_embeddings"]

NORM_EPSILON = 1e-12


def write_bert(
    b: Builder,
    *,
    layers: int,
    hidden: int,
    heads: int,
    inner: int,
    sequence: int,
    positions: int,
    vocabulary: int,
    batch: int,
) -> None:
    """_BERT without a task head."""
    shape = (batch, sequence)
    ids = b.input("input_ids", shape, "int64")
    attention_mask = b.input("attention_mask", shape, "int64")
    types = b.input("token_type_ids", shape, "int64")
    mask = padding_mask(b, attention_mask)
    with b.scope("embeddings"):
        x = text_embeddings(b, ids, types, hidden=hidden, vocabulary=vocabulary, positions=max(positions, sequence))
        x = layer_norm(b, x, "LayerNorm", NORM_EPSILON)
    for layer in range(layers):
        with b.scope(f"encoder/layer.{layer}"):
            x = _layer(b, x, heads, inner, mask)
    with b.scope("pooler"):
        pooled = b.unary("Tanh", classifier(b, b.gather(x, 0, axis=1), hidden, "dense"))
    b.output(x, "last_hidden_state")
    b.output(pooled, "pooler_output")


def text_embeddings(b: Builder, ids: Value, types: Value, *, hidden: int, vocabulary: int, positions: int) -> Value:
    """Sum of word, token type and position embeddings."""
    with b.scope("word_embeddings"):
        x = b.gather(b.param("weight", (vocabulary, hidden), 0.02), ids)
    with b.scope("token_type_embeddings"):
        x = b.add(x, b.gather(b.param("weight", (2, hidden), 0.02), types))
    with b.scope("position_embeddings"):
        table = b.param("weight", (positions, hidden), 0.02)
        return b.add(x, b.gather(table, np.arange(ids.shape[1])[None]))


def _layer(b: Builder, x: Value, heads: int, inner: int, mask: Value) -> Value:
    with b.scope("attention"):
        attended = multi_head_attention(b, x, heads, adjust=lambda scores: b.add(scores, mask))
        x = layer_norm(b, b.add(attended, x), "LayerNorm", NORM_EPSILON)
    y = feed_forward(b, x, inner, ("intermediate", "output"))
    with b.scope("output"):
        return layer_norm(b, b.add(y, x), "LayerNorm", NORM_EPSILON)


_BASE = {
    "layers": 12,
    "hidden": 768,
    "heads": 12,
    "inner": 3072,
    "sequence": 128,
    "positions": 512,
    "vocabulary": 30522,
    "batch": 1,
}
_SMALL = {"layers": 2, "hidden": 32, "heads": 4, "inner": 128, "sequence": 8, "positions": 16, "vocabulary": 101}

_BERT = [
    Architecture(
        name="bert",
        description="text encoder (base); 109 M parameters",
        write=write_bert,
        sizes={
            "full": _BASE,
            "small": _SMALL,
            "base": {},
            "large": {"layers": 24, "hidden": 1024, "heads": 16, "inner": 4096},
        },
        inputs=("input_ids", "attention_mask", "token_type_ids"),
    )
]


def write_gpt(
    b: Builder, *, layers: int, hidden: int, heads: int, sequence: int, positions: int, vocabulary: int, batch: int
) -> None:
    """_GPT with a language head."""
    ids = b.input("input_ids", (batch, sequence), "int64")
    with b.scope("transformer"):
        with b.scope("wte"):
            embedding = b.param("weight", (vocabulary, hidden), 0.02)
            x = b.gather(embedding, ids)
        with b.scope("wpe"):
            table = b.param("weight", (max(positions, sequence), hidden), 0.01)
            x = b.add(x, b.gather(table, np.arange(sequence)[None]))
        mask = causal_mask(b, sequence)
        for layer in range(layers):
            with b.scope(f"h.{layer}"):
                x = _gpt_layer(b, x, heads, mask, gain=1 / sqrt(2 * layers))
        x = layer_norm(b, x, "ln_f")
    with b.scope("lm_head"):
        b.output(language_head(b, x, embedding), "logits")


def _gpt_layer(b: Builder, x: Value, heads: int, mask: Value, gain: float) -> Value:
    hidden = x.shape[-1]
    y = layer_norm(b, x, "ln_1")
    with b.scope("attn"):
        query, key, value = b.split(linear(b, y, 3 * hidden, "c_attn"), 3)
        context = attend(b, query, key, value, heads, adjust=lambda scores: b.add(scores, mask))
        x = b.add(x, linear(b, context, hidden, "c_proj", gain=gain))
    y = layer_norm(b, x, "ln_2")
    with b.scope("mlp"):
        y = feed_forward(b, y, 4 * hidden, ("c_fc", "c_proj"), activation=gelu_tanh, gain=gain)
    return b.add(x, y)


def language_head(b: Builder, x: Value, weight: Value) -> Value:
    """Logits by a weight (vocabulary, hidden). A Gemm reads it transposed, so it can be the token embedding."""
    batch, sequence, hidden = x.shape
    logits = b.gemm(b.reshape(x, batch * sequence, hidden), weight)
    return b.reshape(logits, batch, sequence, weight.shape[0])


_GPT2 = {"layers": 12, "hidden": 768, "heads": 12, "sequence": 128, "positions": 1024, "vocabulary": 50257, "batch": 1}

_GPT = [
    Architecture(
        name="gpt2",
        description="causal language model with a tied head; 124 M parameters, up to 13 G by size",
        write=write_gpt,
        sizes={
            "full": _GPT2,  # the paper's small; "small" is the test size here as everywhere
            "small": {"layers": 2, "hidden": 64, "heads": 4, "sequence": 8, "positions": 16, "vocabulary": 101},
            "medium": {"layers": 24, "hidden": 1024, "heads": 16},
            "large": {"layers": 36, "hidden": 1280, "heads": 20},
            "xl": {"layers": 48, "hidden": 1600, "heads": 25},
            "6.7b": {"layers": 32, "hidden": 4096, "heads": 32, "positions": 2048},
            "13b": {"layers": 40, "hidden": 5120, "heads": 40, "positions": 2048},
        },
        inputs=("input_ids",),
    )
]

ARCHITECTURES = [*_BERT, *_GPT]


def write_mixture(
    b: Builder,
    *,
    layers: int,
    hidden: int,
    heads: int,
    inner: int,
    experts: int,
    active: int,
    sequence: int,
    vocabulary: int,
    batch: int,
) -> None:
    """Decoder of `layers` layers with `experts` experts each, `active` of which answer for a token."""
    if active > experts:
        raise UsageError(f"active {active} is more than the number of experts {experts}")
    ids = b.input("input_ids", (batch, sequence), "int64")
    gain = 1 / sqrt(2 * layers)
    with b.scope("model"):
        with b.scope("embed_tokens"):
            x = b.gather(b.param("weight", (vocabulary, hidden), 0.1), ids)
        with b.scope("embed_positions"):
            x = b.add(x, b.param("weight", (1, sequence, hidden), 0.1))
        mask = causal_mask(b, sequence)
        for layer in range(layers):
            with b.scope(f"layers.{layer}"):
                y = rms_norm(b, x, "input_layernorm")
                with b.scope("self_attn"):
                    y = multi_head_attention(
                        b, y, heads, bias=False, adjust=lambda scores: b.add(scores, mask), gain=gain
                    )
                x = b.add(x, y)
                y = rms_norm(b, x, "post_attention_layernorm")
                with b.scope("moe"):
                    x = b.add(x, _mixture(b, y, inner=inner, experts=experts, active=active, gain=gain))
        x = rms_norm(b, x, "norm")
    with b.scope("lm_head"):
        weight = b.param("weight", (vocabulary, hidden), 1 / sqrt(hidden))
        b.output(language_head(b, x, weight), "logits")


def _mixture(b: Builder, x: Value, *, inner: int, experts: int, active: int, gain: float) -> Value:
    gates = _route(b, x, experts, active)
    answers = []
    for expert in range(experts):
        with b.scope(f"experts.{expert}"):
            gate = b.slice(gates, 2, expert, expert + 1)
            answers.append(b.mul(_expert(b, x, inner, gain), gate))
    return b.op("Sum", *answers, shape=x.shape)


def _route(b: Builder, x: Value, experts: int, active: int) -> Value:
    """(batch, tokens, experts): the softmax of the router, kept for the best `active` experts and made to sum to 1."""
    with b.scope("gate"):
        probability = b.softmax(linear(b, x, experts, "router", bias=False))
        chosen = (*x.shape[:2], active)
        best, index = b.op_many(
            "TopK", probability, [active], shapes=[chosen, chosen], dtypes=["float32", "int64"], axis=-1
        )
        total = b.op("ReduceSum", best, [-1], shape=(*x.shape[:2], 1), keepdims=1)
        none = b.op("ConstantOfShape", probability.shape, shape=probability.shape, value=np.zeros(1, np.float32))
        return b.op("ScatterElements", none, index, b.binary("Div", best, total), shape=probability.shape, axis=2)


def _expert(b: Builder, x: Value, inner: int, gain: float) -> Value:
    """A feed-forward network gated by x * sigmoid(x)."""
    gate = linear(b, x, inner, "w1", bias=False)
    gate = b.mul(gate, b.unary("Sigmoid", gate))
    return linear(b, b.mul(gate, linear(b, x, inner, "w3", bias=False)), x.shape[-1], "w2", bias=False, gain=gain)


_FULL = {
    "layers": 6,
    "hidden": 512,
    "heads": 8,
    "inner": 1024,
    "experts": 8,
    "active": 2,
    "sequence": 128,
    "vocabulary": 32000,
    "batch": 1,
}
_MIXTURE_SMALL = {"layers": 2, "hidden": 32, "heads": 4, "inner": 48, "experts": 4, "sequence": 8, "vocabulary": 101}

MIXTURES = [
    Architecture(
        name="moe",
        description="causal language model with eight experts per layer, two active; 115 M parameters",
        write=write_mixture,
        sizes={"full": _FULL, "small": _MIXTURE_SMALL},
        inputs=("input_ids",),
    )
]
