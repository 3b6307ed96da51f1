"""A model like FLAVA (Singh et al. 2022): an image tower and a text tower, joined by a multimodal encoder.

In: an image, token ids and a padding mask. Out: an embedding of each and the logits of whether they match.
Simplified: no masked-modelling heads; the two towers depend on nothing of each other until they are joined.
"""

from __future__ import annotations

from math import sqrt

from weftline.zoo.bert import text_embeddings
from weftline.zoo.builder import Builder, Value
from weftline.zoo.layers import (
    Adjust,
    classifier,
    convolution,
    divisible,
    feed_forward,
    layer_norm,
    linear,
    multi_head_attention,
    padding_mask,
)
from weftline.zoo.registry import Architecture

__all__ = ["ARCHITECTURES"]


def write(
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

ARCHITECTURES = [
    Architecture(
        name="flava",
        description="image and text towers joined by a multimodal encoder; 240 M parameters",
        write=write,
        sizes={"full": _FULL, "small": _SMALL},
        inputs=("pixel_values", "input_ids", "attention_mask", "token_type_ids"),
    )
]
