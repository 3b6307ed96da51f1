"""costs.json <-> Profile: what a model's kernels and the machine's links were measured to take.

In: bytes of a file, or a `Profile` that was measured. Out: the other of the two. A kernel is a group of ops that the
backend runs as one; a device's kernels cover every op once. Times are nanoseconds of the device as it was described
(slowed down by its `speed`). The file is not trusted: sizes, names and numbers are checked before anything is made.
"""

from __future__ import annotations

import hashlib
import math
import re
from pathlib import Path
from typing import Literal

import msgspec

from weftline.errors import InputError
from weftline.files import other_kind, read_limited, write_atomically
from weftline.units import MAX_QUANTITY

__all__ = [
    "FORMAT",
    "DeviceProfile",
    "Kernel",
    "LayoutChange",
    "LinkProfile",
    "Profile",
    "load_profile",
    "profile_from_json",
    "profile_to_json",
    "read_profile",
    "save_profile",
]

FORMAT = "weftline-costs"
MAX_FILE_BYTES = 256 * 2**20
MAX_DEVICES = 1024
MAX_KERNELS = 2_000_000
"""Of all devices together."""
MAX_TEXT = 4096
HINT = "write one with: weftline profile MODEL --cluster FILE -o costs.json"

_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


class Kernel(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Ops that run as one, and how long they take together."""

    ops: tuple[str, ...]
    """Names of ops of the graph."""
    alone_ns: int
    """While no other device works."""
    busy_ns: int
    """While all other devices of the profile run the model too."""
    spread: float = 0.0
    """Interquartile range of the runs as a share of their median, alone."""


class LayoutChange(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A tensor that kernels of one session exchange in a layout of their own."""

    tensor: str
    leave_ns: int
    """To change it back, on the device that it leaves."""
    enter_ns: int
    """To change it again, on a device that it enters."""


class DeviceProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One device, measured."""

    id: str
    runtime: str
    """What ran it, such as `ort:CPUExecutionProvider`."""
    speed: float
    """The share of its real speed that it was given; times are for that share."""
    threads: int
    alone_ns: int
    """One run of the whole model, the mean (by OpenVINO: the median). The kernels add up to it."""
    busy_ns: int
    spread: float
    """Of whole runs, alone."""
    stolen: float
    """Share of the time of whole runs (alone or busy, the larger) in which others had its core; 0 if it has several."""
    kernels_from: str
    """Optimisation level whose kernels were found again in the graph; their times are scaled to `Profile.level`."""
    note: str
    """Why that level is another one than `Profile.level`; else empty."""
    kernels: tuple[Kernel, ...]
    layouts: tuple[LayoutChange, ...] = ()
    """What a cut adds, alone; tensors that are not here cross as they are."""


class LinkProfile(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """One direction between two devices, measured."""

    source: str
    target: str
    latency_ns: int
    bandwidth: int
    """Bytes/s."""


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of costs.json."""

    format: Literal["weftline-costs"]
    version: Literal[1]
    model: str
    """Name of the graph."""
    model_sha256: str
    inputs: dict[str, tuple[int, ...]]
    """Input -> shape that was run."""
    backend: str
    backend_version: str
    level: str
    """Optimisation level of the runs."""
    machine: str
    made: str
    """When, as ISO 8601 in UTC."""
    repeats: int
    """Runs that count, for each number, at least."""
    devices: tuple[DeviceProfile, ...]
    links: tuple[LinkProfile, ...] = ()
    note: str = ""
    """What was done to the times afterwards, such as calibration."""

    def device(self, id: str) -> DeviceProfile:
        """The device with this id; an error if it was not measured."""
        for device in self.devices:
            if device.id == id:
                return device
        raise InputError(
            f"device {id[:64]!r} was not profiled; the profile has {', '.join(d.id for d in self.devices[:16])}",
            hint="profile again with this cluster, or plan for the cluster that was profiled",
        )


def profile_to_json(profile: Profile) -> bytes:
    """Canonical bytes: one kernel a line."""
    return msgspec.json.format(msgspec.json.encode(profile), indent=1) + b"\n"


def save_profile(profile: Profile, path: Path | str) -> None:
    """Write costs.json."""
    write_atomically(path, profile_to_json(profile))


def load_profile(path: Path | str) -> Profile:
    """Read costs.json."""
    return read_profile(path)[0]


def read_profile(path: Path | str) -> tuple[Profile, str]:
    """Read costs.json -> (profile, sha256 of the file)."""
    data = read_limited(path, MAX_FILE_BYTES)
    try:
        return profile_from_json(data), hashlib.sha256(data).hexdigest()
    except InputError as error:
        raise error.at(str(path)) from error


def profile_from_json(data: bytes) -> Profile:
    """Decode and check; every failure is an `InputError`."""
    try:
        profile = msgspec.json.decode(data, type=Profile)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        other = other_kind(data, "a file of costs")
        raise InputError(other or f"is not a file of costs: {str(error)[:200]}", hint=HINT) from error
    _check(profile)
    return profile


def _check(profile: Profile) -> None:
    if not 1 <= len(profile.devices) <= MAX_DEVICES:
        raise InputError(f"{len(profile.devices)} devices, of 1 to {MAX_DEVICES}", where="devices", hint=HINT)
    if sum(len(device.kernels) + len(device.layouts) for device in profile.devices) > MAX_KERNELS:
        raise InputError(f"more than {MAX_KERNELS} kernels and changes of layout", where="devices", hint=HINT)
    seen: set[str] = set()
    for device in profile.devices:
        place = f"device {device.id[:64]!r}"
        if not _ID.fullmatch(device.id) or device.id in seen:
            raise InputError("its id is no id, or is there twice", where=place, hint=HINT)
        seen.add(device.id)
        _check_device(device, place)
    for link in profile.links:
        if link.source not in seen or link.target not in seen or link.source == link.target:
            raise InputError("a link joins two devices of the file", where="links", hint=HINT)
        if not 0 <= link.latency_ns <= MAX_QUANTITY or not 1 <= link.bandwidth <= MAX_QUANTITY:
            raise InputError("a latency or bandwidth makes no sense", where="links", hint=HINT)
    if len({(link.source, link.target) for link in profile.links}) < len(profile.links):
        raise InputError("two links join the same devices", where="links", hint=HINT)
    if any(size < 0 for shape in profile.inputs.values() for size in shape):
        raise InputError("a shape has a negative size", where="inputs", hint=HINT)
    texts = (profile.model, profile.backend, profile.backend_version, profile.level, profile.machine, profile.made)
    if any(len(text) > MAX_TEXT for text in (*texts, profile.note)):
        raise InputError(f"a text is longer than {MAX_TEXT} letters", hint=HINT)


def _check_device(device: DeviceProfile, place: str) -> None:
    if not (0 <= device.spread <= MAX_QUANTITY and 0 <= device.stolen <= 1):
        raise InputError("a spread or share makes no sense", where=place, hint=HINT)
    if not all(0 <= ns <= MAX_QUANTITY for ns in (device.alone_ns, device.busy_ns)):
        raise InputError("the time of a whole run lies outside 0..2^60 ns", where=place, hint=HINT)
    if not 0 < device.speed <= 1e6 or not math.isfinite(device.speed) or not 1 <= device.threads <= 2**20:
        raise InputError("its speed or number of threads makes no sense", where=place, hint=HINT)
    if any(len(text) > MAX_TEXT for text in (device.runtime, device.kernels_from, device.note)):
        raise InputError(f"a text is longer than {MAX_TEXT} letters", where=place, hint=HINT)
    if len({change.tensor for change in device.layouts}) < len(device.layouts):
        raise InputError("a tensor's layout changes twice", where=place, hint=HINT)
    if any(not 0 <= ns <= MAX_QUANTITY for change in device.layouts for ns in (change.leave_ns, change.enter_ns)):
        raise InputError("the time of a change of layout lies outside 0..2^60 ns", where=place, hint=HINT)
    known: set[str] = set()
    for kernel in device.kernels:
        if not kernel.ops:
            raise InputError("a kernel without ops", where=place, hint=HINT)
        if not kernel.spread >= 0:
            raise InputError("a spread is negative", where=f"{place}, op {kernel.ops[0][:80]!r}", hint=HINT)
        if not (0 <= kernel.alone_ns <= MAX_QUANTITY and 0 <= kernel.busy_ns <= MAX_QUANTITY):
            raise InputError("a time lies outside 0..2^60 ns", where=f"{place}, op {kernel.ops[0][:80]!r}", hint=HINT)
        for op in kernel.ops:
            if op in known:
                raise InputError(f"op {op[:80]!r} stands in two kernels", where=place, hint=HINT)
            known.add(op)
