"""Measure this machine: cores -> CPU devices with rates, memory and links, all with source `measured`; and what tools
of this machine list as accelerators, with the rates of data sheets (`installed.py`).

A device is one physical core (or an even share of the cores) that this process may use; each is measured alone, so what
cores take from each other is not seen. With many devices one is measured for all, and one pair for all pairs that lie
in one socket or in two. `fp16` is set equal to `fp32`; `launch` is the time of a tiny numpy operation.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations, groupby, permutations
from pathlib import Path
from typing import NamedTuple

from weftline.cluster.catalogue_links import PCIE_LATENCY, pcie_bandwidth
from weftline.cluster.catalogue_machines import CARD_RESERVE, catalogue_rate
from weftline.cluster.installed import InstalledDevice, installed_devices
from weftline.cluster.model import Cluster, Device, Link, Rate
from weftline.cluster.rules import MAX_DEVICES, check_cluster
from weftline.errors import InputError
from weftline.units import format_bytes

__all__ = ["detect", "worker_cluster"]

MEASURE_ALL = 4
"""Up to this many devices every device and every pair is measured."""
KEEP_FREE = 0.05
"""Share of the memory that plans leave alone, beside what is in use now."""

OnEvent = Callable[[str], None]
Core = tuple[int, ...]


class _Place(NamedTuple):
    """Where a device runs: its logical cores, how many physical cores they are, and their socket."""

    cores: tuple[int, ...]
    threads: int
    socket: str


def detect(
    devices: int | None = None,
    *,
    quick: bool = False,
    time_limit: float = 60.0,
    on_event: OnEvent | None = None,
    accelerators: Sequence[InstalledDevice] | None = None,
    on_note: OnEvent | None = None,
) -> Cluster:
    """Measure this machine in a few seconds.

    `devices` splits the cores evenly into that many devices (default: one for each physical core, one for all beside
    accelerators); `quick` measures tiny sizes, for trying things out; `time_limit` in seconds raises `LimitReached`;
    `on_event` is told what is done. `accelerators` are those that `installed_devices` found, which is asked unless they
    are given; `on_note` hears what the catalogue does not know.
    """
    from weftline.cluster.detect_run import LinkTimes, measure_link, measure_rate, stopwatch

    listed = installed_devices() if accelerators is None else accelerators
    cards = _known(listed, on_note or (lambda text: None))
    if cards and devices is None:
        devices = 1
    places = _split(_physical_cores(), devices)
    ids = [f"cpu{i}" for i in range(len(places))]
    tell = on_event or (lambda text: None)
    remaining = stopwatch(time_limit)
    few = len(places) <= MEASURE_ALL

    rates: list[Rate] = []
    for id, place in list(zip(ids, places, strict=True))[: None if few else 1]:
        rates.append(measure_rate(place.cores, place.threads, quick, remaining, partial(tell, f"measuring {id}")))
    rates += rates[:1] * (len(places) - len(rates))

    measured: dict[tuple[object, ...], LinkTimes] = {}
    links: list[Link] = []
    for a, b in combinations(range(len(places)), 2):
        key = (a, b) if few else (places[a].socket == places[b].socket,)
        if key not in measured:
            event = partial(tell, f"measuring the link between {ids[a]} and {ids[b]}")
            measured[key] = measure_link(places[a].cores, places[b].cores, quick, remaining, event)
        times = measured[key]
        for source, target in ((ids[a], ids[b]), (ids[b], ids[a])):
            links.append(Link(source, target, times.bandwidth, times.latency, origin="measured"))
    made = (*_devices(ids, places, rates), *_card_devices(cards))
    links += _card_links(cards, ids, rates)
    name = _name(len(places), few)
    if cards:
        name += f", and {len(cards)} accelerator{'s' if len(cards) > 1 else ''} with rates of data sheets"
    return check_cluster(Cluster(name=name, devices=made, links=tuple(links)))


def _known(listed: Sequence[InstalledDevice], tell: OnEvent) -> list[InstalledDevice]:
    """Accelerators that the catalogue knows; the others, and what was assumed, are told."""
    for device in listed:
        if device.product is None:
            size = format_bytes(device.memory_bytes) if device.memory_bytes else "memory unknown"
            tell(f"{device.tool} lists {device.name!r} ({size}), which is left out: {device.note}; describe it by hand")
        elif device.note:
            tell(f"{device.tool}: {device.note}")
    return [device for device in listed if device.product is not None]


def _card_devices(cards: Sequence[InstalledDevice]) -> list[Device]:
    made = []
    for number, card in enumerate(cards):
        assert card.product is not None
        rate = catalogue_rate(card.product)
        reserve = max(card.used_bytes, 0 if card.product.unified else CARD_RESERVE)
        runtime = f"ort:CUDAExecutionProvider:{number}" if card.tool == "nvidia-smi" else ""
        made.append(
            Device(
                id=f"gpu{number}",
                kind="gpu",
                memory=card.memory_bytes,
                reserve=reserve if reserve < card.memory_bytes else 0,
                rate=_of_one_die(rate, card.dies),
                runtime=runtime,
                memory_source="measured",
                accelerator=card.product.name,
            )
        )
    return made


def _of_one_die(rate: Rate, dies: int) -> Rate:
    if dies == 1:
        return rate
    int8 = None if rate.int8 is None else rate.int8 // dies
    return Rate(
        fp32=rate.fp32 // dies,
        fp16=rate.fp16 // dies,
        bandwidth=rate.bandwidth // dies,
        launch=rate.launch,
        source=rate.source,
        int8=int8,
    )


def _card_links(cards: Sequence[InstalledDevice], cpus: Sequence[str], rates: Sequence[Rate]) -> list[Link]:
    """Each accelerator with all CPU devices and all other accelerators, through the slower of both slots."""
    slots = []
    for card in cards:
        assert card.product is not None
        own = pcie_bandwidth(card.product.pcie_generation or 4, card.product.pcie_lanes or 16)
        slots.append(rates[0].bandwidth if card.product.unified else min(card.host_bandwidth or own, own))
    links = []
    for number, slot in enumerate(slots):
        others = [(id, slot, PCIE_LATENCY) for id in cpus]
        others += [(f"gpu{other}", min(slot, slots[other]), 2 * PCIE_LATENCY) for other in range(number)]
        for id, bandwidth, latency in others:
            for source, target in ((f"gpu{number}", id), (id, f"gpu{number}")):
                links.append(Link(source, target, bandwidth, latency, origin="datasheet"))
    return links


def _name(count: int, few: bool) -> str:
    text = f"this machine, {count} CPU device{'s' if count > 1 else ''}"
    return text if few else f"{text}; cpu0 and one pair for each kind of pair measured, the others taken as equal"


def _devices(ids: Sequence[str], places: Sequence[_Place], rates: Sequence[Rate]) -> tuple[Device, ...]:
    total, available = _memory()
    mebibyte = 2**20
    memory = max(total // len(ids) // mebibyte, 2)
    in_use = -(-(total - available) // len(ids) // mebibyte)
    reserve = min(in_use + int(memory * KEEP_FREE), memory - 1)
    return tuple(
        Device(
            id=id,
            kind="cpu",
            memory=memory * mebibyte,
            reserve=reserve * mebibyte,
            rate=rate,
            runtime=f"ort:CPUExecutionProvider:{','.join(map(str, place.cores))}",
            memory_source="measured",
        )
        for id, place, rate in zip(ids, places, rates, strict=True)
    )


def _memory() -> tuple[int, int]:
    """Bytes of this machine (or of its container, if that is less), and how many of them are free."""
    import psutil

    memory = psutil.virtual_memory()
    total, available = int(memory.total), int(memory.available)
    limit, used = (_read(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
    if limit.isdigit() and used.isdigit() and 0 < int(limit) < total:
        total = int(limit)
        available = min(available, max(total - int(used), 0))
    return total, available


def _physical_cores() -> list[Core]:
    """The logical cores that this process may use, those of one physical core together."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    siblings: dict[str, list[int]] = {}
    for core in sorted(allowed):
        siblings.setdefault(_topology(core, "thread_siblings_list") or str(core), []).append(core)
    # Neighbours in the list share a socket, so that a device made of several cores lies in one where it can.
    return sorted((tuple(cores) for cores in siblings.values()), key=lambda cores: (_socket(cores[0]), cores))


def _split(cores: Sequence[Core], devices: int | None) -> list[_Place]:
    count = min(len(cores), MAX_DEVICES) if devices is None else devices
    if not 1 <= count <= min(len(cores), MAX_DEVICES):
        raise InputError(
            f"cannot make {count} devices of {len(cores)} physical cores",
            where="devices",
            hint=f"ask for 1 to {min(len(cores), MAX_DEVICES)}",
        )
    share_of = [position * count // len(cores) for position in range(len(cores))]
    places = []
    for _, share in groupby(zip(share_of, cores, strict=True), key=lambda item: item[0]):
        members = [core for _, core in share]
        logical = tuple(sorted(number for core in members for number in core))
        places.append(_Place(logical, len(members), _socket(members[0][0])))
    return places


def _socket(core: int) -> str:
    return _topology(core, "physical_package_id").rjust(8)


def _topology(core: int, name: str) -> str:
    return _read(f"/sys/devices/system/cpu/cpu{core}/topology/{name}")


def _read(path: str) -> str:
    """A line that the kernel offers; empty on other systems."""
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def worker_cluster(speeds: Sequence[float]) -> Cluster:
    """Workers of this machine as devices w0, w1, ...: one core each, perhaps slowed down, run by ONNX Runtime.

    To try unequal devices without owning any. Rates and links are guesses until `weftline profile` measures them.
    """
    rate = Rate(fp32=50 * 10**9, bandwidth=10 * 10**9, launch=2_000, source="guess")
    devices = tuple(
        Device(f"w{number}", "cpu", None, rate=rate, runtime="ort:CPUExecutionProvider", speed=speed)
        for number, speed in enumerate(speeds)
    )
    links = tuple(
        Link(a.id, b.id, bandwidth=5 * 10**9, latency=30_000, origin="guess") for a, b in permutations(devices, 2)
    )
    return check_cluster(Cluster(name=f"{len(devices)} workers of this machine", devices=devices, links=links))
