"""The catalogue of devices: names, aliases, numbers, and what others say about the same products."""

from __future__ import annotations

import csv
from decimal import Decimal

import pytest
from tests.data import present

from weftline.cluster import Accelerator, accelerators, find_accelerator
from weftline.cluster.catalogue import match_accelerator
from weftline.cluster.catalogue_names import memory_system, read_name
from weftline.errors import InputError

NAMES = [(name, found.name) for found in accelerators() for name in (found.name, *found.aliases)]


def test_there_are_enough_devices_of_every_class() -> None:
    """Tests that the catalogue holds what people have: cards, laptops, chips, memory systems."""
    assert len(accelerators()) >= 150
    classes = {found.device_class for found in accelerators()}
    assert classes == {"consumer", "laptop", "workstation", "datacenter", "integrated", "apple", "memory"}
    assert all(found.source for found in accelerators())


@pytest.mark.parametrize(("name", "product"), NAMES, ids=[name for name, _ in NAMES])
def test_every_name_means_its_own_product(name: str, product: str) -> None:
    """Tests that a name or alias leads to its device, however it is written."""
    for written in (name, name.upper(), name.lower(), f"  {name.replace('-', ' ')} "):
        assert find_accelerator(written).name == product


def test_no_two_devices_share_a_name() -> None:
    """Tests that names and aliases, taken apart as queries are, belong to one device each, and none stands twice."""
    owners: dict[object, str] = {}
    for name, product in NAMES:
        key = read_name(name)
        assert owners.setdefault(key, product) == product, name
    for found in accelerators():
        spelled = [name.casefold() for name in (found.name, *found.aliases)]
        assert len(set(spelled)) == len(spelled)


@pytest.mark.parametrize("found", accelerators(), ids=lambda found: found.name)
def test_numbers_are_those_of_real_devices(found: Accelerator) -> None:
    """Tests that every number lies where numbers of such devices lie."""
    assert 40e9 <= found.bandwidth <= 10e12
    if found.device_class == "memory":
        assert (found.memory_bytes, found.peaks) == (0, {})
        return
    assert found.memory_bytes == 0 or 6 * 2**30 <= found.memory_bytes <= 512 * 2**30
    assert found.least_memory_bytes <= found.memory_bytes
    assert found.usable_bytes(found.memory_bytes) <= found.memory_bytes
    assert set(found.peaks) <= {"fp32", "fp16", "fp16_acc16", "fp8", "int8", "fp4"}
    assert all(2e12 <= rate <= 15e15 for rate in found.peaks.values())
    if {"fp32", "fp16"} <= set(found.peaks):
        assert found.peaks["fp16"] >= found.peaks["fp32"] * 0.99
    assert (found.pcie_generation == 0) == (found.pcie_lanes == 0)
    assert found.pcie_lanes in (0, 8, 16)
    assert found.pcie_generation in (0, 3, 4, 5, 6)
    assert found.link_bandwidth == 0 or 25e9 <= found.link_bandwidth <= 1e12


def test_the_catalogue_agrees_with_what_sources_agree_on() -> None:
    """Tests that memory, bandwidth, peaks and buses equal the published collection where its sources do not differ."""
    with present("llm/devices.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if not row["bw_disagree"]]
    assert len(rows) > 150
    peaks = {"fp16": "fp16_tflops", "fp16_acc16": "fp16_acc16_tflops", "fp8": "fp8_tflops", "fp4": "fp4_tflops"}
    for row in rows:
        found = find_accelerator(row["name"])
        assert found.bandwidth == Decimal(row["bandwidth_gbs"]) * 10**9, row["name"]
        if row["memory_gb"] and "memory" not in row["uncertain"]:
            assert found.memory_bytes == Decimal(row["memory_gb"].split("-")[-1]) * 2**30, row["name"]
        for type, column in peaks.items():
            if row[column]:
                assert found.peaks[type] == Decimal(row[column]) * 10**12, row["name"]
        bus = (str(found.pcie_generation or ""), str(found.pcie_lanes or ""))
        assert bus == (row["pcie_gen"], row["pcie_lanes"]), row["name"]


def test_disputed_numbers_say_so() -> None:
    """Tests that where sources differ the catalogue has a note, and takes one of the numbers in circulation."""
    with present("llm/devices.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["bw_disagree"]]
    for row in rows:
        found = find_accelerator(row["name"])
        assert found.notes, row["name"]
        assert found.bandwidth == Decimal(row["bandwidth_gbs"]) * 10**9, row["name"]


@pytest.mark.parametrize(
    ("written", "product"),
    [
        ("rtx4090", "GeForce RTX 4090"),
        ("4090", "GeForce RTX 4090"),
        ("RTX 4090 24GB", "GeForce RTX 4090"),
        ("4090 48 GB", "GeForce RTX 4090 48GB (modded)"),
        ("4090D", "GeForce RTX 4090 D"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "GeForce RTX 4090 Laptop"),
        ("4060 mobile", "GeForce RTX 4060 Laptop"),
        ("rtx3060 12g", "GeForce RTX 3060 12GB"),
        ("A100 80GB", "A100 SXM4 80GB"),
        ("A100", "A100 SXM4 80GB"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80GB"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM5 80GB"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("7900xtx", "Radeon RX 7900 XTX"),
        ("AMD Radeon RX 7900 XT", "Radeon RX 7900 XT"),
        ("M2 Ultra", "Apple M2 Ultra (76)"),
        ("m3 max 128GB", "Apple M3 Max (40)"),
        ("M1 Max 32-Core GPU 64GB", "Apple M1 Max (32)"),
        ("b580", "Arc B580"),
        ("ddr4-3200", "CPU DDR4-3200 dual channel"),
        ("DDR5 6000 dual channel", "CPU DDR5-6000 dual channel"),
        ("EPYC Milan", "CPU EPYC 7002/7003 8ch DDR4-3200"),
    ],
)
def test_names_as_people_write_them(written: str, product: str) -> None:
    """Tests that case, spaces, brands and tools' spelling do not matter."""
    assert find_accelerator(written).name == product


@pytest.mark.parametrize(
    ("written", "choices"),
    [
        ("3060", ("GeForce RTX 3060 12GB", "GeForce RTX 3060 8GB")),
        ("RTX 4060 Ti", ("GeForce RTX 4060 Ti 8GB", "GeForce RTX 4060 Ti 16GB")),
        ("m3 max", ("Apple M3 Max (30)", "Apple M3 Max (40)")),
        ("V100", ("Tesla V100 PCIe 16GB", "Tesla V100 SXM2 32GB")),
    ],
)
def test_names_that_mean_several_devices(written: str, choices: tuple[str, ...]) -> None:
    """Tests that a name of several products is refused with all of them."""
    with pytest.raises(InputError, match="could be several") as raised:
        find_accelerator(written)
    assert all(repr(choice) in raised.value.hint for choice in choices)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("RTX 4080 Ti", "GeForce RTX 4080"),
        ("RTX 6000", "RTX 6000 Ada"),
        ("RTX 3050 Laptop", "GeForce RTX 3050 8GB"),
        ("geforce rtx 40900", "GeForce RTX 4090"),
        ("RTX 4090 32GB", "GeForce RTX 4090"),
    ],
)
def test_near_misses_are_named(written: str, meant: str) -> None:
    """Tests that an unknown device is never taken for another, and the one that may be meant is named."""
    with pytest.raises(InputError, match="did you mean") as raised:
        find_accelerator(written)
    assert meant in str(raised.value)


@pytest.mark.parametrize("written", ["", "   ", "banana", "x" * 1000, "@", "GB", "🙂", "RTX", "ddr9"])
def test_what_is_no_name_is_refused(written: str) -> None:
    """Tests that any text gives a device or an InputError."""
    with pytest.raises(InputError):
        find_accelerator(written)


def test_a_short_name_says_what_it_was_taken_for() -> None:
    """Tests that a name that leaves the form of the card open is answered with what else there is."""
    found, _, assumed = match_accelerator("H100")
    assert found.name == "H100 SXM5 80GB"
    assert "H100 PCIe 80GB" in assumed
    assert match_accelerator("H100 PCIe 80GB")[2] == ""


@pytest.mark.parametrize(
    ("written", "bandwidth"),
    [
        ("DDR5-7200", 115.2e9),
        ("DDR4-2133 single channel", 17.064e9),
        ("8 channel DDR5-4800", 307.2e9),
        ("DDR4 3200 quad channel", 102.4e9),
        ("LPDDR5X-8533 256 bit", 273.056e9),
    ],
)
def test_memory_systems_by_arithmetic(written: str, bandwidth: float) -> None:
    """Tests that channels times eight bytes times transfers is the bandwidth of what no row lists."""
    assert find_accelerator(written).bandwidth == bandwidth
    assert find_accelerator(written).kind == "cpu"


def test_a_memory_system_is_not_guessed() -> None:
    """Tests that words that are not understood are not dropped from a memory system."""
    assert memory_system("DDR5-6000 banana") is None
    assert memory_system("DDR5-1") is None
    assert memory_system("DDR5-6000 99 channels") is None
