"""The rules of a cluster as code: `check_cluster` raises on what cannot be, `warnings` lists what is merely suspicious.

Places in messages are those of the TOML file (`device[1].memory`), for clusters that never were in a file too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import combinations, islice

from weftline.cluster.model import Cluster, Device, Link, Rate
from weftline.errors import InputError, near
from weftline.units import MAX_QUANTITY

__all__ = ["LEAST_SPEED", "MAX_DEVICES", "MAX_LINKS", "SOURCES", "check_cluster", "unlinked", "warnings"]

MAX_DEVICES = 1024
MAX_LINKS = MAX_DEVICES * (MAX_DEVICES - 1)
MAX_TEXT = 200
LEAST_SPEED = 0.001
MAX_PATTERN = 1_000
SOURCES = ("measured", "datasheet", "guess")

_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character: no file can hold it


def check_cluster(cluster: Cluster, link_places: Sequence[tuple[str, str]] | None = None) -> Cluster:
    """Return the cluster if it keeps every rule, raise `InputError` otherwise.

    `link_places`: for each link, where a file names its source and its target.
    """
    count = len(cluster.devices)
    if not 1 <= count <= MAX_DEVICES:
        raise InputError(f"a cluster has 1 to {MAX_DEVICES} devices, this one has {count}", where="device")
    _check_text(cluster.name, "name")
    known: dict[str, int] = {}
    for i, device in enumerate(cluster.devices):
        _check_device(device, f"device[{i}]")
        if device.id in known:
            raise InputError(
                f"{device.id!r} is already the id of device[{known[device.id]}]",
                where=f"device[{i}].id",
                hint="every device needs an id of its own",
            )
        known[device.id] = i
    _check_links(cluster, known, link_places)
    _check_limits(cluster, known)
    return cluster


def _check_device(device: Device, place: str) -> None:
    if not _ID.fullmatch(device.id):
        raise InputError(
            f"{device.id[:80]!r} is not a device id",
            where=f"{place}.id",
            hint="use 1 to 64 letters, digits or any of _ . : -",
        )
    _check_text(device.kind, f"{place}.kind")
    _check_text(device.runtime, f"{place}.runtime")
    _check_source(device.memory_source, f"{place}.memory_source")
    _check_text(device.accelerator, f"{place}.accelerator")
    if device.accelerator and (device.memory is None or device.rate is None):
        what = f"{device.id!r} names its accelerator, but has no {'memory' if device.memory is None else 'rate'}"
        raise InputError(
            what, where=f"{place}.accelerator", hint="take both from find_accelerator, or leave the name out"
        )
    if device.memory is not None:
        _check_range(device.memory, 1, f"{place}.memory")
    _check_range(device.reserve, 0, f"{place}.reserve")
    if device.memory is not None and device.reserve >= device.memory:
        raise InputError(
            f"the reserve of {device.id!r} leaves nothing of its memory",
            where=f"{place}.reserve",
            hint="it must be smaller than memory",
        )
    if device.rate is not None:
        _check_rate(device.rate, f"{place}.rate")
    if not LEAST_SPEED <= device.speed <= 1:
        hint = "a worker can be slowed down, not sped up; write the rates of a faster device instead"
        raise InputError(f"{device.speed!r:.30} is not in {LEAST_SPEED}..1", where=f"{place}.speed", hint=hint)


def _check_rate(rate: Rate, place: str) -> None:
    _check_range(rate.fp32, 1, f"{place}.fp32")
    _check_range(rate.fp16, 1, f"{place}.fp16")
    _check_range(rate.bandwidth, 1, f"{place}.bandwidth")
    _check_range(rate.launch, 0, f"{place}.launch")
    if rate.int8 is not None:
        _check_range(rate.int8, 1, f"{place}.int8")
    _check_source(rate.source, f"{place}.source")


def _check_links(cluster: Cluster, known: dict[str, int], link_places: Sequence[tuple[str, str]] | None = None) -> None:
    seen: set[tuple[str, str]] = set()
    for i, link in enumerate(cluster.links):
        source_place, target_place = link_places[i] if link_places else (f"link[{i}].source", f"link[{i}].target")
        _check_known(link.source, cluster, known, source_place)
        _check_known(link.target, cluster, known, target_place)
        if link.source == link.target:
            raise InputError(
                f"links {link.source!r} with itself", where=target_place, hint="a device needs no such link"
            )
        if (link.source, link.target) in seen:
            raise InputError(
                f"a second link from {link.source!r} to {link.target!r}",
                where=target_place,
                hint="give each direction once; 'between' means both",
            )
        seen.add((link.source, link.target))
        place = target_place.rpartition(".")[0]
        _check_range(link.bandwidth, 1, f"{place}.bandwidth")
        _check_range(link.latency, 0, f"{place}.latency")
        _check_text(link.shared, f"{place}.shared")
        _check_source(link.origin, f"{place}.source")


def _check_limits(cluster: Cluster, known: dict[str, int]) -> None:
    limits = cluster.limits
    for field in ("pin", "forbid"):
        for i, limit in enumerate(getattr(limits, field)):
            _check_pattern(limit.op, f"limits.{field}[{i}].op")
            _check_known(limit.device, cluster, known, f"limits.{field}[{i}].device")
    for i, pattern in enumerate(limits.block):
        _check_pattern(pattern, f"limits.block[{i}]")
    for i, patterns in enumerate(limits.together):
        if not patterns:
            raise InputError("is empty", where=f"limits.together[{i}]", hint="name the ops that must share a device")
        for j, pattern in enumerate(patterns):
            _check_pattern(pattern, f"limits.together[{i}][{j}]")


_FOREIGN_IDS = (
    ("gpu", r"(/?(device:)?gpu|cuda|rocm|hip|mps|xpu|dml|directml|webgpu|vulkan|opencl)"),
    ("gpu", r"(cuda|rocm|migraphx|tensorrt|nvtensorrtrtx|dml|coreml|webgpu)executionprovider"),
    ("npu", r"(npu|tpu|hpu|qnnexecutionprovider|vitisaiexecutionprovider)"),
    ("cpu", r"(/?(device:)?cpu|cpuexecutionprovider|dnnlexecutionprovider)"),
)
"""What PyTorch, ONNX Runtime, OpenVINO and TensorFlow call devices of a kind, before a number."""


def _device_guess(id: str, devices: Sequence[Device]) -> str:
    """The end of a sentence about an unknown device: what was meant, where it has a name of another program."""
    stems = {device.id.rstrip("0123456789") for device in devices}
    for kind, pattern in () if id.rstrip("0123456789") in stems - {id} else _FOREIGN_IDS:
        match = re.fullmatch(rf"{pattern}(?:[.:]?(?P<number>\d{{1,4}}))?", id[:64], re.IGNORECASE)
        if match is None:
            continue
        same = [device.id for device in devices if device.kind.casefold() == kind]
        number = int(match["number"] or 0)
        if number < len(same):
            return f": ids are those of this cluster, did you mean {same[number]!r}?"
        return f": ids are those of this cluster, and of the kind {kind} it has {len(same) or 'none'}"
    return near(id, [device.id for device in devices])


def _check_known(id: str, cluster: Cluster, known: dict[str, int], place: str) -> None:
    if id not in known:
        what = f"unknown device {id[:64]!r}{_device_guess(id, cluster.devices)}"
        raise InputError(what, where=place, hint=f"the devices are {', '.join(islice(known, 16))}")


def _check_range(value: int, least: int, place: str) -> None:
    if not least <= value <= MAX_QUANTITY:
        raise InputError(f"{value} is not in {least}..2^60", where=place)


def _check_source(word: str, place: str) -> None:
    if word and word not in SOURCES:
        raise InputError(f"{word[:40]!r} is not a source{near(word, SOURCES)}", where=place, hint=f"one of {SOURCES}")


def _check_text(text: str, place: str) -> None:
    # Such text is shown on terminals and in reports: no control characters.
    if len(text) > MAX_TEXT or not text.isprintable():
        raise InputError(
            f"{text[:40]!r} is longer than {MAX_TEXT} characters or has characters that cannot be printed", where=place
        )


def _check_pattern(pattern: str, place: str) -> None:
    if not 0 < len(pattern) <= MAX_PATTERN:
        raise InputError(f"a pattern has 1 to {MAX_PATTERN} characters, this one has {len(pattern)}", where=place)
    if _SURROGATE.search(pattern):
        raise InputError(f"{pattern[:40]!r} is not Unicode text", where=place)


def warnings(cluster: Cluster) -> tuple[str, ...]:
    """What is legal but may not be meant, one sentence for each kind."""
    devices, links = cluster.devices, cluster.links
    sentences = (
        ("no rate, so ops need profiled times", [d.id for d in devices if d.rate is None]),
        ("no memory, so no limit", [d.id for d in devices if d.memory is None and not d.host]),
        ("the rate has no source and counts as a guess", [d.id for d in devices if d.rate and not d.rate.source]),
        ("the rate is a guess", [d.id for d in devices if d.rate and d.rate.source == "guess"]),
        ("the memory is a guess", [d.id for d in devices if d.memory_source == "guess"]),
        ("the link has no source and counts as a guess", [_arrow(link) for link in links if not link.origin]),
        ("the link is a guess", [_arrow(link) for link in links if link.origin == "guess"]),
        ("no link in either direction, so no tensor can pass", unlinked(cluster)),
        ("kinds that differ only in capitals count as different", _twins(device.kind for device in devices)),
    )
    return tuple(f"{_enumerate(places)}: {sentence}" for sentence, places in sentences if places)


def _twins(words: Iterable[str]) -> list[str]:
    """Words that are the same but for capitals."""
    seen: dict[str, set[str]] = {}
    for word in words:
        seen.setdefault(word.casefold(), set()).add(word)
    return [" and ".join(sorted(group)) for group in seen.values() if len(group) > 1]


def _arrow(link: Link) -> str:
    return f"{link.source} -> {link.target}"


def unlinked(cluster: Cluster) -> list[str]:
    """Pairs of devices without a link in either direction."""
    linked = {frozenset((link.source, link.target)) for link in cluster.links}
    pairs = combinations((device.id for device in cluster.devices), 2)
    return [f"{a} and {b}" for a, b in pairs if frozenset((a, b)) not in linked]


def _enumerate(places: Sequence[str], limit: int = 8) -> str:
    more = f" and {len(places) - limit} more" if len(places) > limit else ""
    return ", ".join(places[:limit]) + more
