"""Tests costs.json: it comes back as it was written, hostile files are refused, and its times add up in the table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from weftline.cluster import Cluster, Device, Link
from weftline.cost import NO_TIME, Profile, profiled_costs, read_profile, save_profile
from weftline.cost.profile_file import (
    DeviceProfile,
    Kernel,
    LayoutChange,
    LinkProfile,
    profile_from_json,
    profile_to_json,
)
from weftline.errors import InfeasibleError, InputError, UsageError
from weftline.graph import Graph, Op, Tensor, assemble, graph_to_json
from weftline.problem import Rules, build_problem, load_problem


def _graph() -> Graph:
    """Four ops in a row."""
    kinds = ("Conv", "Relu", "Reshape", "Gemm")
    ops = [Op(name, kind, flops=1000, traffic_bytes=800) for name, kind in zip("abcd", kinds, strict=True)]
    tensors = [Tensor("x", -1, (0,), 400, (100,), "float32")]
    for i in range(4):
        tensors.append(Tensor(f"t{i}", i, () if i == 3 else (i + 1,), 400, (100,), "float32", i == 3))
    return assemble("row", ops, tensors)


def _device(id: str, times: dict[str, tuple[int, int]], speed: float = 1.0) -> DeviceProfile:
    kernels = tuple(Kernel(tuple(ops), alone, busy, 0.1) for ops, (alone, busy) in times.items())
    total = sum(k.alone_ns for k in kernels), sum(k.busy_ns for k in kernels)
    return DeviceProfile(id, "ort:CPUExecutionProvider", speed, 1, *total, 0.1, 0.0, "ALL", "", kernels)


def _profile(*devices: DeviceProfile, links: tuple[LinkProfile, ...] = ()) -> Profile:
    about: dict[str, Any] = {"model": "row", "model_sha256": "0" * 64, "inputs": {"x": (100,)}, "made": "now"}
    how: dict[str, Any] = {"backend": "onnxruntime", "backend_version": "1", "level": "ALL", "machine": "m"}
    return Profile("weftline-costs", 1, **about, **how, repeats=3, devices=devices, links=links)


FAST = _device("p", {"ab": (1001, 1501), "c": (0, 0), "d": (2000, 3000)})
SLOW = _device("q", {"a": (900, 900), "b": (1, 1), "cd": (7, 9)}, speed=0.5)
CLUSTER = Cluster(
    "two",
    (Device("p", "cpu", None), Device("q", "cpu", None, speed=0.5)),
    (Link("p", "q", 10**9, 1000), Link("q", "p", 10**9, 1000)),
)


def test_round_trip(tmp_path: Path) -> None:
    """Tests that a profile comes back from its file, and that the same profile gives the same bytes."""
    profile = _profile(FAST, SLOW, links=(LinkProfile("p", "q", 5, 10**9),))
    save_profile(profile, tmp_path / "costs.json")
    found, digest = read_profile(tmp_path / "costs.json")
    assert found == profile
    assert len(digest) == 64
    assert profile_to_json(found) == (tmp_path / "costs.json").read_bytes()


def test_shares_add_up() -> None:
    """Tests that ops of a kernel add up to it, alone and busy, and that kernels are groups."""
    profile = _profile(FAST, SLOW)
    for busy, first in ((False, 1001), (True, 1501)):
        table, groups = profiled_costs(_graph(), CLUSTER, profile, busy=busy)
        assert table.time[:2, 0].sum() == first
        assert table.time[2, 0] == 0
        assert table.time[2:, 1].sum() == (9 if busy else 7)
        assert (table.time[:2] > 0).all()
        assert set(groups) == {(0, 1), (2, 3)}
        assert ("all devices busy" if busy else "one device") in table.source


def test_a_kernel_shorter_than_its_ops() -> None:
    """Tests that a kernel of 1 ns stays 1 ns, whatever the number of its ops."""
    table, _ = profiled_costs(_graph(), Cluster("c", (Device("p", "cpu", None),)), _one(1), busy=False)
    assert table.time.sum() == 1


def _one(time: int) -> Profile:
    return _profile(_device("p", {"abcd": (time, time)}))


def test_speed_of_the_cluster_counts() -> None:
    """Tests that a device which is given half the speed takes twice the time that was measured."""
    slower = Cluster("c", (Device("p", "cpu", None, speed=0.5),))
    table, _ = profiled_costs(_graph(), slower, _one(1000), busy=False)
    assert table.time.sum() == 2000


def test_measured_links_come_first() -> None:
    """Tests that a measured direction replaces the cluster's, and the other one stays."""
    profile = _profile(FAST, SLOW, links=(LinkProfile("p", "q", 7, 4 * 10**8),))
    table, _ = profiled_costs(_graph(), CLUSTER, profile, busy=False)
    assert table.transfer[0].tolist() == [[0, 1007], [1400, 0]]


def test_known_links_stay() -> None:
    """Tests that a link of a data sheet or a measurement elsewhere is kept, and that no link is added."""
    profile = _profile(FAST, SLOW, links=(LinkProfile("p", "q", 7, 4 * 10**8), LinkProfile("q", "p", 7, 4 * 10**8)))
    for origin in ("datasheet", "measured"):
        known = msgspec.structs.replace(CLUSTER, links=(Link("p", "q", 10**6, 10**6, origin=origin),))
        table, _ = profiled_costs(_graph(), known, profile, busy=False)
        row = table.transfer[table.transfer_row[1]]
        assert row[0, 1] == 10**6 + 400_000
        assert row[1, 0] < 0


def test_changes_of_layout_are_part_of_transfers() -> None:
    """Tests that a tensor's change of layout is paid by both ends, at their speed, and by no other tensor."""
    fast = msgspec.structs.replace(FAST, layouts=(LayoutChange("t1", 7, 11),))
    slow = msgspec.structs.replace(SLOW, layouts=(LayoutChange("t1", 300, 500), LayoutChange("gone", 1, 1)))
    plain, _ = profiled_costs(_graph(), CLUSTER, _profile(FAST, SLOW), busy=False)
    cost, _ = profiled_costs(_graph(), CLUSTER, _profile(fast, slow), busy=False)
    extra = cost.transfer[cost.transfer_row] - plain.transfer[plain.transfer_row]
    names = [tensor.name for tensor in _graph().tensors]
    assert extra[names.index("t1")].tolist() == [[0, 507], [311, 0]]
    assert not extra[[name != "t1" for name in names]].any()
    faster = msgspec.structs.replace(CLUSTER.devices[1], speed=1.0)
    quick = msgspec.structs.replace(CLUSTER, devices=(CLUSTER.devices[0], faster))
    cost, _ = profiled_costs(_graph(), quick, _profile(fast, slow), busy=False)
    assert (cost.transfer[cost.transfer_row] - plain.transfer[plain.transfer_row])[names.index("t1")].tolist() == [
        [0, 257],
        [161, 0],
    ]
    unlinked = msgspec.structs.replace(CLUSTER, links=CLUSTER.links[:1])
    cost, _ = profiled_costs(_graph(), unlinked, _profile(fast, slow), busy=False)
    assert cost.transfer[cost.transfer_row][names.index("t1"), 1, 0] == NO_TIME


def test_kernels_are_not_cut() -> None:
    """Tests that a problem keeps the kernels together, those of all devices joined, unless that is dropped."""
    problem = build_problem(_graph(), CLUSTER, rules=Rules(), costs=_profile(FAST, SLOW))
    assert problem.together == ((0, 1), (2, 3))
    assert build_problem(_graph(), CLUSTER, costs=_profile(FAST, SLOW), without=("together",)).together == ()


def test_what_does_not_fit_is_refused() -> None:
    """Tests ops, devices and shapes that the profile does not know."""
    graph = _graph()
    with pytest.raises(InputError, match=r"op 'd' was not profiled on 'p'.*profile again"):
        profiled_costs(graph, CLUSTER, _profile(_device("p", {"abc": (1, 1)}), SLOW), busy=False)
    with pytest.raises(InputError, match="knows an op 'z' that is not in"):
        profiled_costs(graph, CLUSTER, _profile(_device("p", {"abcdz": (1, 1)}), SLOW), busy=False)
    with pytest.raises(InputError, match="device 'q' was not profiled"):
        profiled_costs(graph, CLUSTER, _profile(FAST), busy=False)
    other = msgspec.structs.replace(_profile(FAST, SLOW), inputs={"x": (7,)})
    with pytest.raises(InputError, match="was profiled as 7, and is 100 here"):
        profiled_costs(graph, CLUSTER, other, busy=False)


def test_files_with_costs_of_their_own(tmp_path: Path) -> None:
    """Tests that another model, and a file which holds costs, are refused."""
    (tmp_path / "g.json").write_bytes(graph_to_json(_graph()))
    with pytest.raises(InputError, match="profiled with another model file"):
        load_problem(tmp_path / "g.json", cluster=CLUSTER, costs=_profile(FAST, SLOW))
    from weftline.problem.model import problem_to_json

    made = build_problem(_graph(), CLUSTER, costs=_profile(FAST, SLOW))
    (tmp_path / "p.json").write_bytes(problem_to_json(made))
    with pytest.raises(UsageError, match="holds its own devices and costs"):
        load_problem(tmp_path / "p.json", costs=_profile(FAST, SLOW))


def test_pins_that_tear_a_kernel_are_infeasible() -> None:
    """Tests that a kernel whose ops are pinned apart is said to be the conflict."""
    from weftline.cluster import Limits, OpDevice

    limits = Limits(pin=(OpDevice("a", "p"), OpDevice("b", "q")))
    with pytest.raises(InfeasibleError):
        build_problem(_graph(), msgspec.structs.replace(CLUSTER, limits=limits), costs=_profile(FAST, SLOW))


def _broken(**changes: Any) -> bytes:
    """The file of a good profile with some fields of it, or of its first device or kernel, replaced."""
    data = json.loads(profile_to_json(_profile(FAST, links=())))
    for path, value in changes.items():
        place: Any = data
        *parents, last = path.split("__")
        for part in parents:
            place = place[part][0]
        place[last] = value
    return json.dumps(data).encode()


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "weftline-plan"},
        {"version": 2},
        {"surprise": 1},
        {"devices": []},
        {"devices__id": "../../etc"},
        {"devices__speed": 0},
        {"devices__speed": -1.0},
        {"devices__threads": 0},
        {"devices__spread": -0.1},
        {"devices__spread": 1e300},
        {"devices__alone_ns": -1},
        {"devices__busy_ns": 2**61},
        {"devices__stolen": 1.5},
        {"devices__note": "x" * 5000},
        {"devices__kernels__alone_ns": -1},
        {"devices__kernels__busy_ns": 2**61},
        {"devices__kernels__alone_ns": 1.5},
        {"devices__kernels__spread": -1},
        {"devices__kernels__ops": []},
        {"devices__layouts": [{"tensor": "t0", "leave_ns": -1, "enter_ns": 0}]},
        {"devices__layouts": [{"tensor": "t0", "leave_ns": 0, "enter_ns": 2**61}]},
        {"devices__layouts": [{"tensor": "t0", "leave_ns": 0, "enter_ns": 0}] * 2},
        {"devices__kernels__ops": ["a", "a"]},
        {"links": [{"source": "p", "target": "p", "latency_ns": 1, "bandwidth": 1}]},
        {"links": [{"source": "p", "target": "z", "latency_ns": 1, "bandwidth": 1}]},
        {"note": "x" * 5000},
        {"inputs": {"x": ["many"]}},
        {"inputs": {"x": [-1]}},
    ],
)
def test_hostile_files(changes: dict[str, Any]) -> None:
    """Tests that every field that makes no sense is one error."""
    profile_from_json(_broken())
    with pytest.raises(InputError):
        profile_from_json(_broken(**changes))


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"[]", b"[" * 100_000, b'{"format": "weftline-costs"'])
def test_no_json(data: bytes) -> None:
    """Tests bytes that are no profile at all."""
    with pytest.raises(InputError, match="not a file of costs"):
        profile_from_json(data)


def test_two_devices_of_one_name() -> None:
    """Tests that no device is there twice."""
    with pytest.raises(InputError, match="twice"):
        profile_from_json(profile_to_json(_profile(FAST, FAST)))
