"""A device as a language model sees it: memory that may be used, how fast it is read, and how far the host is.

In: numbers of a catalogue or of a user. Out: `LlmDevice` and the class of devices that share fitted constants.
Simplified: one bandwidth, one compute rate; the link is that between the device and its host.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from weftline.cluster.catalogue import Accelerator

__all__ = ["CostClass", "LlmDevice", "cost_class", "llm_device"]

LANE_BANDWIDTH = {1: 250, 2: 500, 3: 985, 4: 1969, 5: 3938, 6: 7563}
"""PCIe: MB/s each way of one lane of a generation."""
REACHED_PERCENT = 80
"""Of a PCIe link, by large copies."""
USUAL_LINK = 12_800_000_000
"""Of a card whose bus nobody says: about PCIe 3.0 x16."""


class CostClass(Enum):
    """Devices that share fitted constants."""

    GDDR = "NVIDIA GDDR"
    HBM = "NVIDIA HBM"
    AMD = "AMD"
    INTEL = "Intel"
    APPLE = "Apple"
    UNIFIED = "unified memory"
    """Chips whose GPU reads the host's memory: DGX Spark, Ryzen AI Max."""
    CPU = "CPU"


class LlmDevice(msgspec.Struct, frozen=True):
    """One card, chip or host processor."""

    id: str
    name: str
    cost_class: CostClass
    memory_bytes: int
    """What may be used."""
    bandwidth: int
    """Of its memory, bytes per second."""
    flops: int = 0
    """Dense 16-bit FLOP/s of matrix units, the faster kind of sums; 0: unknown, then guessed from the bandwidth."""
    vector_flops: int = 0
    """32-bit FLOP/s without matrix units: single tokens are computed there; 0: unknown, left out."""
    kind: str = "gpu"
    """"gpu" or "cpu"."""
    host_bandwidth: int = 0
    """Between it and its host, bytes per second each way; 0 for the host itself."""
    peer_bandwidth: int = 0
    """Between it and its equal neighbours (NVLink), bytes per second each way; 0: through the host."""
    remote: bool = False
    """Reached over a network (llama.cpp: RPC)."""
    network_bandwidth: int = 0
    """Remote devices: bytes per second each way."""
    network_latency_ns: int = 0
    total_bytes: int = 0
    """All memory of the card, where less may be used; 0: `memory_bytes`."""

    @property
    def card_bytes(self) -> int:
        """All memory of the card."""
        return max(self.total_bytes, self.memory_bytes)


def cost_class(accelerator: Accelerator) -> CostClass:
    """The class whose constants are used for a product."""
    if accelerator.device_class == "memory":
        return CostClass.CPU
    if accelerator.device_class == "apple":
        return CostClass.APPLE
    if accelerator.device_class == "integrated":
        return CostClass.UNIFIED
    if accelerator.vendor == "NVIDIA":
        return CostClass.HBM if accelerator.memory_type == "hbm" else CostClass.GDDR
    return CostClass.INTEL if accelerator.vendor == "Intel" else CostClass.AMD


def llm_device(
    ident: str,
    accelerator: Accelerator,
    memory_bytes: int,
    *,
    host_bandwidth: int = 0,
    peer_bandwidth: int = 0,
    remote: bool = False,
    network_bandwidth: int = 0,
    network_latency_ns: int = 0,
) -> LlmDevice:
    """A product as a device of a plan, with the memory that may be used of it; links of 0 are those of its bus."""
    peaks = accelerator.peaks
    lane = LANE_BANDWIDTH.get(accelerator.pcie_generation, 0)
    bus = lane * accelerator.pcie_lanes * 10**4 * REACHED_PERCENT
    alone = accelerator.kind == "cpu" or accelerator.unified
    return LlmDevice(
        id=ident,
        name=accelerator.name,
        cost_class=cost_class(accelerator),
        memory_bytes=memory_bytes,
        bandwidth=accelerator.bandwidth,
        flops=max(peaks.get("fp16", 0), peaks.get("fp16_acc16", 0)),
        vector_flops=peaks.get("fp32", 0),
        kind=accelerator.kind,
        host_bandwidth=host_bandwidth or (0 if alone else bus or USUAL_LINK),
        peer_bandwidth=peer_bandwidth or (accelerator.link_bandwidth if accelerator.joined else 0),
        remote=remote,
        network_bandwidth=network_bandwidth,
        network_latency_ns=network_latency_ns,
        total_bytes=accelerator.memory_bytes or memory_bytes,
    )
