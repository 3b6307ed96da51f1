"""Tests the rules of GCOF: each on a graph made from its own words, the table against ONNX Runtime, what stops one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.reduce.fusion_samples import model_of, samples

from weftline.graph import Graph, Op, Tensor, assemble
from weftline.importers import read_file
from weftline.reduce.contract import is_acyclic
from weftline.reduce.fusion.gcof import BACKENDS, RULES, Rule, backend_of, matches, pattern_of
from weftline.reduce.fusion.oracle import ask, regions
from weftline.testing.generate import random_problem

ELIMINATED = ("eliminate-behind", "cast-pair")
"""What such a rule removes may go to the op before or to the op behind."""


def graph_of(rule: Rule, kind: str, *, seen: str = "", read_outside: str = "") -> Graph:
    """The pattern as a graph: letters are inputs, `kind` stands for `_`; a step may be an output or be read outside."""
    pattern = pattern_of(rule)
    names = list(pattern.steps)
    place = {name: number for number, name in enumerate(names)}
    ops: list[Op] = []
    readers: dict[str, set[int]] = {}
    for name, step in pattern.steps.items():
        chosen = min(step.kinds - {"_"}, default=kind)
        ops.append(Op(f"op {name}", chosen, weight_bytes=4 * step.constant))
        for given in step.inputs:
            readers.setdefault(given, set()).add(place[name])
    tensors, last = [], len(ops) - 1
    for given, users in readers.items():
        shape = (2, 4, 3) if given == rule.swaps_last_two else (2, 3, 4)
        if given == read_outside:
            users.add(last + 1)
        tensors.append(Tensor(given, place.get(given, -1), tuple(sorted(users)), 96, shape, output=given == seen))
    tensors.append(Tensor("result", last, (), 96, (2, 3, 4), output=True))
    if read_outside:
        ops.append(Op("outside", "NonMaxSuppression"))
    return assemble(rule.name, ops, tensors)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_finds_its_own_pattern(rule: Rule) -> None:
    """Tests that each pattern is one kernel on the backends that have it, and that all backends keep it acyclic."""
    graph = graph_of(rule, "MaxPool")
    for backend in BACKENDS:
        kernel = matches(graph, backend)
        assert is_acyclic(graph, kernel)
        if backend in rule.backends:
            assert len(set(kernel.tolist())) == 1


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_tensors_inside_stay_inside(rule: Rule) -> None:
    """Tests that a pattern whose inner tensor is an output, or is read elsewhere, is not joined as a whole."""
    inner = list(pattern_of(rule).steps)[:-1]
    for step in inner:
        for graph in (graph_of(rule, "MaxPool", seen=step), graph_of(rule, "MaxPool", read_outside=step)):
            kernel = matches(graph, rule.backends[0], [rule])
            users = next(t for t in graph.tensors if t.name == step)
            assert len({int(kernel[op]) for op in (users.producer, *users.consumers)}) > 1


def test_the_table_agrees_with_onnx_runtime(tmp_path: Path) -> None:
    """Tests that the rules for ONNX Runtime on the CPU join what the installed version joins, and nothing else."""
    chosen = samples()
    path = tmp_path / "samples.onnx"
    path.write_bytes(model_of(chosen).SerializeToString())
    graph = read_file(path).graph
    found, kernel = regions(graph, ask(path, graph)), matches(graph, "ort-cpu")
    different = []
    for name in chosen:
        ops = [op for op, entry in enumerate(graph.ops) if entry.name.startswith(f"{name}:")]
        around = [op for op, entry in enumerate(graph.ops) if entry.name.startswith((f"{name}:", f"{name}>"))]
        joined = len(set(found.group[ops].tolist())) == 1 and bool(found.one_kernel[ops].all())
        if name.startswith(ELIMINATED):
            joined = len(set(found.group[around].tolist())) < len(around)
        if joined != (len(set(kernel[ops].tolist())) == 1):
            different.append(name)
    assert not different


def test_every_rule_of_onnx_runtime_has_a_sample() -> None:
    """Tests that no rule for ONNX Runtime on the CPU is left out of the comparison."""
    compared = {name.split("/")[0] for name in samples()}
    unsampled = {rule.name for rule in RULES if "ort-cpu" in rule.backends} - compared
    assert unsampled == {"eliminate-before", "shape-reshape-more"}


def test_rules_build_on_each_other() -> None:
    """Tests that what one rule joins is found by the next: convolution, norm, scale, bias, activation."""
    kinds = ["Conv", "BatchNormalization", "Mul", "Add", "Relu", "MaxPool"]
    ops = [Op(f"op{i}", kind, weight_bytes=8) for i, kind in enumerate(kinds)]
    tensors = [Tensor(f"t{i}", i, (i + 1,), 8) for i in range(5)]
    graph = assemble("row", ops, [Tensor("x", -1, (0,), 8), *tensors, Tensor("y", 5, (), 8, output=True)])
    assert matches(graph, "ort-cpu").tolist() == [4, 4, 4, 4, 4, 5]
    assert matches(graph, "ort-cuda").tolist() == [4, 4, 4, 4, 4, 5]
    assert matches(graph, "generic").tolist() == [1, 1, 2, 3, 4, 5]


def test_constants_are_told_from_tensors() -> None:
    """Tests that a residual sum is not taken for a bias, nor a product of two tensors for a layer with weights."""
    ops = [Op("a", "MatMul"), Op("b", "Add")]
    tensors = [Tensor("x", -1, (0,), 8), Tensor("z", -1, (0, 1), 8), Tensor("t", 0, (1,), 8), Tensor("y", 1, (), 8)]
    assert len(set(matches(assemble("sum", ops, tensors), "ort-cpu").tolist())) == 2


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("backend", ["ort-cpu", "tensorrt"])
def test_any_graph_stays_acyclic(seed: int, backend: str) -> None:
    """Tests that random graphs of the kinds that rules look for can be contracted."""
    graph = random_problem(seed, "latency", max_ops=20).graph
    kinds = ["Conv", "Add", "Relu", "MatMul", "Mul", "Sigmoid", "Identity", "Transpose", "Div", "Softmax"]
    dice = np.random.default_rng(seed)
    ops = [Op(op.name, str(dice.choice(kinds)), weight_bytes=int(dice.integers(0, 2))) for op in graph.ops]
    graph = assemble("kinds", ops, graph.tensors, graph.tied)
    assert is_acyclic(graph, matches(graph, backend))


@pytest.mark.parametrize(
    ("runtime", "backend"),
    [
        ("", "ort-cpu"),
        ("ort:CPUExecutionProvider", "ort-cpu"),
        ("ort:CUDAExecutionProvider:0", "ort-cuda"),
        ("ort:TensorrtExecutionProvider:1", "tensorrt"),
        ("ort:OpenVINOExecutionProvider", "openvino"),
        ("ort:SomeExecutionProvider", "generic"),
        ("openvino:GPU.0", "openvino"),
        ("tensorrt", "tensorrt"),
        ("torch:cuda:0", "generic"),
    ],
)
def test_backends_of_devices(runtime: str, backend: str) -> None:
    """Tests which rules hold on a device, by its runtime."""
    assert backend_of(runtime) == backend
