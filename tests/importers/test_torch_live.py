"""Live modules of PyTorch: shapes, flops, weights and blocks by hand, real architectures from end to end, errors."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import nn

import weftline as wl
from weftline.certify import Verdict
from weftline.errors import InputError, UsageError
from weftline.graph.ir import MODEL_INPUT


class Small(nn.Module):  # type: ignore[misc]
    """Two products with one weight, a norm, a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8, bias=False)
        self.norm = nn.LayerNorm(8)
        self.second = nn.Linear(8, 8, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.second(self.norm(self.first(x)))


def test_by_hand() -> None:
    """Tests names, kinds, flops, bytes, tied weights, and what reads what."""
    graph = wl.from_torch(Small(), torch.zeros(4, 8))
    kinds = [op.kind for op in graph.ops if op.kind not in ("Identity", "Reshape")]
    assert kinds == ["MatMul", "LayerNormalization", "MatMul", "Add"]
    products = [number for number, op in enumerate(graph.ops) if op.kind == "MatMul"]
    assert [graph.ops[number].flops for number in products] == [2 * 4 * 8 * 8] * 2
    assert [graph.ops[number].block for number in products] == ["first", "second"]
    assert all(op.name.startswith(f"{op.block}.") for op in graph.ops if op.block)
    assert [(tied.bytes, tied.ops) for tied in graph.tied] == [(8 * 8 * 4, tuple(products))]
    norm = next(op for op in graph.ops if op.kind == "LayerNormalization")
    assert norm.weight_bytes == 2 * 8 * 4
    given = next(tensor for tensor in graph.tensors if tensor.producer == MODEL_INPUT)
    assert (given.bytes, given.shape, given.dtype) == (4 * 8 * 4, (4, 8), "float32")
    assert {graph.ops[op].kind for op in given.consumers} == {"MatMul", "Add"}
    assert [tensor.shape for tensor in graph.tensors if tensor.output] == [(4, 8)]


def test_a_module_stays_as_it_is() -> None:
    """Tests that the mode of every part is what it was, and that no gradient is asked for."""
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4))
    module[1].eval()
    graph = wl.from_torch(module, (torch.zeros(2, 4),), name="mine")
    assert [part.training for part in module.modules()] == [True, True, False, True]
    assert graph.name == "mine"
    assert "BatchNormalization" in {op.kind for op in graph.ops}
    assert module[0].weight.grad is None


class Split(nn.Module):  # type: ignore[misc]
    """An operation with several outputs, of which one is not taken; two inputs by name."""

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> dict[str, Any]:
        a, b, _ = torch.split(x, 2, dim=1)
        values, _ = torch.topk(a * scale, 1)
        return {"values": values, "rest": b}


def test_several_outputs_and_inputs_by_name() -> None:
    """Tests that each taken output is a tensor of its own."""
    graph = wl.from_torch(Split(), {"x": torch.zeros(3, 6), "scale": torch.ones(1)})
    assert sum(tensor.producer == MODEL_INPUT for tensor in graph.tensors) == 2
    assert sorted(tensor.shape for tensor in graph.tensors if tensor.output) == [(3, 1), (3, 2)]
    assert [tensor.shape for tensor in graph.tensors if tensor.producer == MODEL_INPUT] == [(3, 6), (1,)]


def test_a_transformer_is_planned_and_exported_by_layer(tmp_path: Any) -> None:
    """Tests plan, verify and an export by module names; flops by hand."""
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    module = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
    graph = wl.from_torch(module, torch.zeros(1, 16, 64))
    products = 16 * 64 * 192 + 16 * 64 * 64 + 2 * 16 * 64 * 128 + 2 * 4 * 16 * 16 * 16
    counted = sum(op.flops for op in graph.ops if op.kind in ("MatMul", "Gemm", "Attention"))
    assert counted == 3 * 2 * products
    weights = sum(op.weight_bytes for op in graph.ops) + sum(tied.bytes for tied in graph.tied)
    assert weights == sum(parameter.numel() * 4 for parameter in module.parameters())
    assert {op.block.split(".")[1] for op in graph.ops if op.block.startswith("layers.")} == {"0", "1", "2"}
    plan = wl.plan(graph, wl.Cluster.preset("two-gpus"), objective="latency", work_limit=50)
    plan.save(tmp_path / "plan.json")
    verdict = wl.verify(tmp_path / "plan.json")
    assert isinstance(verdict, Verdict)
    assert verdict.value_ns == plan.value_ns
    whole = {op.name: "gpu1" if op.block.startswith("layers.2") else "gpu0" for op in graph.ops}
    files = wl.export(msgspec.structs.replace(plan, placement=whole), "vllm", tmp_path / "vllm")
    assert files[0].read_text() == "VLLM_PP_LAYER_PARTITION=2,1\n"


class Words(nn.Module):  # type: ignore[misc]
    """Words and positions, two layers; the positions of all words are known before there is any input."""

    def __init__(self) -> None:
        super().__init__()
        self.word, self.position = nn.Embedding(50, 16), nn.Embedding(12, 16)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.word(words) + self.position(torch.arange(words.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return x


class Model(nn.Module):  # type: ignore[misc]
    """Has them as a module of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Words()

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.body(words)


def test_weights_that_are_read_before_any_input_belong_to_their_module(tmp_path: Any) -> None:
    """Tests that positions do not tie the whole module that adds them to one device."""
    graph = wl.from_torch(Model(), torch.zeros(1, 12, dtype=torch.long))
    held = {op.block: op.weight_bytes for op in graph.ops if op.weight_bytes}
    assert held["body.position"] == 12 * 16 * 4
    assert "body" not in held
    plan = wl.plan(graph, wl.Cluster.preset("two-gpus"), objective="latency", work_limit=50)
    cut = {op.name: "gpu1" if op.block.startswith("body.layers.1") else "gpu0" for op in graph.ops}
    (path,) = wl.export(msgspec.structs.replace(plan, placement=cut), "accelerate", tmp_path / "out")
    found = json.loads(path.read_text())
    assert found == {"body.word": 0, "body.position": 0, "body.layers.0": 0, "body.layers.1": 1}


def test_a_convolutional_network() -> None:
    """Tests flops of convolutions, with groups, and pooling."""
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.MaxPool2d(2)
    )
    graph = wl.from_torch(module, torch.zeros(1, 3, 16, 16))
    flops = [op.flops for op in graph.ops if op.kind == "Conv"]
    assert flops == [2 * 16 * 16 * 8 * 3 * 9, 2 * 14 * 14 * 8 * 9]
    assert [op.kind for op in graph.ops if op.kind in ("BatchNormalization", "Relu", "MaxPool")] == [
        "BatchNormalization",
        "Relu",
        "MaxPool",
    ]
    assert np.all([op.traffic_bytes > 0 for op in graph.ops if op.kind == "Conv"])


class Undecided(nn.Module):  # type: ignore[misc]
    """Control flow that depends on data."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if bool((x > 0).all()) else x


def test_what_cannot_be_traced() -> None:
    """Tests that the user is told what is wrong with a module, or that it is none."""
    with pytest.raises(InputError, match="cannot be traced"):
        wl.from_torch(Undecided(), torch.zeros(2))
    with pytest.raises(UsageError, match=r"torch.nn.Module is wanted, not int"):
        wl.from_torch(3, torch.zeros(2))


@pytest.mark.parametrize(
    ("module", "given"),
    [
        (Small(), torch.zeros(4, 8)),
        (Split(), {"x": torch.zeros(3, 6), "scale": torch.ones(1)}),
        (nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), torch.zeros(1, 8, 64)),
    ],
    ids=["tied", "several outputs", "transformer"],
)
def test_a_graph_is_saved_and_read_back(module: Any, given: Any, tmp_path: Any) -> None:
    """Tests that the file of a traced module is the same graph, for Python and for the command line."""
    graph = wl.from_torch(module, given, name="mine")
    graph.save(tmp_path / "mine.json")
    assert wl.load(tmp_path / "mine.json") == graph
    plan = wl.plan(tmp_path / "mine.json", "laptop", work_limit=10)
    assert plan.problem.graph == graph
