"""Models with two sides: encoder and decoder, image and text.

Like mT5 (Xue et al. 2021): encoder and decoder with one large embedding that both and the head share. In: token ids and
padding mask of the source, token ids of the target. Out: logits over the vocabulary. Simplified: mT5 proper keeps a
head of its own; here it is tied, as in the first T5. No key-value cache.

Like FLAVA (Singh et al. 2022): an image tower and a text tower, joined by a multimodal encoder. In: an image, token ids
and a padding mask. Out: an embedding of each and the logits of whether they match. Simplified: no masked-modelling
heads; the two towers depend on nothing of each other until they are joined.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from weftline.errors import UsageError
from weftline.zoo.builder import Builder, Value
from weftline.zoo.language import language_head, text_embeddings
from weftline.zoo.layers import (
    Adjust,
    causal_mask,
    classifier,
    convolution,
    divisible,
    feed_forward,
    gelu_tanh,
    layer_norm,
    linear,
    multi_head_attention,
    padding_mask,
    rms_norm,
)
from weftline.zoo.registry import Architecture

__all__ = ["ARCHITECTURES"]

BUCKET_COUNT = 32
FAR_DISTANCE = 128
"""Distances from here on share the last bucket."""
MAX_TOKENS = 4096
"""The buckets of all pairs of tokens are a constant of the model."""


def write_encoder_decoder(
    b: Builder,
    *,
    layers: int,
    hidden: int,
    heads: int,
    head_size: int,
    inner: int,
    sequence: int,
    target: int,
    vocabulary: int,
    batch: int,
) -> None:
    """Encoder and decoder of `layers` layers each; `sequence` source and `target` target tokens."""
    if max(sequence, target) > MAX_TOKENS:
        raise UsageError(f"{max(sequence, target)} tokens are more than {MAX_TOKENS}: use shorter sequences")
    ids = b.input("input_ids", (batch, sequence), "int64")
    attention_mask = b.input("attention_mask", (batch, sequence), "int64")
    target_ids = b.input("decoder_input_ids", (batch, target), "int64")
    embedding = b.param("shared.weight", (vocabulary, hidden), 1.0)
    width, gain = heads * head_size, 1 / sqrt(2 * layers)
    with b.scope("encoder"):
        seen = padding_mask(b, attention_mask)
        x = b.gather(embedding, ids)
        bias = b.add(_position_bias(b, sequence, heads, both_ways=True), seen)
        for layer in range(layers):
            with b.scope(f"block.{layer}"):
                x = _self_attention(b, x, heads, width=width, bias=bias, gain=gain)
                x = _gated_feed_forward(b, x, inner, gain)
        encoded = rms_norm(b, x, "final_layer_norm")
    with b.scope("decoder"):
        x = b.gather(embedding, target_ids)
        bias = b.add(_position_bias(b, target, heads, both_ways=False), causal_mask(b, target))
        for layer in range(layers):
            with b.scope(f"block.{layer}"):
                x = _self_attention(b, x, heads, width=width, bias=bias, gain=gain)
                x = _cross_attention(b, x, encoded, heads, width=width, seen=seen, gain=gain)
                x = _gated_feed_forward(b, x, inner, gain)
        x = b.mul(rms_norm(b, x, "final_layer_norm"), 1 / sqrt(hidden))
    with b.scope("lm_head"):
        b.output(language_head(b, x, embedding), "logits")


def _self_attention(b: Builder, x: Value, heads: int, *, width: int, bias: Value, gain: float) -> Value:
    with b.scope("self_attention"):
        y = rms_norm(b, x, "layer_norm")
        y = multi_head_attention(
            b, y, heads, width=width, bias=False, scaled=False, adjust=lambda scores: b.add(scores, bias), gain=gain
        )
        return b.add(x, y)


def _cross_attention(
    b: Builder, x: Value, encoded: Value, heads: int, *, width: int, seen: Value, gain: float
) -> Value:
    with b.scope("cross_attention"):
        y = rms_norm(b, x, "layer_norm")
        y = multi_head_attention(
            b,
            y,
            heads,
            memory=encoded,
            width=width,
            bias=False,
            scaled=False,
            adjust=lambda scores: b.add(scores, seen),
            gain=gain,
        )
        return b.add(x, y)


def _gated_feed_forward(b: Builder, x: Value, inner: int, gain: float) -> Value:
    with b.scope("feed_forward"):
        y = rms_norm(b, x, "layer_norm")
        gate = gelu_tanh(b, linear(b, y, inner, "wi_0", bias=False))
        y = b.mul(gate, linear(b, y, inner, "wi_1", bias=False))
        return b.add(x, linear(b, y, x.shape[-1], "wo", bias=False, gain=gain))


def _position_bias(b: Builder, tokens: int, heads: int, *, both_ways: bool) -> Value:
    """(1, heads, queries, keys): a learnt number per head and bucket of distance, used by every layer of a stack."""
    with b.scope("relative_attention_bias"):
        table = b.param("weight", (BUCKET_COUNT, heads), 0.5)
        bias = b.gather(table, _buckets(tokens, both_ways))
        return b.unsqueeze(b.transpose(bias, 2, 0, 1), 0)


def _buckets(tokens: int, both_ways: bool) -> NDArray[np.int64]:
    """Bucket of each (query, key): one per distance when near, logarithmic when far; keys ahead have their own half."""
    ahead = np.arange(tokens)[None, :] - np.arange(tokens)[:, None]
    count = BUCKET_COUNT // 2 if both_ways else BUCKET_COUNT
    distance = np.abs(ahead) if both_ways else np.maximum(-ahead, 0)
    near = count // 2
    growth = np.log(np.maximum(distance, 1) / near) / np.log(FAR_DISTANCE / near)
    far = np.minimum(near + (growth * (count - near)).astype(np.int64), count - 1)
    bucket: NDArray[np.int64] = np.where(distance < near, distance, far)
    if both_ways:
        bucket += np.where(ahead > 0, count, 0)
    return bucket


_SMALL_MT5 = {
    "layers": 8,
    "hidden": 512,
    "heads": 6,
    "head_size": 64,
    "inner": 1024,
    "sequence": 128,
    "target": 128,
    "vocabulary": 250112,
    "batch": 1,
}
_TINY = {
    "layers": 2,
    "hidden": 32,
    "heads": 3,
    "head_size": 8,
    "inner": 64,
    "sequence": 12,
    "target": 8,
    "vocabulary": 509,
}

_ENCODER_DECODER = [
    Architecture(
        name="mt5",
        description="encoder-decoder with one shared embedding of 250 k tokens; 172 M parameters",
        write=write_encoder_decoder,
        sizes={
            "full": _SMALL_MT5,
            "small": _TINY,
            "base": {"layers": 12, "hidden": 768, "heads": 12, "inner": 2048},
            "large": {"layers": 24, "hidden": 1024, "heads": 16, "inner": 2816},
        },
        inputs=("input_ids", "attention_mask", "decoder_input_ids"),
    )
]


def write_two_tower(
    b: Builder,
    *,
    layers: int,
    joint_layers: int,
    hidden: int,
    heads: int,
    inner: int,
    image: int,
    patch: int,
    sequence: int,
    vocabulary: int,
    batch: int,
) -> None:
    """Two towers of `layers` layers and a multimodal encoder of `joint_layers`."""
    pixels = b.input("pixel_values", (batch, 3, image, image))
    ids = b.input("input_ids", (batch, sequence), "int64")
    attention_mask = b.input("attention_mask", (batch, sequence), "int64")
    types = b.input("token_type_ids", (batch, sequence), "int64")
    with b.scope("image_model"):
        x = _encoder(b, _patch_embeddings(b, pixels, hidden, patch), layers, heads, inner)
    with b.scope("text_model"):
        mask = padding_mask(b, attention_mask)
        y = text_embeddings(b, ids, types, hidden=hidden, vocabulary=vocabulary, positions=max(512, sequence))
        y = _encoder(b, y, layers, heads, inner, adjust=lambda scores: b.add(scores, mask))
    with b.scope("multimodal_model"):
        start = _repeated(b, "cls_token", (1, 1, hidden), batch)
        joint = [start, linear(b, x, hidden, "image_projection"), linear(b, y, hidden, "text_projection")]
        z = _encoder(b, b.concat(joint, 1), joint_layers, heads, inner)
        with b.scope("pooler"):
            pooled = b.unary("Tanh", classifier(b, b.gather(z, 0, axis=1), hidden, "dense"))
    image_embedding = classifier(b, b.gather(x, 0, axis=1), hidden, "image_head")
    text_embedding = classifier(b, b.gather(y, 0, axis=1), hidden, "text_head")
    b.output(image_embedding, "image_embedding")
    b.output(text_embedding, "text_embedding")
    b.output(classifier(b, pooled, 2, "match_head"), "match_logits")


def _patch_embeddings(b: Builder, pixels: Value, hidden: int, patch: int) -> Value:
    """One token per patch of the image, after a class token."""
    batch, _, image, _ = pixels.shape
    side = divisible("image size", image, patch, "the patch size")
    with b.scope("patch_embeddings"):
        x = convolution(b, pixels, hidden, patch, stride=patch, padding=0)
        x = b.transpose(b.reshape(x, batch, hidden, side * side), 0, 2, 1)
    x = b.concat([_repeated(b, "cls_token", (1, 1, hidden), batch), x], 1)
    return b.add(x, b.param("position_embeddings", (1, side * side + 1, hidden), 0.5))


def _repeated(b: Builder, name: str, shape: tuple[int, int, int], batch: int) -> Value:
    shape_of_batch = (batch, *shape[1:])
    return b.op("Expand", b.param(name, shape, 1.0), shape_of_batch, shape=shape_of_batch)


def _encoder(b: Builder, x: Value, layers: int, heads: int, inner: int, *, adjust: Adjust | None = None) -> Value:
    """Layers with normalisation before each branch, and a last one."""
    gain = 1 / sqrt(2 * layers)
    for layer in range(layers):
        with b.scope(f"encoder/layer.{layer}"):
            y = layer_norm(b, x, "layernorm_before")
            with b.scope("attention"):
                x = b.add(multi_head_attention(b, y, heads, adjust=adjust, gain=gain), x)
            y = layer_norm(b, x, "layernorm_after")
            x = b.add(feed_forward(b, y, inner, ("intermediate", "output"), gain=gain), x)
    return layer_norm(b, x, "layernorm")


_FULL = {
    "layers": 12,
    "joint_layers": 6,
    "hidden": 768,
    "heads": 12,
    "inner": 3072,
    "image": 224,
    "patch": 16,
    "sequence": 77,
    "vocabulary": 30522,
    "batch": 1,
}
_SMALL = {
    "layers": 2,
    "joint_layers": 1,
    "hidden": 32,
    "heads": 4,
    "inner": 64,
    "image": 16,
    "patch": 4,
    "sequence": 8,
    "vocabulary": 101,
}

_TWO_TOWER = [
    Architecture(
        name="flava",
        description="image and text towers joined by a multimodal encoder; 240 M parameters",
        write=write_two_tower,
        sizes={"full": _FULL, "small": _SMALL},
        inputs=("pixel_values", "input_ids", "attention_mask", "token_type_ids"),
    )
]

ARCHITECTURES = [*_ENCODER_DECODER, *_TWO_TOWER]
