"""ResNet-50 (He et al. 2016) in the form of PyTorch: the stride of a bottleneck is in its 3x3 convolution.

In: an image. Out: class logits. `width` is the share of the published channels in percent.
"""

from __future__ import annotations

from weftline.zoo.builder import Builder, Value
from weftline.zoo.layers import classifier, convolution_norm, global_pool, pool
from weftline.zoo.registry import Architecture

__all__ = ["ARCHITECTURES"]

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
"""Inner channels and bottlenecks of each stage."""
EXPANSION = 4
BRANCH_GAIN = 0.3
"""A branch adds little to the shortcut, or the sixteenth sum would be large."""


def write(b: Builder, *, image: int, width: int, classes: int, batch: int) -> None:
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
    outer = EXPANSION * inner
    y = convolution_norm(b, x, inner, 1, names=("conv1", "bn1"))
    y = convolution_norm(b, y, inner, 3, names=("conv2", "bn2"), stride=stride)
    y = convolution_norm(b, y, outer, 1, names=("conv3", "bn3"), activation=None, gain=BRANCH_GAIN)
    if x.shape != y.shape:
        names = ("downsample/0", "downsample/1")
        x = convolution_norm(b, x, outer, 1, names=names, activation=None, stride=stride)
    return b.unary("Relu", b.add(y, x))


ARCHITECTURES = [
    Architecture(
        name="resnet50",
        description="convolutional classifier with shortcuts; 25.6 M parameters, 4.1 GMAC",
        write=write,
        sizes={
            "full": {"image": 224, "width": 100, "classes": 1000, "batch": 1},
            "small": {"image": 32, "width": 13, "classes": 10},
        },
        inputs=("input",),
    )
]
