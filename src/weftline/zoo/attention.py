"""Multi-head attention as PyTorch exports write it: MatMul, Softmax, Transpose and Reshape nodes.

In: a `Builder` and sequences (batch, tokens, features). Out: sequences of the same shape. Masks are numbers that are
added to the scores before the softmax.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import TypeAlias

import numpy as np

from weftline.zoo.builder import Builder, Value
from weftline.zoo.layers import divisible, linear

__all__ = ["MASKED", "Adjust", "attend", "causal_mask", "multi_head_attention", "padding_mask"]

MASKED = -1e4
"""Added to the score of a token that must not be seen: large enough for a softmax, and finite in half precision."""

Adjust: TypeAlias = Callable[[Value], Value]
"""What is done to the scores (batch, heads, queries, keys) before the softmax."""


def attend(
    b: Builder, query: Value, key: Value, value: Value, heads: int, *, scaled: bool = True, adjust: Adjust | None = None
) -> Value:
    """Split projected sequences into heads, attend, and join the heads again."""
    size = divisible("attention width", query.shape[-1], heads, "the number of heads")
    batch, queries, width = query.shape
    keys = key.shape[1]
    query = b.transpose(b.reshape(query, batch, queries, heads, size), 0, 2, 1, 3)
    key = b.transpose(b.reshape(key, batch, keys, heads, size), 0, 2, 3, 1)
    value = b.transpose(b.reshape(value, batch, keys, heads, size), 0, 2, 1, 3)
    scores = b.matmul(query, key)
    if scaled:
        scores = b.binary("Div", scores, sqrt(size))
    if adjust is not None:
        scores = adjust(scores)
    context = b.matmul(b.softmax(scores), value)
    return b.reshape(b.transpose(context, 0, 2, 1, 3), batch, queries, width)


def multi_head_attention(
    b: Builder,
    x: Value,
    heads: int,
    *,
    memory: Value | None = None,
    names: tuple[str, str, str, str] = ("q", "k", "v", "out"),
    width: int | None = None,
    bias: bool = True,
    scaled: bool = True,
    adjust: Adjust | None = None,
    gain: float = 1.0,
) -> Value:
    """Attention of x to `memory` (to itself without one), with projections into `width` features and back."""
    memory, width = memory or x, width or x.shape[-1]
    # unscaled scores of head size s have deviation sqrt(s): the query weights divide it away, as T5 initialises them
    query_gain = 1.0 if scaled else sqrt(heads / width)
    query = linear(b, x, width, names[0], bias=bias, gain=query_gain)
    key = linear(b, memory, width, names[1], bias=bias)
    value = linear(b, memory, width, names[2], bias=bias)
    context = attend(b, query, key, value, heads, scaled=scaled, adjust=adjust)
    return linear(b, context, x.shape[-1], names[3], bias=bias, gain=gain)


def padding_mask(b: Builder, attention_mask: Value) -> Value:
    """(batch, keys) of ones and zeros -> (batch, 1, 1, keys) of zeros and `MASKED`."""
    mask = b.unsqueeze(attention_mask, 1, 2)
    seen = b.op("Cast", mask, shape=mask.shape, to=1)
    return b.mul(b.binary("Sub", 1.0, seen), MASKED)


def causal_mask(b: Builder, tokens: int) -> Value:
    """(tokens, tokens): `MASKED` above the diagonal. Two ops without input, so that the file stays small."""
    square = (tokens, tokens)
    full = b.op("ConstantOfShape", square, shape=square, value=np.array([MASKED], np.float32))
    return b.op("Trilu", full, 1, shape=square, upper=1)
