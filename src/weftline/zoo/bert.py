"""BERT (Devlin et al. 2019): an encoder with normalisation after each sum, and its pooler.

In: token ids, token types and a padding mask. Out: the last hidden states and the pooled first token.
"""

from __future__ import annotations

import numpy as np

from weftline.zoo.builder import Builder, Value
from weftline.zoo.layers import classifier, feed_forward, layer_norm, multi_head_attention, padding_mask
from weftline.zoo.registry import Architecture

__all__ = ["ARCHITECTURES", "text_embeddings"]

EPSILON = 1e-12


def write(
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
    """BERT without a task head."""
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

ARCHITECTURES = [
    Architecture(
        name="bert",
        description="text encoder (base); 109 M parameters",
        write=write,
        sizes={
            "full": _BASE,
            "small": _SMALL,
            "base": {},
            "large": {"layers": 24, "hidden": 1024, "heads": 16, "inner": 4096},
        },
        inputs=("input_ids", "attention_mask", "token_type_ids"),
    )
]
