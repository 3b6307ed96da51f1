"""Ask ONNX Runtime, in a process of its own, what it makes of a model.

In: the path of an ONNX model and the graph that was imported from it. Out: the nodes of the optimised graph, or
`OracleError` that says why there is no answer. The process gets a copy of the model in a temporary folder: large
weights, and all that lie in other files, are zeros of the same shape, which share one file without contents. So no
weight is ever read, and models of any size fit.

The backend as oracle: which ops ONNX Runtime joins, found by comparing a graph with what it makes of it.

In: the graph and the nodes of the optimised graph. Out: the region of every op. A tensor whose name survives is a
landmark. Optimised nodes that are joined by other tensors are one region, and its ops are those on the way back from
the landmarks it makes to landmarks that others make. Ops that serve several regions (a shape that was folded into all
its readers) stay alone. Simplified: a name that survives is taken for the same value.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from weftline.cost.analytic import FREE_KINDS
from weftline.errors import WeftlineError
from weftline.files import run_folder
from weftline.graph import Graph
from weftline.graph.arrays import Indices
from weftline.graph.ir import MODEL_INPUT
from weftline.reduce.contract import is_acyclic
from weftline.worker.parent import Child

__all__ = ["OptimisedNode", "OracleError", "Regions", "ask", "regions"]

MOST_SECONDS = 60
MOST_BYTES = 4 * 2**30
"""Bytes that the process may really use."""
KEPT_BYTES = 16 * 2**10
"""Weights up to this size keep their values: constants of patterns, shapes and scalars are among them."""
MAX_ANSWER_BYTES = 2**29
MAX_ZEROS = 2**40

_TEXT = 8  # TensorProto.STRING
_EXTERNAL = 1  # TensorProto.EXTERNAL


class OracleError(WeftlineError):
    """ONNX Runtime gave no answer."""


class OptimisedNode(msgspec.Struct, frozen=True, array_like=True):
    """One node of the optimised graph."""

    kind: str
    reads: tuple[str, ...]
    makes: tuple[str, ...]


def ask(path: Path, graph: Graph, seconds: int = MOST_SECONDS) -> list[OptimisedNode]:
    """The optimised graph, node by node."""
    with run_folder() as folder:
        try:
            _write_light_copy(path, graph, folder)
            return _run(folder, seconds)
        except (OSError, MemoryError, ValueError) as error:
            raise OracleError(f"{str(error)[:200] or type(error).__name__}") from error


def _run(folder: Path, seconds: int) -> list[OptimisedNode]:
    script, answer = Path(__file__).with_name("oracle_run.py"), folder / "answer.json"
    words = (str(folder / "model.onnx"), str(answer), str(seconds))
    with Child(script, *words, folder=folder, answers=False) as child:
        _wait(child, time.monotonic() + seconds)
    if not answer.is_file() or answer.stat().st_size > MAX_ANSWER_BYTES:
        raise OracleError("ONNX Runtime left no readable graph")
    try:
        return msgspec.json.decode(answer.read_bytes(), type=list[OptimisedNode])
    except msgspec.DecodeError as error:
        raise OracleError(f"ONNX Runtime left no readable graph: {error}") from error


def _wait(child: Child, end: float) -> None:
    """Until it has done what it should; `OracleError` if it fails or must not go on."""
    while (code := child.wait(0.1)) is None:
        if time.monotonic() > end:
            raise OracleError("ONNX Runtime did not finish in time")
        if _memory_of(child.pid) > MOST_BYTES:
            raise OracleError("ONNX Runtime needed too much memory")
    if code < 0:
        raise OracleError(f"ONNX Runtime crashed (signal {-code})")
    if code:
        last = child.printed(1)
        said = f"refused the model: {last[0][-240:]}" if last else f"ended with code {code}"
        raise OracleError(f"ONNX Runtime {said}")


def _memory_of(pid: int) -> int:
    """Bytes of its own that a process holds; 0 where the system does not say."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    line = next((line for line in text.splitlines() if line.startswith("RssAnon:")), "")
    return int(line.split()[1]) * 1024 if line else 0


def _write_light_copy(path: Path, graph: Graph, folder: Path) -> None:
    """The model as `load_model` sees it, with the input shapes of the graph and without large weights."""
    from weftline.importers.onnx.scope import load_model

    model = load_model(path)
    largest = 0
    for tensor in _stored_tensors(model.graph):
        outside = tensor.data_location == _EXTERNAL
        if tensor.data_type != _TEXT and (outside or tensor.ByteSize() > KEPT_BYTES):
            largest = max(largest, _empty(tensor))
        elif outside:
            raise OracleError(f"the texts of {tensor.name[:80]!r} lie in another file")
    if largest > MAX_ZEROS:
        raise OracleError(f"a weight of {largest} bytes is too large")
    _fix_shapes(model.graph, graph)
    with (folder / "zeros").open("wb") as zeros:
        zeros.truncate(largest)
    (folder / "model.onnx").write_bytes(model.SerializeToString())


def _stored_tensors(graph: Any) -> Iterator[Any]:
    """Every weight of a graph and of the bodies in it, and every constant that lies in another file."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (tensor for tensor in (sparse.values, sparse.indices) if tensor.data_location == _EXTERNAL)
    for node in graph.node:
        for attribute in node.attribute:
            if any(tensor.data_location == _EXTERNAL for tensor in (attribute.t, *attribute.tensors)):
                raise OracleError(f"a constant of node {node.name[:80]!r} lies in another file")
            for body in [attribute.g, *attribute.graphs]:
                yield from _stored_tensors(body)


def _empty(tensor: Any) -> int:
    """Turn a weight into a pointer to the common zeros -> the bytes it needs there."""
    from weftline.importers.onnx.call import tensor_type

    size = tensor_type(tensor.name, tensor.data_type, tensor.dims).bytes
    name, kind, dims = tensor.name, tensor.data_type, list(tensor.dims)
    tensor.Clear()
    tensor.name, tensor.data_type, tensor.data_location = name, kind, _EXTERNAL
    tensor.dims.extend(dims)
    for key, value in (("location", "zeros"), ("offset", "0"), ("length", str(size))):
        tensor.external_data.add(key=key, value=value)
    return size


def _fix_shapes(model_graph: Any, graph: Graph) -> None:
    """Give symbolic inputs the shapes that the graph was imported with; then noted inner shapes no longer count."""
    shapes = {tensor.name: tensor.shape for tensor in graph.tensors if tensor.producer == MODEL_INPUT}
    changed = False
    for value in model_graph.input:
        kind, shape = value.type.tensor_type, shapes.get(value.name)
        if shape is None or not value.type.HasField("tensor_type"):
            continue
        if [dim.dim_value for dim in kind.shape.dim] != list(shape) or not kind.HasField("shape"):
            changed = True
            del kind.shape.dim[:]
            for size in shape:
                kind.shape.dim.add(dim_value=size)
    if changed:
        del model_graph.value_info[:]


MOST_GROUPED = 64
"""Regions of several kernels and more ops than this are not kept together: too many names were lost there."""


class Regions(NamedTuple):
    """What the optimised graph says about the ops."""

    group: Indices
    """(n,): region of each op."""
    one_kernel: NDArray[np.bool_]
    """(n,): the region of the op is one kernel."""


def regions(graph: Graph, nodes: Sequence[OptimisedNode]) -> Regions:
    """Map the optimised nodes back; `OracleError` if an op is not covered or the regions form a cycle."""
    region, kernels = _joined(graph, nodes)
    serves = _served(graph, nodes, region)
    group = np.empty(len(graph.ops), np.int32)
    for op, found in enumerate(serves):
        if not found:
            raise OracleError(f"op {graph.ops[op].name[:80]!r} was not found again")
        group[op] = next(iter(found)) if len(found) == 1 else len(nodes) + op
    size = np.bincount(group, minlength=len(nodes) + len(graph.ops))
    one = np.ones(len(size), np.bool_)
    one[: len(nodes)] = kernels <= 1
    lost = (size > MOST_GROUPED) & ~one
    alone = lost[group]
    group[alone] = len(nodes) + np.flatnonzero(alone)
    if not is_acyclic(graph, group):
        raise OracleError("the regions that were found need each other's results")
    return Regions(group, one[group])


def _joined(graph: Graph, nodes: Sequence[OptimisedNode]) -> tuple[list[int], NDArray[np.int64]]:
    """Region of each optimised node, and the kernels of each region (those that move no data do not count)."""
    made_by = {name: index for index, node in enumerate(nodes) for name in node.makes}
    landmarks = {tensor.name for tensor in graph.tensors}
    parent = list(range(len(nodes)))

    def root(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for index, node in enumerate(nodes):
        for name in node.reads:
            if name in made_by and name not in landmarks:
                parent[root(made_by[name])] = root(index)
    region = [root(index) for index in range(len(nodes))]
    real = np.array([node.kind not in FREE_KINDS for node in nodes], np.int64)
    kernels = np.zeros(len(nodes), np.int64)
    np.add.at(kernels, region, real)
    return region, kernels


def _served(graph: Graph, nodes: Sequence[OptimisedNode], region: Sequence[int]) -> list[frozenset[int]]:
    """For every op the regions that need it: that of a landmark it makes, or those of the readers of what vanished."""
    survives = {name: region[index] for index, node in enumerate(nodes) for name in node.makes}
    arrays = graph.arrays
    serves: list[frozenset[int]] = [frozenset()] * len(graph.ops)
    for op in range(len(graph.ops) - 1, -1, -1):
        found: frozenset[int] = frozenset()
        for number in arrays.output_of[arrays.output_ptr[op] : arrays.output_ptr[op + 1]].tolist():
            tensor = graph.tensors[number]
            if tensor.name in survives:
                found |= {survives[tensor.name]}
            else:
                found = found.union(*(serves[reader] for reader in tensor.consumers))
        serves[op] = found
    return serves
