"""Layers that several architectures are made of, each written as a PyTorch export writes it.

In: a `Builder` and values; attention takes sequences (batch, tokens, features), and masks are numbers that are added to
the scores before the softmax. Out: values. Simplified: weights are scaled by fan-in, so that activations keep their
size through a network of any depth; nothing is trained, and nothing is so regular that a runtime could fold it away.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod, sqrt
from typing import Any, TypeAlias

import numpy as np

from weftline.errors import UsageError
from weftline.zoo.builder import Builder, Value

__all__ = [
    "MASKED_SCORE",
    "Adjust",
    "Pair",
    "attend",
    "batch_norm",
    "causal_mask",
    "classifier",
    "convolution",
    "convolution_norm",
    "divisible",
    "feed_forward",
    "gelu",
    "gelu_tanh",
    "global_pool",
    "layer_norm",
    "linear",
    "multi_head_attention",
    "padding_mask",
    "pool",
    "rms_norm",
    "upsample",
]

Pair: TypeAlias = int | tuple[int, int]
"""Height and width, or one number for both."""

BIAS_SCALE = 0.05
ACTIVATION_GAIN = {None: 1.0, "Relu": sqrt(2), "HardSwish": sqrt(3)}
"""An activation takes from the size of a normal variable what the weights before it add: relu(x)^2 has mean 1/2."""


def divisible(what: str, value: int, by: int, because: str) -> int:
    """How often `by` goes into `value`; a `UsageError` if it does not."""
    if value % by:
        raise UsageError(f"{what} {value} is not divisible by {by} ({because})")
    return value // by


def _pair(size: Pair) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


# -- images: (batch, channels, height, width) -------------------------------------------------------------------------


def convolution(
    b: Builder,
    x: Value,
    channels: int,
    kernel: Pair,
    *,
    stride: int = 1,
    padding: Pair | None = None,
    groups: int = 1,
    bias: bool = True,
    gain: float = 1.0,
) -> Value:
    """A convolution; `padding` keeps the image size at stride 1 unless it is given."""
    high, wide = _pair(kernel)
    down, right = _pair(padding) if padding is not None else (high // 2, wide // 2)
    fan_in = x.shape[1] // groups * high * wide
    inputs = [x, b.param("weight", (channels, x.shape[1] // groups, high, wide), gain / sqrt(fan_in))]
    if bias:
        inputs.append(b.param("bias", (channels,), BIAS_SCALE))
    return b.op(
        "Conv",
        *inputs,
        shape=(x.shape[0], channels, *_window_shape(x, (high, wide), stride, (down, right))),
        dilations=[1, 1],
        group=groups,
        kernel_shape=[high, wide],
        pads=[down, right, down, right],
        strides=[stride, stride],
    )


def _window_shape(x: Value, kernel: tuple[int, int], stride: int, padding: tuple[int, int]) -> tuple[int, int]:
    high, wide = (
        (size + 2 * pad - width) // stride + 1 for size, width, pad in zip(x.shape[2:], kernel, padding, strict=True)
    )
    return high, wide


def batch_norm(b: Builder, x: Value, *, gain: float = 1.0, epsilon: float = 1e-5) -> Value:
    """Batch normalisation with statistics of its own; `gain` is the size of what comes out."""
    channels = (x.shape[1],)
    return b.op(
        "BatchNormalization",
        x,
        b.param("weight", channels, 0.1 * gain, gain),
        b.param("bias", channels, BIAS_SCALE),
        b.param("running_mean", channels, 0.1),
        b.param("running_var", channels, 0.1, 1.0),
        shape=x.shape,
        epsilon=epsilon,
        momentum=0.9,
    )


def convolution_norm(
    b: Builder,
    x: Value,
    channels: int,
    kernel: Pair,
    *,
    names: tuple[str, str] = ("conv", "bn"),
    activation: str | None = "Relu",
    stride: int = 1,
    padding: Pair | None = None,
    groups: int = 1,
    gain: float = 1.0,
    epsilon: float = 1e-5,
) -> Value:
    """Convolution, batch normalisation, activation."""
    with b.scope(names[0]):
        scale = ACTIVATION_GAIN[activation]
        x = convolution(b, x, channels, kernel, stride=stride, padding=padding, groups=groups, bias=False, gain=scale)
    with b.scope(names[1]):
        x = batch_norm(b, x, gain=gain, epsilon=epsilon)
    return b.unary(activation, x) if activation else x


def pool(b: Builder, kind: str, x: Value, kernel: int, stride: int, *, padding: int = 0) -> Value:
    """`MaxPool`, or `AveragePool` that counts the padding as PyTorch does."""
    attributes: dict[str, Any] = {"count_include_pad": 1} if kind == "AveragePool" else {}
    shape = (*x.shape[:2], *_window_shape(x, (kernel, kernel), stride, (padding, padding)))
    return b.op(kind, x, shape=shape, kernel_shape=[kernel] * 2, pads=[padding] * 4, strides=[stride] * 2, **attributes)


def global_pool(b: Builder, x: Value) -> Value:
    """The mean over the image: (batch, channels, 1, 1)."""
    return b.op("GlobalAveragePool", x, shape=(*x.shape[:2], 1, 1))


def upsample(b: Builder, x: Value, channels: int) -> Value:
    """A transposed convolution that doubles height and width."""
    batch, before, high, wide = x.shape
    weight = b.param("weight", (before, channels, 2, 2), 1 / sqrt(before))
    bias = b.param("bias", (channels,), BIAS_SCALE)
    shape = (batch, channels, 2 * high, 2 * wide)
    return b.op("ConvTranspose", x, weight, bias, shape=shape, kernel_shape=[2, 2], strides=[2, 2])


def classifier(b: Builder, x: Value, classes: int, name: str, *, gain: float = 1.0) -> Value:
    """A fully connected layer over (batch, features ...), flattened first where needed."""
    if len(x.shape) > 2:
        x = b.op("Flatten", x, shape=(x.shape[0], prod(x.shape[1:])), axis=1)
    with b.scope(name):
        weight = b.param("weight", (classes, x.shape[1]), gain / sqrt(x.shape[1]))
        return b.gemm(x, weight, b.param("bias", (classes,), BIAS_SCALE))


# -- sequences: (batch, tokens, features) -----------------------------------------------------------------------------


def linear(b: Builder, x: Value, features: int, name: str, *, bias: bool = True, gain: float = 1.0) -> Value:
    """A fully connected layer over the last axis: MatMul and Add."""
    with b.scope(name):
        x = b.matmul(x, b.param("weight", (x.shape[-1], features), gain / sqrt(x.shape[-1])))
        return b.add(x, b.param("bias", (features,), BIAS_SCALE)) if bias else x


def layer_norm(b: Builder, x: Value, name: str, epsilon: float = 1e-5) -> Value:
    """Layer normalisation over the last axis."""
    with b.scope(name):
        weight = b.param("weight", x.shape[-1:], 0.1, 1.0)
        bias = b.param("bias", x.shape[-1:], BIAS_SCALE)
        return b.op("LayerNormalization", x, weight, bias, shape=x.shape, axis=-1, epsilon=epsilon)


def rms_norm(b: Builder, x: Value, name: str, epsilon: float = 1e-6) -> Value:
    """Root-mean-square normalisation, which opset 17 has no op for: six elementwise ops and a mean."""
    with b.scope(name):
        square = b.binary("Pow", x, 2.0)
        mean = b.op("ReduceMean", square, shape=(*x.shape[:-1], 1), axes=[-1], keepdims=1)
        root = b.unary("Sqrt", b.add(mean, epsilon))
        return b.mul(b.binary("Div", x, root), b.param("weight", x.shape[-1:], 0.1, 1.0))


def gelu(b: Builder, x: Value) -> Value:
    """The exact GELU: x * (1 + erf(x / sqrt 2)) / 2."""
    erf = b.unary("Erf", b.binary("Div", x, sqrt(2)))
    return b.mul(b.mul(x, b.add(erf, 1.0)), 0.5)


def gelu_tanh(b: Builder, x: Value) -> Value:
    """The GELU by hyperbolic tangent, as GPT-2 and T5 use it."""
    cubic = b.mul(b.binary("Pow", x, 3.0), 0.044715)
    tanh = b.unary("Tanh", b.mul(b.add(x, cubic), float(np.sqrt(2 / np.pi))))
    return b.mul(b.mul(x, 0.5), b.add(tanh, 1.0))


def feed_forward(
    b: Builder,
    x: Value,
    inner: int,
    names: tuple[str, str],
    *,
    activation: Callable[[Builder, Value], Value] = gelu,
    gain: float = 1.0,
) -> Value:
    """Two fully connected layers with an activation between them."""
    hidden = activation(b, linear(b, x, inner, names[0]))
    return linear(b, hidden, x.shape[-1], names[1], gain=gain)


MASKED_SCORE = -1e4
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
    """(batch, keys) of ones and zeros -> (batch, 1, 1, keys) of zeros and `MASKED_SCORE`."""
    mask = b.unsqueeze(attention_mask, 1, 2)
    seen = b.op("Cast", mask, shape=mask.shape, to=1)
    return b.mul(b.binary("Sub", 1.0, seen), MASKED_SCORE)


def causal_mask(b: Builder, tokens: int) -> Value:
    """(tokens, tokens): `MASKED_SCORE` above the diagonal. Two ops without input, so that the file stays small."""
    square = (tokens, tokens)
    full = b.op("ConstantOfShape", square, shape=square, value=np.array([MASKED_SCORE], np.float32))
    return b.op("Trilu", full, 1, shape=square, upper=1)
