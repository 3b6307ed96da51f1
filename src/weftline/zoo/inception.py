"""Inception-V3 (Szegedy et al. 2016) without its auxiliary head: up to six parallel branches per block.

In: an image. Out: class logits. `width` is the share of the published channels in percent.
"""

from __future__ import annotations

from dataclasses import dataclass

from weftline.zoo.builder import Builder, Value
from weftline.zoo.layers import Pair, classifier, convolution_norm, global_pool, pool
from weftline.zoo.registry import Architecture

__all__ = ["ARCHITECTURES"]


@dataclass(frozen=True)
class _Convolution:
    """Convolution, batch normalisation and Relu under one name, not padded unless asked."""

    builder: Builder
    width: int

    def __call__(self, x: Value, name: str, channels: int, kernel: Pair, *, stride: int = 1, pad: Pair = 0) -> Value:
        with self.builder.scope(name):
            channels = max(1, channels * self.width // 100)
            return convolution_norm(self.builder, x, channels, kernel, stride=stride, padding=pad, epsilon=1e-3)


def write(b: Builder, *, image: int, width: int, classes: int, batch: int) -> None:
    """Inception-V3."""
    conv = _Convolution(b, width)
    x = b.input("input", (batch, 3, image, image))
    x = conv(x, "Conv2d_1a_3x3", 32, 3, stride=2)
    x = conv(x, "Conv2d_2a_3x3", 32, 3)
    x = conv(x, "Conv2d_2b_3x3", 64, 3, pad=1)
    x = pool(b, "MaxPool", x, 3, 2)
    x = conv(x, "Conv2d_3b_1x1", 80, 1)
    x = conv(x, "Conv2d_4a_3x3", 192, 3)
    x = pool(b, "MaxPool", x, 3, 2)
    for name, pooled in (("Mixed_5b", 32), ("Mixed_5c", 64), ("Mixed_5d", 64)):
        with b.scope(name):
            x = _block_35(b, conv, x, pooled)
    with b.scope("Mixed_6a"):
        x = _reduce_to_17(b, conv, x)
    for name, inner in (("Mixed_6b", 128), ("Mixed_6c", 160), ("Mixed_6d", 160), ("Mixed_6e", 192)):
        with b.scope(name):
            x = _block_17(b, conv, x, inner)
    with b.scope("Mixed_7a"):
        x = _reduce_to_8(b, conv, x)
    for name in ("Mixed_7b", "Mixed_7c"):
        with b.scope(name):
            x = _block_8(b, conv, x)
    b.output(classifier(b, global_pool(b, x), classes, "fc", gain=2.0), "logits")


def _block_35(b: Builder, conv: _Convolution, x: Value, pooled: int) -> Value:
    """Block A of the paper, on 35 x 35."""
    one = conv(x, "branch1x1", 64, 1)
    five = conv(conv(x, "branch5x5_1", 48, 1), "branch5x5_2", 64, 5, pad=2)
    three = conv(x, "branch3x3dbl_1", 64, 1)
    three = conv(three, "branch3x3dbl_2", 96, 3, pad=1)
    three = conv(three, "branch3x3dbl_3", 96, 3, pad=1)
    mean = conv(pool(b, "AveragePool", x, 3, 1, padding=1), "branch_pool", pooled, 1)
    return b.concat([one, five, three, mean], 1)


def _reduce_to_17(b: Builder, conv: _Convolution, x: Value) -> Value:
    """From 35 x 35 to 17 x 17."""
    three = conv(x, "branch3x3", 384, 3, stride=2)
    double = conv(x, "branch3x3dbl_1", 64, 1)
    double = conv(double, "branch3x3dbl_2", 96, 3, pad=1)
    double = conv(double, "branch3x3dbl_3", 96, 3, stride=2)
    return b.concat([three, double, pool(b, "MaxPool", x, 3, 2)], 1)


def _block_17(b: Builder, conv: _Convolution, x: Value, inner: int) -> Value:
    """Block B of the paper, on 17 x 17: 7x7 convolutions as 1x7 and 7x1."""
    flat: dict[str, tuple[int, int]] = {"kernel": (1, 7), "pad": (0, 3)}
    tall: dict[str, tuple[int, int]] = {"kernel": (7, 1), "pad": (3, 0)}
    one = conv(x, "branch1x1", 192, 1)
    seven = conv(x, "branch7x7_1", inner, 1)
    for name, channels, way in (("branch7x7_2", inner, flat), ("branch7x7_3", 192, tall)):
        seven = conv(seven, name, channels, way["kernel"], pad=way["pad"])
    double = conv(x, "branch7x7dbl_1", inner, 1)
    for number, (channels, way) in enumerate(((inner, tall), (inner, flat), (inner, tall), (192, flat)), 2):
        double = conv(double, f"branch7x7dbl_{number}", channels, way["kernel"], pad=way["pad"])
    mean = conv(pool(b, "AveragePool", x, 3, 1, padding=1), "branch_pool", 192, 1)
    return b.concat([one, seven, double, mean], 1)


def _reduce_to_8(b: Builder, conv: _Convolution, x: Value) -> Value:
    """From 17 x 17 to 8 x 8."""
    three = conv(conv(x, "branch3x3_1", 192, 1), "branch3x3_2", 320, 3, stride=2)
    seven = conv(x, "branch7x7x3_1", 192, 1)
    seven = conv(seven, "branch7x7x3_2", 192, (1, 7), pad=(0, 3))
    seven = conv(seven, "branch7x7x3_3", 192, (7, 1), pad=(3, 0))
    seven = conv(seven, "branch7x7x3_4", 192, 3, stride=2)
    return b.concat([three, seven, pool(b, "MaxPool", x, 3, 2)], 1)


def _block_8(b: Builder, conv: _Convolution, x: Value) -> Value:
    """Block C of the paper, on 8 x 8: two branches that split once more."""
    one = conv(x, "branch1x1", 320, 1)
    three = _fork(b, conv, conv(x, "branch3x3_1", 384, 1), ("branch3x3_2a", "branch3x3_2b"))
    double = conv(conv(x, "branch3x3dbl_1", 448, 1), "branch3x3dbl_2", 384, 3, pad=1)
    double = _fork(b, conv, double, ("branch3x3dbl_3a", "branch3x3dbl_3b"))
    mean = conv(pool(b, "AveragePool", x, 3, 1, padding=1), "branch_pool", 192, 1)
    return b.concat([one, three, double, mean], 1)


def _fork(b: Builder, conv: _Convolution, x: Value, names: tuple[str, str]) -> Value:
    flat = conv(x, names[0], 384, (1, 3), pad=(0, 1))
    return b.concat([flat, conv(x, names[1], 384, (3, 1), pad=(1, 0))], 1)


ARCHITECTURES = [
    Architecture(
        name="inception-v3",
        description="convolutional classifier of parallel branches; 23.8 M parameters, 5.7 GMAC",
        write=write,
        sizes={
            "full": {"image": 299, "width": 100, "classes": 1000, "batch": 1},
            "small": {"image": 75, "width": 15, "classes": 10},
        },
        inputs=("input",),
    )
]
