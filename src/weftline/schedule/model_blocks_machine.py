"""The machine of Tessel's evaluation, and what layers and messages take on it.

In: layers (flops, parameters, bytes). Out: nanoseconds and bytes on equal GPUs: a roofline with the cost room's
efficiencies, ring all-reduces for tensor parallelism, sends between stages. Simplified: half precision, no overlap of
communication with computation, a message between servers has the whole network card.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from weftline.cluster import Rate
from weftline.cost.efficiency import efficiency

__all__ = ["V100", "Layer", "Machine"]

HALF = 2
"""Bytes of a number in half precision."""
TRAINED = 8
"""Bytes per parameter in training: weights, gradients and two moments in half precision. With more the published
models would not fit their GPUs."""
KERNELS = 12
"""Launches of a layer."""


@dataclass(frozen=True)
class Layer:
    """A layer for one micro-batch; what tensor parallelism divides is written undivided."""

    name: str
    flops: int
    """Of dense products."""
    attention_flops: int
    traffic: int
    """Bytes that everything else reads and writes."""
    parameters: int
    output: int
    """Bytes that go to the next layer; kept until the backward pass, which computes the rest again."""
    work: int
    """Bytes while the layer is computed again."""
    reductions: int
    """All-reduces of the output in the forward pass, when the layer is split over devices."""
    gradient_traffic: int = 0
    """Bytes that the backward pass moves for dense gradients of an embedding."""


@dataclass(frozen=True)
class Machine:
    """Equal GPUs in servers."""

    name: str
    rate: Rate
    memory: int
    per_server: int
    link: int
    """Bytes/s of a GPU to others of its server, each way."""
    network: int
    """Bytes/s between servers."""
    delay: int
    """Nanoseconds of any message."""

    def forward(self, layers: Sequence[Layer], devices: Sequence[int]) -> int:
        """Time of layers that are split over devices."""
        return sum(self._compute(layer, len(devices)) + self._reductions(layer, devices) for layer in layers)

    def backward(self, layers: Sequence[Layer], devices: Sequence[int]) -> int:
        """The forward pass again, and twice its work; its messages again, and once more for gradients."""
        return sum(
            3 * self._compute(layer, len(devices))
            + 2 * self._reductions(layer, devices)
            + self._move(layer.gradient_traffic, len(devices))
            for layer in layers
        )

    def send(self, size: int, source: int, target: int) -> int:
        """Time of a message between two devices."""
        if source == target or size == 0:
            return 0
        same = source // self.per_server == target // self.per_server
        return self.delay + ceil(size * 1e9 / (self.link if same else self.network))

    def all_reduce(self, size: int, devices: Sequence[int]) -> int:
        """A ring; the slowest link of the ring decides."""
        count = len(devices)
        if count == 1 or size == 0:
            return 0
        apart = len({device // self.per_server for device in devices}) > 1
        seconds = 2 * (count - 1) / count * size / (self.network if apart else self.link)
        return 2 * (count - 1) * self.delay + ceil(seconds * 1e9)

    def room(self, layers: Sequence[tuple[Layer, int]], train: bool) -> int:
        """Bytes left on a device that holds a share 1 / n of each layer."""
        weights = sum(-(-layer.parameters * (TRAINED if train else HALF) // count) for layer, count in layers)
        work = [layer.work if train or not layer.gradient_traffic else layer.output for layer, _ in layers]
        return (
            self.memory - weights - max((-(-w // count) for w, (_, count) in zip(work, layers, strict=True)), default=0)
        )

    def _compute(self, layer: Layer, count: int) -> int:
        dense = layer.flops / (self.rate.fp16 * efficiency("MatMul").compute)
        attention = layer.attention_flops / (self.rate.fp16 * efficiency("Attention").compute)
        launches = KERNELS * self.rate.launch if layer.flops else self.rate.launch
        return ceil((dense + attention) * 1e9 / count) + self._move(layer.traffic, count) + launches

    def _move(self, size: int, count: int) -> int:
        return ceil(size * 1e9 / (self.rate.bandwidth * efficiency("Add").memory * count))

    def _reductions(self, layer: Layer, devices: Sequence[int]) -> int:
        return layer.reductions * self.all_reduce(layer.output, devices)


V100 = Machine(
    name="V100 SXM2 32 GB, 8 per server, 100 Gb/s between servers (datasheet)",
    rate=Rate(fp32=15_700 * 10**9, fp16=125 * 10**12, bandwidth=900 * 10**9, launch=5_000, source="datasheet"),
    memory=30 * 2**30,
    per_server=8,
    link=150 * 10**9,
    network=12_500 * 10**6,
    delay=10_000,
)
"""2 GiB of 32 are left for the runtime."""
