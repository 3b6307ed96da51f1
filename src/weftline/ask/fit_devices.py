"""Cards by name -> devices as costs see them: memory, bandwidth, compute rate, the way to the host.

In: `--gpu`, `--cpu`, `--ram`, `--link`. Out: `FitMachine`: devices gpu0, gpu1 ... in the order in which they are named,
and cpu0. Simplified: one machine; all cards have the link that is named last, or the slot of their data sheet.
"""

from __future__ import annotations

import re
from functools import partial
from itertools import chain

import msgspec

from weftline.ask.fit_request import FitRequest
from weftline.cluster import Accelerator, DeviceOption, read_device_option
from weftline.cluster.catalogue_names import read_size
from weftline.cost.llm import LlmDevice, llm_device
from weftline.errors import InputError, UsageError
from weftline.units import format_bytes, parse_bandwidth

__all__ = ["FitMachine", "fit_machine"]

_PCIE = re.compile(r"\s*pci-?e\s*(?:gen\s*)?([1-6])(?:\.0)?(?:\s*x\s*(1|2|4|8|16))?\s*", re.IGNORECASE)
_PCIE_LANE = {1: 250, 2: 500, 3: 985, 4: 1_969, 5: 3_938, 6: 7_563}
"""MB/s of one lane."""
REACHED_PERCENT = 80
"""Of a PCIe slot, by copies of some MiB."""
MOST_CARDS = 64
DEFAULT_SYSTEM = "DDR4-3200"
"""The memory of a host whose size alone is said: two channels of it."""


class FitMachine(msgspec.Struct, frozen=True):
    """The devices of one machine."""

    devices: tuple[LlmDevice, ...]
    accelerators: tuple[Accelerator, ...]
    """Of each device."""
    notes: tuple[str, ...]
    """What had to be assumed."""

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
    hosts = [read_device_option(text, kind="cpu") for text in request.cpus]
    notes = [note for option in (*cards, *hosts) for note in option.notes]
    if request.ram and not hosts:
        hosts = [read_device_option(DEFAULT_SYSTEM, kind="cpu")]
        notes.append(f"the host is assumed to have two channels of {DEFAULT_SYSTEM}; say --cpu for another")
    if sum(option.count for option in cards) > MOST_CARDS:
        raise InputError(f"more than {MOST_CARDS} cards", where="--gpu", hint="plan one machine at a time")
    if sum(option.count for option in hosts) > 1:
        raise UsageError("--cpu is the memory of one host; name it once, with all its channels: 'DDR5-5600 12 channel'")
    links = [_link(text) for text in request.links]
    named = partial(_card, link=links[-1] if links else 0)
    accelerators = list(chain.from_iterable([option.accelerator] * option.count for option in cards))
    options = list(chain.from_iterable([option] * option.count for option in cards))
    devices = [named(number, option) for number, option in enumerate(options)]
    for option in hosts:
        devices.append(_host(option, request.ram))
        accelerators.append(option.accelerator)
    return FitMachine(tuple(devices), tuple(accelerators), tuple(dict.fromkeys(notes)))


def _card(number: int, option: DeviceOption, *, link: int) -> LlmDevice:
    found = option.accelerator
    if option.memory_bytes is None:
        raise InputError(
            f"{found.name} uses the memory of its machine", where="--gpu", hint=f"say how much: '{found.name}@64GB'"
        )
    return llm_device(f"gpu{number}", found, option.memory_bytes, host_bandwidth=0 if found.unified else link)


def _host(option: DeviceOption, ram: str) -> LlmDevice:
    memory = read_size(ram, "--ram") if ram else option.memory_bytes
    if memory is None:
        raise UsageError("how much memory of the host may be used? Say --ram 64GB")
    if option.memory_bytes and memory > option.memory_bytes:
        raise UsageError(f"--ram {ram} is more than the {format_bytes(option.memory_bytes)} of --cpu; leave one out")
    return llm_device("cpu0", option.accelerator, memory)


def _link(text: str) -> int:
    """Bytes per second each way of `PCIe 4.0 x8`, or of a bandwidth."""
    if (match := _PCIE.fullmatch(text)) is not None:
        return int(match[2] or 16) * _PCIE_LANE[int(match[1])] * 10**6 * REACHED_PERCENT // 100
    try:
        return parse_bandwidth(text)
    except InputError as error:
        raise InputError(
            f"{text[:60]!r} is no link", where="--link", hint="write it like 'PCIe 4.0 x8' or '12 GB/s'"
        ) from error
