"""A device as a language model sees it: memory that may be used, how fast it is read, and how far the host is.

In: numbers of a catalogue or of a user. Out: `LlmDevice` and the class of devices that share fitted constants.
Simplified: one bandwidth, one compute rate; the link is that between the device and its host.
"""

from __future__ import annotations

from enum import Enum

import msgspec

__all__ = ["CostClass", "LlmDevice"]


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
    """Dense 16-bit FLOP/s with 32-bit sums; 0: unknown, prefill is then estimated from the bandwidth."""
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
