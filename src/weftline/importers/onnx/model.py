"""ONNX model file -> Graph: one op per live node, weights counted by op, static shapes.

In: a path, and shapes for symbolic inputs. Out: the graph; names map back to the file (`onnx_names.unique_names`).
Simplified: constant nodes are folded into weights, unused nodes dropped, control flow is one op; outputs that are
constants are not tensors of the graph. External weights are never opened. The steps live in the other `onnx_*` files.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from weftline.errors import InputError
from weftline.graph import Graph, Op, Tensor, assemble
from weftline.graph.ir import INPUT
from weftline.importers.costs import FileCosts
from weftline.importers.onnx.load import looks_like_onnx
from weftline.importers.registry import Importer, ImportOptions

if TYPE_CHECKING:
    from weftline.importers.onnx.constants import Cone
    from weftline.importers.onnx.infer import Environment
    from weftline.importers.onnx.scope import Scope

__all__ = ["IMPORTERS", "graph_of_model", "opsets_of"]


def graph_of_model(model: Any, options: ImportOptions, name: str = "") -> Graph:
    """The graph of a ModelProto that `onnx_load.load_model` read (or that was built in memory)."""
    from weftline.importers.onnx.constants import drop_dead_nodes, find_cone
    from weftline.importers.onnx.infer import Inference
    from weftline.importers.onnx.scope import read_scope, require_producers, unique_names
    from weftline.importers.onnx.shapes import input_types

    scope = read_scope(model.graph)
    if not scope.outputs:
        raise InputError("the ONNX graph has no outputs, so nothing of it is needed")
    require_producers(scope)
    in_file_order = sorted(scope.nodes, key=lambda node: node.position)
    names = unique_names((node.name, node.outputs, node.kind) for node in in_file_order)
    drop_dead_nodes(scope)
    given, symbols = input_types(scope, options.shapes)
    types = Inference(opsets_of(model), symbols).run(scope, given)
    cone = find_cone(scope)
    if not cone.live:
        raise InputError("every output of the ONNX graph is constant: there is nothing to plan")
    return _graph(name or _text(model.graph.name) or "model", scope, cone, types, names)


def _graph(name: str, scope: Scope, cone: Cone, types: Environment, names: list[str]) -> Graph:
    from weftline.importers.onnx.constants import weights_by_op
    from weftline.importers.onnx.scope import block_of
    from weftline.importers.onnx.work import work_of

    weights, tied = weights_by_op(scope, cone, types)
    ops: list[Op] = []
    producer = dict.fromkeys(scope.inputs, INPUT)
    consumers: dict[str, list[int]] = {}
    for index, (node, weight) in enumerate(zip(cone.live, weights, strict=True)):
        work = work_of(node, types)
        ops.append(
            Op(
                name=names[node.position],
                kind=node.kind,
                flops=work.flops,
                weight_bytes=weight,
                traffic_bytes=work.traffic,
                block=block_of(node.name, getattr(node.proto, "metadata_props", ())),
            )
        )
        producer.update((output, index) for output in node.outputs if output)
        for read in node.reads:
            consumers.setdefault(read, []).append(index)
    outputs = set(scope.outputs)
    tensors = []
    for tensor, made_by in producer.items():
        kind = types.types[tensor]
        reading = tuple(consumers.get(tensor, ()))
        tensors.append(Tensor(tensor, made_by, reading, kind.bytes, kind.shape, kind.dtype, tensor in outputs))
    return assemble(name, ops, tensors, tied)


def opsets_of(model: Any) -> list[Any]:
    """The model's opset imports, with one for the standard operators in any case."""
    from onnx import defs, helper

    versions = {_text(opset.domain): int(opset.version) for opset in model.opset_import}
    standard = versions.pop("ai.onnx", None)
    versions.setdefault("", standard or (defs.onnx_opset_version() if model.ir_version >= 3 else 1))
    return [helper.make_opsetid(domain, version) for domain, version in versions.items()]


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _accepts(path: Path, head: bytes) -> bool:
    return looks_like_onnx(head)


def _read(path: Path, options: ImportOptions) -> tuple[Graph, FileCosts | None]:
    from weftline.importers.onnx.load import load_model

    try:
        return graph_of_model(load_model(path), options), None
    except RecursionError as error:
        raise InputError("the model is nested too deeply") from error


IMPORTERS = (Importer("onnx", "ONNX model (.onnx), weights inside or beside it", _accepts, _read),)
