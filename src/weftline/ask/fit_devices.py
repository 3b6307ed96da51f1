"""Cards by name -> devices as costs see them: memory, bandwidth, compute rate, the way to the host.

In: `--gpu`, `--cpu`, `--ram`, `--link`. Out: `FitMachine`: devices gpu0, gpu1 ... in the order in which they are named,
and cpu0. Simplified: one host.
"""

from __future__ import annotations

import msgspec

from weftline.ask.fit_request import FitRequest
from weftline.cluster import Accelerator, NamedDevice, devices_from_options, read_device_option
from weftline.cluster.catalogue_names import read_size
from weftline.cost.llm import LlmDevice, llm_device
from weftline.errors import InputError, UsageError
from weftline.units import format_bytes

__all__ = ["FitMachine", "fit_machine"]

REACHED_PERCENT = 80
"""Of a PCIe slot, by copies of some MiB."""
MOST_CARDS = 64


class FitMachine(msgspec.Struct, frozen=True):
    """The devices of one machine."""

    devices: tuple[LlmDevice, ...]
    accelerators: tuple[Accelerator, ...]
    """Of each device."""
    notes: tuple[str, ...]
    """What had to be assumed."""
    neighbours: tuple[LlmDevice, ...] = ()
    """All cards that the machine has, where these are only some of them; empty: there are no others."""

    @property
    def all_cards(self) -> tuple[LlmDevice, ...]:
        """In the order in which the machine counts them."""
        return self.neighbours or self.cards

    @property
    def cards(self) -> tuple[LlmDevice, ...]:
        """Without the host."""
        return tuple(device for device in self.devices if device.kind != "cpu")

    @property
    def host(self) -> LlmDevice | None:
        """The host's memory, if layers may lie there."""
        return next((device for device in self.devices if device.kind == "cpu"), None)


def fit_machine(request: FitRequest) -> FitMachine:
    """All devices that a request names."""
    cards = [read_device_option(text, kind="gpu") for text in request.gpus]
    if sum(option.count for option in cards) > MOST_CARDS:
        raise InputError(f"more than {MOST_CARDS} cards", where="--gpu", hint="plan one machine at a time")
    hosts = [read_device_option(text, kind="cpu") for text in request.cpus]
    if sum(option.count for option in hosts) > 1:
        raise UsageError("--cpu is the memory of one host; name it once, with all its channels: 'DDR5-5600 12 channel'")
    size, said = read_size(request.ram, "--ram") if request.ram else 0, hosts[0].memory_bytes if hosts else None
    if said and size > said:
        raise UsageError(f"--ram {request.ram} is more than the {format_bytes(said)} of --cpu; leave one out")
    found = devices_from_options(request.gpus, request.cpus, request.links, request.ram or None)
    reached = 100 if any("/s" in text for text in request.links) else REACHED_PERCENT
    devices = tuple(_device(device, reached, size) for device in found.devices)
    accelerators = tuple(device.accelerator for device in found.devices)
    return FitMachine(devices, accelerators, tuple(dict.fromkeys(found.notes)))


def _device(named: NamedDevice, reached: int, ram: int) -> LlmDevice:
    """As costs see it: of a slot copies of some MiB reach a part, unless a rate was given."""
    return llm_device(
        named.id,
        named.accelerator,
        ram if named.kind == "cpu" and ram else named.memory_bytes,
        host_bandwidth=named.host_bandwidth * reached // 100,
        peer_bandwidth=named.peer_bandwidth,
        remote=named.remote,
        network_bandwidth=named.network_bandwidth,
        network_latency_ns=named.network_latency_ns,
    )
