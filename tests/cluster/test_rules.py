"""Tests of the rules of a cluster and of its warnings."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given

from weftline.cluster import Cluster, Device, Limits, Link, OpDevice, Rate, check_cluster, warnings
from weftline.errors import InputError
from weftline.testing.strategies import clusters, patient

RATE = Rate(fp32=10, bandwidth=10, launch=1, source="measured")
A, B = Device("a", "gpu", 100, rate=RATE), Device("b", "cpu", 100, rate=RATE)
GOOD = Cluster("good", (A, B), (Link("a", "b", 5, 1, origin="measured"), Link("b", "a", 5, 1, origin="measured")))
replace: Callable[..., Any] = msgspec.structs.replace


@patient
@given(clusters())
def test_generated_clusters_pass(cluster: Cluster) -> None:
    """Tests that what keeps the rules is returned as it is."""
    assert check_cluster(cluster) is cluster


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        (replace(GOOD, devices=()), "device: a cluster has 1 to 1024 devices, this one has 0"),
        (
            Cluster("many", tuple(Device(f"d{i}", "cpu", None) for i in range(1025))),
            "device: a cluster has 1 to 1024 devices, this one has 1025",
        ),
        (replace(GOOD, devices=(A, B, A)), "device[2].id: 'a' is already the id of device[0]"),
        (replace(GOOD, devices=(A, B, Device("", "cpu", 1))), "device[2].id: '' is not a device id"),
        (replace(GOOD, devices=(A, B, Device("x y", "cpu", 1))), "device[2].id: 'x y' is not a device id"),
        (replace(GOOD, devices=(A, B, Device("x\n", "cpu", 1))), r"device[2].id: 'x\n' is not a device id"),
        (replace(GOOD, devices=(A, B, Device("x" * 65, "cpu", 1))), "device[2].id: 'xxx"),
        (replace(GOOD, devices=(A, B, Device("c", "\x1b[2J", 1))), r"device[2].kind: '\x1b[2J' is longer than"),
        (replace(GOOD, devices=(A, B, Device("c", "cpu", 0))), "device[2].memory: 0 is not in 1..2^60"),
        *(
            (replace(GOOD, devices=(A, B, Device("c", "cpu", 5, speed=s))), f"device[2].speed: {s} is not in 0.001..1")
            for s in (0.0, -1.0, 1.5, float("nan"), float("inf"))
        ),
        (replace(GOOD, devices=(A, B, Device("c", "cpu", 5, -1))), "device[2].reserve: -1 is not in 0..2^60"),
        (
            replace(GOOD, devices=(A, B, Device("c", "cpu", 5, 5))),
            "device[2].reserve: the reserve of 'c' leaves nothing",
        ),
        (
            replace(GOOD, devices=(A, B, Device("c", "cpu", 5, rate=replace(RATE, bandwidth=0)))),
            "device[2].rate.bandwidth: 0 is not in 1..2^60",
        ),
        (
            replace(GOOD, devices=(A, B, Device("c", "cpu", 5, rate=replace(RATE, int8=2**61)))),
            f"device[2].rate.int8: {2**61} is not in 1..2^60",
        ),
        (
            replace(GOOD, devices=(A, B, Device("c", "cpu", 5, rate=replace(RATE, source="mesured")))),
            "device[2].rate.source: 'mesured' is not a source, did you mean 'measured'?",
        ),
        (replace(GOOD, links=(Link("a", "c", 5, 1),)), "link[0].target: unknown device 'c'"),
        (replace(GOOD, links=(Link("c", "a", 5, 1),)), "link[0].source: unknown device 'c'"),
        (replace(GOOD, links=(*GOOD.links, Link("a", "a", 5, 1))), "link[2].target: links 'a' with itself"),
        (replace(GOOD, links=(*GOOD.links, Link("b", "a", 6, 1))), "link[2].target: a second link from 'b' to 'a'"),
        (replace(GOOD, links=(Link("a", "b", 0, 1),)), "link[0].bandwidth: 0 is not in 1..2^60"),
        (replace(GOOD, links=(Link("a", "b", 1, -1),)), "link[0].latency: -1 is not in 0..2^60"),
        (replace(GOOD, links=(Link("a", "b", 1, 1, origin="x"),)), "link[0].source: 'x' is not a source"),
        (replace(GOOD, limits=Limits(pin=(OpDevice("*", "c"),))), "limits.pin[0].device: unknown device 'c'"),
        (replace(GOOD, limits=Limits(forbid=(OpDevice("", "a"),))), "limits.forbid[0].op: a pattern has 1 to 1000"),
        (replace(GOOD, limits=Limits(together=((),))), "limits.together[0]: is empty"),
        (replace(GOOD, limits=Limits(together=(("x", "\ud800"),))), "limits.together[0][1]: '\\ud800' is not Unicode"),
    ],
)
def test_broken_rules(cluster: Cluster, message: str) -> None:
    """Tests that each broken rule is named with its place."""
    with pytest.raises(InputError) as caught:
        check_cluster(cluster)
    assert str(caught.value).startswith(message)


def test_nothing_suspicious() -> None:
    """Tests that a complete cluster gives no warning."""
    assert warnings(GOOD) == ()


def test_warnings() -> None:
    """Tests that what may not be meant is listed, one sentence for each kind."""
    guess = replace(RATE, source="guess")
    devices = (
        Device("a", "gpu", 100, rate=guess, memory_source="guess"),
        Device("b", "CPU", 100, rate=replace(RATE, source="")),
        Device("c", "cpu", None),
        Device("h", "cpu", None, rate=RATE, host=True),
    )
    links = (Link("a", "b", 5, 1), Link("a", "c", 5, 1, origin="guess"), Link("h", "a", 5, 1, origin="measured"))
    assert warnings(Cluster("odd", devices, links)) == (
        "c: no rate, so ops need profiled times",
        "c: no memory, so no limit",
        "b: the rate has no source and counts as a guess",
        "a: the rate is a guess",
        "a: the memory is a guess",
        "a -> b: the link has no source and counts as a guess",
        "a -> c: the link is a guess",
        "b and c, b and h, c and h: no link in either direction, so no tensor can pass",
        "CPU and cpu: kinds that differ only in capitals count as different",
    )


def test_warnings_stay_short() -> None:
    """Tests that a large cluster without links gives sentences, not half a million lines."""
    devices = tuple(Device(f"d{i}", "cpu", 1, rate=RATE) for i in range(100))
    (sentence,) = warnings(Cluster("many", devices))
    assert sentence.startswith("d0 and d1, d0 and d2, ")
    assert sentence.endswith(" and 4942 more: no link in either direction, so no tensor can pass")
