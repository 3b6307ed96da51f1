"""Clusters that come with weftline, as TOML files in the folder `presets`: name -> text."""

from __future__ import annotations

from importlib.resources import files

from weftline.errors import InputError, near

__all__ = ["preset_descriptions", "preset_names", "preset_text"]

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
    if name not in _PRESETS:
        what = f"unknown preset {name[:64]!r}{near(name, _PRESETS)}"
        raise InputError(what, hint=f"the presets are {', '.join(_PRESETS)}")
    return (files("weftline.cluster") / "presets" / f"{name}.toml").read_text(encoding="utf-8")
