"""Example inputs for a model: float tensors are normal, masks are ones, ids lie inside the table they index.

In: an ONNX model with static input shapes (ours or any other). Out: an array per input. Simplified: an integer input
that indexes no table is 0 or 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from weftline.errors import InputError, UsageError

if TYPE_CHECKING:
    import onnx

__all__ = ["example_inputs"]

MAX_ELEMENTS = 2**31


def example_inputs(model: onnx.ModelProto, seed: int = 0) -> dict[str, NDArray[np.generic]]:
    """An array for every input that has no default; the same seed gives the same arrays."""
    if seed < 0:
        raise UsageError(f"seed {seed} is negative")
    tables = {tensor.name: tensor.dims[0] for tensor in model.graph.initializer if tensor.dims and tensor.dims[0] > 0}
    rows: dict[str, int] = {}
    for node in model.graph.node:
        along_rows = all(attribute.i == 0 for attribute in node.attribute if attribute.name == "axis")
        if node.op_type == "Gather" and len(node.input) == 2 and node.input[0] in tables and along_rows:
            table = tables[node.input[0]]
            rows[node.input[1]] = min(table, rows.get(node.input[1], table))
    generator = np.random.default_rng(seed)
    given = {tensor.name for tensor in model.graph.initializer}
    return {
        value.name: _example(value, rows.get(value.name, 2), generator)
        for value in model.graph.input
        if value.name not in given
    }


def _example(value: onnx.ValueInfoProto, rows: int, generator: np.random.Generator) -> NDArray[np.generic]:
    from onnx import helper

    place = f"input {value.name!r}"
    tensor = value.type.tensor_type
    shape = tuple(size.dim_value if size.HasField("dim_value") else -1 for size in tensor.shape.dim)
    if not tensor.elem_type or not tensor.HasField("shape") or any(size < 0 for size in shape):
        raise InputError("is not a tensor of fixed shape", where=place, hint="export the model with fixed input shapes")
    if np.prod(shape, dtype=float) > MAX_ELEMENTS:
        raise InputError(f"shape {shape} has more than {MAX_ELEMENTS} elements", where=place)
    try:
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    except KeyError as error:
        raise InputError(f"element type {tensor.elem_type} is not known", where=place) from error
    if "mask" in value.name.lower() or dtype.kind == "b":
        return np.ones(shape, dtype)
    if dtype.kind in "iu":
        return generator.integers(0, rows, shape).astype(dtype)
    if dtype.kind not in "fV":
        raise InputError(f"elements of type {dtype} have no example", where=place)
    return generator.standard_normal(shape).astype(dtype)
