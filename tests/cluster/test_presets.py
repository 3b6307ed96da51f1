"""Tests of the clusters that come with weftline."""

from collections import Counter
from importlib.resources import files

import pytest

from weftline.cluster import Cluster, preset_descriptions, preset_names, preset_text, warnings
from weftline.errors import InputError


def test_names_are_the_files() -> None:
    """Tests that every file is offered, every offer has a file, and each has one line about it."""
    folder = files("weftline.cluster") / "presets"
    assert sorted(f"{name}.toml" for name in preset_names()) == sorted(file.name for file in folder.iterdir())
    assert tuple(preset_descriptions()) == preset_names()
    assert all(line and "\n" not in line for line in preset_descriptions().values())


@pytest.mark.parametrize("name", preset_names())
def test_preset(name: str) -> None:
    """Tests that a preset is read, round-trips, is complete, joins all pairs both ways, and explains itself."""
    cluster = Cluster.preset(name)
    assert cluster.name == name
    assert Cluster.parse(cluster.to_toml()) == cluster
    assert all(warning.endswith("is a guess") for warning in warnings(cluster))
    assert all(device.capacity and device.rate and device.rate.source for device in cluster.devices)
    assert len(cluster.links) == len(cluster.devices) * (len(cluster.devices) - 1)
    assert preset_text(name).startswith("# ")


def test_shapes() -> None:
    """Tests what the names promise: how many devices of which kinds, and which links exclude each other."""
    kinds = {name: Counter(device.kind for device in Cluster.preset(name).devices) for name in preset_names()}
    assert kinds["laptop"] == {"cpu": 1, "gpu": 2}
    assert kinds["two-gpus"] == {"cpu": 1, "gpu": 2}
    assert kinds["edge"] == {"cpu": 3}
    assert kinds["eight-gpus"] == kinds["two-servers"] == {"gpu": 8}
    assert {link.shared for link in Cluster.preset("two-gpus").links} == {"pcie0"}
    buses = Counter(link.shared for link in Cluster.preset("two-servers").links)
    assert buses == {"": 24, "a-to-b": 16, "b-to-a": 16}


def test_four_unequal_is_asymmetric() -> None:
    """Tests that the directions of at least one pair differ, and that the slow device has the dearest links."""
    bandwidth = {(link.source, link.target): link.bandwidth for link in Cluster.preset("four-unequal").links}
    assert any(bandwidth[a, b] != bandwidth[b, a] for a, b in bandwidth)
    slow = [rate for pair, rate in bandwidth.items() if "slow" in pair]
    assert max(slow) < min(rate for pair, rate in bandwidth.items() if "slow" not in pair)


def test_unknown_preset() -> None:
    """Tests that an unknown name is an input error that lists the known ones."""
    with pytest.raises(InputError) as caught:
        Cluster.preset("labtop")
    assert str(caught.value).startswith("unknown preset 'labtop', did you mean 'laptop'? (the presets are laptop, two-")
    with pytest.raises(InputError):
        Cluster.preset("../presets/laptop")
