"""Links by name: "pcie4x16", "nvlink", "10gbe", "thunderbolt4", "infiniband 200", or a plain "12 GB/s".

In: words after `--link`. Out: a `LinkOption`: what it is, bytes/s each way after the line code, latency. Simplified: a
latency is a typical one of its class (no data sheet has it); a transfer reaches the whole rate.
"""

from __future__ import annotations

import re
from enum import Enum

import msgspec

from weftline.arguments import a_text
from weftline.errors import InputError, near
from weftline.units import parse_bandwidth

__all__ = ["LinkOption", "LinkScope", "link_names", "pcie_bandwidth", "read_link_option"]

_LANE = {1: 250_000_000, 2: 500_000_000, 3: 984_615_384, 4: 1_969_230_769, 5: 3_938_461_538, 6: 7_562_500_000}
"""PCIe generation -> bytes/s of a lane each way after the line code (PCI-SIG)."""
PCIE_LATENCY, PEER_LATENCY, FABRIC_LATENCY, ETHERNET_LATENCY, CABLE_LATENCY = 10_000, 3_000, 5_000, 100_000, 50_000
"""ns: a copy between host and card; card to card over their own link; InfiniBand; TCP; a network over Thunderbolt."""
_FAST_ETHERNET, _FAST_ETHERNET_LATENCY = 25, 30_000
"""Gb/s from which cards and drivers are those of servers, and their latency in ns."""
_FASTEST_NETWORK = 1600
"""Gb/s."""

_ENDS = re.compile(r"\s*([A-Za-z]+\d+)(?:\s*-\s*([A-Za-z]+\d+))?\s*=\s*(.+)")
_PCIE = re.compile(r"pci-?e(?:gen)?([1-9])(?:\.0)?(?:x(\d{1,2}))?")
_ETHERNET = re.compile(r"(\d{1,3}(?:\.\d)?)(?:gbe|gbase-?t|gbit|gethernet|gbethernet)")
_INFINIBAND = re.compile(r"(?:infiniband|ib)-?(\d{2,3})")
_GIGABITS = {"edr": 100, "hdr": 200, "ndr": 400, "xdr": 800, "infinibandhdr": 200, "infinibandndr": 400}
_CABLES = {
    "usb4": 32,
    "thunderbolt": 32,
    "thunderbolt3": 32,
    "thunderbolt4": 32,
    "thunderbolt5": 64,
    "usb4v2": 64,
    "tb3": 32,
    "tb4": 32,
    "tb5": 64,
    "oculink": 63,
}
"""Gb/s of the PCIe that a cable carries: 32 of the 40 of Thunderbolt 4 (Intel), 64 of Thunderbolt 5; PCIe 4.0 x4."""
_PEERS = ("nvlink", "infinityfabric", "xgmi")
_EXAMPLES = ("pcie4x16", "pcie3x8", "nvlink", "thunderbolt4", "usb4", "oculink", "1gbe", "10gbe", "infiniband200")


class LinkScope(Enum):
    """What a link joins."""

    HOST = "host"
    """A card and the machine that it sits in."""
    PEER = "peer"
    """Cards of one kind, directly."""
    NETWORK = "network"
    """Machines."""


class LinkOption(msgspec.Struct, frozen=True):
    """One `--link`."""

    name: str
    scope: LinkScope
    bandwidth: int
    """Bytes/s each way; 0: what the cards have (NVLink)."""
    latency: int
    """ns."""
    ends: tuple[str, ...] = ()
    """None: all cards. One id: the link of this device. Two: between them."""
    cable: bool = False
    """Between chips that are machines of their own it is a network."""


def read_link_option(text: str) -> LinkOption:
    """`NAME` for all cards, `gpu1=NAME` for one, `gpu0-gpu1=NAME` between two."""
    asked = a_text(text, "--link").strip()
    found = _ENDS.fullmatch(asked)
    name, ends = (found[3], tuple(end for end in found.group(1, 2) if end)) if found else (asked, ())
    if len(set(ends)) < len(ends):
        raise InputError(f"{asked[:60]!r} links a device with itself", where="--link")
    link = _read(name)
    if link is None:
        what = f"{name[:60]!r} is not a link{near(name.casefold(), _EXAMPLES)}"
        raise InputError(what, where="--link", hint=f"known: {', '.join(_EXAMPLES)}; or a rate like '12 GB/s'")
    return msgspec.structs.replace(link, ends=ends)


def link_names() -> tuple[str, ...]:
    """Examples of every class of links."""
    return _EXAMPLES


def pcie_bandwidth(generation: int, lanes: int) -> int:
    """Bytes/s each way of a PCIe slot; 0 for what there is not."""
    return _LANE.get(generation, 0) * lanes


def _read(name: str) -> LinkOption | None:
    plain = re.sub(r"[\s_]+", "", name.casefold())
    if plain in _PEERS:
        return LinkOption(plain, LinkScope.PEER, 0, PEER_LATENCY)
    if (pcie := _PCIE.fullmatch(plain)) and int(pcie[1]) in _LANE and pcie[2] in (None, "1", "2", "4", "8", "16"):
        return LinkOption(plain, LinkScope.HOST, pcie_bandwidth(int(pcie[1]), int(pcie[2] or 16)), PCIE_LATENCY)
    if plain in _CABLES:
        return LinkOption(plain, LinkScope.HOST, _CABLES[plain] * 10**9 // 8, PCIE_LATENCY, cable=plain != "oculink")
    if (network := _network(plain)) is not None:
        return network
    try:
        return LinkOption(name.strip(), LinkScope.HOST, parse_bandwidth(name), PCIE_LATENCY)
    except InputError:
        return None


def _network(plain: str) -> LinkOption | None:
    ethernet, fabric = _ETHERNET.fullmatch(plain), _INFINIBAND.fullmatch(plain)
    gigabits = float(ethernet[1]) if ethernet else float(fabric[1]) if fabric else _GIGABITS.get(plain, 0)
    if not 0 < gigabits <= _FASTEST_NETWORK:
        return None
    slow = ETHERNET_LATENCY if gigabits < _FAST_ETHERNET else _FAST_ETHERNET_LATENCY
    return LinkOption(plain, LinkScope.NETWORK, int(gigabits * 10**9) // 8, slow if ethernet else FABRIC_LATENCY)
