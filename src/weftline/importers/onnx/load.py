"""Does a file begin like an ONNX model? In: its first bytes. Out: yes or no, from the protobuf fields alone.

It does not import onnx, so that looking at other formats stays quick.

Path -> ModelProto with its local functions inlined. Weights in other files are never opened, nor looked for.

Whoever splits a model must load it with `load_model` too: node positions then agree with the imported graph.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import ModelProto

from weftline.errors import InputError
from weftline.graph.rules import MAX_OPS

__all__ = ["MAX_NESTING", "load_model", "looks_like_onnx"]

_VARINT, _BYTES = 0, 2

# Field number of ModelProto -> wire type.
_FIELDS = {1: _VARINT, 2: _BYTES, 3: _BYTES, 4: _BYTES, 5: _VARINT, 6: _BYTES, 7: _BYTES, 8: _BYTES, 14: _BYTES}
_FIELDS |= {20: _BYTES, 25: _BYTES, 26: _BYTES}
_IR_VERSION = 1
_TEXTS = (2, 3, 4, 6)
_MAX_IR_VERSION = 1000


def looks_like_onnx(head: bytes) -> bool:
    """Walk the fields of a ModelProto: all must be known, and a small ir_version must be among them."""
    place = 0
    seen: set[int] = set()
    while place < len(head):
        tag, place = _varint(head, place)
        value, place = _varint(head, place)
        if place > len(head):
            break  # the head ends inside this field's length
        number = tag >> 3
        if number not in _FIELDS or _FIELDS[number] != tag & 7:
            return False
        if number == _IR_VERSION and not 1 <= value <= _MAX_IR_VERSION:
            return False
        if number in _TEXTS and not _is_text(head[place : place + value], cut=place + value > len(head)):
            return False
        seen.add(number)
        place += value if _FIELDS[number] == _BYTES else 0
    return _IR_VERSION in seen and len(seen) > 1


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Value and the place after it, which lies beyond the end if the number is cut off."""
    value = 0
    for shift, byte in enumerate(data[place : place + 10]):
        value |= (byte & 127) << (7 * shift)
        if byte < 128:
            return value, place + shift + 1
    return value, max(place + 10, len(data) + 1)


def _is_text(data: bytes, cut: bool) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return cut and error.start >= len(data) - 3  # the last character may have lost its end
    return True


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
