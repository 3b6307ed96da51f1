"""Ops of a graph <-> operations of the model as OpenVINO reads it.

In: the graph that a plan is about, and an `openvino.Model` of the same file. Out: for every op its operations. In an IR
file, and in a live model, names are the same. In an ONNX file an op goes by its node's name or by the name of a tensor
it makes; where OpenVINO writes one node as several operations, those without a name belong to the op that reads them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weftline.errors import InputError
from weftline.execute.load_affinity import placed_operations
from weftline.graph import Graph
from weftline.graph.ir import INPUT
from weftline.importers.openvino_module import last_line

__all__ = ["affinity_of", "read_model", "resolve"]


def read_model(core: Any, path: Path | str) -> Any:
    """The model of an IR or ONNX file with nothing changed, so that names stay."""
    path = Path(path)
    if not path.is_file():
        raise InputError("no such file", where=str(path))
    try:
        return core.read_model(str(path))
    except RuntimeError as error:
        hint = "the .bin file must lie beside the .xml" if path.suffix == ".xml" else ""
        raise InputError(f"OpenVINO cannot read the model: {last_line(error)}", where=str(path), hint=hint) from error


def resolve(graph: Graph, model: Any, *, exact: bool) -> list[list[Any]]:
    """The operations of each op. With `exact`, an operation that no op has is an error, as is an op without any."""
    placed = placed_operations(model)
    owner = _owners(graph, placed)
    if exact:
        _require_all(graph, placed)
    found: list[list[Any]] = [[] for _ in graph.ops]
    for node in placed:
        op = owner.get(node.get_name())
        if op is not None:
            found[op].append(node)
    missing = [op.name for op, nodes in zip(graph.ops, found, strict=True) if not nodes]
    if missing:
        raise InputError(
            f"the model has no operation {missing[0][:80]!r} ({len(missing)} ops of the plan are not in it)",
            hint="run a plan on the file it was made for; names change when a model is converted again",
        )
    return found


def affinity_of(nodes: list[list[Any]], devices: list[str]) -> dict[str, str]:
    """Friendly name -> device, for `load_affinity`; `devices` has one for each op. Nameless helpers are left out."""
    return {
        node.get_friendly_name(): device
        for found, device in zip(nodes, devices, strict=True)
        for node in found
        if node.get_friendly_name() != node.get_name()
    }


def _owners(graph: Graph, placed: list[Any]) -> dict[str, int]:
    """Unique name of an operation -> index of its op."""
    makes = {tensor.name: tensor.producer for tensor in graph.tensors if tensor.producer != INPUT}
    owner: dict[str, int] = {}
    for node in placed:
        names = [name for output in node.outputs() for name in output.get_names()]
        op = graph.index.get(node.get_friendly_name())
        if op is None:
            op = next((makes[name] for name in sorted(names) if name in makes), None)
        if op is not None:
            owner[node.get_name()] = op
    for node in reversed(placed):
        for reader in (entry.get_node() for output in node.outputs() for entry in output.get_target_inputs()):
            if node.get_name() not in owner and reader.get_name() in owner:
                owner[node.get_name()] = owner[reader.get_name()]
    return owner


def _require_all(graph: Graph, placed: list[Any]) -> None:
    for node in placed:
        name = node.get_friendly_name()
        if name not in graph.index:
            raise InputError(
                f"the plan does not know operation {name[:80]!r} ({node.get_type_name()}) of the model",
                hint="run a plan on the file it was made for",
            )
