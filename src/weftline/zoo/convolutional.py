"""Convolutional networks: ResNet-50, Inception-V3, MobileNet-V3-large, U-Net.

In: an image. Out: class logits; of U-Net a logit per class and pixel. `width` is the share of the published channels in
percent (MobileNet: rounded to multiples of 8). ResNet-50 (He et al. 2016) is in the form of PyTorch: the stride of a
bottleneck is in its 3x3 convolution. Inception-V3 (Szegedy et al. 2016) comes without its auxiliary head: up to six
parallel branches per block. MobileNet-V3-large (Howard et al. 2019): depthwise convolutions, squeeze-and-excitation,
hard swish. U-Net (Ronneberger et al. 2015) is padded and with batch normalisation: skip connections span the whole
network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from weftline.zoo.builder import Builder, Value
from weftline.zoo.layers import Pair, classifier, convolution, convolution_norm, divisible, global_pool, pool, upsample
from weftline.zoo.registry import Architecture

__all__ = ["ARCHITECTURES"]

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
"""Inner channels and bottlenecks of each stage."""
BOTTLENECK_EXPANSION = 4
BRANCH_GAIN = 0.3
"""A branch adds little to the shortcut, or the sixteenth sum would be large."""


def write_resnet(b: Builder, *, image: int, width: int, classes: int, batch: int) -> None:
    """ResNet-50."""
    x = b.input("input", (batch, 3, image, image))
    x = convolution_norm(b, x, _channels(64, width), 7, names=("conv1", "bn1"), stride=2)
    x = pool(b, "MaxPool", x, 3, 2, padding=1)
    for stage, (channels, blocks) in enumerate(STAGES):
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            with b.scope(f"layer{stage + 1}.{block}"):
                x = _bottleneck(b, x, _channels(channels, width), stride)
    b.output(classifier(b, global_pool(b, x), classes, "fc"), "logits")


def _channels(published: int, width: int) -> int:
    return max(1, published * width // 100)


def _bottleneck(b: Builder, x: Value, inner: int, stride: int) -> Value:
    outer = BOTTLENECK_EXPANSION * inner
    y = convolution_norm(b, x, inner, 1, names=("conv1", "bn1"))
    y = convolution_norm(b, y, inner, 3, names=("conv2", "bn2"), stride=stride)
    y = convolution_norm(b, y, outer, 1, names=("conv3", "bn3"), activation=None, gain=BRANCH_GAIN)
    if x.shape != y.shape:
        names = ("downsample/0", "downsample/1")
        x = convolution_norm(b, x, outer, 1, names=names, activation=None, stride=stride)
    return b.unary("Relu", b.add(y, x))


_RESNET = [
    Architecture(
        name="resnet50",
        description="convolutional classifier with shortcuts; 25.6 M parameters, 4.1 GMAC",
        write=write_resnet,
        sizes={
            "full": {"image": 224, "width": 100, "classes": 1000, "batch": 1},
            "small": {"image": 32, "width": 13, "classes": 10},
        },
        inputs=("input",),
    )
]


@dataclass(frozen=True)
class _Convolution:
    """Convolution, batch normalisation and Relu under one name, not padded unless asked."""

    builder: Builder
    width: int

    def __call__(self, x: Value, name: str, channels: int, kernel: Pair, *, stride: int = 1, pad: Pair = 0) -> Value:
        with self.builder.scope(name):
            channels = max(1, channels * self.width // 100)
            return convolution_norm(self.builder, x, channels, kernel, stride=stride, padding=pad, epsilon=1e-3)


def write_inception(b: Builder, *, image: int, width: int, classes: int, batch: int) -> None:
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


_INCEPTION = [
    Architecture(
        name="inception-v3",
        description="convolutional classifier of parallel branches; 23.8 M parameters, 5.7 GMAC",
        write=write_inception,
        sizes={
            "full": {"image": 299, "width": 100, "classes": 1000, "batch": 1},
            "small": {"image": 75, "width": 15, "classes": 10},
        },
        inputs=("input",),
    )
]


class _Block(NamedTuple):
    """One row of the paper's table 1."""

    kernel: int
    expanded: int
    channels: int
    squeeze: bool
    activation: str
    stride: int = 1


BLOCKS = (
    _Block(3, 16, 16, False, "Relu"),
    _Block(3, 64, 24, False, "Relu", 2),
    _Block(3, 72, 24, False, "Relu"),
    _Block(5, 72, 40, True, "Relu", 2),
    *[_Block(5, 120, 40, True, "Relu")] * 2,
    _Block(3, 240, 80, False, "HardSwish", 2),
    _Block(3, 200, 80, False, "HardSwish"),
    *[_Block(3, 184, 80, False, "HardSwish")] * 2,
    _Block(3, 480, 112, True, "HardSwish"),
    _Block(3, 672, 112, True, "HardSwish"),
    _Block(5, 672, 160, True, "HardSwish", 2),
    *[_Block(5, 960, 160, True, "HardSwish")] * 2,
)
NORM_EPSILON = 1e-3


def write_mobilenet(b: Builder, *, image: int, width: int, classes: int, batch: int) -> None:
    """MobileNet-V3-large."""
    x = b.input("input", (batch, 3, image, image))
    with b.scope("features/0"):
        x = convolution_norm(b, x, _eights(16, width), 3, stride=2, activation="HardSwish", epsilon=NORM_EPSILON)
    for number, block in enumerate(BLOCKS, 1):
        with b.scope(f"features/{number}"):
            x = _inverted_residual(b, x, block, width)
    with b.scope(f"features/{len(BLOCKS) + 1}"):
        x = convolution_norm(b, x, _eights(960, width), 1, activation="HardSwish", epsilon=NORM_EPSILON)
    x = classifier(b, global_pool(b, x), _eights(1280, width), "classifier/0", gain=2.0)
    b.output(classifier(b, b.unary("HardSwish", x), classes, "classifier/3", gain=2.0), "logits")


def _eights(channels: float, width: int = 100) -> int:
    """The nearest multiple of 8, at least 8, and never more than 10 % below what was asked."""
    asked = channels * width / 100
    rounded = max(8, int(asked + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * asked else rounded


def _inverted_residual(b: Builder, x: Value, block: _Block, width: int) -> Value:
    expanded, channels = _eights(block.expanded, width), _eights(block.channels, width)
    y = x
    if expanded != x.shape[1]:
        with b.scope("expand"):
            y = convolution_norm(b, y, expanded, 1, activation=block.activation, epsilon=NORM_EPSILON)
    with b.scope("depthwise"):
        y = convolution_norm(
            b,
            y,
            expanded,
            block.kernel,
            stride=block.stride,
            groups=expanded,
            activation=block.activation,
            epsilon=NORM_EPSILON,
        )
    if block.squeeze:
        with b.scope("squeeze"):
            y = _squeeze_excite(b, y)
    with b.scope("project"):
        # what the squeeze takes away is given back, and a branch adds little to the shortcut beside it
        gain = 1.4 if block.squeeze else 1.0
        gain *= 0.3 if y.shape[2:] == x.shape[2:] and channels == x.shape[1] else 1.0
        y = convolution_norm(b, y, channels, 1, activation=None, gain=gain, epsilon=NORM_EPSILON)
    return b.add(x, y) if x.shape == y.shape else y


def _squeeze_excite(b: Builder, x: Value) -> Value:
    y = global_pool(b, x)
    with b.scope("fc1"):
        y = convolution(b, y, _eights(x.shape[1] / 4), 1)
    y = b.unary("Relu", y)
    with b.scope("fc2"):
        y = convolution(b, y, x.shape[1], 1)
    return b.mul(b.unary("HardSigmoid", y, alpha=1 / 6, beta=0.5), x)


_MOBILENET = [
    Architecture(
        name="mobilenet-v3",
        description="light convolutional classifier (large variant); 5.5 M parameters, 0.22 GMAC",
        write=write_mobilenet,
        sizes={
            "full": {"image": 224, "width": 100, "classes": 1000, "batch": 1},
            "small": {"image": 32, "width": 25, "classes": 10},
        },
        inputs=("input",),
    )
]


CHANNELS = (64, 128, 256, 512, 1024)


def write_unet(b: Builder, *, image: int, width: int, classes: int, batch: int) -> None:
    """U-Net with four levels."""
    divisible("image size", image, 2 ** (len(CHANNELS) - 1), "it is halved at every level")
    channels = [max(1, published * width // 100) for published in CHANNELS]
    x = b.input("input", (batch, 3, image, image))
    skipped: list[Value] = []
    for level, count in enumerate(channels):
        with b.scope(f"down{level}" if level else "inc"):
            if level:
                skipped.append(x)
                x = pool(b, "MaxPool", x, 2, 2)
            x = _double_convolution(b, x, count)
    for level, count in enumerate(reversed(channels[:-1]), 1):
        with b.scope(f"up{level}"):
            with b.scope("up"):
                x = upsample(b, x, count)
            x = _double_convolution(b, b.concat([skipped.pop(), x], 1), count)
    with b.scope("outc"):
        b.output(convolution(b, x, classes, 1), "logits")


def _double_convolution(b: Builder, x: Value, channels: int) -> Value:
    x = convolution_norm(b, x, channels, 3, names=("conv1", "bn1"))
    return convolution_norm(b, x, channels, 3, names=("conv2", "bn2"))


_UNET = [
    Architecture(
        name="unet",
        description="segmentation with long skip connections; 31.0 M parameters, 48.2 GMAC",
        write=write_unet,
        sizes={"full": {"image": 256, "width": 100, "classes": 2, "batch": 1}, "small": {"image": 32, "width": 10}},
        inputs=("input",),
    )
]

ARCHITECTURES = [*_RESNET, *_INCEPTION, *_MOBILENET, *_UNET]
