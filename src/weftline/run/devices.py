"""From devices of a cluster to sessions of ONNX Runtime: provider, its options, cores and threads.

In: the `runtime` of devices: `ort:CPUExecutionProvider` (one core of its own, one thread),
`ort:CPUExecutionProvider:2-3` (these cores, as many threads), `ort:CUDAExecutionProvider:0` (a device id). Out: an
`OrtDevice` for each. A provider that is not there is an error. Simplified: devices without cores of their own take
those that no other device names, in turns; if there are more devices than cores, they share.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from weftline.cluster import Device
from weftline.errors import InputError, UsageError

__all__ = ["OrtDevice", "ort_devices"]

CPU = "CPUExecutionProvider"
MAX_CORE = 4096

_RUNTIME = re.compile(r"ort:(?P<provider>[A-Za-z]+ExecutionProvider)(?::(?P<rest>[0-9,-]{1,200}))?")
_CORES = re.compile(r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*")


class OrtDevice(msgspec.Struct, frozen=True):
    """How a device runs by ONNX Runtime."""

    runtime: str
    provider: str
    options: dict[str, str]
    """Of the provider."""
    cores: tuple[int, ...]
    """The process is bound to these."""
    threads: int
    own: bool
    """The runtime names the cores."""


def ort_devices(devices: Sequence[Device], runtimes: Mapping[str, str] = MappingProxyType({})) -> dict[str, OrtDevice]:
    """Device id -> how it runs; `runtimes` (device id -> runtime) comes before what the cluster says."""
    ids = [device.id for device in devices]
    for id in runtimes:
        if id not in ids:
            raise UsageError(f"a runtime is given for {id[:64]!r}; the devices are {', '.join(ids[:16])}")
    parsed = {device.id: _parse(device.id, runtimes.get(device.id, device.runtime)) for device in devices}
    here = _cores_here()
    named = {core for _, _, cores in parsed.values() for core in cores}
    if missing := sorted(named - set(here)):
        raise InputError(f"core {missing[0]} is not there for this process", hint=f"it has {_ranges(here)}")
    free = [core for core in here if core not in named] or list(here)
    found: dict[str, OrtDevice] = {}
    given = 0
    for device in devices:
        runtime, match, cores = parsed[device.id]
        own = bool(cores)
        if not own:
            cores, given = (free[given % len(free)],), given + 1
        options = {} if match["provider"] == CPU or not match["rest"] else {"device_id": match["rest"]}
        found[device.id] = OrtDevice(runtime, match["provider"], options, cores, len(cores), own)
    return found


def _parse(id: str, runtime: str) -> tuple[str, re.Match[str], tuple[int, ...]]:
    match = _RUNTIME.fullmatch(runtime)
    if match is None:
        said = f"its runtime is {runtime[:60]!r}" if runtime else "it has no runtime"
        raise InputError(
            f"device {id!r} cannot be run by ONNX Runtime: {said}",
            hint=f'give it one such as runtime = "ort:{CPU}", or --runtime {id}=ort:{CPU}',
        )
    rest = match["rest"]
    if match["provider"] == CPU and rest:
        return runtime, match, _read_cores(id, rest)
    if rest and not re.fullmatch(r"\d{1,4}", rest):
        raise InputError(f"device {id!r}: {runtime[:60]!r} names no device number", hint=f"write it like {runtime}:0")
    return runtime, match, ()


def _read_cores(id: str, text: str) -> tuple[int, ...]:
    """`0,2-3` -> (0, 2, 3)."""
    cores: set[int] = set()
    if _CORES.fullmatch(text):
        for part in text.split(","):
            first, _, last = part.partition("-")
            cores.update(range(int(first), min(int(last or first), MAX_CORE) + 1))
    if not cores:
        raise InputError(f"device {id!r}: {text[:60]!r} names no cores", hint=f"write them like ort:{CPU}:0,2-3")
    return tuple(sorted(cores))


def _cores_here() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _ranges(cores: Sequence[int]) -> str:
    return ", ".join(map(str, cores[:32])) + (" ..." if len(cores) > 32 else "")
