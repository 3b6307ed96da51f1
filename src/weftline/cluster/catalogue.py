"""Accelerators, chips and memory systems by product name: the facts of data sheets, one line each.

In: `accelerators.csv` beside this file; a name as people write it. Out: `Accelerator`, in bytes and operations per
second. Simplified: peaks, not what is reached; a bandwidth in circulation that is wrong is named in `notes`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from decimal import Decimal
from difflib import get_close_matches
from functools import cache
from importlib.resources import files

import msgspec

from weftline.arguments import a_text
from weftline.cluster.catalogue_names import ProductName, memory_system, read_name
from weftline.errors import InputError

__all__ = ["Accelerator", "accelerators", "find_accelerator", "match_accelerator"]

_PEAKS = ("fp32", "fp16", "fp16_acc16", "fp8", "int8", "fp4")
_MOST_LISTED, _LONGEST_NAME = 8, 120
_SMALL_APPLE_MEMORY = 36 * 2**30
_MODULES = re.compile(r"SXM|GB200|\bH20\b|MI250|MI300|MI325|MI355")
_FORMS = ("SXM", "PCIe", "NVL")


class Accelerator(msgspec.Struct, frozen=True, kw_only=True):
    """One product: a card, a chip with unified memory, or the memory system of a CPU."""

    name: str
    aliases: tuple[str, ...] = ()
    vendor: str
    device_class: str
    """consumer, laptop, workstation, datacenter, integrated, apple, or memory (of a CPU)."""
    architecture: str = ""
    memory_type: str
    """gddr, hbm, lpddr or ddr."""
    memory_bytes: int
    """The largest it is sold with; 0 where it uses the memory of its machine."""
    least_memory_bytes: int
    """The smallest it is sold with: less than `memory_bytes` for chips with unified memory."""
    usable_percent: int = 100
    """Of the memory of a machine that it shares with the CPU: what it may use unless somebody raises the limit."""
    bandwidth: int
    """Bytes/s of its own memory, peak."""
    peaks: dict[str, int]
    """Operations/s, dense, one multiply-add counts as two: fp32 (no matrix units), fp16 (with 32-bit sums), fp16_acc16,
    fp8, int8, fp4. What nobody says is not in it.
    """
    pcie_generation: int = 0
    pcie_lanes: int = 0
    """0 for both where it sits on no PCIe bus, or nobody says."""
    link_bandwidth: int = 0
    """Bytes/s each way of its own link to others of its kind (NVLink, Infinity Fabric), all lanes together; 0: none."""
    source: str
    """Where the numbers are from: memory and bandwidth, then compute."""
    notes: str = ""

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def kind(self) -> str:
        """`cpu` for memory systems, `gpu` for all others."""
        return "cpu" if self.device_class == "memory" else "gpu"

    def usable_bytes(self, installed: int) -> int:
        """What plans may use of a memory of this size; macOS gives less of a small one."""
        if self.device_class == "apple" and installed < _SMALL_APPLE_MEMORY:
            return installed * 2 // 3
        return installed * self.usable_percent // 100

    @property
    def joined(self) -> bool:
        """A module of a board that joins it with its neighbours: SXM, OAM; cards need a bridge that few have."""
        return bool(self.link_bandwidth and _MODULES.search(self.name))

    @property
    def unified(self) -> bool:
        """Its memory is that of the whole machine."""
        return self.device_class in ("apple", "integrated")


@cache
def accelerators() -> tuple[Accelerator, ...]:
    """The whole catalogue, in the order of its file."""
    text = (files("weftline.cluster") / "accelerators.csv").read_text(encoding="utf-8")
    return tuple(_accelerator(row) for row in csv.DictReader(text.splitlines()))


def find_accelerator(name: str) -> Accelerator:
    """The one product that a name means; `InputError` with choices where it means none, or several."""
    return match_accelerator(name)[0]


def match_accelerator(name: str, kind: str = "") -> tuple[Accelerator, int | None, str]:
    """The product, the bytes of memory that the name says (None: nothing), and what had to be assumed ("" nothing).

    `kind` (gpu or cpu) leaves out all others.
    """
    asked = a_text(name, "name").strip()
    if not asked or len(asked) > _LONGEST_NAME:
        raise InputError(f"{asked[:60]!r} is not the name of a device", hint="weftline cluster devices lists them")
    wanted = read_name(asked)
    for found, names in _named(kind):
        if any(wanted == one for one in names):
            return found, wanted.bytes, _assumed(found, wanted, kind) if wanted != names[0] else ""
    alike = [found for found, names in _named(kind) if any(_means(wanted, one, found) for one in names)]
    choices = [found for found in alike if "modded" not in found.name] or alike
    if len(choices) == 1:
        return choices[0], wanted.bytes, ""
    if not choices and kind != "gpu" and (system := memory_system(asked)) is not None:
        return _memory_system(*system), None, ""
    raise _not_one(asked, wanted, choices, kind)


def _means(wanted: ProductName, name: ProductName, found: Accelerator) -> bool:
    """All words that count are the same, those that may be left out are not other ones, and the size is sold."""
    if wanted.words != name.words or not wanted.optional <= name.optional:
        return False
    size = wanted.bytes
    return size is None or 0 < found.least_memory_bytes <= size <= found.memory_bytes


def _assumed(found: Accelerator, wanted: ProductName, kind: str) -> str:
    """A short name that others could have, too: `H100` is the SXM card here, and the answer says so."""
    others = [
        other.name
        for other, names in _named(kind)
        if other is not found
        and any(_means(wanted, name, other) for name in names)
        and any(form in other.name for form in _FORMS)
    ]
    return f"{found.name} is meant; there is also {', '.join(others)}" if others else ""


def _not_one(asked: str, wanted: ProductName, choices: list[Accelerator], kind: str) -> InputError:
    if choices:
        names = ", ".join(repr(found.name) for found in choices[:_MOST_LISTED])
        return InputError(f"{asked!r} could be several devices", hint=f"write one of {names}")
    other = [found for found, names in _named("") if kind and kind != found.kind and wanted in names]
    if other:
        what = "the memory system of a CPU: --cpu" if other[0].kind == "cpu" else "an accelerator: --gpu"
        return InputError(f"{asked!r} is {what}")
    near = list(dict.fromkeys((*_containing(wanted, kind), *_close(asked, kind))))[:_MOST_LISTED]
    meant = f", did you mean {' or '.join(repr(name) for name in near[:3])}?" if near else ""
    return InputError(
        f"no device is called {asked!r}{meant}", hint="weftline cluster devices lists all; a part of a name finds some"
    )


def _containing(wanted: ProductName, kind: str) -> Iterator[str]:
    """Devices that have all words of a name, and more."""
    words = set(wanted.words)
    if words and any(any(letter.isdigit() for letter in word) for word in words):
        for found, names in _named(kind):
            if any(words <= set(name.words) or set(name.words) <= words for name in names):
                yield found.name


def _close(asked: str, kind: str) -> Iterator[str]:
    shown = {alias.casefold(): found.name for found, _ in _named(kind) for alias in (found.name, *found.aliases)}
    shown |= {re.sub(r"^(geforce|radeon|apple|cpu) ", "", text): name for text, name in shown.items()}
    for text in get_close_matches(asked.casefold(), list(shown), n=3, cutoff=0.7):
        yield shown[text]


@cache
def _named(kind: str) -> tuple[tuple[Accelerator, tuple[ProductName, ...]], ...]:
    """Devices of a kind with all their names, read; their own first."""
    return tuple(
        (found, tuple(read_name(name) for name in (found.name, *found.aliases)))
        for found in accelerators()
        if kind in ("", found.kind)
    )


def _memory_system(name: str, bandwidth: int, arithmetic: str) -> Accelerator:
    return Accelerator(
        name=name,
        vendor="CPU",
        device_class="memory",
        memory_type="ddr",
        memory_bytes=0,
        least_memory_bytes=0,
        bandwidth=bandwidth,
        peaks={},
        source=f"arithmetic: {arithmetic}",
        notes="of one socket",
    )


def _accelerator(row: dict[str, str]) -> Accelerator:
    least, _, most = row["memory_gib"].partition("-")
    generation, _, lanes = row["pcie"].partition("x")
    sources = {"memory and bandwidth": row["memory_from"], "compute": row["compute_from"]}
    return Accelerator(
        name=row["name"],
        aliases=tuple(filter(None, row["aliases"].split(";"))),
        vendor=row["vendor"],
        device_class=row["class"],
        architecture=row["architecture"],
        memory_type=row["memory_type"],
        memory_bytes=_times(most or least, 2**30),
        least_memory_bytes=_times(least, 2**30),
        usable_percent=int(row["usable"] or 100),
        bandwidth=_times(row["bandwidth_gbs"], 10**9),
        peaks={type: _times(row[type], 10**12) for type in _PEAKS if row[type]},
        pcie_generation=int(generation or 0),
        pcie_lanes=int(lanes or 0),
        link_bandwidth=_times(row["link_gbs"], 10**9) // 2,
        source="; ".join(f"{what}: {text}" for what, text in sources.items() if text),
        notes=row["note"],
    )


def _times(text: str, factor: int) -> int:
    return int(Decimal(text or "0") * factor)
