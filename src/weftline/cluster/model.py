"""Rate, Device, Link, Limits and Cluster: what every other room means by the machines.

Numbers are integers: bytes, bytes/s, operations/s, nanoseconds. A link is one direction. Clusters that come with
weftline are TOML files in the folder `presets`: name -> text.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cached_property
from importlib.resources import files
from pathlib import Path

import msgspec

from weftline.arguments import a_path, a_text
from weftline.errors import InputError, near
from weftline.lazy import notebook_html

__all__ = [
    "Cluster",
    "Device",
    "Limits",
    "Link",
    "OpDevice",
    "Rate",
    "preset_descriptions",
    "preset_names",
    "preset_text",
]


class Rate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How fast a device works, where nobody has profiled the ops themselves."""

    fp32: int
    """FLOP/s in single precision; one multiply-add counts as two."""
    fp16: int = 0
    """FLOP/s in half precision; not given (0) means the same as `fp32`."""
    bandwidth: int
    """Bytes/s read or written in the device's own memory."""
    launch: int
    """Nanoseconds that every op costs, however small it is."""
    source: str = ""
    """`measured`, `datasheet` or `guess`; empty where nobody said, which counts as a guess."""
    int8: int | None = None
    """Operations/s in 8-bit integers, None where nobody said."""

    def __post_init__(self) -> None:
        if self.fp16 == 0:
            msgspec.structs.force_setattr(self, "fp16", self.fp32)


class Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One place where ops run, one at a time."""

    id: str
    """Unique in the cluster; 1 to 64 letters, digits or any of `_ . : -`."""
    kind: str
    """What it is, in the user's words: gpu, cpu, npu, accelerator ..."""
    memory: int | None
    """Bytes it holds, None = no limit."""
    reserve: int = 0
    """Bytes of `memory` that plans leave alone: the driver, the operating system, other people."""
    rate: Rate | None = None
    """None where op times come from a profile or from the problem file."""
    runtime: str = ""
    """What executes here, such as `ort:CUDAExecutionProvider:0`; empty if plans for it are not run."""
    host: bool = False
    """Tensors rest in its memory: in a pipeline it pays for no transfer and its ops need not be contiguous."""
    memory_source: str = ""
    """Where `memory` comes from, in the words of `Rate.source`."""
    speed: float = 1.0
    """At most 1: workers stretch their computing by 1 / speed, so that equal hardware can stand for unequal devices."""
    accelerator: str = ""
    """The name of the product in the catalogue of devices, where it is known."""

    @property
    def capacity(self) -> int | None:
        """Bytes that a plan may use, None = no limit."""
        return None if self.memory is None else self.memory - self.reserve


class Link(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """One direction from one device to another."""

    source: str
    """Id of the device that sends."""
    target: str
    """Id of the device that receives."""
    bandwidth: int
    """Bytes/s."""
    latency: int
    """Nanoseconds before the first byte arrives."""
    shared: str = ""
    """Name of a bus: links with the same name exclude each other. Empty = none."""
    origin: str = ""
    """Where the numbers come from, in the words of `Rate.source` (the field `source` of the file)."""


class OpDevice(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Ops whose names match a pattern (`*`, `?`, `[...]`, case-sensitive), and one device."""

    op: str
    device: str


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the user forbids or insists on; patterns are matched with a graph's op names when a problem is made."""

    pin: tuple[OpDevice, ...] = ()
    """These ops run on that device."""
    together: tuple[tuple[str, ...], ...] = ()
    """All ops that match any pattern of one set run on one device."""
    forbid: tuple[OpDevice, ...] = ()
    """These ops never run on that device."""
    block: tuple[str, ...] = ()
    """Patterns of blocks (`encoder/layer.*`), each of which stays whole on one device; `layers` are all that are found.
    """


class Cluster(msgspec.Struct, frozen=True, dict=True, forbid_unknown_fields=True, omit_defaults=True):
    """Devices, the links between them and the user's limits. `check_cluster` says whether it makes sense."""

    name: str
    devices: tuple[Device, ...]
    links: tuple[Link, ...] = ()
    limits: Limits = Limits()

    @classmethod
    def load(cls, path: Path | str) -> Cluster:
        """Read and check a TOML file; one without a `name` is called after the file."""
        from weftline.cluster.toml import read_cluster

        return read_cluster(a_path(path, "path"))[0]

    @classmethod
    def parse(cls, text: str, where: str = "cluster") -> Cluster:
        """Read and check TOML text; `where` stands before the place in every error."""
        from weftline.cluster.toml import parse_cluster

        return parse_cluster(a_text(text, "text"), a_text(where, "where"))

    @classmethod
    def preset(cls, name: str) -> Cluster:
        """One of the clusters that come with weftline; `preset_names` lists them."""

        return cls.parse(preset_text(name), f"preset {name}")

    def to_toml(self) -> str:
        """The canonical file: equal clusters give equal text, and `parse` gives the cluster back."""
        from weftline.cluster.toml_write import write_cluster

        return write_cluster(self)

    @cached_property
    def index(self) -> dict[str, int]:
        """Device id -> position in `devices`."""
        return {device.id: i for i, device in enumerate(self.devices)}

    def device(self, id: str) -> Device:
        """The device with this id."""
        if id not in self.index:
            near = get_close_matches(id, self.index, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(list(self.index)[:16])}"
            raise InputError(f"unknown device {id[:64]!r}", where=f"cluster {self.name!r}", hint=hint)
        return self.devices[self.index[id]]

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return notebook_html(self)

    def __repr__(self) -> str:
        return f"Cluster({self.name!r}, {len(self.devices)} devices, {len(self.links)} links)"


_PRESETS = {
    "laptop": "a laptop: CPU, integrated GPU, discrete GPU",
    "two-gpus": "a workstation: two unequal GPUs and the CPU on one shared PCIe bus",
    "four-unequal": "four unequal GPUs in four machines: two fast, one slow, one medium, links asymmetric and dear",
    "eight-gpus": "one server with eight equal GPUs, NVLink between all pairs",
    "two-servers": "two servers with four GPUs each: NVLink inside, 100 Gb/s between them",
    "edge": "three small CPUs on 1 Gb/s Ethernet",
}


def preset_names() -> tuple[str, ...]:
    """The names that `Cluster.preset` takes."""
    return tuple(_PRESETS)


def preset_descriptions() -> dict[str, str]:
    """Name -> one line about it."""
    return dict(_PRESETS)


def preset_text(name: str) -> str:
    """The commented TOML file of a preset, a good start for one's own."""
    if a_text(name, "name") not in _PRESETS:
        what = f"unknown preset {name[:64]!r}{near(name, _PRESETS)}"
        raise InputError(what, hint=f"the presets are {', '.join(_PRESETS)}")
    return (files("weftline.cluster") / "presets" / f"{name}.toml").read_text(encoding="utf-8")
