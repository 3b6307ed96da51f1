"""Words after --gpu and --cpu."""

from __future__ import annotations

import pytest

from weftline.cluster import read_device_option
from weftline.errors import InputError

GIB = 2**30


@pytest.mark.parametrize(
    ("text", "count", "name", "memory"),
    [
        ("RTX 4090", 1, "GeForce RTX 4090", 24 * GIB),
        ("2x RTX 3060 12GB@11GB", 2, "GeForce RTX 3060 12GB", 11 * 10**9),
        ("4x3090@20GiB", 4, "GeForce RTX 3090", 20 * GIB),
        ("3 × A100 80GB", 3, "A100 SXM4 80GB", 80 * GIB),
        ("M2 Ultra 192GB", 1, "Apple M2 Ultra (76)", 144 * GIB),
        ("M1 8GB", 1, "Apple M1 (8 GPU cores)", 8 * GIB * 2 // 3),
        ("M2 Ultra@150 GiB", 1, "Apple M2 Ultra (76)", 150 * GIB),
        ("780M@16g", 1, "Radeon 780M", 16 * 10**9),
        ("780M", 1, "Radeon 780M", None),
        ("7900 XTX", 1, "Radeon RX 7900 XTX", 24 * GIB),
        ("2x 7900 XT", 2, "Radeon RX 7900 XT", 20 * GIB),
        ("6650xt@7GB", 1, "Radeon RX 6650 XT", 7 * 10**9),
        ("9070 XT 16GB", 1, "Radeon RX 9070 XT", 16 * GIB),
    ],
)
def test_options_of_accelerators(text: str, count: int, name: str, memory: int | None) -> None:
    """Tests that count, name and memory are read, and that memory is what plans may use."""
    option = read_device_option(text, kind="gpu")
    assert (option.count, option.accelerator.name, option.memory_bytes) == (count, name, memory)


def test_options_of_memory_systems() -> None:
    """Tests that a memory system has the memory that is said, or none yet."""
    assert read_device_option("DDR4-3200 dual channel", kind="cpu").memory_bytes is None
    assert read_device_option("2x EPYC 9004@512GiB", kind="cpu").memory_bytes == 512 * GIB


def test_the_size_of_a_chip_that_nobody_said_is_noted() -> None:
    """Tests that the largest memory of a chip is taken, and that this is said."""
    option = read_device_option("M2 Ultra")
    assert option.memory_bytes == 144 * GIB
    assert "64 GiB to 192 GiB" in option.notes[0]
    assert read_device_option("M2 Ultra 64GB").notes == ()


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("0x RTX 4090", "gpu", "0 devices"),
        ("9999x RTX 4090", "gpu", "9999 devices"),
        ("RTX 4090@", "gpu", "size"),
        ("RTX 4090@lots", "gpu", "write it like"),
        ("RTX 4090@0GB", "gpu", "no memory"),
        ("RTX 4090@48GB", "gpu", "has 24 GiB"),
        ("DDR4-3200", "gpu", "--cpu"),
        ("RTX 4090", "cpu", "--gpu"),
        ("2x", "gpu", "--gpu"),
        ("2x ", "gpu", "--gpu"),
        ("2x 2x RTX 4090", "gpu", "no device"),
    ],
)
def test_options_that_make_no_sense(text: str, kind: str, says: str) -> None:
    """Tests that a wrong option is refused with the option's name and a hint."""
    with pytest.raises(InputError) as raised:
        read_device_option(text, kind=kind)  # type: ignore[arg-type]
    assert says in str(raised.value)
    assert f"--{kind}" in str(raised.value)
