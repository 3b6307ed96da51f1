"""The roofline model by hand: every number below can be computed on paper."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from weftline.cluster import Cluster, Device, Link, Rate
from weftline.cost import NO_TIME, analytic_costs, table
from weftline.errors import InputError
from weftline.graph import Op, Tensor, assemble

RATE = Rate(fp32=10**9, fp16=4 * 10**9, bandwidth=10**9, launch=100, source="datasheet", int8=8 * 10**9)
FAST = Device("fast", "gpu", None, rate=RATE)
SLOW = Device("slow", "cpu", None, rate=Rate(fp32=10**6, bandwidth=10**6, launch=5))


def _time(kind: str, dtype: str, *, flops: int = 0, traffic: int = 0) -> int:
    """Time of one op on the fast device."""
    op = Op("op", kind, flops=flops, traffic_bytes=traffic)
    graph = assemble("one", [op], [Tensor("t", 0, (), 4, (), dtype), Tensor("u", 0, (), 4, (), "int64")])
    return int(analytic_costs(graph, Cluster("c", (FAST,))).time[0, 0])


@pytest.mark.parametrize(
    ("kind", "dtype", "flops", "traffic", "expected"),
    [
        ("MatMul", "float32", 600, 0, 1_000 + 100),  # 600 / (10^9 * 0.6) s
        ("MatMul", "float16", 2_400, 0, 1_000 + 100),
        ("MatMul", "bfloat16", 2_400, 0, 1_000 + 100),
        ("MatMul", "int8", 4_800, 0, 1_000 + 100),
        ("MatMul", "", 600, 0, 1_000 + 100),
        ("MatMul", "float32", 0, 800, 1_000 + 100),  # 800 / (10^9 * 0.8) s
        ("MatMul", "float32", 600, 1_600, 2_000 + 100),  # the larger of both
        ("Conv", "float32", 500, 0, 1_000 + 100),
        ("Softmax", "float32", 100, 0, 1_000 + 100),
        ("Gather", "float32", 0, 600, 1_000 + 100),
        ("NobodyKnows", "float32", 200, 0, 1_000 + 100),
        ("NobodyKnows", "float32", 0, 0, 100),
        ("Reshape", "float32", 10**9, 10**9, 0),
        ("Identity", "float32", 0, 0, 0),
    ],
)
def test_op_times(kind: str, dtype: str, flops: int, traffic: int, expected: int) -> None:
    """Tests that the time is the roofline by kind and element type plus the launch, and 0 for free kinds."""
    assert abs(_time(kind, dtype, flops=flops, traffic=traffic) - expected) <= 1


def test_int8_without_a_rate_of_its_own() -> None:
    """Tests that 8-bit ops run at the half-precision rate where nobody said more."""
    device = Device("d", "gpu", None, rate=Rate(fp32=10**9, fp16=2 * 10**9, bandwidth=10**9, launch=0))
    graph = assemble("one", [Op("op", "MatMul", flops=1_200)], [Tensor("t", 0, (), 1, (), "uint8")])
    assert analytic_costs(graph, Cluster("c", (device,))).time.tolist() == [[1_000]]


def test_transfers() -> None:
    """Tests that a transfer is latency plus size over bandwidth rounded up, absent without a link, 0 at home."""
    graph = assemble("g", [Op("a")], [Tensor("t", 0, (), 10), Tensor("u", 0, (), 0), Tensor("v", 0, (), 10)])
    cluster = Cluster("c", (FAST, SLOW), (Link("fast", "slow", 3 * 10**9, 7),))
    cost = analytic_costs(graph, cluster)
    assert cost.transfer[cost.transfer_row[0]].tolist() == [[0, 7 + 4], [NO_TIME, 0]]
    assert cost.transfer[cost.transfer_row[1]].tolist() == [[0, 7], [NO_TIME, 0]]
    assert cost.transfer_row[0] == cost.transfer_row[2]
    assert len(cost.transfer) == 2


def test_devices_are_columns() -> None:
    """Tests that each device has its own rate, and the source of the numbers is told."""
    graph = assemble("g", [Op("a", "MatMul", flops=600), Op("b", "Reshape")], [])
    cost = analytic_costs(graph, Cluster("c", (FAST, SLOW)))
    assert cost.time.tolist() == [[1_100, 1_000_005], [0, 0]]
    assert cost.source == "analytic roofline (rates: datasheet, guess)"


def test_a_device_without_a_rate() -> None:
    """Tests that missing rates are named with their device."""
    graph = assemble("g", [Op("a")], [])
    with pytest.raises(InputError, match="device 'bare' has no rate") as error:
        analytic_costs(graph, Cluster("c", (FAST, Device("bare", "npu", None))))
    assert "rate" in error.value.hint


def test_absurd_work() -> None:
    """Tests that times beyond any meaning are refused, not wrapped around."""
    slow = Device("d", "cpu", None, rate=Rate(fp32=1, bandwidth=1, launch=0))
    graph = assemble("g", [Op("a", flops=2**60)], [Tensor("t", 0, (), 2**59)])
    with pytest.raises(InputError, match=r"outside 0\.\.2"):
        analytic_costs(graph, Cluster("c", (slow,)))
    link = Link("d", "fast", 1, 0)
    with pytest.raises(InputError, match=r"outside 0\.\.2"):
        analytic_costs(assemble("g", [Op("a")], [Tensor("t", 0, (), 2**59)]), Cluster("c", (slow, FAST), (link,)))


def test_absurd_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that a table that no memory would hold is refused before it is made."""
    monkeypatch.setattr(table, "MAX_ENTRIES", 7)
    graph = assemble("g", [Op("a")], [Tensor("t", 0, (), 1), Tensor("u", 0, (), 2)])
    with pytest.raises(InputError, match="2 devices with 1 ops and 2 sizes"):
        analytic_costs(graph, Cluster("c", (FAST, SLOW)))


def test_types() -> None:
    """Tests that tables hold 64-bit integers, as every kernel expects."""
    cost = analytic_costs(assemble("g", [Op("a")], [Tensor("t", 0)]), Cluster("c", (FAST,)))
    assert cost.time.dtype == cost.transfer.dtype == np.int64
    assert cost.transfer_row.dtype == np.int32


def test_speed_divides_times() -> None:
    """Tests that everything an op costs on a slowed device takes 1 / speed as long, launch too, rounded up."""
    graph = assemble("g", [Op("a", "MatMul", flops=600), Op("b", "Reshape")], [])
    slowed = [msgspec.structs.replace(FAST, id=f"d{s}", speed=s) for s in (0.5, 0.3)]
    assert analytic_costs(graph, Cluster("c", (FAST, *slowed))).time.tolist() == [[1_100, 2_200, 3_667], [0, 0, 0]]
