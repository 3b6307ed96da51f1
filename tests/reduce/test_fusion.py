"""Tests fusion as a whole: groups, kernels by device, the fused problem, plans that cut groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weftline import zoo
from weftline.cluster import Cluster
from weftline.errors import UsageError
from weftline.graph import Graph, Op, Tensor, assemble
from weftline.importers import ImportOptions
from weftline.importers.onnx.model import graph_of_model
from weftline.problem import Problem, build_problem, check_feasible
from weftline.reduce import METHODS, coarsened, contract, costed_with_fusion, fuse, fused_problem
from weftline.reduce.contract import is_acyclic
from weftline.simulate import simulate_latency
from weftline.testing.generate import random_problem

CLUSTER = """
version = 1
name = "mixed"
[[device]]
id = "cuda"
kind = "gpu"
memory = "1 GB"
rate = { fp32 = "10 TFLOP/s", bandwidth = "100 GB/s", launch = "5 us" }
runtime = "ort:CUDAExecutionProvider:0"
[[device]]
id = "vino"
kind = "cpu"
memory = "1 GB"
rate = { fp32 = "1 TFLOP/s", bandwidth = "50 GB/s", launch = "1 us" }
runtime = "openvino:CPU"
[[link]]
between = ["cuda", "vino"]
bandwidth = "10 GB/s"
latency = "1 us"
"""


def _residual() -> Graph:
    """Conv, sigmoid, conv, sum with the first, relu: CUDA and OpenVINO fuse it in different ways."""
    work: dict[str, Any] = {"flops": 10**6, "traffic_bytes": 3000}
    ops = [
        Op("c1", "Conv", weight_bytes=100, **work),
        Op("s", "Sigmoid", **work),
        Op("c2", "Conv", weight_bytes=100, **work),
        Op("add", "Add", **work),
        Op("r", "Relu", **work),
    ]
    tensors = [
        Tensor("x", -1, (0,), 1000),
        Tensor("C1", 0, (1,), 1000),
        Tensor("S", 1, (2, 3), 1000),
        Tensor("C2", 2, (3,), 1000),
        Tensor("A", 3, (4,), 1000),
        Tensor("R", 4, (), 1000, output=True),
    ]
    return assemble("residual", ops, tensors)


def _problem(limits: str = "", graph: Graph | None = None) -> Problem:
    return build_problem(graph or _residual(), Cluster.parse(CLUSTER + limits))


def test_kernels_differ_by_device() -> None:
    """Tests that a group is what any device fuses, and that the others run its parts."""
    fusion = fuse(_problem(), "gcof")
    assert fusion.group.tolist() == [0, 0, 1, 1, 1]
    assert fusion.fused.tolist() == [[False, True], [True, True]]


def test_the_fused_problem() -> None:
    """Tests that groups are together, times shrink where there is a kernel, and the value is that of the kernels."""
    problem = _problem()
    fusion = fuse(problem, "gcof")
    fused = fused_problem(problem, fusion)
    assert fused.together == ((0, 1), (2, 3, 4))
    assert fused.graph is problem.graph
    assert fused.cost.time[:2, 0].tolist() == problem.cost.time[:2, 0].tolist()
    assert fused.cost.time[:2, 1].sum() < problem.cost.time[:2, 1].sum()
    assert "fused by gcof" in fused.cost.source
    placement = np.array([1, 1, 0, 0, 0], np.int32)
    contracted = contract(fused, fusion.group)
    lowered = contracted.lower(placement)
    assert lowered is not None
    assert simulate_latency(fused, placement).value == simulate_latency(contracted.small, lowered).value


def test_a_cut_kernel_is_paid_in_parts() -> None:
    """Tests the value of a placement that cuts one of two groups."""
    problem = _problem()
    fusion = fuse(problem, "gcof")
    fused = fused_problem(problem, fusion)
    cut = np.array([1, 1, 0, 0, 1], np.int32)
    seen = costed_with_fusion(problem, fused, fusion, cut)
    assert seen.together == ()
    assert seen.cost.time[:2, 1].tolist() == fused.cost.time[:2, 1].tolist()
    assert seen.cost.time[2:].tolist() == problem.cost.time[2:].tolist()
    whole = np.array([1, 1, 0, 0, 0], np.int32)
    kept = costed_with_fusion(problem, fused, fusion, whole)
    assert simulate_latency(kept, whole).value == simulate_latency(fused, whole).value


def test_user_limits_open_groups() -> None:
    """Tests that pins and memory win over fusion, and that a note says so."""
    pinned = _problem('[limits]\npin = [{ op = "c1", device = "cuda" }, { op = "s", device = "vino" }]\n')
    fusion = fuse(pinned, "gcof")
    assert fusion.group[0] != fusion.group[1]
    assert "1 fused group was opened" in fusion.note
    check_feasible(fused_problem(pinned, fusion))
    together = _problem('[limits]\ntogether = [["c1", "r"]]\npin = [{ op = "s", device = "vino" }]\n')
    check_feasible(fused_problem(together, fuse(together, "gcof")))


def test_a_group_that_fits_nowhere_is_opened() -> None:
    """Tests weights of 600 MB each, on devices of 1 GB."""
    graph = _residual()
    ops = [Op(op.name, op.kind, op.flops, 600_000_000 * (op.kind in ("Conv", "Add")), 0, 3000) for op in graph.ops]
    problem = _problem(graph=assemble("heavy", ops, graph.tensors))
    check_feasible(fused_problem(problem, fuse(problem, "gcof")))


@pytest.mark.parametrize("name", sorted(zoo.architectures()))
def test_zoo(name: str) -> None:
    """Tests rules and groupings on every architecture: acyclic, and fused kernels are never slower than their parts."""
    graph = graph_of_model(zoo.build(name, size="small", weights=False), ImportOptions(), name)
    problem = _problem(graph=graph)
    for method in ("gcof", "chains", "coplace"):
        fusion = fuse(problem, method)
        assert is_acyclic(graph, fusion.group)
        assert fusion.group.shape == (len(graph.ops),)
        assert 1 < fusion.count < len(graph.ops)
        fused = fused_problem(problem, fusion)
        assert (fused.cost.time <= problem.cost.time).all()
        assert (fused.cost.time < problem.cost.time).any() == METHODS[method].fuses
        check_feasible(fused)


@pytest.mark.parametrize("seed", range(80))
def test_random_problems(seed: int) -> None:
    """Tests that every problem which could be planned can still be, with absent times, sets and limits."""
    problem = random_problem(seed, "latency", max_ops=12)
    for method in ("gcof", "chains", "coplace"):
        fusion = fuse(problem, method)
        fused = fused_problem(problem, fusion)
        assert fused.cost.time.tolist() == problem.cost.time.tolist()  # no rates: kernels cost the sum
        contract(problem, fusion.group)


def test_methods_and_their_limits() -> None:
    """Tests `none`, the two that fuse, the two that only group, and calls that make no sense."""
    problem = _problem()
    assert coarsened(problem, "none").small is problem
    assert coarsened(problem, "gcof").group is None
    grouped = coarsened(problem, "coplace")
    assert grouped.small is problem
    assert grouped.group is not None
    with pytest.raises(UsageError, match="there are: none, gcof"):
        coarsened(problem, "everything")
    with pytest.raises(UsageError, match="latency"):
        coarsened(random_problem(1, "throughput"), "gcof")
