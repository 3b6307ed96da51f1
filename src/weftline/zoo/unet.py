"""U-Net (Ronneberger et al. 2015), padded and with batch normalisation: skip connections span the whole network.

In: an image. Out: a logit per class and pixel. `width` is the share of the published channels in percent.
"""

from __future__ import annotations

from weftline.zoo.builder import Builder, Value
from weftline.zoo.layers import convolution, convolution_norm, divisible, pool, upsample
from weftline.zoo.registry import Architecture

__all__ = ["ARCHITECTURES"]

CHANNELS = (64, 128, 256, 512, 1024)


def write(b: Builder, *, image: int, width: int, classes: int, batch: int) -> None:
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


ARCHITECTURES = [
    Architecture(
        name="unet",
        description="segmentation with long skip connections; 31.0 M parameters, 48.2 GMAC",
        write=write,
        sizes={
            "full": {"image": 256, "width": 100, "classes": 2, "batch": 1},
            "small": {"image": 32, "width": 10},
        },
        inputs=("input",),
    )
]
