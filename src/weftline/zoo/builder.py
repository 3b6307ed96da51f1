"""`Builder`: a network is written op by op, in the names of a PyTorch export, and becomes an ONNX model at the end.

In: ops, parameters and constants, each under the open name scopes. Out: `model()`, a checked-shape ModelProto.
Simplified: shapes are static and computed here; a parameter is drawn from a normal distribution.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from weftline.errors import UsageError

if TYPE_CHECKING:
    import onnx

__all__ = ["Builder", "Parameter", "RecordedNode", "Shape", "Value"]

MAX_NODES = 200_000
MAX_WEIGHT_BYTES = 16 * 2**30

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Value:
    """A tensor of the network: an input, a parameter, a constant or what an op makes."""

    name: str
    shape: Shape
    dtype: str = "float32"


@dataclass(frozen=True)
class Parameter:
    """A weight: float32, normally distributed."""

    shape: Shape
    scale: float
    """Standard deviation."""
    mean: float

    @property
    def bytes(self) -> int:
        """Size of its values."""
        return 4 * prod(self.shape)


@dataclass(frozen=True)
class RecordedNode:
    """One op; the lists hold names of values."""

    kind: str
    name: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, object]


Input: TypeAlias = Value | NDArray[np.generic] | Sequence[int] | float | None
"""What an op reads: a value, a constant (ints become int64, floats float32), or None for an input left out."""


class Builder:
    """Records a network.

    With `weights` the values of each parameter are drawn from the seed and the parameter's name alone, so they do not
    depend on what else is built. Without, parameters point into a file that need not exist.
    """

    def __init__(self, name: str, *, seed: int = 0, weights: bool = True) -> None:
        if seed < 0:
            raise UsageError(f"seed {seed} is negative")
        self.name, self.seed, self.weights = name, seed, weights
        self.nodes: list[RecordedNode] = []
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.parameters: dict[str, Parameter] = {}
        self.constants: dict[str, NDArray[np.generic]] = {}
        self.made: dict[str, Value] = {}
        """What the ops make, by name."""
        self._scopes: list[str] = []
        self._count: dict[str, int] = {}
        self._weight_bytes = 0

    def model(self) -> onnx.ModelProto:
        """The ONNX model of what was recorded."""
        from weftline.zoo.protobuf import to_model

        return to_model(self)

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """What is built inside gets `name` before its own: ops "/outer/name/Conv", parameters "outer.name.weight"."""
        self._scopes.append(name)
        try:
            yield
        finally:
            self._scopes.pop()

    # -- what enters and leaves -------------------------------------------------------------------------------------

    def input(self, name: str, shape: Shape, dtype: str = "float32") -> Value:
        """A tensor that the caller of the model provides."""
        value = Value(name, shape, dtype)
        self.inputs.append(value)
        return value

    def output(self, value: Value, name: str) -> None:
        """Give a value its public name and hand it to the caller of the model."""
        renamed = Value(name, value.shape, value.dtype)
        for node in self.nodes:
            for names in (node.inputs, node.outputs):
                names[:] = [name if old == value.name else old for old in names]
        del self.made[value.name]
        self.outputs.append(renamed)

    def param(self, name: str, shape: Shape, scale: float, mean: float = 0.0) -> Value:
        """A weight under the open scopes. To tie it to a second op, pass the value that is returned."""
        full = ".".join([*self._scopes, name]).replace("/", ".")
        if full in self.parameters:
            raise UsageError(f"{self.name} has two parameters called {full!r}")
        self.parameters[full] = parameter = Parameter(shape, scale, mean)
        self._weight_bytes += parameter.bytes
        if self.weights and self._weight_bytes > MAX_WEIGHT_BYTES:
            raise UsageError(
                f"{self.name} has more than {MAX_WEIGHT_BYTES >> 30} GiB of weights. Planning does not need their "
                "values: build it with weights=False"
            )
        return Value(full, shape)

    # -- ops --------------------------------------------------------------------------------------------------------

    def op(self, kind: str, *inputs: Input, shape: Shape, dtype: str = "float32", **attributes: object) -> Value:
        """An op with one output of the given shape."""
        return self.op_many(kind, *inputs, shapes=[shape], dtypes=[dtype], **attributes)[0]

    def op_many(
        self, kind: str, *inputs: Input, shapes: Sequence[Shape], dtypes: Sequence[str] = (), **attributes: object
    ) -> list[Value]:
        """An op with several outputs."""
        name = self._node_name(kind)
        if len(self.nodes) >= MAX_NODES:
            raise UsageError(f"{self.name} would have more than {MAX_NODES} ops: use fewer layers")
        if any(size < 1 for shape in shapes for size in shape):
            raise UsageError(f"{name} would be empty, {shapes[0]}: use a larger image, width or hidden size")
        names = [self._input_name(value, f"{name}_input_{i}") for i, value in enumerate(inputs)]
        outputs = [
            Value(f"{name}_output_{i}", shape, dtypes[i] if dtypes else "float32") for i, shape in enumerate(shapes)
        ]
        self.nodes.append(RecordedNode(kind, name, names, [value.name for value in outputs], attributes))
        self.made.update((value.name, value) for value in outputs)
        return outputs

    def _node_name(self, kind: str) -> str:
        path = "/".join(["", *self._scopes, kind])
        seen = self._count.get(path, 0)
        self._count[path] = seen + 1
        return f"{path}_{seen}" if seen else path

    def _input_name(self, value: Input, constant_name: str) -> str:
        """Constants are not shared between ops: a shared one would look like a tied weight."""
        if value is None:
            return ""
        if isinstance(value, Value):
            return value.name
        array = np.asarray(value)
        if array.dtype.kind in "if":
            array = array.astype(np.int64 if array.dtype.kind == "i" else np.float32)
        self.constants[constant_name] = array
        return constant_name

    def unary(self, kind: str, x: Value, **attributes: object) -> Value:
        """An elementwise op: Relu, Erf, Sigmoid ..."""
        return self.op(kind, x, shape=x.shape, dtype=x.dtype, **attributes)

    def binary(self, kind: str, x: Value | float, y: Value | float) -> Value:
        """An elementwise op of two values or a value and a number, broadcast: Add, Sub, Mul, Div, Pow."""
        shapes = [value.shape for value in (x, y) if isinstance(value, Value)]
        return self.op(kind, x, y, shape=np.broadcast_shapes(*shapes))

    def add(self, x: Value, y: Value | float) -> Value:
        """The sum x + y."""
        return self.binary("Add", x, y)

    def mul(self, x: Value, y: Value | float) -> Value:
        """The elementwise product x * y."""
        return self.binary("Mul", x, y)

    def matmul(self, x: Value, y: Value) -> Value:
        """The matrix product of the last two axes."""
        batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        return self.op("MatMul", x, y, shape=(*batch, x.shape[-2], y.shape[-1]))

    def gemm(self, x: Value, weight: Value, bias: Value | None = None) -> Value:
        """The product of (rows, in) with a weight (out, in), as a fully connected layer is exported."""
        inputs = (x, weight) if bias is None else (x, weight, bias)
        return self.op("Gemm", *inputs, shape=(x.shape[0], weight.shape[0]), transB=1)

    def softmax(self, x: Value) -> Value:
        """The softmax over the last axis."""
        return self.unary("Softmax", x, axis=-1)

    def reshape(self, x: Value, *shape: int) -> Value:
        """The same elements in another shape."""
        if prod(x.shape) != prod(shape):
            raise UsageError(f"{x.name}: {x.shape} cannot be reshaped to {shape}")
        return self.op("Reshape", x, shape, shape=shape, dtype=x.dtype)

    def transpose(self, x: Value, *axes: int) -> Value:
        """The axes in another order."""
        return self.op("Transpose", x, shape=tuple(x.shape[a] for a in axes), dtype=x.dtype, perm=list(axes))

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        """Values one after another along an axis."""
        shape = list(values[0].shape)
        shape[axis] = sum(value.shape[axis] for value in values)
        return self.op("Concat", *values, shape=tuple(shape), axis=axis)

    def split(self, x: Value, parts: int, axis: int = -1) -> list[Value]:
        """Equal parts along an axis."""
        axis %= len(x.shape)
        size = x.shape[axis] // parts
        shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
        return self.op_many("Split", x, [size] * parts, shapes=[shape] * parts, axis=axis)

    def slice(self, x: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
        """Every `step`-th row from `start` to before `stop` along one axis."""
        shape = list(x.shape)
        shape[axis] = len(range(start, min(stop, shape[axis]), step))
        return self.op("Slice", x, [start], [stop], [axis], [step], shape=tuple(shape), dtype=x.dtype)

    def gather(self, table: Value, indices: Value | NDArray[np.int64] | int, axis: int = 0) -> Value:
        """Rows of a table by index; a plain number takes one row and drops the axis."""
        picked = indices.shape if isinstance(indices, Value | np.ndarray) else ()
        shape = (*table.shape[:axis], *picked, *table.shape[axis + 1 :])
        return self.op("Gather", table, indices, shape=shape, dtype=table.dtype, axis=axis)

    def unsqueeze(self, x: Value, *axes: int) -> Value:
        """New axes of size 1 at these places of the result."""
        sizes = iter(x.shape)
        shape = tuple(1 if i in axes else next(sizes) for i in range(len(x.shape) + len(axes)))
        return self.op("Unsqueeze", x, axes, shape=shape, dtype=x.dtype)
