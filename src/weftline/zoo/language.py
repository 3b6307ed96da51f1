"""_BERT (Devlin et al. 2019): an encoder with normalisation after each sum, and its pooler.

In: token ids, token types and a padding mask. Out: the last hidden states and the pooled first token.

_GPT-2 and _GPT-3 (Radford et al. 2019, Brown et al. 2020): a causal decoder whose head is the token embedding.

In: token ids. Out: logits over the vocabulary. Simplified: no key-value cache; every attention is dense.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

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
)
from weftline.zoo.registry import Architecture

__all__ = ["ARCHITECTURES", "language_head", "text_embeddings"]

EPSILON = 1e-12


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
        x = layer_norm(b, x, "LayerNorm", EPSILON)
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
        x = layer_norm(b, b.add(attended, x), "LayerNorm", EPSILON)
    y = feed_forward(b, x, inner, ("intermediate", "output"))
    with b.scope("output"):
        return layer_norm(b, b.add(y, x), "LayerNorm", EPSILON)


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
_SMALL = {
    "layers": 2,
    "hidden": 32,
    "heads": 4,
    "inner": 128,
    "sequence": 8,
    "positions": 16,
    "vocabulary": 101,
}

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


_GPT2 = {
    "layers": 12,
    "hidden": 768,
    "heads": 12,
    "sequence": 128,
    "positions": 1024,
    "vocabulary": 50257,
    "batch": 1,
}

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
