"""Which whole numbers an input of a model may hold, as far as its ops say it.

In: a scope. Out: input -> the first allowed number and the first that is not: rows of the tables it looks up, or the
constant that it is compared with. Simplified: followed through ops that only reshape or convert, in the outermost
graph; an input that does two such things must do both.
"""

from __future__ import annotations

from typing import Any

from weftline.importers.onnx.infer import Environment
from weftline.importers.onnx.scope import Node, Scope

__all__ = ["input_ranges"]

PASSES_ON = {"Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Expand", "Slice", "Transpose"}
LOOKS_UP = {"Gather": (0, 1), "GatherElements": (0, 1), "GatherND": (0, 1), "Embedding": (0, 1)}
"""Kind -> which input is the table, which the rows."""


def input_ranges(scope: Scope, types: Environment) -> dict[str, tuple[int, int]]:
    """For inputs of whole numbers of which something is known."""
    home = {
        name: name for name, kind in types.types.items() if name in scope.inputs and kind.dtype[:3] in ("int", "uin")
    }
    below: dict[str, int] = {}
    equal: dict[str, int] = {}
    for node in scope.nodes:
        first = home.get(node.inputs[0]) if node.inputs else None
        if node.kind in PASSES_ON and first is not None and node.outputs:
            home[node.outputs[0]] = first
        elif node.kind in LOOKS_UP and len(node.inputs) > 1 and node.inputs[1] in home:
            rows = _rows(node, types)
            if rows > 0:
                name = home[node.inputs[1]]
                below[name] = min(rows, below.get(name, rows))
        elif node.kind == "Equal" and len(node.inputs) == 2:
            for mine, other in (node.inputs, node.inputs[::-1]):
                value: Any = types.value_of(other)
                if mine in home and value is not None and value.size == 1:
                    equal.setdefault(home[mine], int(value.reshape(-1)[0]))
    found = {name: (0, rows) for name, rows in below.items()}
    for name, number in equal.items():
        if 0 <= number < below.get(name, number + 1) and not types.types[name].shape[1:]:  # a switch, not a padding id
            found[name] = (number, number + 1)
    return found


def _rows(node: Node, types: Environment) -> int:
    """Rows of the table that is looked up."""
    table = types.type_of(node.inputs[LOOKS_UP[node.kind][0]])
    if table is None or not table.shape:
        return 0
    axis = next((attribute.i for attribute in node.proto.attribute if attribute.name == "axis"), 0)
    return table.shape[axis] if -len(table.shape) <= axis < len(table.shape) else 0
