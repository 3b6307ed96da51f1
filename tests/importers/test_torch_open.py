"""Modules of PyTorch with open sizes: exported with `Dim`, or with shapes that depend on data."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch
from torch import nn
from torch.export import Dim, export

import weftline as wl
from weftline.errors import InputError, UsageError
from weftline.graph import Graph


class Picking(nn.Module):  # type: ignore[misc]
    """A product, and those of its numbers that are positive."""

    def __init__(self) -> None:
        super().__init__()
        self.product = nn.Linear(4, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.product(x)
        flat = y.reshape(-1)
        places = torch.nonzero(flat > 0)
        return y, places, torch.exp(flat[places.squeeze(1)])


def _exported(**limits: int) -> Any:
    return export(Picking().eval(), (torch.zeros(3, 4),), dynamic_shapes={"x": {0: Dim("batch", **limits)}})


def _work(graph: Graph) -> list[tuple[str, int, int, bool]]:
    return [(op.kind, op.flops, op.traffic_bytes, op.guessed) for op in graph.ops]


def _tensors(graph: Graph) -> list[tuple[tuple[int, ...], tuple[int, ...], bool]]:
    return [(tensor.shape, tensor.dynamic, tensor.guessed) for tensor in graph.tensors]


def _closed(tensors: list[tuple[tuple[int, ...], tuple[int, ...], bool]]) -> list[tuple[int, ...]]:
    return [shape for shape, _, _ in tensors]


def test_nonzero_has_the_limit_of_its_input() -> None:
    """Tests that a module whose output depends on data is planned with the largest size, and says which axes vary."""
    graph = wl.from_torch(Picking(), torch.zeros(3, 4))
    found = {op.kind: op for op in graph.ops}
    assert (found["NonZero"].flops, found["GatherND"].flops, found["Exp"].flops) == (24, 24, 24)
    assert not graph.guessed
    by_shape = {tensor.shape: tensor.dynamic for tensor in graph.tensors if tensor.dynamic}
    assert by_shape == {(24, 1): (0,), (24,): (0,)}
    assert "guess" not in wl.plan(graph, "laptop", solver="greedy", work_limit=10).summary()


def test_an_open_dimension_needs_a_size() -> None:
    """Tests that it is an error without one, and that inputs and `dims` say the same; names and symbols are known."""
    program = _exported()
    with pytest.raises(
        InputError, match=r"input 'x': dimension 'batch' of shape batchx4 is open .*dims=\{'batch': 8\}"
    ):
        wl.from_torch(program)
    wanted = wl.from_torch(Picking(), torch.zeros(7, 4), name="program")
    given = wl.from_torch(program, torch.zeros(7, 4))
    assert _work(given) == _work(wanted)
    assert _tensors(given) == _tensors(wanted)
    assert wl.from_torch(program, dims={"batch": 7}) == given
    assert wl.from_torch(program, {"x": torch.zeros(7, 4, device="meta")}) == given


def test_a_limit_counts() -> None:
    """Tests that the largest size of a `Dim` is planned for, on an axis that is called dynamic."""
    graph = wl.from_torch(_exported(max=64))
    most = wl.from_torch(Picking(), torch.zeros(64, 4))
    assert _work(graph) == _work(most)
    assert _closed(_tensors(graph)) == _closed(_tensors(most))
    assert all(tensor.dynamic == (0,) and not tensor.guessed for tensor in graph.tensors)
    assert not graph.guessed
    fewer = wl.from_torch(_exported(max=64), dims={"batch": 5})
    assert _work(fewer) == _work(wl.from_torch(Picking(), torch.zeros(5, 4)))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"dims": {"batches": 3}}, "'batches', which the program does not have .its open dimensions: batch"),
        ({"dims": {"batch": 65}}, r"'batch'.*65 is not in \d..64"),
        ({"inputs": torch.zeros(3, 5)}, "input 'x': shape 3x5 is given, the program says batchx4"),
        ({"inputs": torch.zeros(3, 4, 1)}, "shape 3x4x1 is given"),
        ({"inputs": {"y": torch.zeros(3, 4)}}, "'y': example inputs are tensors"),
        ({"inputs": 3}, "example inputs are tensors"),
        ({"inputs": torch.zeros(3, 4), "dims": {"batch": 4}}, "two sizes: 4 and 3"),
    ],
)
def test_sizes_that_make_no_sense(given: dict[str, Any], words: str) -> None:
    """Tests sizes that the program does not take."""
    with pytest.raises(InputError, match=words):
        wl.from_torch(_exported(max=64), **given)


def test_what_is_for_programs_alone() -> None:
    """Tests that a module without inputs, or with sizes by name, is told what is missing."""
    with pytest.raises(UsageError, match="needs example inputs"):
        wl.from_torch(Picking())
    with pytest.raises(UsageError, match="ExportedProgram"):
        wl.from_torch(Picking(), torch.zeros(3, 4), dims={"batch": 3})


class Counting(nn.Module):  # type: ignore[misc]
    """As many rows as a sum says."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        count = x.sum().to(torch.int64).item()
        torch._check(count >= 0)
        rows = torch.zeros(count, 4) + x[:1]
        return rows, torch.relu(x)


def test_a_size_without_a_limit_is_a_guess() -> None:
    """Tests that it has a stand-in that is not 1, is called guessed, and waits for the number that decides it."""
    graph = wl.from_torch(Counting(), torch.zeros(9, 4))
    kinds = {op.kind: number for number, op in enumerate(graph.ops)}
    assert {op.kind for op in graph.guessed} == {"Full", "Add"}
    rows = next(tensor for tensor in graph.tensors if tensor.producer == kinds["Full"])
    assert rows.shape == (9, 4)
    assert (rows.dynamic, rows.guessed) == ((0,), True)
    number = next(tensor for tensor in graph.tensors if tensor.producer == kinds["Cast"])
    assert kinds["Full"] in number.consumers
    plan = wl.plan(graph, "laptop", solver="greedy", work_limit=10)
    assert plan.summary().startswith("2 ops have dimensions that could not be computed, first")
    assert not isinstance(plan.guessed, msgspec.UnsetType)
    with pytest.raises(InputError, match="could not be computed"):
        wl.plan(graph, "laptop", strict=True, solver="greedy", work_limit=10)


def test_products_of_open_sizes() -> None:
    """Tests PyTorch's own formulas with limits in the place of sizes, by hand."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    sizes = {"src": {0: Dim("batch", max=8), 1: Dim("length", max=64)}}
    program = export(layer, (torch.zeros(2, 5, 16),), dynamic_shapes=sizes)
    graph = wl.from_torch(program)
    most = wl.from_torch(layer, torch.zeros(8, 64, 16))
    kinds = ("MatMul", "Gemm", "Attention")
    assert sum(op.flops for op in graph.ops if op.kind in kinds) == sum(op.flops for op in most.ops if op.kind in kinds)
    assert not graph.guessed
