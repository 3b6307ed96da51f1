"""Layers by structure: without any names, the layers of real architectures are found as their names have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

import weftline as wl
from weftline.cli.main import app
from weftline.graph import Graph, Op, Tensor, assemble
from weftline.graph.repeats import repeated_layers
from weftline.graph.stack import layers_of_graph, named_stacks, stacks_of
from weftline.zoo import zoo_graph


def stripped(graph: Graph) -> Graph:
    """The same graph as exporters without metadata name it."""
    ops = tuple(msgspec.structs.replace(op, name=f"node_{i}", block="") for i, op in enumerate(graph.ops))
    tensors = tuple(msgspec.structs.replace(tensor, name=f"val_{i}") for i, tensor in enumerate(graph.tensors))
    return msgspec.structs.replace(graph, ops=ops, tensors=tensors)


@pytest.mark.parametrize(
    ("name", "changes"),
    [("gpt2", {}), ("gpt2", {"layers": 5}), ("bert", {"layers": 2}), ("bert", {"layers": 7}), ("moe", {"layers": 3})],
)
def test_layers_are_those_of_the_names(name: str, changes: dict[str, Any]) -> None:
    """Tests that every op of every layer is found, and no other, without a name to go by."""
    graph = zoo_graph(name, size="small", **changes)
    true = [ops for stack in named_stacks(graph) for ops in stack.layers]
    assert len(true) >= 2
    assert named_stacks(stripped(graph)) == []
    assert layers_of_graph(stripped(graph)) == true


def test_full_size() -> None:
    """Tests a model of 12 layers as large as it is published."""
    graph = zoo_graph("gpt2")
    assert layers_of_graph(stripped(graph)) == [ops for stack in named_stacks(graph) for ops in stack.layers]


def test_two_stacks() -> None:
    """Tests that encoder and decoder are two stacks."""
    graph = zoo_graph("mt5", size="small", **{"layers": 3})
    assert [len(stack.layers) for stack in stacks_of(stripped(graph))] == [
        len(stack.layers) for stack in named_stacks(graph)
    ]


def chain(*kinds: str) -> Graph:
    ops = [Op(f"n{i}", kind, 1000, 64) for i, kind in enumerate(kinds)]
    return assemble(
        "chain", ops, [Tensor(f"t{i}", i, (i + 1,) if i + 1 < len(ops) else (), 8) for i in range(len(ops))]
    )


def test_what_is_no_stack() -> None:
    """Tests that equal products in a row are no layers, nor is a model in which nothing repeats."""
    assert repeated_layers(chain(*["MatMul"] * 9)) == []
    with pytest.raises(wl.UsageError, match="no layers were found"):
        layers_of_graph(chain("MatMul", "Relu", "Conv", "Gemm"))


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_plans_keep_layers_whole(objective: str) -> None:
    """Tests that no layer is cut, with names and without them, and that the plan still verifies."""
    for graph in (zoo_graph("gpt2", size="small", layers=4), stripped(zoo_graph("gpt2", size="small", layers=4))):
        asked: dict[str, Any] = {"objective": objective, "copies": 1, "keep": "layers", "work_limit": 300}
        plan: wl.Plan = wl.plan(graph, "two-gpus", **asked)
        names = [op.name for op in graph.ops]
        for ops in layers_of_graph(graph):
            assert len({plan.placement[names[op]] for op in ops}) == 1
        wl.verify(plan)


def test_what_is_kept_is_said(tmp_path: Path) -> None:
    """Tests the sentence about layers, by names and by structure: on stderr, with --json too, and no warning."""
    graph = zoo_graph("gpt2", size="small", layers=3)
    for number, one in enumerate((graph, stripped(graph))):
        ops = layers_of_graph(one)
        how = "numbered blocks by their names: transformer/h.0 to 2" if number == 0 else "sub-graphs that repeat"
        ends = [one.ops[op].name for op in (ops[0][0], ops[-1][-1])]
        said = f"note: kept whole: 3 layers were found ({how}); the first op is '{ends[0]}', the last '{ends[1]}'"
        one.save(tmp_path / "model.json")
        words = ["plan", str(tmp_path / "model.json"), "-c", "two-gpus", "--keep", "layers", "--work", "20", "--json"]
        told = CliRunner().invoke(app, words)
        assert said in told.stderr.splitlines()
        assert "warning" not in told.stderr
        assert json.loads(told.stdout)["placement"]


def test_layers_in_the_limits_of_a_cluster() -> None:
    """Tests `block`: a pattern of blocks, `layers`, text or a list, and what matches nothing."""
    graph = zoo_graph("gpt2", size="small", layers=3)
    text = wl.Cluster.preset("two-gpus").to_toml()
    true = tuple(ops for stack in named_stacks(graph) for ops in stack.layers)

    def together(limit: str, of: Graph = graph) -> tuple[tuple[int, ...], ...]:
        cluster = wl.Cluster.parse(f"{text}\n[limits]\nblock = {limit}\n")
        assert wl.Cluster.parse(cluster.to_toml()) == cluster
        return wl.resolve(wl.PlanRequest(model=of, cluster=cluster)).problem.together

    assert together('"transformer/h.*"') == together('["layers"]') == together('"layers"', stripped(graph)) == true
    with pytest.raises(wl.InputError, match=r"matches no block .*blocks are named like"):
        together('"encoder.*"')
    with pytest.raises(wl.InputError, match=r"limits\.block"):
        together("7")


def test_what_cannot_be_kept_is_said() -> None:
    """Tests that layers too large for a device are infeasible, and that the sentence says who asked."""
    cluster = wl.Cluster.preset("eight-gpus")
    small = msgspec.structs.replace(
        cluster, devices=tuple(msgspec.structs.replace(d, memory=150, reserve=0) for d in cluster.devices)
    )
    layered = chain(*["MatMul", "Relu", "Gemm", "Relu"] * 3)
    wl.resolve(wl.PlanRequest(model=layered, cluster=small))
    with pytest.raises(wl.InfeasibleError, match="layers stays whole on one device, as asked"):
        wl.plan(layered, small, keep="layers")
    with pytest.raises(wl.UsageError, match="kept whole are layers"):
        wl.plan(zoo_graph("gpt2", size="small"), cluster, keep="rows")
