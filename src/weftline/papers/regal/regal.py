"""CostGraphDef of TensorFlow in text form, as in the public REGAL graphs: `node { name id input_info compute_cost }`.

In: nodes with a cost and output sizes. Out: the graph, and unit costs: equal devices, one unit of cost takes one
microsecond, one unit of size takes one microsecond between any two of them. So that such a graph can also be planned
on a real cluster, an op has 10^6 FLOP per unit, as if it had been measured on a device of 1 TFLOP/s.
Simplified: devices, aliases, shapes and memory figures in the file are ignored; control inputs carry 0 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from weftline.errors import InputError
from weftline.graph import Graph, Op, Tensor, assemble
from weftline.importers.registry import FileCosts, Importer, ImportOptions
from weftline.papers.formats.cost_file import read_bytes, unique_names
from weftline.papers.regal.protobuf_text import Message, Schema, parse_protobuf_text
from weftline.units import MAX_QUANTITY
from weftline.zoo.unit_costs import CONTROL, FLOPS_PER_UNIT, NANOSECONDS_PER_UNIT, regal_costs

__all__ = ["IMPORTERS"]

MAX_PORT = 65_535

_HEAD = re.compile(rb"\s*(?:#.*\n\s*)*+node\s*\{")
_SCHEMA: Schema = {
    "node": {
        "name": str,
        "id": int,
        "compute_cost": int,
        "control_input": int,
        "input_info": {"preceding_node": int, "preceding_port": int},
        "output_info": {"size": int},
    }
}


@dataclass(frozen=True, slots=True)
class _Node:
    name: str
    id: int
    cost: int
    inputs: tuple[tuple[int, int], ...]
    """(node id, port) pairs."""
    control: tuple[int, ...]
    sizes: tuple[int, ...]
    """By port."""
    where: str


def _accepts(path: Path, head: bytes) -> bool:
    return _HEAD.match(head) is not None


def _read(path: Path, options: ImportOptions) -> tuple[Graph, FileCosts]:
    try:
        text = read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 text: byte {error.start}") from error
    nodes = _nodes(text)
    position: dict[int, int] = {}
    for i, node in enumerate(nodes):
        if node.id in position:
            hint = "every node needs an id of its own; a node without one has id 0"
            raise InputError(f"id {node.id} is used by two nodes", where=node.where, hint=hint)
        position[node.id] = i
    names = unique_names([node.name for node in nodes], [node.id for node in nodes])
    ops = [Op(name=name, flops=node.cost * FLOPS_PER_UNIT) for name, node in zip(names, nodes, strict=True)]
    graph = assemble(path.stem, ops, _tensors(nodes, names, position))
    return graph, regal_costs(graph)


def _nodes(text: str) -> list[_Node]:
    lines = _LineCounter(text)
    nodes: list[_Node] = []
    for message in parse_protobuf_text(text, _SCHEMA).messages.get("node", []):
        where = lines.at(message.position)
        inputs = [
            (_single(info, "preceding_node", where), _bounded(info, "preceding_port", where, MAX_PORT))
            for info in message.messages.get("input_info", [])
        ]
        name = message.strings.get("name", [""])
        if len(name) > 1:
            raise InputError("name is given twice", where=where)
        limit = MAX_QUANTITY // FLOPS_PER_UNIT
        node = _Node(
            name=name[0],
            id=_bounded(message, "id", where, 2**31 - 1),
            cost=_bounded(message, "compute_cost", where, limit),
            inputs=tuple(inputs),
            control=tuple(message.numbers.get("control_input", ())),
            sizes=tuple(
                _bounded(info, "size", where, MAX_QUANTITY // NANOSECONDS_PER_UNIT)
                for info in message.messages.get("output_info", [])
            ),
            where=where,
        )
        nodes.append(node)
    return nodes


class _LineCounter:
    """Lines of ascending positions, in one pass over the text."""

    def __init__(self, text: str) -> None:
        self.text, self.position, self.line = text, 0, 1

    def at(self, position: int) -> str:
        self.line += self.text.count("\n", self.position, position)
        self.position = position
        return f"node at line {self.line}"


def _single(message: Message, field: str, where: str) -> int:
    """A field that may be given once; left out it is 0, as in every protocol buffer."""
    values = message.numbers.get(field, [0])
    if len(values) > 1:
        raise InputError(f"{field} is given twice", where=where)
    return values[0]


def _bounded(message: Message, field: str, where: str, limit: int) -> int:
    value = _single(message, field, where)
    if value < 0:
        raise InputError(f"{field} is negative: {value}", where=where)
    if value > limit:
        raise InputError(f"{field} is absurdly large: {value}", where=where, hint=f"the limit is {limit}")
    return value


def _tensors(nodes: Sequence[_Node], names: Sequence[str], position: dict[int, int]) -> list[Tensor]:
    """One tensor per producer and port that is read, then one of 0 bytes for its control edges."""
    readers: dict[tuple[int, int], list[int]] = {}
    for i, node in enumerate(nodes):
        for identity, port in (*node.inputs, *((identity, MAX_PORT + 1) for identity in node.control)):
            source = position.get(identity)
            if source is None:
                raise InputError(f"reads node {identity}, which does not exist", where=node.where)
            if source == i:
                raise InputError(f"node {identity} is its own input", where=node.where)
            if port <= MAX_PORT and port >= len(nodes[source].sizes):
                have = len(nodes[source].sizes)
                raise InputError(
                    f"reads port {port} of node {identity}, which has {have} output_info", where=node.where
                )
            readers.setdefault((source, port), []).append(i)
    tensors: list[Tensor] = []
    for source, port in sorted(readers):
        control = port > MAX_PORT
        size = 0 if control else nodes[source].sizes[port]
        name = f"{names[source]}:{CONTROL if control else port}"
        tensors.append(Tensor(name, source, tuple(readers[source, port]), bytes=size))
    return tensors


IMPORTERS = (Importer("regal", "CostGraphDef text of the REGAL graphs, with unit costs", _accepts, _read),)
