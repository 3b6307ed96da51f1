"""Shapes of every case that the ONNX standard is tested with: what is called exact is exact."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

from weftline.errors import InputError
from weftline.graph import Tensor
from weftline.importers.onnx.model import graph_of_model
from weftline.importers.registry import ImportOptions

MOST_REFUSED = 5
"""One output of constants alone has nothing to plan."""


def _without_shapes(model: Any) -> Any:
    """The outputs' shapes are what is asked."""
    asked = ModelProto()
    asked.CopyFrom(model)
    for output in asked.graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    return asked


def _open_shapes(model: Any, given: list[Any]) -> dict[str, tuple[int, ...]]:
    """Shapes of the inputs whose dimensions the file leaves open."""
    found = {}
    for value, array in zip(model.graph.input, given, strict=False):
        dims = value.type.tensor_type.shape.dim
        if isinstance(array, np.ndarray) and any(not dim.HasField("dim_value") for dim in dims):
            found[value.name] = array.shape
    return found


def _fits(tensor: Tensor, shape: tuple[int, ...]) -> bool:
    """Exact sizes are the same, others at least as large."""
    return len(tensor.shape) == len(shape) and all(
        ours >= theirs if axis in tensor.dynamic else ours == theirs
        for axis, (ours, theirs) in enumerate(zip(tensor.shape, shape, strict=True))
    )


@pytest.mark.slow
def test_shapes_of_the_standard() -> None:
    """Tests that no case of the standard has another shape than we say, unless we call it a guess."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        cases = list(collect_testcases(None))
    wrong, refused, held = [], [], 0
    for case in cases:
        given, made = case.data_sets[0]
        options = ImportOptions(shapes=_open_shapes(case.model, given))
        try:
            graph = graph_of_model(_without_shapes(case.model), options)
        except InputError as error:
            refused.append(f"{case.name}: {error}")
            continue
        tensors = {tensor.name: tensor for tensor in graph.tensors}
        for output, array in zip(case.model.graph.output, made, strict=True):
            tensor = tensors.get(output.name)
            if tensor is None or tensor.guessed or not isinstance(array, np.ndarray):
                continue
            held += 1
            if not _fits(tensor, array.shape):
                wrong.append(f"{case.name}: {tensor.shape}, not {array.shape}")
    assert wrong == []
    assert len(refused) <= MOST_REFUSED, refused
    assert held > 1500
