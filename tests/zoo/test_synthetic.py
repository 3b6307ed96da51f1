"""Tests of the synthetic families: exact size, the same for the same seed, sensible numbers, unit costs, round trip."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weftline.errors import UsageError
from weftline.graph import check_graph
from weftline.graph.arrays import levels
from weftline.importers.registry import ImportOptions
from weftline.papers.regal import IMPORTERS
from weftline.zoo.synthetic import FAMILIES, regal_costs, synthetic, to_cost_graph_text

NETWORKS = [name for name, family in FAMILIES.items() if not family.unit_costs]
REGAL_LIKE = [name for name, family in FAMILIES.items() if family.unit_costs]


def test_families() -> None:
    """Tests that every family is registered under its own name and described."""
    assert NETWORKS == ["chain", "layered", "series_parallel", "transformer_like"]
    assert REGAL_LIKE == ["erdos_renyi", "barabasi_albert", "watts_strogatz", "block_model"]
    for name, family in FAMILIES.items():
        assert family.name == name
        assert len(family.description) > 20


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(sorted(FAMILIES)), st.integers(1, 300), st.integers(0, 2**32))
def test_exact_size_and_order(name: str, ops: int, seed: int) -> None:
    """Tests that a graph has as many ops as asked and keeps the rules, so that it has no cycle."""
    graph = check_graph(synthetic(name, ops=ops, seed=seed))
    assert len(graph.ops) == ops
    assert all(op.flops > 0 for op in graph.ops)
    source, target, _ = graph.arrays.edges()
    assert (source < target).all()


@pytest.mark.parametrize("name", FAMILIES)
def test_seed_decides(name: str) -> None:
    """Tests that the same seed gives the same graph and another seed another one."""
    assert synthetic(name, ops=90, seed=3) == synthetic(name, ops=90, seed=3)
    first, second = synthetic(name, ops=90, seed=3), synthetic(name, ops=90, seed=4)
    assert [op.flops for op in first.ops] != [op.flops for op in second.ops]


@pytest.mark.parametrize("name", FAMILIES)
def test_hundred_thousand_ops(name: str) -> None:
    """Tests that a graph of 100,000 ops can be drawn and is connected by many edges."""
    graph = synthetic(name, ops=100_000, seed=1)
    assert len(graph.ops) == 100_000
    edges = sum(len(tensor.consumers) for tensor in graph.tensors)
    assert 99_999 <= edges <= 500_000


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_have_sensible_sizes(name: str) -> None:
    """Tests the ranges that make roofline times sensible, and that traffic counts inputs, outputs and weights."""
    graph = synthetic(name, ops=400, seed=5)
    heavy = [op for op in graph.ops if op.kind in ("Conv", "MatMul")]
    assert heavy
    assert all(10**8 <= op.flops <= 10**10 for op in heavy)
    assert all(op.weight_bytes <= 2**26 for op in graph.ops)
    assert any(op.weight_bytes for op in heavy)
    assert all(2**16 <= tensor.bytes <= 2**23 for tensor in graph.tensors)
    assert len({op.kind for op in graph.ops}) >= 3
    assert all("/" in op.name and op.block and op.name.startswith(op.block) for op in graph.ops)
    for i, op in enumerate(graph.ops):
        touched = sum(tensor.bytes for tensor in graph.tensors if tensor.producer == i or i in tensor.consumers)
        assert op.traffic_bytes == touched + op.weight_bytes
    assert all(tensor.output == (not tensor.consumers) for tensor in graph.tensors)


def test_chain_is_a_chain() -> None:
    """Tests that every op of a chain reads the one before it."""
    source, target, _ = synthetic("chain", ops=50, seed=0).arrays.edges()
    assert (target - source == 1).all()
    assert len(source) == 49


def test_layered_reads_one_to_three() -> None:
    """Tests that ops behind the first layer read one to three others."""
    graph = synthetic("layered", ops=500, seed=2)
    reads = np.bincount(graph.arrays.edges()[1], minlength=500)
    width = int((reads == 0).sum())
    assert 1 <= width <= 32
    assert (reads[width:] >= 1).all()
    assert (reads <= 3).all()


def test_series_parallel_joins_its_branches() -> None:
    """Tests that a Concat joins two to four branches, everything else reads one op, and one op ends the graph."""
    graph = synthetic("series_parallel", ops=600, seed=4)
    reads = np.bincount(graph.arrays.edges()[1], minlength=600)
    joins = [int(reads[i]) for i, op in enumerate(graph.ops) if op.kind == "Concat"]
    assert len(joins) > 20
    assert set(joins) <= {2, 3, 4}
    assert all(reads[i] == 1 for i, op in enumerate(graph.ops) if i and op.kind != "Concat")
    assert sum(tensor.output for tensor in graph.tensors) == 1


def test_transformer_like_has_residuals() -> None:
    """Tests blocks of 14 ops in which each residual add reads the stream and what was computed from it."""
    graph = synthetic("transformer_like", ops=1 + 14 * 5 + 3, seed=4)
    adds = [i for i, op in enumerate(graph.ops) if op.kind == "Add"]
    reads = np.bincount(graph.arrays.edges()[1], minlength=len(graph.ops))
    assert len(adds) == 10
    assert all(reads[i] == 2 for i in adds)
    # Of the 14 ops of a block, query, key and value are abreast, all others one behind the other.
    assert int(levels(graph.arrays).max()) == 5 * 12 + 3


@pytest.mark.parametrize("name", REGAL_LIKE)
def test_regal_like_numbers(name: str) -> None:
    """Tests that costs and sizes lie around 50 with a spread of 10 to 15, and that unit costs follow them."""
    graph = synthetic(name, ops=3000, seed=6)
    cost = np.array([op.flops for op in graph.ops]) / 10**6
    size = np.array([tensor.bytes for tensor in graph.tensors])
    for drawn in (cost, size):
        assert 49 < drawn.mean() < 51
        assert 9.5 < drawn.std() < 15.5
        assert drawn.min() >= 1
    assert all(tensor.consumers for tensor in graph.tensors)
    assert len({tensor.producer for tensor in graph.tensors}) == len(graph.tensors)
    costs = regal_costs(graph)
    assert costs.time[:, 0].tolist() == (cost * 1000).astype(int).tolist()
    assert costs.transfer[costs.transfer_row, 0, 0].tolist() == (size * 1000).tolist()


def test_hubs_and_communities() -> None:
    """Tests what tells the random models apart: hubs of Barabasi-Albert, near neighbours of Watts-Strogatz."""
    largest = {}
    for name in REGAL_LIKE:
        source, target, _ = synthetic(name, ops=2000, seed=8).arrays.edges()
        largest[name] = int(np.bincount(np.concatenate([source, target])).max())
    assert largest["barabasi_albert"] > 2 * max(largest["erdos_renyi"], largest["block_model"])
    assert largest["watts_strogatz"] <= min(largest["erdos_renyi"], largest["block_model"])


@pytest.mark.parametrize("ops", [1, 2, 60])
@pytest.mark.parametrize("name", REGAL_LIKE)
def test_cost_graph_round_trip(tmp_path: Path, name: str, ops: int) -> None:
    """Tests that a REGAL-like graph written as CostGraphDef text is read back the same, unit costs included."""
    graph = synthetic(name, ops=ops, seed=9)
    path = tmp_path / f"{graph.name}.pbtxt"
    path.write_text(to_cost_graph_text(graph))
    again, costs = IMPORTERS[0].read(path, ImportOptions())
    assert again == graph
    assert costs is not None
    assert np.array_equal(costs.time, regal_costs(graph).time)


@pytest.mark.parametrize(
    ("name", "ops", "seed", "message"),
    [
        ("star", 10, 0, "no synthetic family 'star' \\(there are: chain"),
        ("chain", 0, 0, "1 to 200000 ops, not 0"),
        ("chain", 200_001, 0, "1 to 200000 ops"),
        ("chain", 10, -1, "seed is not negative"),
    ],
)
def test_wrong_calls(name: str, ops: int, seed: int, message: str) -> None:
    """Tests that a call that makes no sense is a usage error."""
    with pytest.raises(UsageError, match=message):
        synthetic(name, ops=ops, seed=seed)
