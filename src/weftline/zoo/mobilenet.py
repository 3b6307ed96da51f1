"""MobileNet-V3-large (Howard et al. 2019): depthwise convolutions, squeeze-and-excitation, hard swish.

In: an image. Out: class logits. `width` is the share of the published channels in percent, rounded to multiples of 8.
"""

from __future__ import annotations

from typing import NamedTuple

from weftline.zoo.builder import Builder, Value
from weftline.zoo.layers import classifier, convolution, convolution_norm, global_pool
from weftline.zoo.registry import Architecture

__all__ = ["ARCHITECTURES"]


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
EPSILON = 1e-3


def write(b: Builder, *, image: int, width: int, classes: int, batch: int) -> None:
    """MobileNet-V3-large."""
    x = b.input("input", (batch, 3, image, image))
    with b.scope("features/0"):
        x = convolution_norm(b, x, _eights(16, width), 3, stride=2, activation="HardSwish", epsilon=EPSILON)
    for number, block in enumerate(BLOCKS, 1):
        with b.scope(f"features/{number}"):
            x = _inverted_residual(b, x, block, width)
    with b.scope(f"features/{len(BLOCKS) + 1}"):
        x = convolution_norm(b, x, _eights(960, width), 1, activation="HardSwish", epsilon=EPSILON)
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
            y = convolution_norm(b, y, expanded, 1, activation=block.activation, epsilon=EPSILON)
    with b.scope("depthwise"):
        y = convolution_norm(
            b,
            y,
            expanded,
            block.kernel,
            stride=block.stride,
            groups=expanded,
            activation=block.activation,
            epsilon=EPSILON,
        )
    if block.squeeze:
        with b.scope("squeeze"):
            y = _squeeze_excite(b, y)
    with b.scope("project"):
        # what the squeeze takes away is given back, and a branch adds little to the shortcut beside it
        gain = 1.4 if block.squeeze else 1.0
        gain *= 0.3 if y.shape[2:] == x.shape[2:] and channels == x.shape[1] else 1.0
        y = convolution_norm(b, y, channels, 1, activation=None, gain=gain, epsilon=EPSILON)
    return b.add(x, y) if x.shape == y.shape else y


def _squeeze_excite(b: Builder, x: Value) -> Value:
    y = global_pool(b, x)
    with b.scope("fc1"):
        y = convolution(b, y, _eights(x.shape[1] / 4), 1)
    y = b.unary("Relu", y)
    with b.scope("fc2"):
        y = convolution(b, y, x.shape[1], 1)
    return b.mul(b.unary("HardSigmoid", y, alpha=1 / 6, beta=0.5), x)


ARCHITECTURES = [
    Architecture(
        name="mobilenet-v3",
        description="light convolutional classifier (large variant); 5.5 M parameters, 0.22 GMAC",
        write=write,
        sizes={
            "full": {"image": 224, "width": 100, "classes": 1000, "batch": 1},
            "small": {"image": 32, "width": 25, "classes": 10},
        },
        inputs=("input",),
    )
]
