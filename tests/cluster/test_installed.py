"""Accelerators as tools of a machine list them, on outputs written down here."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from weftline.cluster import Cluster, InstalledDevice, detect, installed_devices
from weftline.cluster import installed as tools
from weftline.cluster.catalogue_links import pcie_bandwidth
from weftline.cluster.installed import ask_tool, read_nvidia_smi, read_rocm_smi, read_system_profiler

MIB, GIB = 2**20, 2**30

NVIDIA = """NVIDIA GeForce RTX 4090, 24564, 412, 4, 16
NVIDIA GeForce RTX 3060, 12288, 1, 4, 8
NVIDIA GeForce RTX 4070 Laptop GPU, 8188, 90, 4, 8
NVIDIA A100-SXM4-80GB, 81920, 0, 4, 16
NVIDIA H100 PCIe, 81559, 0, 5, 16
Tesla P40, 24576, 0, 3, 16
NVIDIA GB10, [N/A], [N/A], 1, 1
NVIDIA GeForce GT 710, 2048, 3, 2, 8
"""
ROCM = {
    "card0": {
        "VRAM Total Memory (B)": "25753026560",
        "VRAM Total Used Memory (B)": "27619328",
        "Card Series": "AMD Radeon RX 7900 XTX",
        "Card Model": "0x744c",
        "GFX Version": "gfx1100",
    },
    "card1": {
        "VRAM Total Memory (B)": "68702699520",
        "VRAM Total Used Memory (B)": "10854400",
        "Card series": "AMD INSTINCT MI250X",
        "Card model": "0x0b0c",
    },
    "system": {"Driver version": "6.8.5"},
}


def mac(chip: str, cores: int, memory: int) -> str:
    return json.dumps(
        {
            "SPHardwareDataType": [
                {"_name": "hardware_overview", "chip_type": chip, "physical_memory": f"{memory} GB"}
            ],
            "SPDisplaysDataType": [{"_name": chip, "sppci_cores": str(cores), "sppci_vendor": "sppci_vendor_Apple"}],
        }
    )


def names(found: Sequence[InstalledDevice]) -> list[str]:
    return [device.product.name if device.product else "" for device in found]


def test_cards_of_nvidia() -> None:
    """Tests that names and memory choose the product, that memory is the tool's, that unknown cards stay unknown."""
    found = read_nvidia_smi(NVIDIA)
    assert names(found) == [
        "GeForce RTX 4090",
        "GeForce RTX 3060 12GB",
        "GeForce RTX 4070 Laptop",
        "A100 SXM4 80GB",
        "H100 PCIe 80GB",
        "Tesla P40",
        "DGX Spark GB10",
        "",
    ]
    assert (found[0].memory_bytes, found[0].used_bytes) == (24564 * MIB, 412 * MIB)
    assert found[1].host_bandwidth == pcie_bandwidth(4, 8)
    assert found[6].memory_bytes == 128 * GIB
    assert (found[7].memory_bytes, found[7].name) == (2 * GIB, "NVIDIA GeForce GT 710")


def test_cards_of_amd() -> None:
    """Tests both spellings of the tool's keys, a warning before the JSON, and one die of a product of two."""
    found = read_rocm_smi("WARNING: AMD GPU device(s) is/are in a low-power state.\n" + json.dumps(ROCM))
    assert names(found) == ["Radeon RX 7900 XTX", "Instinct MI250X"]
    assert (found[0].memory_bytes, found[0].dies) == (25753026560, 1)
    assert (found[1].memory_bytes, found[1].dies) == (68702699520, 2)


def test_chips_of_apple() -> None:
    """Tests that cores choose the chip, that the GPU gets its share, and that an unlisted number of cores is noted."""
    (ultra,) = read_system_profiler(mac("Apple M2 Ultra", 76, 192))
    assert (names([ultra]), ultra.memory_bytes, ultra.note) == (["Apple M2 Ultra (76)"], 144 * GIB, "")
    (small,) = read_system_profiler(mac("Apple M3 Max", 30, 36))
    assert names([small]) == ["Apple M3 Max (30)"]
    (other,) = read_system_profiler(mac("Apple M2 Ultra", 60, 64))
    assert names([other]) == ["Apple M2 Ultra (76)"]
    assert "60 GPU cores" in other.note
    assert read_system_profiler(mac("Unknown", 8, 16)) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        "No devices were found",
        "a,b,c,d,e",
        '{"card0": 3}',
        "\x00" * 50,
        "[" * 9999,
        '{"a":' * 9999,
    ],
)
def test_outputs_that_make_no_sense(text: str) -> None:
    """Tests that no output ends in an error."""
    assert names(read_nvidia_smi(text)) in ([], [""])
    assert read_rocm_smi(text) == []
    assert read_system_profiler(text) == []


def test_all_tools_are_asked() -> None:
    """Tests that what each tool lists stands in one list, and that a machine without tools has none."""
    told = {"nvidia-smi": NVIDIA, "rocm-smi": json.dumps(ROCM), "system_profiler": mac("Apple M4", 10, 16)}
    assert len(installed_devices(lambda words: told[words[0]])) == 8 + 2 + 1
    assert installed_devices(lambda words: "") == ()


def test_memory_of_the_machine() -> None:
    """Tests the line of /proc/meminfo."""
    assert tools.installed_ram("MemTotal:       65767428 kB\nMemFree:  1 kB\n") == 65767428 * 1024
    assert tools.installed_ram("nothing") == 0


@pytest.mark.slow
def test_a_tool_is_asked_with_a_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests a tool that answers, one that fails, one that hangs, and one that is absent."""
    for name, body in {
        "good": "print('hello')",
        "bad": "print('no'); raise SystemExit(9)",
        "slow": "import time; time.sleep(60)",
    }.items():
        script = tmp_path / name
        script.write_text(f"#!{sys.executable}\n{body}\n")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ask_tool(("good",)) == "hello\n"
    assert ask_tool(("bad",)) == ""
    assert ask_tool(("absent",)) == ""
    monkeypatch.setattr(tools, "TOOL_SECONDS", 0.5)
    assert ask_tool(("slow",)) == ""


@pytest.mark.slow
def test_detect_adds_accelerators() -> None:
    """Tests that a machine with cards becomes one CPU device and its cards, linked, and a file that can be read."""
    notes: list[str] = []
    found = [*read_nvidia_smi(NVIDIA), *read_rocm_smi(json.dumps(ROCM))]
    cluster = detect(quick=True, accelerators=found, on_note=notes.append)
    assert [device.id for device in cluster.devices] == ["cpu0", *(f"gpu{i}" for i in range(9))]
    card = cluster.device("gpu0")
    assert (card.memory, card.reserve, card.memory_source) == (24564 * MIB, GIB, "measured")
    assert card.rate is not None
    assert card.rate.bandwidth == 1008 * 10**9
    assert cluster.device("gpu8").rate.bandwidth == 3277 * 10**9 // 2  # type: ignore[union-attr]
    assert len(cluster.links) == 10 * 9
    assert len(notes) == 1
    assert "GT 710" in notes[0]
    assert Cluster.parse(cluster.to_toml()) == cluster
