"""GPT-2 and GPT-3 (Radford et al. 2019, Brown et al. 2020): a causal decoder whose head is the token embedding.

In: token ids. Out: logits over the vocabulary. Simplified: no key-value cache; every attention is dense.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from weftline.zoo.builder import Builder, Value
from weftline.zoo.layers import attend, causal_mask, feed_forward, gelu_tanh, layer_norm, linear
from weftline.zoo.registry import Architecture

__all__ = ["ARCHITECTURES", "language_head"]


def write(
    b: Builder, *, layers: int, hidden: int, heads: int, sequence: int, positions: int, vocabulary: int, batch: int
) -> None:
    """GPT with a language head."""
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
                x = _layer(b, x, heads, mask, gain=1 / sqrt(2 * layers))
        x = layer_norm(b, x, "ln_f")
    with b.scope("lm_head"):
        b.output(language_head(b, x, embedding), "logits")


def _layer(b: Builder, x: Value, heads: int, mask: Value, gain: float) -> Value:
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

ARCHITECTURES = [
    Architecture(
        name="gpt2",
        description="causal language model with a tied head; 124 M parameters, up to 13 G by size",
        write=write,
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
