"""Is this file the model that a plan was made for?

In: a plan (or a graph) and a model file. Out: nothing, or an `InputError` (exit code 3) that says what differs. The
same bytes are the same model. Other bytes may be, too: weights are no part of a plan, so the file is read as for
planning, and its ops and tensors are compared with those of the plan. Simplified: weights' values are not compared.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from weftline.errors import InputError
from weftline.graph import Graph
from weftline.graph.ir import MODEL_INPUT
from weftline.importers import ImportOptions
from weftline.importers.registry import file_sha256, read_file
from weftline.plans.plan import Plan

__all__ = ["check_planned_model", "check_same_model"]

HINT = "run and export a plan with the file it was made for; names change when a model is converted again"


def check_planned_model(plan: Plan, model: Path | str) -> None:
    """Refuse a model whose ops or tensors are not those of the plan."""
    path = Path(model)
    if not path.is_file():
        raise InputError("no such file", where=str(path))
    planned = plan.provenance.inputs.get("model")
    if planned is None or file_sha256(path) != planned:
        check_same_model(plan.problem.graph, path)


def check_same_model(ours: Graph, model: Path | str) -> None:
    """Refuse a model file whose ops or tensors are not those of the graph."""
    path = Path(model)
    try:
        found = read_file(path).graph
    except InputError:  # its inputs may be open: then with the shapes of the plan
        shapes = {tensor.name: tensor.shape for tensor in ours.tensors if tensor.producer == MODEL_INPUT}
        found = read_file(path, ImportOptions(shapes=shapes)).graph
    difference = _difference(ours, found)
    if difference:
        raise InputError(f"is not the model that the plan was made for: {difference}", where=str(path), hint=HINT)


def _difference(planned: Graph, found: Graph) -> str:
    """The first difference, in words."""
    names, there = {op.name for op in planned.ops}, {op.name for op in found.ops}
    missing, more = sorted(names - there), sorted(there - names)
    if missing:
        return f"it has no operation {missing[0][:80]!r} ({len(missing)} ops of the plan are not in it)"
    if more:
        return f"the plan does not know operation {more[0][:80]!r} ({len(more)} in all)"
    kinds = {op.name: op.kind for op in planned.ops}
    for op in found.ops:
        if op.kind != kinds[op.name]:
            return f"operation {op.name[:80]!r} is a {op.kind[:40]}, planned was a {kinds[op.name][:40]}"
    for maker, readers, shape, dtype in _wires(found) - _wires(planned):
        between = f"from {maker[:80]!r} to {len(readers)} ops" if maker else "which is an input"
        return f"a tensor {between} has shape {list(shape)} of {dtype}, which is not in the plan"
    return "" if len(planned.tensors) == len(found.tensors) else "it has other tensors"


def _wires(graph: Graph) -> Counter[tuple[str, tuple[str, ...], tuple[int, ...], str]]:
    """Who makes a tensor, who reads it, shape and type, how often; names and the order of ops do not matter."""
    names = [op.name for op in graph.ops]
    return Counter(
        (
            "" if tensor.producer == MODEL_INPUT else names[tensor.producer],
            tuple(sorted(names[op] for op in tensor.consumers)),
            tensor.shape,
            tensor.dtype,
        )
        for tensor in graph.tensors
    )
