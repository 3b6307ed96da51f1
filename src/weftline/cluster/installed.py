"""Accelerators of this machine, as its own tools list them: nvidia-smi, rocm-smi, system_profiler.

In: what the tools print. Out: `InstalledDevice`s, mapped to the catalogue by name and size, with the memory that the
tool says. Simplified: a tool that is absent, fails or takes too long lists nothing; what a device can do is what its
data sheet says.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from weftline.cluster.catalogue import Accelerator, match_accelerator
from weftline.cluster.catalogue_links import pcie_bandwidth
from weftline.errors import InputError

__all__ = [
    "InstalledDevice",
    "ask_tool",
    "installed_devices",
    "installed_ram",
    "read_nvidia_smi",
    "read_rocm_smi",
    "read_system_profiler",
]

TOOL_SECONDS = 10.0
_MOST_LETTERS, _MOST_DEVICES = 2**20, 64
_MIB = 2**20
_HALF = 0.6
"""A driver that shows a device with less than this share of the product's memory shows one die of it."""

NVIDIA_SMI = (
    "nvidia-smi",
    "--query-gpu=name,memory.total,memory.used,pcie.link.gen.max,pcie.link.width.max",
    "--format=csv,noheader,nounits",
)
ROCM_SMI = ("rocm-smi", "--showproductname", "--showmeminfo", "vram", "--json")
SYSTEM_PROFILER = ("system_profiler", "SPHardwareDataType", "SPDisplaysDataType", "-json")


class InstalledDevice(msgspec.Struct, frozen=True):
    """One accelerator that a tool lists."""

    name: str
    """As the tool spells it."""
    tool: str
    product: Accelerator | None
    """None: the catalogue does not know it, or knows several of this name."""
    memory_bytes: int
    """What the tool says, else what the product has; of unified memory what the system gives it."""
    used_bytes: int = 0
    """In use already."""
    host_bandwidth: int = 0
    """Bytes/s each way of the slot it sits in; 0: unknown."""
    dies: int = 1
    """Of how many equal dies, each listed by itself, the product consists."""
    note: str = ""
    """What had to be assumed, or why there is no product."""


def installed_devices(ask: Callable[[Sequence[str]], str] | None = None) -> tuple[InstalledDevice, ...]:
    """All accelerators that the tools of this machine list; `ask` runs a tool and gives its output, empty if none."""
    run = ask or ask_tool
    found = [
        *read_nvidia_smi(run(NVIDIA_SMI)),
        *read_rocm_smi(run(ROCM_SMI)),
        *read_system_profiler(run(SYSTEM_PROFILER)),
    ]
    return tuple(found[:_MOST_DEVICES])


def ask_tool(words: Sequence[str]) -> str:
    """The output of a tool; empty where it is absent, fails, or takes longer than ten seconds."""
    program = shutil.which(words[0])
    if program is None:
        return ""
    try:
        done = subprocess.run(
            [program, *words[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TOOL_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout[:_MOST_LETTERS].decode("utf-8", "replace")


def read_nvidia_smi(text: str) -> list[InstalledDevice]:
    """The lines of `NVIDIA_SMI`: name, MiB, MiB in use, PCIe generation, lanes."""
    found = []
    for row in csv.reader(text.splitlines()[:_MOST_DEVICES], skipinitialspace=True):
        if len(row) == 5 and row[0]:
            total, used, generation, lanes = (int(part) if part.strip().isdigit() else 0 for part in row[1:])
            device = _matched(row[0].strip(), "nvidia-smi", total * _MIB)
            slot = pcie_bandwidth(generation, lanes)
            found.append(msgspec.structs.replace(device, used_bytes=used * _MIB, host_bandwidth=slot))
    return found


def read_rocm_smi(text: str) -> list[InstalledDevice]:
    """The JSON of `ROCM_SMI`: one table for each card, whose keys differ from version to version."""
    found = []
    for key, card in sorted(_tables(_json(text)), key=lambda item: (len(item[0]), item[0])):
        if not re.fullmatch(r"card\d{1,3}", key):
            continue
        fields = {name.casefold(): str(value) for name, value in card.items()}
        name = next((fields[field] for field in ("card series", "card model", "card sku") if field in fields), "")
        total, used = (fields.get(f"vram total {what} (b)", "") for what in ("memory", "used memory"))
        device = _matched(name, "rocm-smi", int(total) if total.isdigit() else 0)
        found.append(msgspec.structs.replace(device, used_bytes=int(used) if used.isdigit() else 0))
    return found


def read_system_profiler(text: str) -> list[InstalledDevice]:
    """The JSON of `SYSTEM_PROFILER` on a Mac with a chip of Apple's: chip, cores of its GPU, memory."""
    sections = _json(text)
    hardware, displays = (_first(sections.get(name)) for name in ("SPHardwareDataType", "SPDisplaysDataType"))
    chip, memory = str(hardware.get("chip_type", "")), str(hardware.get("physical_memory", ""))
    cores = str(displays.get("sppci_cores", ""))
    if not chip.startswith("Apple M") or not (size := re.fullmatch(r"(\d{1,4}) GB", memory)):
        return []
    installed = int(size[1]) * 2**30
    device = _matched(f"{chip} {cores}-core GPU" if cores.isdigit() else chip, "system_profiler", installed)
    if device.product is None:
        device = _matched(chip, "system_profiler", installed)
        if device.product is not None:
            device = msgspec.structs.replace(
                device, note=f"{chip} with {cores} GPU cores is taken as {device.product.name}"
            )
    if device.product is not None:
        device = msgspec.structs.replace(device, memory_bytes=device.product.usable_bytes(installed))
    return [device]


def installed_ram(meminfo: str | None = None) -> int:
    """Bytes of this machine's memory as /proc/meminfo says; 0 where there is none."""
    if meminfo is None:
        try:
            meminfo = Path("/proc/meminfo").read_text(encoding="ascii", errors="replace")
        except OSError:
            return 0
    line = re.search(r"^MemTotal:\s+(\d{1,15}) kB", meminfo, re.MULTILINE)
    return int(line[1]) * 2**10 if line else 0


def _matched(name: str, tool: str, memory: int) -> InstalledDevice:
    """The device by its name; where several products have it, the one whose memory is nearest to what the tool says."""
    shown = "".join(letter for letter in name if letter.isprintable())[:100]
    product, note = None, ""
    for words in (f"{shown} {_nominal(memory)}GB", shown) if memory else (shown,):
        try:
            product, _, note = match_accelerator(words, "gpu")
            break
        except InputError as error:
            note = error.what
    if product is None:
        return InstalledDevice(shown, tool, None, memory, note=note)
    dies = 2 if 0 < memory < product.least_memory_bytes * _HALF and product.notes.startswith("two dies") else 1
    return InstalledDevice(shown, tool, product, memory or product.memory_bytes, dies=dies, note=note)


def _nominal(memory: int) -> int:
    """GiB as the product's name has it: a driver shows up to a tenth less."""
    sizes = (1, 2, 3, 4, 6, 8, 10, 11, 12, 16, 18, 20, 24, 32, 36, 40, 48, 64, 80, 94, 96, 128, 141, 180, 192, 256, 288)
    return min(sizes, key=lambda size: abs(size - memory / 2**30))


def _json(text: str) -> dict[str, object]:
    start = text.find("{")  # warnings may stand before it
    try:
        found = json.loads(text[start:]) if start >= 0 else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _tables(found: dict[str, object]) -> list[tuple[str, dict[str, object]]]:
    return [(key, value) for key, value in found.items() if isinstance(value, dict)]


def _first(section: object) -> dict[str, object]:
    first = section[0] if isinstance(section, list) and section else {}
    return first if isinstance(first, dict) else {}
