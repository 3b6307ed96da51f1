"""The JSON of Tarnawski et al. 2020 (msr-fiddle): nodes with times on an accelerator and on a CPU, edges with one cost.

In: times in milliseconds, sizes in bytes; "FPGA" there means any accelerator. Out: the graph, its costs in nanoseconds.
Simplified: an edge cost is the time to move the source's output between an accelerator and host memory; between two
accelerators it is charged once per transfer (and to both sides of a pipeline), between CPUs it is 0. Tensor sizes in
bytes are not taken over: the format does not define them, and some published files contradict their own costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from weftline.errors import InputError
from weftline.graph import Graph, Op, Tensor, assemble
from weftline.importers.registry import DeviceClass, FileCosts, Importer, ImportOptions
from weftline.papers.cost_file import checked, checked_total, contains, decode, numbered, unique_names
from weftline.units import MAX_QUANTITY

__all__ = ["IMPORTERS"]

MAX_DEVICES = 4096
NS_PER_MILLISECOND = 10**6

_Flag = bool | Literal[0, 1]
_Identity = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_DEVICES)]


class _Node(msgspec.Struct, rename="camel"):
    id: _Identity
    supported_on_fpga: _Flag
    cpu_latency: float
    size: float
    fpga_latency: float | None = None
    is_backward_node: _Flag = False
    color_class: _Identity | None = None
    name: str = ""


class _Edge(msgspec.Struct, rename="camel"):
    source_id: _Identity
    dest_id: _Identity
    cost: float


class _File(msgspec.Struct):
    accelerators: _Count = msgspec.field(name="maxFPGAs")
    cpus: _Count = msgspec.field(name="maxCPUs")
    accelerator_memory: float = msgspec.field(name="maxSizePerFPGA")
    nodes: tuple[_Node, ...]
    edges: tuple[_Edge, ...]


def _accepts(path: Path, head: bytes) -> bool:
    return contains(path, head, b'"maxFPGAs"')


def _read(path: Path, options: ImportOptions) -> tuple[Graph, FileCosts]:
    file = decode(path, _File)
    classes = _classes(file)
    position = numbered([node.id for node in file.nodes], "node", "$.nodes")
    names = unique_names([node.name for node in file.nodes], [node.id for node in file.nodes])
    ops = [
        Op(
            name=name,
            weight_bytes=int(checked(node.size, "size", f"$.nodes[{i}]")),
            backward=bool(node.is_backward_node),
        )
        for i, (name, node) in enumerate(zip(names, file.nodes, strict=True))
    ]
    times = _times(file.nodes, classes)
    tensors, costs = _tensors(file.edges, names, position)
    graph = assemble(path.stem, ops, tensors)
    moved = np.array([graph.index[name] for name in names], np.int64)
    time = np.empty_like(times)
    time[moved] = times
    distinct, row = np.unique(costs, return_inverse=True)
    return graph, FileCosts(
        classes=classes,
        time=time,
        transfer=_transfer(distinct, classes),
        transfer_row=row.reshape(-1).astype(np.int32),
        together=_colour_classes(file.nodes, moved.tolist()),
        transfers="per-tensor",
        memory="static",
        source="msr-fiddle file",
    )


def _classes(file: _File) -> tuple[DeviceClass, ...]:
    memory = int(checked(file.accelerator_memory, "maxSizePerFPGA", "$"))
    classes = (
        DeviceClass("acc", "accelerator", count=file.accelerators, memory=memory),
        DeviceClass("cpu", "cpu", count=file.cpus, memory=None, host=True),
    )
    if file.accelerators + file.cpus == 0:
        raise InputError("maxFPGAs and maxCPUs are both 0: nothing can run the graph", where="$")
    return tuple(device for device in classes if device.count)


def _milliseconds(value: float, what: str, where: str) -> int:
    return round(checked(value, what, where, MAX_QUANTITY / NS_PER_MILLISECOND) * NS_PER_MILLISECOND)


def _times(nodes: Sequence[_Node], classes: Sequence[DeviceClass]) -> NDArray[np.int64]:
    """(nodes, classes) nanoseconds in the order of the file, -1 where the node is not supported."""
    time = np.full((len(nodes), 2), -1, np.int64)
    for i, node in enumerate(nodes):
        where = f"$.nodes[{i}]"
        time[i, 1] = _milliseconds(node.cpu_latency, "cpuLatency", where)
        if node.supported_on_fpga and node.fpga_latency is None:
            raise InputError("fpgaLatency is missing although supportedOnFpga is set", where=where)
        if node.supported_on_fpga and node.fpga_latency is not None:
            time[i, 0] = _milliseconds(node.fpga_latency, "fpgaLatency", where)
    checked_total(time.max(axis=1, initial=0).tolist(), "times of all nodes")
    columns = [("acc", "cpu").index(device.id) for device in classes]
    return np.ascontiguousarray(time[:, columns])


def _tensors(
    edges: Sequence[_Edge], names: Sequence[str], position: dict[int, int]
) -> tuple[list[Tensor], NDArray[np.int64]]:
    """One tensor per source and cost (the cost is the same for all edges of a source in every published file)."""
    readers: dict[int, dict[int, list[int]]] = {}
    for i, edge in enumerate(edges):
        where = f"$.edges[{i}]"
        for field, identity in (("sourceId", edge.source_id), ("destId", edge.dest_id)):
            if identity not in position:
                raise InputError(f"{field} {identity} is not the id of a node", where=where)
        if edge.source_id == edge.dest_id:
            raise InputError(f"node {edge.source_id} is its own input", where=where, hint="remove the self-loop")
        cost = _milliseconds(edge.cost, "cost", where)
        readers.setdefault(position[edge.source_id], {}).setdefault(cost, []).append(position[edge.dest_id])
    tensors: list[Tensor] = []
    costs: list[int] = []
    for source in sorted(readers):
        for port, (cost, consumers) in enumerate(readers[source].items()):
            tensors.append(Tensor(f"{names[source]}:{port}", source, tuple(consumers)))
            costs.append(cost)
    checked_total(costs, "transfer times of all tensors")
    return tensors, np.array(costs, np.int64)


def _transfer(costs: NDArray[np.int64], classes: Sequence[DeviceClass]) -> NDArray[np.int64]:
    """(rows, C, C): the cost wherever an accelerator takes part, 0 between CPUs, which share host memory."""
    paid = np.array([[not (a.host and b.host) for b in classes] for a in classes], np.int64)
    transfer: NDArray[np.int64] = costs[:, None, None] * paid
    return transfer


def _colour_classes(nodes: Sequence[_Node], moved: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Nodes of one colour share a device; a colour of one node says nothing."""
    colours: dict[int, list[int]] = {}
    for node, op in zip(nodes, moved, strict=True):
        if node.color_class is not None:
            colours.setdefault(node.color_class, []).append(op)
    return tuple(sorted(tuple(sorted(ops)) for ops in colours.values() if len(ops) > 1))


IMPORTERS = (Importer("msr-fiddle", "JSON of Tarnawski et al. 2020 with its own devices and costs", _accepts, _read),)
