"""Unit costs as in the public REGAL graphs, and such a graph as CostGraphDef text.

In: a Graph with 10^6 FLOP per unit of cost. Out: costs on equal devices (one unit of cost takes one microsecond, one
unit of size takes one microsecond between any two devices), or text that `papers/regal` reads back.
"""

from __future__ import annotations

import re

import numpy as np

from weftline.errors import InputError
from weftline.graph import Graph
from weftline.importers.registry import DeviceClass, FileCosts
from weftline.units import MAX_QUANTITY

__all__ = ["CONTROL", "FLOPS_PER_UNIT", "NANOSECONDS_PER_UNIT", "regal_costs", "to_cost_graph_text"]

FLOPS_PER_UNIT = 10**6
NANOSECONDS_PER_UNIT = 1000  # per unit of cost or of size
CONTROL = "control"


def regal_costs(graph: Graph, devices: int = 2) -> FileCosts:
    """Unit costs of a graph: 10^6 FLOP take a microsecond, a byte takes one between any two of the equal devices."""
    time = [-(-op.flops // NANOSECONDS_PER_UNIT) for op in graph.ops]
    transfer = [tensor.bytes * NANOSECONDS_PER_UNIT for tensor in graph.tensors]
    for what, total in (("op times", sum(time)), ("transfer times", sum(transfer))):
        if total > MAX_QUANTITY:
            raise InputError(f"the sum of {what} in unit costs is {total} ns, more than 2^60", where=graph.name)
    distinct, row = np.unique(np.array(transfer, np.int64), return_inverse=True)
    return FileCosts(
        classes=(DeviceClass("acc", "accelerator", count=devices, memory=None),),
        time=np.array(time, np.int64).reshape(-1, 1),
        transfer=distinct.reshape(-1, 1, 1),
        transfer_row=row.reshape(-1).astype(np.int32),
        transfers="per-tensor",
        memory="dynamic",
        source="unit costs",
    )


def to_cost_graph_text(graph: Graph) -> str:
    """The graph as CostGraphDef text. A graph that this module read comes back the same.

    Of other graphs only op names, dependencies, sizes and FLOP (rounded up to whole units) are kept.
    """
    sizes: list[dict[int, int]] = [{} for _ in graph.ops]
    inputs: list[list[str]] = [[] for _ in graph.ops]
    for tensor in graph.tensors:
        if tensor.producer < 0:
            continue
        prefix = f"{graph.ops[tensor.producer].name}:"
        if tensor.name == prefix + CONTROL:
            line = f"  control_input: {tensor.producer}\n"
        else:
            port = _port(tensor.name.removeprefix(prefix), sizes[tensor.producer])
            sizes[tensor.producer][port] = tensor.bytes
            line = f"  input_info {{ preceding_node: {tensor.producer} preceding_port: {port} }}\n"
        for consumer in tensor.consumers:
            inputs[consumer].append(line)
    return "".join(
        f'node {{\n  name: "{_escape(op.name)}"\n  id: {i}\n{"".join(inputs[i])}{_output_lines(sizes[i])}'
        f"  compute_cost: {-(-op.flops // FLOPS_PER_UNIT)}\n}}\n"
        for i, op in enumerate(graph.ops)
    )


def _port(suffix: str, taken: dict[int, int]) -> int:
    """The port in a tensor's name `<op>:<port>`, or the next free one."""
    if re.fullmatch(r"0|[1-9][0-9]{0,3}", suffix) and int(suffix) not in taken:
        return int(suffix)
    return max(taken, default=-1) + 1


def _output_lines(sizes: dict[int, int]) -> str:
    """Ports that nothing reads are written too, with size 0, so that the others keep their numbers."""
    return "".join(f"  output_info {{ size: {sizes.get(port, 0)} }}\n" for port in range(max(sizes, default=-1) + 1))


def _escape(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return re.sub(r"[\x00-\x1f\x7f]", lambda match: f"\\{ord(match[0]):03o}", escaped)
