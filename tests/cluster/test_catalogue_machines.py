"""Links by name, and clusters of devices by name."""

from __future__ import annotations

import pytest

from weftline.cluster import Cluster, LinkScope, cluster_from_options, devices_from_options, read_link_option
from weftline.cluster.catalogue_links import link_names, pcie_bandwidth
from weftline.errors import InputError, UsageError

GIB = 2**30


@pytest.mark.parametrize(
    ("text", "scope", "bandwidth"),
    [
        ("pcie4x16", LinkScope.HOST, 31_507_692_304),
        ("PCI-e gen4", LinkScope.HOST, 31_507_692_304),
        ("PCIe 3.0 x8", LinkScope.HOST, 7_876_923_072),
        ("pcie5x4", LinkScope.HOST, 15_753_846_152),
        ("nvlink", LinkScope.PEER, 0),
        ("10gbe", LinkScope.NETWORK, 1_250_000_000),
        ("2.5 GbE", LinkScope.NETWORK, 312_500_000),
        ("infiniband 200", LinkScope.NETWORK, 25_000_000_000),
        ("NDR", LinkScope.NETWORK, 50_000_000_000),
        ("usb4", LinkScope.HOST, 4_000_000_000),
        ("thunderbolt 5", LinkScope.HOST, 8_000_000_000),
        ("12 GB/s", LinkScope.HOST, 12_000_000_000),
    ],
)
def test_links_by_name(text: str, scope: LinkScope, bandwidth: int) -> None:
    """Tests that a link is what its name says, in bytes per second each way."""
    link = read_link_option(text)
    assert (link.scope, link.bandwidth, link.ends) == (scope, bandwidth, ())
    assert link.latency > 0


def test_every_listed_link_is_read() -> None:
    """Tests that what help and errors list is understood."""
    assert all(read_link_option(name).name for name in link_names())
    assert pcie_bandwidth(4, 16) == 2 * pcie_bandwidth(4, 8) > 15.9 * pcie_bandwidth(3, 2)


def test_links_of_one_device_and_of_two() -> None:
    """Tests that ids before the name say whose link it is."""
    assert read_link_option("gpu1=pcie3x4").ends == ("gpu1",)
    assert read_link_option("gpu0-gpu1 = nvlink").ends == ("gpu0", "gpu1")


@pytest.mark.parametrize(
    "text", ["", "pcie9x16", "pcie4x3", "banana", "0gbe", "99999gbe", "gpu0-gpu0=nvlink", "=", "🙂"]
)
def test_what_is_no_link_is_refused(text: str) -> None:
    """Tests that other words give an InputError that names the option."""
    with pytest.raises(InputError, match="--link"):
        read_link_option(text)


def test_cards_in_one_machine() -> None:
    """Tests that cards reach their host over the slower of card and slot, and each other through it."""
    cluster = cluster_from_options(["RTX 4090", "RTX 4060"], ["DDR5-6000"], [], "64GB")
    assert [device.id for device in cluster.devices] == ["gpu0", "gpu1", "cpu0"]
    rates = {(link.source, link.target): link.bandwidth for link in cluster.links}
    assert rates["gpu0", "cpu0"] == pcie_bandwidth(4, 16)
    assert rates["gpu1", "gpu0"] == rates["cpu0", "gpu1"] == pcie_bandwidth(4, 8)
    assert cluster.device("gpu0").accelerator == "GeForce RTX 4090"
    assert cluster.device("cpu0").memory == 64 * 10**9


def test_a_named_slot_is_no_faster_than_the_card() -> None:
    """Tests that --link is for all cards, or for one, and never makes a card faster."""
    found = devices_from_options(["4090", "4060"], [], ["pcie5x16", "gpu0=pcie3x4"]).devices
    assert [device.host_bandwidth for device in found] == [pcie_bandwidth(3, 4), pcie_bandwidth(4, 8)]


def test_cards_with_links_of_their_own() -> None:
    """Tests that NVLink joins cards of one kind that have it, and others go through the host."""
    cluster = cluster_from_options(["2x RTX 3090", "RTX 4090"], [], ["nvlink"])
    rates = {(link.source, link.target): link.bandwidth for link in cluster.links}
    assert rates["gpu0", "gpu1"] == 56_250_000_000
    assert rates["gpu0", "gpu2"] == pcie_bandwidth(4, 16)
    with pytest.raises(InputError, match="no link of its own"):
        cluster_from_options(["2x RTX 4090"], [], ["nvlink"])
    with pytest.raises(InputError, match="no such link"):
        cluster_from_options(["RTX 3090", "RTX 4090"], [], ["gpu0-gpu1=nvlink"])


def test_modules_are_joined_by_their_board() -> None:
    """Tests that SXM modules have NVLink unless a slot is named, and PCIe cards of the same chip have not."""
    assert {link.bandwidth for link in cluster_from_options(["2x A100 SXM4 80GB"]).links} == {300 * 10**9}
    assert {link.bandwidth for link in cluster_from_options(["2x A100 PCIe 80GB"]).links} == {pcie_bandwidth(4, 16)}
    slots = cluster_from_options(["2x A100 SXM4 80GB"], [], ["pcie4x8"])
    assert {link.bandwidth for link in slots.links} == {pcie_bandwidth(4, 8)}


def test_cards_behind_a_network() -> None:
    """Tests that one card can be elsewhere, that all can, and that the network's latency counts once."""
    found = devices_from_options(["4090", "3090"], ["DDR5-6000"], ["gpu1=10gbe"], "32GB").devices
    assert [device.remote for device in found] == [False, True, False]
    assert found[1].network_bandwidth == 1_250_000_000
    everywhere = cluster_from_options(["4090", "3090"], [], ["10gbe"])
    assert {link.bandwidth for link in everywhere.links} == {1_250_000_000}
    assert {link.latency for link in everywhere.links} == {2 * 10_000 + 100_000}


def test_chips_with_unified_memory_are_machines() -> None:
    """Tests that Macs are joined by a network, which is said, or by a cable, and that one alone needs none."""
    found = devices_from_options(["M2 Ultra 192GB", "M4 Max 64GB"])
    assert all(device.remote and device.network_bandwidth == 1_250_000_000 for device in found.devices)
    assert "10gbe" in found.notes[0]
    cable = devices_from_options(["M2 Ultra 192GB", "M4 Max 64GB"], links=["thunderbolt4"])
    assert {device.network_bandwidth for device in cable.devices} == {4_000_000_000}
    assert cable.notes == ()
    assert not devices_from_options(["M2 Ultra 192GB"]).devices[0].remote
    laptop = cluster_from_options(["780M@8GB"], ["DDR5-5600"], [], "32GB")
    assert {link.bandwidth for link in laptop.links} == {44_800_000_000}


def test_memory_of_the_machine() -> None:
    """Tests that --ram is divided among sockets, that a CPU without it is refused, and that one is assumed for it."""
    both = devices_from_options([], ["2x EPYC 9004"], [], "512GiB").devices
    assert [device.memory_bytes for device in both] == [256 * GIB, 256 * GIB]
    with pytest.raises(InputError, match="--ram 64GB"):
        devices_from_options([], ["DDR5-6000"])
    with pytest.raises(InputError, match="780M@16GB"):
        devices_from_options(["780M"])
    assumed = devices_from_options(["4090"], [], [], "64GB")
    assert assumed.devices[1].accelerator.name == "CPU DDR4-3200 dual channel"
    assert "no --cpu" in assumed.notes[0]


def test_options_that_name_nothing() -> None:
    """Tests that no devices, too many, and links of unknown devices are refused."""
    with pytest.raises(UsageError, match="no devices"):
        devices_from_options()
    with pytest.raises(InputError, match="gpu7"):
        devices_from_options(["4090"], links=["gpu7=pcie3x4"])
    with pytest.raises(InputError, match="1 to 1024"):
        devices_from_options(["1024x 4090", "1x 3090"])
    with pytest.raises(UsageError, match="gpus is a list"):
        devices_from_options("RTX 4090")


@pytest.mark.parametrize(
    "words",
    [
        (["RTX 4090", "2x RTX 3060 12GB@11GB"], ["DDR5-6000"], ["gpu1-gpu2=pcie3x8"], "64GB"),
        (["4x A100 80GB"], [], ["nvlink"], None),
        (["M3 Ultra 512GB", "M5"], [], ["thunderbolt5"], None),
        (["Arc Pro B70"], ["EPYC 9005"], ["infiniband200"], "1 TiB"),
    ],
)
def test_the_file_of_named_devices_is_the_same_cluster(
    words: tuple[list[str], list[str], list[str], str | None],
) -> None:
    """Tests that what is written can be read back, with the names of the products."""
    made = cluster_from_options(*words)
    assert Cluster.parse(made.to_toml()) == made
    assert all(device.accelerator and device.rate is not None for device in made.devices)


PRODUCT = 'version = 1\n[[device]]\nid = "a"\naccelerator = "{}"\n'


def test_a_file_may_name_products() -> None:
    """Tests that a device takes kind, memory and rates from the catalogue, and what the file says counts first."""
    device = Cluster.parse(PRODUCT.format("RTX 4090")).devices[0]
    assert device == cluster_from_options(["RTX 4090@24GiB"]).devices[0].__class__(
        id="a",
        kind="gpu",
        memory=24 * GIB,
        rate=cluster_from_options(["RTX 4090"]).devices[0].rate,
        memory_source="datasheet",
        accelerator="GeForce RTX 4090",
    )
    told = Cluster.parse(PRODUCT.format("rtx 4090") + 'kind = "card"\nmemory = "20 GiB"\n').devices[0]
    assert (told.kind, told.memory, told.accelerator) == ("card", 20 * GIB, "GeForce RTX 4090")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("RTX 4099", "device\\[0\\].accelerator: no device is called"),
        ("3060", "device\\[0\\].accelerator: '3060' could be several"),
        ("DDR5-6000", "device\\[0\\].memory: is missing"),
        ("M2 Ultra", "device\\[0\\].memory: is missing"),
    ],
)
def test_products_of_a_file_are_checked(name: str, says: str) -> None:
    """Tests that the place in the file is named where the catalogue cannot help."""
    with pytest.raises(InputError, match=says):
        Cluster.parse(PRODUCT.format(name))
