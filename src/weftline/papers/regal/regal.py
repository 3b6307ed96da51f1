"""CostGraphDef of TensorFlow in text form, as in the public REGAL graphs: `node { name id input_info compute_cost }`.

In: nodes with a cost and output sizes. Out: the graph, and unit costs: equal devices, one unit of cost takes one
microsecond, one unit of size takes one microsecond between any two of them. So that such a graph can also be planned
on a real cluster, an op has 10^6 FLOP per unit, as if it had been measured on a device of 1 TFLOP/s.
Simplified: devices, aliases, shapes and memory figures in the file are ignored; control inputs carry 0 bytes.

The text form of protocol buffers becomes nested `TextMessage` values, for a schema of the fields that are wanted: field
-> all it was given. Wanted scalars are whole numbers and strings; all other fields are skipped, may be anything the
form allows (nested messages in {} or <>, lists, floats, enums, extension names), and are checked only as far as finding
their end needs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from weftline.errors import InputError
from weftline.graph import Graph, Op, Tensor, assemble
from weftline.importers.registry import FileCosts, Importer, ImportOptions
from weftline.papers.cost_file import read_bytes, unique_names
from weftline.units import MAX_QUANTITY
from weftline.zoo.unit_costs import CONTROL, FLOPS_PER_UNIT, NANOSECONDS_PER_UNIT, regal_costs

__all__ = ["IMPORTERS", "Schema", "TextMessage", "parse_protobuf_text"]

MAX_DEPTH = 64
MAX_DIGITS = 40

Schema: TypeAlias = Mapping[str, "type[int] | type[str] | Schema"]

_TOKEN = re.compile(
    r"""(?:[ \t\r\n\f\v]++|\#[^\n]*+)*+(?:
        (?P<mark>[{}<>\[\]:;,])
      | (?P<name>-?[A-Za-z_][A-Za-z0-9_]*+)
      | (?P<number>[+-]?(?:0[xX][0-9a-fA-F]++|\d++(?:\.\d*+)?+(?:[eE][+-]?\d++)?+|\.\d++(?:[eE][+-]?\d++)?+)[fF]?+)
      | (?P<string>"(?:[^"\\\n]++|\\[^\n])*+"|'(?:[^'\\\n]++|\\[^\n])*+')
      | (?P<end>\Z)
    )""",
    re.VERBOSE | re.ASCII,
)
_EXTENSION = re.compile(r"[A-Za-z0-9_./\s-]{1,1000}\]")
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_CLOSING = {"{": "}", "<": ">"}


@dataclass(frozen=True, slots=True)
class TextMessage:
    """One message: where it starts in the text, and the wanted fields in it."""

    position: int
    numbers: dict[str, list[int]] = field(default_factory=dict)
    strings: dict[str, list[str]] = field(default_factory=dict)
    messages: dict[str, list[TextMessage]] = field(default_factory=dict)


def parse_protobuf_text(text: str, schema: Schema) -> TextMessage:
    """The fields of the outermost message."""
    return _Parser(text).message(schema, "", 0)


class _Parser:
    """One token of look-ahead: `kind`, `value` and `start` describe it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.end = 0
        self.advance()

    def advance(self) -> None:
        match = _TOKEN.match(self.text, self.end)
        if match is None or match.lastgroup is None:
            self.start = self.end
            raise self.error("an unexpected character or a string that does not end", after=True)
        self.kind, self.value = match.lastgroup, match[match.lastgroup]
        self.start, self.end = match.start(match.lastgroup), match.end()

    def error(self, what: str, *, after: bool = False) -> InputError:
        line = self.text.count("\n", 0, self.start) + 1
        return InputError(f"{what}{' after this place' if after else ''}", where=f"line {line}")

    def shown(self) -> str:
        return "the end of the file" if self.kind == "end" else repr(self.value[:40])

    def take(self, value: str) -> bool:
        if self.kind == "mark" and self.value == value:
            self.advance()
            return True
        return False

    def message(self, schema: Schema, closing: str, depth: int) -> TextMessage:
        """Fields up to the closing mark (or the end of the text), which is consumed."""
        if depth > MAX_DEPTH:
            raise self.error(f"messages are nested more than {MAX_DEPTH} deep")
        message = TextMessage(self.start)
        while not (self.kind == "end" and not closing) and not (closing and self.take(closing)):
            name = self.field_name()
            self.values(message, name, schema.get(name), depth)
            if not self.take(","):
                self.take(";")
        return message

    def field_name(self) -> str:
        if self.kind == "name" and not self.value.startswith("-"):
            name = self.value
            self.advance()
            return name
        if self.kind == "mark" and self.value == "[":
            match = _EXTENSION.match(self.text, self.end)
            if match is None:
                raise self.error("an extension name that does not end")
            self.end = match.end()
            self.advance()
            return ""
        raise self.error(f"a field name was expected, not {self.shown()}")

    def values(
        self, message: TextMessage, name: str, wanted: type[int] | type[str] | Schema | None, depth: int
    ) -> None:
        """What follows a field name: a message, a scalar, or a list of either in []."""
        colon = self.take(":")
        if self.take("["):
            if self.take("]"):
                return
            while True:
                self.value_of(message, name, wanted, depth, colon)
                if self.take("]"):
                    return
                if not self.take(","):
                    raise self.error(f"',' or ']' was expected in a list, not {self.shown()}")
        self.value_of(message, name, wanted, depth, colon)

    def value_of(
        self, message: TextMessage, name: str, wanted: type[int] | type[str] | Schema | None, depth: int, colon: bool
    ) -> None:
        if self.kind == "mark" and self.value in _CLOSING:
            if wanted is int or wanted is str:
                raise self.error(f"{name} is a message where a {_WORD[wanted]} is expected")
            closing = _CLOSING[self.value]
            self.advance()
            inner = self.message(wanted if isinstance(wanted, Mapping) else {}, closing, depth + 1)
            if wanted is not None:
                message.messages.setdefault(name, []).append(inner)
            return
        if not colon or self.kind in ("mark", "end"):
            raise self.error(f"a value of {name or 'a field'} was expected, not {self.shown()}")
        self.scalar(message, name, wanted)

    def scalar(self, message: TextMessage, name: str, wanted: type[int] | type[str] | Schema | None) -> None:
        if wanted is None:
            kind = self.kind
            self.advance()
            while kind == "string" and self.kind == "string":
                self.advance()
        elif wanted is int:
            message.numbers.setdefault(name, []).append(self.whole_number(name))
            self.advance()
        elif wanted is str:
            message.strings.setdefault(name, []).append(self.string(name))
        else:
            raise self.error(f"{name} is {self.shown()} where a message is expected")

    def whole_number(self, name: str) -> int:
        digits = self.value.lstrip("+-")
        if self.kind != "number" or len(digits) > MAX_DIGITS:
            raise self.error(f"{name} is {self.shown()} where a whole number is expected")
        octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()
        try:
            size = int(digits, 8 if octal else 16 if digits[:2] in ("0x", "0X") else 10)
        except ValueError as error:
            raise self.error(f"{name} is {self.shown()} where a whole number is expected") from error
        return -size if self.value.startswith("-") else size

    def string(self, name: str) -> str:
        """One string, or several that stand side by side and count as one."""
        if self.kind != "string":
            raise self.error(f"{name} is {self.shown()} where a string in quotes is expected")
        parts: list[str] = []
        while self.kind == "string":
            parts.append(_unescape(self.value[1:-1]))
            self.advance()
        return "".join(parts)


_WORD = {int: "whole number", str: "string"}


def _unescape(text: str) -> str:
    """Undo C escapes. Octal and hexadecimal ones are bytes of UTF-8; what is not UTF-8 becomes U+FFFD."""
    if "\\" not in text:
        return text
    pieces: list[bytes] = []
    last = 0
    for match in _ESCAPE.finditer(text):
        pieces.append(text[last : match.start()].encode())
        octal, hexadecimal, short, long, letter = match.groups()
        if octal or hexadecimal:
            pieces.append(bytes([int(octal or hexadecimal, 8 if octal else 16) & 0xFF]))
        elif short or long:
            code = int(short or long, 16)
            valid = code < 0xD800 or 0xDFFF < code <= 0x10FFFF
            pieces.append(chr(code if valid else 0xFFFD).encode())
        else:
            pieces.append(_LETTERS.get(letter, letter).encode())
        last = match.end()
    pieces.append(text[last:].encode())
    return b"".join(pieces).decode("utf-8", "replace")


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


def _single(message: TextMessage, field: str, where: str) -> int:
    """A field that may be given once; left out it is 0, as in every protocol buffer."""
    values = message.numbers.get(field, [0])
    if len(values) > 1:
        raise InputError(f"{field} is given twice", where=where)
    return values[0]


def _bounded(message: TextMessage, field: str, where: str, limit: int) -> int:
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
