"""Tests that cards by name become devices with memory, links and ids."""

from __future__ import annotations

import pytest

from weftline.ask.fit_devices import FitMachine, fit_machine
from weftline.ask.fit_request import FitRequest
from weftline.errors import InputError, WeftlineError


def machine(*gpus: str, cpus: tuple[str, ...] = (), ram: str = "", links: tuple[str, ...] = ()) -> FitMachine:
    return fit_machine(FitRequest(model="m", gpus=gpus, cpus=cpus, ram=ram, links=links))


def test_names_counts_and_memory() -> None:
    """Tests order, ids, and that what stands after @ may be used."""
    found = machine("RTX 4090", "2x RTX 3060 12GB@11GB", cpus=("DDR5-5600",), ram="64GB")
    assert [device.id for device in found.devices] == ["gpu0", "gpu1", "gpu2", "cpu0"]
    assert [device.memory_bytes for device in found.devices] == [24 * 2**30, 11 * 10**9, 11 * 10**9, 64 * 10**9]
    assert len(found.cards) == 3
    assert found.host is not None
    assert found.host.bandwidth == 2 * 8 * 5600 * 10**6


def test_links() -> None:
    """Tests that a link is for all cards; generation and lanes, or a bandwidth."""
    slot = machine("RTX 4090").devices[0].host_bandwidth
    half = machine("RTX 4090", links=("PCIe 4.0 x8",)).devices[0].host_bandwidth
    assert 0 < half < slot
    assert machine("RTX 4090", links=("pcie gen4 x16",)).devices[0].host_bandwidth == pytest.approx(2 * half)
    assert machine("RTX 4090", links=("12 GB/s",)).devices[0].host_bandwidth == 12 * 10**9
    with pytest.raises(InputError, match="is not a link"):
        machine("RTX 4090", links=("string",))


def test_links_by_name() -> None:
    """Tests that a link is that of one card where it says so, and that a network makes cards remote."""
    found = machine("2x RTX 3090", links=("nvlink", "gpu1=pcie3x4"))
    assert [device.peer_bandwidth for device in found.devices] == [56_250_000_000] * 2
    assert found.devices[0].host_bandwidth > 7 * found.devices[1].host_bandwidth
    found = machine("RTX 4090", "RTX 3090", links=("gpu1=10gbe",))
    assert [device.remote for device in found.devices] == [False, True]
    assert found.devices[1].network_bandwidth == 1_250_000_000


def test_memory_of_the_host() -> None:
    """Tests that a size alone has a memory system that is named, and a system alone asks for its size."""
    found = machine("RTX 4090", ram="32GB")
    assert found.host is not None
    assert "DDR4-3200" in found.notes[-1]
    with pytest.raises(WeftlineError, match="write --ram 64GB"):
        machine("RTX 4090", cpus=("DDR5-5600",))
    with pytest.raises(WeftlineError, match="one host"):
        machine("RTX 4090", cpus=("2x DDR5-5600",), ram="64GB")


def test_unknown_cards_and_too_many() -> None:
    """Tests that an error names what may have been meant."""
    with pytest.raises(InputError, match="did you mean"):
        machine("RTX 4099")
    with pytest.raises(InputError, match="more than 64 cards"):
        machine("65x RTX 4090")
