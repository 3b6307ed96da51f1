"""ONNX model file -> Graph: one op per live node, weights counted by op, static shapes.

In: a path, and shapes for symbolic inputs or sizes for symbols. Out: the graph; names map back to the file
(`unique_names`). Inputs have what the file fixes and what the user adds; what stays open is an error, and so are two
sizes for one symbol. Simplified: a symbol that the user fixed on one input is filled in on the others; constant nodes
are folded into weights, unused nodes dropped, control flow is one op; outputs that are constants are not tensors of the
graph. External weights are never opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from shlex import quote
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from weftline.errors import InputError
from weftline.files import protect
from weftline.graph import Graph, Op, Tensor, Tied, assemble
from weftline.graph.ir import MODEL_INPUT
from weftline.importers.onnx.call import FLOAT, Dimensions, TensorType, declared_type, tensor_type
from weftline.importers.onnx.scope import Scope, looks_like_onnx
from weftline.importers.onnx.sizes import dynamic_axes, is_guessed
from weftline.importers.registry import FileCosts, Importer, ImportOptions

if TYPE_CHECKING:
    from weftline.importers.onnx.constants import Cone
    from weftline.importers.onnx.infer import Environment
    from weftline.importers.onnx.scope import Scope

__all__ = ["IMPORTERS", "graph_of_model", "input_types", "opsets_of"]


_Declared = Mapping[str, tuple[int, Dimensions | None]]
"""Input -> element type and dimensions, as the file says them."""


def input_types(
    scope: Scope, shapes: Mapping[str, tuple[int, ...]], dims: Mapping[str, int] = MappingProxyType({})
) -> tuple[dict[str, TensorType], dict[str, int]]:
    """Static types of the inputs and the symbols they fix; every open dimension is an `InputError`."""
    for name in shapes:
        if name not in scope.inputs:
            known = ", ".join(list(scope.inputs)[:8]) or "none"
            raise InputError(f"a shape is given for {name!r}, which is not an input", hint=f"inputs: {known}")
    declared = {name: declared_type(proto) for name, proto in scope.inputs.items()}
    symbols = _symbols(declared, shapes, dims, _inner_names(scope))
    types = {}
    for name, (element, dimensions) in declared.items():
        if name in shapes:
            types[name] = tensor_type(name, element or FLOAT, shapes[name])
        elif scope.inputs[name].WhichOneof("value") in ("tensor_type", "sparse_tensor_type", None):
            types[name] = tensor_type(name, element or FLOAT, _closed(name, declared, symbols))
        else:  # a sequence, optional or map: its size is not fixed by the file, so one element stands for it
            sizes = [symbols.get(size, 1) if isinstance(size, str) else size for size in dimensions or []]
            types[name] = tensor_type(name, element or FLOAT, [1 if size is None else size for size in sizes])
    return types, symbols


def _symbols(
    declared: _Declared, shapes: Mapping[str, tuple[int, ...]], dims: Mapping[str, int], inner: Iterable[str]
) -> dict[str, int]:
    """The sizes of symbols; two that differ are an `InputError` that names who says them."""
    known = list(dict.fromkeys([*_names(declared), *inner]))
    symbols: dict[str, int] = {}
    said: dict[str, str] = {}
    for symbol, size in dims.items():
        if symbol not in known:
            hint = (
                f"its symbols: {', '.join(known[:16])}" if known else "all its dimensions are numbers or have no name"
            )
            raise InputError(f"a size is given for dimension {symbol!r:.80}, which the model does not have", hint=hint)
        if not isinstance(size, int) or size < 0:
            raise InputError(f"the given size {size!r:.40} is not a whole number", where=f"dimension {symbol!r:.80}")
        symbols[symbol], said[symbol] = size, f"--dim {symbol}={size}"
    for name, shape in shapes.items():
        here = f"--shape {name}={_times(shape)}"
        for size, word in zip(shape, _checked(name, declared[name][1], shape), strict=True):
            if not isinstance(word, str):
                continue
            if symbols.setdefault(word, size) != size:
                who = here if said[word] == here else f"{said[word]} and {here}"
                what = f"{who} give it two sizes: {symbols[word]} and {size}"
                raise InputError(what, where=f"dimension {word!r:.80}", hint="give it one size")
            said.setdefault(word, here)
    return symbols


def _inner_names(scope: Scope) -> list[str]:
    """Symbols of outputs, of what is noted inside the model, and of bodies."""
    found = _names({name: declared_type(proto) for name, proto in scope.declared.items()})
    for node in scope.nodes:
        for body in node.bodies.values():
            found += _names({name: declared_type(proto) for name, proto in body.inputs.items()}) + _inner_names(body)
    return found


def _names(declared: _Declared) -> list[str]:
    """All symbols, in order."""
    sizes = (size for _, dimensions in declared.values() for size in dimensions or ())
    return list(dict.fromkeys(size for size in sizes if isinstance(size, str)))


def _checked(name: str, dimensions: Dimensions | None, shape: tuple[int, ...]) -> Dimensions:
    """The declared dimensions, once the given shape is seen not to contradict them."""
    where, given = f"input {name!r}", _times(shape)
    if any(size < 0 for size in shape):
        raise InputError(f"the given shape {given} has a negative dimension", where=where)
    if dimensions is None:
        return [None] * len(shape)
    if len(dimensions) != len(shape):
        hint = f"the file says {_written(dimensions)}"
        raise InputError(
            f"the given shape {given} has {len(shape)} dimensions, not {len(dimensions)}", where=where, hint=hint
        )
    if any(isinstance(fixed, int) and fixed != size for fixed, size in zip(dimensions, shape, strict=True)):
        raise InputError(
            f"the given shape {given} contradicts the file, which says {_written(dimensions)}",
            where=where,
            hint="the file is fixed to that shape: leave --shape out, or export the model again with that dimension "
            "open, such as dynamic_shapes of torch.onnx.export",
        )
    return dimensions


def _closed(name: str, declared: _Declared, symbols: Mapping[str, int]) -> list[int]:
    dimensions, where = declared[name][1], f"input {name!r}"
    if dimensions is None:
        hint = f"try --shape {name}=?x?, with a number for each of its dimensions"
        raise InputError("the file does not say its shape", where=where, hint=hint)
    sizes = [symbols.get(size, size) if isinstance(size, str) else size for size in dimensions]
    still = [f"{axis} ({size or 'no name'})" for axis, size in enumerate(sizes) if not isinstance(size, int)]
    if not still:
        return [size for size in sizes if isinstance(size, int)]
    if None in sizes:
        shape = _times(size if isinstance(size, int) else "?" for size in sizes)
        hint = f"try --shape {name}={shape}, with a number for each ?"
    else:
        missing = [symbol for symbol in _names(declared) if symbol not in symbols]
        hint = "try " + " ".join(f"--dim {quote(f'{symbol}=...')}" for symbol in missing[:8])
    raise InputError(f"shape {_written(dimensions)} is not fixed: dimension {', '.join(still)}", where=where, hint=hint)


def _times(sizes: Iterable[object]) -> str:
    return "x".join(map(str, sizes))


def _written(dimensions: Dimensions) -> str:
    return _times("?" if size is None else size for size in dimensions) or "scalar"


def graph_of_model(model: Any, options: ImportOptions, name: str = "") -> Graph:
    """The graph of a ModelProto that `load_model` read (or that was built in memory)."""
    from weftline.importers.onnx.constants import drop_dead_nodes, find_cone
    from weftline.importers.onnx.infer import Inference
    from weftline.importers.onnx.scope import read_scope, require_producers, unique_names

    scope = read_scope(model.graph)
    if not scope.outputs:
        raise InputError("the ONNX graph has no outputs, so nothing of it is needed")
    require_producers(scope)
    in_file_order = sorted(scope.nodes, key=lambda node: node.position)
    names = unique_names((node.name, node.outputs, node.kind) for node in in_file_order)
    drop_dead_nodes(scope)
    given, symbols = input_types(scope, options.shapes, options.dims)
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
    producer = dict.fromkeys(scope.inputs, MODEL_INPUT)
    consumers: dict[str, list[int]] = {}
    for index, (node, weight) in enumerate(zip(cone.live, weights, strict=True)):
        work = work_of(node, types)
        ops.append(
            Op(
                name=names[node.position],
                kind=node.kind,
                flops=int(work.flops),
                weight_bytes=int(weight),
                traffic_bytes=int(work.traffic),
                block=block_of(node.name, getattr(node.proto, "metadata_props", ())),
                guessed=is_guessed(work.flops) or is_guessed(work.traffic),
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
        shape = tuple(int(size) for size in kind.shape)
        made = Tensor(tensor, made_by, reading, int(kind.bytes), shape, kind.dtype, tensor in outputs)
        if is_guessed(kind.bytes) or dynamic_axes(kind.shape):
            made = replace(made, dynamic=dynamic_axes(kind.shape), guessed=is_guessed(kind.bytes))
        tensors.append(made)
    return assemble(name, ops, tensors, [Tied(weight.name, int(weight.bytes), weight.ops) for weight in tied])


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
    from weftline.importers.onnx.scope import load_model

    try:
        model = load_model(path)
        for weight in model.graph.initializer:
            for entry in weight.external_data:
                if entry.key == "location":
                    protect(path.parent / entry.value, look=False)
        name = _text(model.graph.name)
        if name in EXPORTERS_OWN_NAMES and path.stem.isprintable():
            name = path.stem
        return graph_of_model(model, options, name), None
    except RecursionError as error:
        raise InputError("the model is nested too deeply") from error


EXPORTERS_OWN_NAMES = (
    "",
    "main_graph",
    "torch_jit",
    "torch-jit-export",
    "tf2onnx",
    "spox_graph",
    "paddle-onnx",
    "Model from PaddlePaddle.",
    "PaddlePaddle Graph 0",
    "PaddlePaddle Graph in PIR mode",
)
"""What exporters call every graph; such a model is called as its file."""

IMPORTERS = (Importer("onnx", "ONNX model (.onnx), weights inside or beside it", _accepts, _read, dims=True),)
