"""Path -> ModelProto with its local functions inlined. Weights in other files are never opened, nor looked for.

Whoever splits a model must load it with `load_model` too: node positions then agree with the imported graph.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import ModelProto

from weftline.errors import InputError
from weftline.graph.rules import MAX_OPS

__all__ = ["MAX_NESTING", "load_model"]

MAX_NESTING = 32


def load_model(path: Path) -> Any:
    """The model as the file says it, except that calls of the model's own functions are inlined."""
    try:
        model = ModelProto.FromString(path.read_bytes())
    except DecodeError as error:
        raise InputError(
            "not a readable ONNX model: damaged, cut off, nested too deeply, or larger than 2 GiB",
            hint="save it again; keep large weights as external data",
        ) from error
    if not model.HasField("graph") or not model.graph.node:
        raise InputError("the ONNX model has no graph, or a graph without nodes")
    return _inline(model) if model.functions else model


def _inline(model: Any) -> Any:
    """Replace every call by the function's body; the size after inlining is computed first, because it can explode."""
    from onnx.inliner import inline_local_functions

    bodies = {(function.domain, function.name): function for function in model.functions}
    sizes: dict[tuple[str, str], int] = {}

    def size_of(nodes: Any, calls: tuple[tuple[str, str], ...], nesting: int) -> int:
        if len(calls) > MAX_NESTING or nesting > MAX_NESTING:
            raise InputError(f"functions or bodies are nested more than {MAX_NESTING} deep")
        total = 0
        for node in nodes:
            key = (node.domain, node.op_type)
            if key in calls:
                raise InputError("a model function calls itself", where=f"function {node.op_type!r}")
            if key in bodies and key not in sizes:
                sizes[key] = size_of(bodies[key].node, (*calls, key), 0)
            total += sizes.get(key, 1)
            for attribute in node.attribute:
                graphs = [attribute.g, *attribute.graphs] if attribute.HasField("g") else attribute.graphs
                total += sum(size_of(graph.node, calls, nesting + 1) for graph in graphs)
            if total > MAX_OPS:
                raise InputError(f"the model has more than {MAX_OPS} nodes once its functions are inlined")
        return total

    size_of(model.graph.node, (), 0)
    try:
        return inline_local_functions(model)
    except Exception as error:  # the C++ side raises several unrelated types
        raise InputError(f"the functions of the model cannot be inlined: {str(error)[:200]}") from error
