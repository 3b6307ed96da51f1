"""A causal language model with a mixture of experts in every layer, after Mixtral (Jiang et al. 2024).

In: token ids. Out: logits over the vocabulary. Simplified: every expert sees every token and the router's gates, zero
outside the best `active` experts, weigh the answers (dense evaluation); positions are learnt, not rotary.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from weftline.errors import UsageError
from weftline.zoo.builder import Builder, Value
from weftline.zoo.language import language_head
from weftline.zoo.layers import causal_mask, linear, multi_head_attention, rms_norm
from weftline.zoo.registry import Architecture

__all__ = ["ARCHITECTURES"]


def write(
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
_SMALL = {
    "layers": 2,
    "hidden": 32,
    "heads": 4,
    "inner": 48,
    "experts": 4,
    "sequence": 8,
    "vocabulary": 101,
}

ARCHITECTURES = [
    Architecture(
        name="moe",
        description="causal language model with eight experts per layer, two active; 115 M parameters",
        write=write,
        sizes={"full": _FULL, "small": _SMALL},
        inputs=("input_ids",),
    )
]
