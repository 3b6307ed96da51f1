"""Swin transformer (Liu et al. 2021): attention inside windows that shift from block to block, in four stages.

In: an image. Out: class logits. `blocks` is the depth of the third stage; the others have two.
`heads` is doubled at every stage.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from weftline.errors import UsageError
from weftline.zoo.builder import Builder, Value
from weftline.zoo.layers import attend, classifier, convolution, divisible, feed_forward, layer_norm, linear
from weftline.zoo.registry import Architecture

__all__ = ["ARCHITECTURES"]

PATCH_SIZE = 4
STAGE_COUNT = 4
MASKED_SCORE = -100.0
MAX_IMAGE, MAX_WINDOW = 4096, 32
"""The offsets inside a window and the regions of a shifted image are constants of the model."""


def write(
    b: Builder, *, blocks: int, hidden: int, heads: int, window: int, image: int, classes: int, batch: int
) -> None:
    """Swin with four stages."""
    divisible(
        "image size", image, PATCH_SIZE * 2 ** (STAGE_COUNT - 1) * window, "windows must tile the image at every stage"
    )
    if image > MAX_IMAGE or window > MAX_WINDOW:
        raise UsageError(f"images are at most {MAX_IMAGE} wide and windows {MAX_WINDOW}")
    pixels = b.input("input", (batch, 3, image, image))
    with b.scope("patch_embed"):
        x = convolution(b, pixels, hidden, PATCH_SIZE, stride=PATCH_SIZE, padding=0)
        x = b.transpose(x, 0, 2, 3, 1)
        x = layer_norm(b, x, "norm")
    depths = (2, 2, blocks, 2)
    gain = 1 / sqrt(2 * sum(depths))
    for stage, depth in enumerate(depths):
        with b.scope(f"layers.{stage}"):
            for block in range(depth):
                with b.scope(f"blocks.{block}"):
                    x = _block(b, x, heads << stage, window, shifted=block % 2 == 1, gain=gain)
            if stage + 1 < STAGE_COUNT:
                with b.scope("downsample"):
                    x = _merge_patches(b, x)
    x = layer_norm(b, x, "norm")
    pooled = b.op("ReduceMean", x, shape=(batch, x.shape[-1]), axes=[1, 2], keepdims=0)
    b.output(classifier(b, pooled, classes, "head"), "logits")


def _block(b: Builder, x: Value, heads: int, window: int, *, shifted: bool, gain: float) -> Value:
    side = x.shape[1]
    shift = window // 2 if shifted and side > window else 0
    y = layer_norm(b, x, "norm1")
    with b.scope("attn"):
        y = _roll(b, y, shift)
        y = _windows(b, y, window)
        y = _window_attention(b, y, heads, window=window, side=side, shift=shift, gain=gain)
        y = _join_windows(b, y, window, x.shape)
        y = _roll(b, y, -shift)
    x = b.add(x, y)
    y = layer_norm(b, x, "norm2")
    with b.scope("mlp"):
        y = feed_forward(b, y, 4 * x.shape[-1], ("fc1", "fc2"), gain=gain)
    return b.add(x, y)


def _window_attention(b: Builder, x: Value, heads: int, *, window: int, side: int, shift: int, gain: float) -> Value:
    windows, tokens, hidden = x.shape
    query, key, value = b.split(linear(b, x, 3 * hidden, "qkv"), 3)
    bias = _position_bias(b, window, heads)
    mask = _shift_mask(b, window, side, shift) if shift else None

    def adjust(scores: Value) -> Value:
        scores = b.add(scores, bias)
        if mask is None:
            return scores
        tiles = mask.shape[1]
        by_image = b.reshape(scores, windows // tiles, tiles, heads, tokens, tokens)
        return b.reshape(b.add(by_image, mask), windows, heads, tokens, tokens)

    context = attend(b, query, key, value, heads, adjust=adjust)
    return linear(b, context, hidden, "proj", gain=gain)


def _windows(b: Builder, x: Value, window: int) -> Value:
    """(batch, side, side, hidden) -> (windows of all images, tokens, hidden)."""
    batch, side, _, hidden = x.shape
    tiles = side // window
    x = b.transpose(b.reshape(x, batch, tiles, window, tiles, window, hidden), 0, 1, 3, 2, 4, 5)
    return b.reshape(x, batch * tiles * tiles, window * window, hidden)


def _join_windows(b: Builder, x: Value, window: int, shape: tuple[int, ...]) -> Value:
    batch, side, _, hidden = shape
    tiles = side // window
    x = b.transpose(b.reshape(x, batch, tiles, tiles, window, window, hidden), 0, 1, 3, 2, 4, 5)
    return b.reshape(x, *shape)


def _roll(b: Builder, x: Value, shift: int) -> Value:
    """Move the image by `shift` up and left; what leaves comes back on the other side."""
    if shift == 0:
        return x
    for axis in (1, 2):
        size = x.shape[axis]
        cut = shift % size
        x = b.concat([b.slice(x, axis, cut, size), b.slice(x, axis, 0, cut)], axis)
    return x


def _merge_patches(b: Builder, x: Value) -> Value:
    """Four neighbours become one token of twice the features."""
    side, hidden = x.shape[1], x.shape[-1]
    parts = [
        b.slice(b.slice(x, 1, down, side, 2), 2, right, side, 2) for down, right in ((0, 0), (1, 0), (0, 1), (1, 1))
    ]
    x = layer_norm(b, b.concat(parts, 3), "norm")
    return linear(b, x, 2 * hidden, "reduction", bias=False)


def _position_bias(b: Builder, window: int, heads: int) -> Value:
    """(1, heads, tokens, tokens): a learnt number per head and offset inside the window."""
    place = np.stack(np.divmod(np.arange(window * window), window), 1)
    offset = place[:, None] - place[None] + window - 1
    table = b.param("relative_position_bias_table", ((2 * window - 1) ** 2, heads), 0.5)
    bias = b.gather(table, offset[..., 0] * (2 * window - 1) + offset[..., 1])
    return b.unsqueeze(b.transpose(bias, 2, 0, 1), 0)


def _shift_mask(b: Builder, window: int, side: int, shift: int) -> Value:
    """(1, windows, 1, tokens, tokens): tokens that meet only because the image was rolled do not see each other."""
    regions = _regions(window, side, shift)
    tiles, tokens = regions.shape
    shape = (1, tiles, 1, tokens, tokens)
    rows, columns = regions.reshape(1, tiles, 1, tokens, 1), regions.reshape(1, tiles, 1, 1, tokens)
    same = b.op("Equal", rows, columns, shape=shape, dtype="bool")
    return b.op("Where", same, 0.0, MASKED_SCORE, shape=shape)


def _regions(window: int, side: int, shift: int) -> NDArray[np.int64]:
    """Of every token of every window of the rolled image: the number of the region it came from."""
    band = np.digitize(np.arange(side), [side - window, side - shift])
    image = 3 * band[:, None] + band[None]
    tiles = side // window
    return image.reshape(tiles, window, tiles, window).swapaxes(1, 2).reshape(tiles * tiles, window * window)


_TINY = {"blocks": 6, "hidden": 96, "heads": 3, "window": 7, "image": 224, "classes": 1000, "batch": 1}

ARCHITECTURES = [
    Architecture(
        name="swin",
        description="hierarchical vision transformer with shifted windows (tiny); 28.3 M parameters, 4.5 GMAC",
        write=write,
        sizes={
            "full": _TINY,
            "small": {"blocks": 2, "hidden": 8, "heads": 1, "window": 2, "image": 64, "classes": 10},
            "base": {"blocks": 18, "hidden": 128, "heads": 4},
        },
        inputs=("input",),
    )
]
