"""`--gpu`, `--cpu`, `--link`, `--ram` together: devices with what lies between them, and a `Cluster` of them.

In: lists of words. Out: a `DeviceSet`, which says for each card how it reaches its host and others; a `Cluster` with
data sheets' rates. Simplified: cards sit in one machine unless a network is named; the way between two cards is as fast
as its slower half; chips with unified memory are machines of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, groupby

import msgspec

from weftline.arguments import a_text, several
from weftline.cluster.catalogue import Accelerator
from weftline.cluster.catalogue_links import (
    CABLE_LATENCY,
    PCIE_LATENCY,
    PEER_LATENCY,
    LinkOption,
    LinkScope,
    pcie_bandwidth,
    read_link_option,
)
from weftline.cluster.catalogue_names import read_size
from weftline.cluster.catalogue_options import DeviceOption, read_device_option
from weftline.cluster.model import Cluster, Device, Link, Rate
from weftline.cluster.rules import MAX_DEVICES, check_cluster
from weftline.errors import InputError, UsageError

__all__ = ["DeviceSet", "NamedDevice", "catalogue_rate", "cluster_from_options", "devices_from_options"]

DEFAULT_CPU, DEFAULT_NETWORK = "DDR4-3200 dual channel", "10gbe"
MAX_NAME = 200
CARD_RESERVE, _CPU_SHARE = 2**30, 8
"""What plans leave alone where nobody said: of a card, bytes; of a CPU, one part in so many."""
_GPU_LAUNCH, _CPU_LAUNCH = 5_000, 1_000
_GUESSED_GPU, _GUESSED_CPU = 30, 12
"""FLOP for each byte of bandwidth, where no source gives a rate."""
_RUNTIMES = {"NVIDIA": "ort:CUDAExecutionProvider", "CPU": "ort:CPUExecutionProvider"}


class NamedDevice(msgspec.Struct, frozen=True):
    """One card, chip or CPU, and how the others reach it."""

    id: str
    """gpu0, gpu1 ... cpu0 ..."""
    kind: str
    """gpu or cpu."""
    accelerator: Accelerator
    memory_bytes: int
    """What plans may use."""
    total_bytes: int
    """All memory that it has, as far as it is known."""
    said: bool
    """`memory_bytes` is what the user wrote: nothing more is to be kept free."""
    host_bandwidth: int = 0
    """Bytes/s each way between it and its machine's memory; 0 where it is its own (CPUs, unified memory)."""
    host_latency_ns: int = 0
    peer_bandwidth: int = 0
    """Bytes/s each way of a direct link to all others of its kind; 0: through the host."""
    remote: bool = False
    """Reached over a network."""
    network_bandwidth: int = 0
    network_latency_ns: int = 0


class DeviceSet(msgspec.Struct, frozen=True):
    """All devices, cards first, and links between single pairs where somebody named them."""

    devices: tuple[NamedDevice, ...]
    pairs: tuple[LinkOption, ...]
    notes: tuple[str, ...]
    """What had to be assumed."""


def devices_from_options(
    gpus: Sequence[str] = (), cpus: Sequence[str] = (), links: Sequence[str] = (), ram: str | None = None
) -> DeviceSet:
    """Read all options of devices; every mistake is an `InputError` with the option's name."""
    cards = [read_device_option(text, "gpu") for text in several(gpus, "gpus", a_text, '("RTX 4090",)')]
    hosts = [read_device_option(text, "cpu") for text in several(cpus, "cpus", a_text, '("DDR5-6000",)')]
    options = [read_link_option(text) for text in several(links, "links", a_text, '("pcie4x16",)')]
    notes = [note for option in (*cards, *hosts) for note in option.notes]
    size = None if ram is None else read_size(a_text(ram, "--ram"), "--ram")
    if size is not None and not hosts and not any(option.accelerator.unified for option in cards):
        hosts = [read_device_option(DEFAULT_CPU, "cpu")]
        notes.append(f"no --cpu: {DEFAULT_CPU} is assumed for --ram; write --cpu 'DDR5-6000 dual channel' or the like")
    if not cards and not hosts:
        raise UsageError("no devices; write --gpu 'RTX 4090' or --cpu 'DDR5-6000 dual channel' --ram 64GB")
    devices = [*_numbered("gpu", cards, size), *_numbered("cpu", hosts, size)]
    if len(devices) > MAX_DEVICES:
        raise InputError(f"{len(devices)} devices", where="--gpu", hint=f"a cluster has 1 to {MAX_DEVICES}")
    _check_ends(options, devices)
    linked = [_linked(device, options, devices) for device in devices]
    apart = [device.id for device in linked if device.remote and device.accelerator.unified]
    if apart and not any(_is_network(option, linked[0]) for option in options):
        notes.append(
            f"{', '.join(apart)}: machines of their own, joined by {DEFAULT_NETWORK}; --link names another link"
        )
    return DeviceSet(tuple(linked), tuple(option for option in options if len(option.ends) == 2), tuple(notes))


def _numbered(kind: str, options: list[DeviceOption], ram: int | None) -> list[NamedDevice]:
    found: list[NamedDevice] = []
    count = sum(option.count for option in options)
    for option in options:
        memory, said = option.memory_bytes, option.said
        if memory is None and ram is not None:
            memory, said = ram // (count if kind == "cpu" else 1), False
        if memory is None:
            name = option.accelerator.name
            hint = "--ram 64GB" if kind == "cpu" else f"{name}@16GB"
            raise InputError(
                f"{name} uses the memory of its machine: how much?", where=f"--{kind}", hint=f"write {hint}"
            )
        total = option.accelerator.memory_bytes or memory
        for _ in range(min(option.count, MAX_DEVICES + 1 - len(found))):
            found.append(NamedDevice(f"{kind}{len(found)}", kind, option.accelerator, memory, max(total, memory), said))
    return found


def _check_ends(options: list[LinkOption], devices: list[NamedDevice]) -> None:
    known = [device.id for device in devices]
    for option in options:
        for end in option.ends:
            if end not in known:
                raise InputError(
                    f"{end!r} is no device here", where="--link", hint=f"there are {', '.join(known[:16])}"
                )


def _linked(device: NamedDevice, options: list[LinkOption], devices: list[NamedDevice]) -> NamedDevice:
    """The device with its way to the host, to its peers and over the network; what names it counts before the rest."""
    mine = [option for option in options if option.ends in ((), (device.id,))]
    mine.sort(key=lambda option: len(option.ends))
    network = next((option for option in reversed(mine) if _is_network(option, device)), None)
    host = next((option for option in reversed(mine) if option.scope is LinkScope.HOST), None)
    peer = next((option for option in reversed(mine) if option.scope is LinkScope.PEER), None)
    product = device.accelerator
    fields: dict[str, int] = {}
    if device.kind == "gpu" and not product.unified:
        own = pcie_bandwidth(product.pcie_generation or 4, product.pcie_lanes or 16)
        fields["host_bandwidth"] = own if host is None else min(own, host.bandwidth)
        fields["host_latency_ns"] = PCIE_LATENCY if host is None else host.latency
    if (
        peer is not None
        and not product.link_bandwidth
        and (peer.ends or not any(_has_link(other) for other in devices))
    ):
        raise InputError(f"{product.name} has no link of its own", where=f"--link {peer.name}", hint="use pcie4x16")
    if peer is not None or (product.joined and host is None and network is None):
        fields["peer_bandwidth"] = product.link_bandwidth
    if network is None and product.unified and sum(other.kind == "gpu" for other in devices) > 1:
        network = read_link_option(DEFAULT_NETWORK)
    if network is not None and len(devices) > 1 and (device.kind == "gpu" or network.ends):
        fields["remote"] = True
        fields["network_bandwidth"] = network.bandwidth
        fields["network_latency_ns"] = CABLE_LATENCY if network.cable else network.latency
    return msgspec.structs.replace(device, **fields)


def _has_link(device: NamedDevice) -> bool:
    return device.accelerator.link_bandwidth > 0


def _is_network(option: LinkOption, device: NamedDevice) -> bool:
    return option.scope is LinkScope.NETWORK or (option.cable and device.accelerator.unified)


def cluster_from_options(
    gpus: Sequence[str] = (), cpus: Sequence[str] = (), links: Sequence[str] = (), ram: str | None = None
) -> Cluster:
    """A cluster of products by name, with the rates of data sheets; `check_cluster` has seen it."""
    found = devices_from_options(gpus, cpus, links, ram)
    named = {frozenset(option.ends): option for option in found.pairs}
    made: list[Link] = []
    for a, b in combinations(found.devices, 2):
        bandwidth, latency = _between(a, b, named.get(frozenset((a.id, b.id))))
        for source, target in ((a, b), (b, a)):
            made.append(Link(source.id, target.id, bandwidth, latency, origin="datasheet"))
    devices = tuple(_device(device) for device in found.devices)
    return check_cluster(Cluster(name=_name(found.devices), devices=devices, links=tuple(made)))


def _between(a: NamedDevice, b: NamedDevice, named: LinkOption | None) -> tuple[int, int]:
    """Bytes/s and ns of a transfer between two devices."""
    if named is not None and named.scope is LinkScope.PEER:
        own = min(a.accelerator.link_bandwidth, b.accelerator.link_bandwidth)
        if not own:
            raise InputError(f"{a.accelerator.name} and {b.accelerator.name} have no such link", where="--link")
        return own, named.latency
    if named is not None:
        return named.bandwidth, named.latency
    alike = a.accelerator.architecture == b.accelerator.architecture
    if a.peer_bandwidth and b.peer_bandwidth and alike and not (a.remote or b.remote):
        return min(a.peer_bandwidth, b.peer_bandwidth), PEER_LATENCY
    hosts = [(d.host_bandwidth, d.host_latency_ns) for d in (a, b) if d.host_bandwidth]
    networks = [(d.network_bandwidth, d.network_latency_ns) for d in (a, b) if d.remote]
    if not hosts and not networks:  # two sockets, or a CPU and a chip in one memory
        return min(a.accelerator.bandwidth, b.accelerator.bandwidth) // 2, _CPU_LAUNCH
    latency = sum(delay for _, delay in hosts) + max((delay for _, delay in networks), default=0)
    return min(rate for rate, _ in (*hosts, *networks)), latency


def _device(named: NamedDevice) -> Device:
    spare = 0 if named.said or named.accelerator.unified else CARD_RESERVE
    if named.kind == "cpu" and not named.said:
        spare = named.memory_bytes // _CPU_SHARE
    runtime = _RUNTIMES.get(named.accelerator.vendor, "")
    return Device(
        id=named.id,
        kind=named.kind,
        memory=named.memory_bytes,
        reserve=spare if spare < named.memory_bytes else 0,
        rate=catalogue_rate(named.accelerator),
        runtime=f"{runtime}:{named.id.removeprefix('gpu')}" if runtime and named.kind == "gpu" else runtime,
        memory_source="" if named.said else "datasheet",
        accelerator=named.accelerator.name,
    )


def catalogue_rate(product: Accelerator) -> Rate:
    """How fast a product works, from data sheets; where no source gives a rate, it is guessed from the bandwidth."""
    cpu, peaks = product.kind == "cpu", product.peaks
    guessed = product.bandwidth * (_GUESSED_CPU if cpu else _GUESSED_GPU)
    return Rate(
        fp32=peaks.get("fp32", guessed),
        fp16=peaks.get("fp16", 0),
        int8=peaks.get("int8"),
        bandwidth=product.bandwidth,
        launch=_CPU_LAUNCH if cpu else _GPU_LAUNCH,
        source="datasheet" if "fp32" in peaks else "guess",
    )


def _name(devices: Sequence[NamedDevice]) -> str:
    """As options are written: 2x GeForce RTX 3090 + CPU DDR5-6000 dual channel."""
    runs = [(name, len(list(run))) for name, run in groupby(device.accelerator.name for device in devices)]
    text = " + ".join(name if count == 1 else f"{count}x {name}" for name, count in runs)
    return text if len(text) <= MAX_NAME else f"{len(devices)} devices"
