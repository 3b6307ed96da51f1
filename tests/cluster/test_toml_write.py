"""Tests of the canonical form of cluster files."""

import pytest
from hypothesis import example, given

from weftline.cluster import Cluster, Device, Limits, Link, OpDevice, Rate
from weftline.errors import InputError
from weftline.testing.strategies import clusters, patient

ALL = tuple(Device(id, "cpu", None) for id in "abcd")


@patient
@given(clusters())
@example(Cluster("", (Device("a", "", 2**60, 2**60 - 1),), limits=Limits(together=(("\x7f\x00\r\n\t\\u0041\"'",),))))
@example(Cluster("x", ALL, tuple(Link(a, b, 1, 0) for a, b in ("ab", "ba", "ac", "ca", "bc", "cb", "ad"))))
@example(Cluster("x", ALL, tuple(Link(a, b, 1, 0) for a, b in ("ab", "ba", "ac", "ca", "ad", "da", "bc", "cb"))))
@example(Cluster("x", ALL, tuple(Link(a, b, 1, 0) for a, b in ("ab", "ac", "db", "dc", "ad", "da", "ca"))))
def test_round_trip(cluster: Cluster) -> None:
    """Tests that reading what was written gives the same cluster, and writing that the same text."""
    text = cluster.to_toml()
    again = Cluster.parse(text)
    assert again == cluster
    assert again.to_toml() == text


def test_form() -> None:
    """Tests the text itself: fixed order, exact quantities, defaults left out, links in groups."""
    rate = Rate(fp32=12_345, fp16=10**15, bandwidth=1, launch=1_500_000, source="guess", int8=10**12)
    devices = (Device("a", "gpu", 3 * 2**29, 1_000_001, rate), Device("b", "cpu", None), Device("c", 'c"pu', 999))
    links = [Link(s, t, 12_300_000_000, 9_000, "bus", "measured") for s, t in ("ab", "ba", "ac", "ca", "bc", "cb")]
    limits = Limits(pin=(OpDevice("x*", "a"),), together=(("p", "q"), ("r",)))
    assert Cluster("form", devices, tuple(links), limits).to_toml() == (
        'version = 1\nname = "form"\n\n'
        '[[device]]\nid = "a"\nkind = "gpu"\nmemory = "1536 MiB"\nreserve = "1.000001 MB"\n'
        'rate = { fp32 = "12.345 kFLOP/s", fp16 = "1 PFLOP/s", int8 = "1 TOP/s", bandwidth = "1 B/s", '
        'launch = "1.5 ms", source = "guess" }\n\n'
        '[[device]]\nid = "b"\nkind = "cpu"\n\n'
        '[[device]]\nid = "c"\nkind = "c\\"pu"\nmemory = "999 B"\n\n'
        '[[link]]\nbetween = ["a", "b", "c"]\nbandwidth = "12.3 GB/s"\nlatency = "9 us"\nshared = "bus"\n'
        'source = "measured"\n\n'
        '[limits]\npin = [\n  { op = "x*", device = "a" },\n]\ntogether = [\n  ["p", "q"],\n  ["r"],\n]\n'
    )


def test_a_large_uniform_cluster_is_a_small_file() -> None:
    """Tests that all pairs of many devices are one entry, so that the file stays readable."""
    ids = [f"d{i}" for i in range(150)]
    pairs = [pair for i, a in enumerate(ids) for b in ids[i + 1 :] for pair in ((a, b), (b, a))]
    cluster = Cluster("big", tuple(Device(id, "cpu", None) for id in ids), tuple(Link(a, b, 7, 0) for a, b in pairs))
    text = cluster.to_toml()
    assert text.count("[[link]]") == 1
    assert Cluster.parse(text) == cluster


def test_a_broken_cluster_is_not_written() -> None:
    """Tests that no file is made that could not be read."""
    with pytest.raises(InputError, match=r"device\[1\]\.id"):
        Cluster("twice", (ALL[0], ALL[0])).to_toml()
