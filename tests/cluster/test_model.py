"""Tests of the types of a cluster."""

import subprocess
import sys

import msgspec
import pytest

from weftline.cluster import Cluster, Device, Link, Rate
from weftline.errors import InputError

PAIR = Cluster("pair", (Device("gpu0", "gpu", 8_000, reserve=500), Device("cpu0", "cpu", None)))


def test_capacity_is_memory_less_reserve() -> None:
    """Tests that a plan may use what the reserve leaves, and that no memory means no limit."""
    assert [device.capacity for device in PAIR.devices] == [7_500, None]


def test_fp16_defaults_to_fp32() -> None:
    """Tests that a rate without half precision takes the single-precision one, and that a given one stays."""
    assert Rate(fp32=7, bandwidth=1, launch=0).fp16 == 7
    assert Rate(fp32=7, fp16=9, bandwidth=1, launch=0).fp16 == 9


def test_index_and_device() -> None:
    """Tests that devices are found by id."""
    assert PAIR.index == {"gpu0": 0, "cpu0": 1}
    assert PAIR.device("cpu0").kind == "cpu"


@pytest.mark.parametrize(
    ("id", "hint"), [("gpu1", "did you mean 'gpu0'?"), ("zzz", "there are gpu0, cpu0"), ("", "there are gpu0, cpu0")]
)
def test_unknown_device(id: str, hint: str) -> None:
    """Tests that an unknown id is an input error that helps."""
    with pytest.raises(InputError) as caught:
        PAIR.device(id)
    assert str(caught.value) == f"cluster 'pair': unknown device {id!r} ({hint})"


def test_values_are_frozen_and_hashable() -> None:
    """Tests that nothing can be changed after the fact and that equal clusters hash equally."""
    with pytest.raises(AttributeError):
        PAIR.devices[0].memory = 1  # type: ignore[misc]
    same = Cluster("pair", (Device("gpu0", "gpu", 8_000, reserve=500), Device("cpu0", "cpu", None)))
    assert hash(same) == hash(PAIR)
    assert len({same, PAIR}) == 1


def test_json_round_trip() -> None:
    """Tests that a cluster inside another file comes back equal, with the default of fp16 in it."""
    rate = Rate(fp32=7, bandwidth=1, launch=0, source="guess")
    cluster = Cluster("one", (Device("a", "cpu", 5, rate=rate), PAIR.devices[1]), (Link("a", "cpu0", 3, 4),))
    assert msgspec.json.decode(msgspec.json.encode(cluster), type=Cluster) == cluster


def test_import_is_light() -> None:
    """Tests that importing the room and reading a preset loads neither numpy nor psutil nor multiprocessing."""
    code = (
        "import sys, weftline.cluster as c; c.Cluster.preset('laptop').to_toml(); "
        "sys.exit(' '.join({'numpy', 'psutil', 'multiprocessing', 'onnx', 'numba'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (1, ""), done.stderr
