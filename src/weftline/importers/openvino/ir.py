"""OpenVINO IR (.xml) -> Graph. The file with the weights beside it is not opened, nor looked for.

In: a path, and shapes for open inputs. Out: the graph; op names are the layers' names. The file is read by expat in one
pass: no DTD, no entities, limits on size, depth and count; layers come in topological order with their ports and
attributes, and an edge, port or layer that does not fit is an `InputError` that names it. Where inputs are open and
shapes are given or they have limits, or where a shape is given for a model with sizes that depend on data, OpenVINO
itself works out the others: that needs the extra `openvino`, and is the one case in which the weight file is opened, by
OpenVINO. Simplified: the rounds of a loop are known where a tensor is cut or joined along an axis, since the number
itself is a weight; else one round counts, as a guess. Without OpenVINO no size that depends on data has a limit: a
file holds none. See also `graph`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from xml.parsers import expat

from weftline.errors import InputError
from weftline.files import read_limited
from weftline.graph import Graph
from weftline.importers.onnx.sizes import Size
from weftline.importers.openvino.graph import api_kind
from weftline.importers.openvino.layers import (
    OPEN_SIZE,
    PARAMETER,
    Layer,
    Net,
    Port,
    check_given,
    element_name,
    in_order,
    rounds_of,
)
from weftline.importers.registry import FileCosts, Importer, ImportOptions

if TYPE_CHECKING:
    from weftline.importers.openvino.layers import Layer, Net, Port

__all__ = ["IMPORTERS", "Element", "net_of_xml", "read_xml"]

MAX_BYTES = 512 * 2**20
MAX_DEPTH = 160
"""Bodies within bodies: five levels each."""
MAX_ELEMENTS = 5_000_000
MAX_TEXT = 100
"""Characters of a text between tags; IR files hold only numbers there."""

_SKIPPED = frozenset({"rt_info", "meta_data", "quantization_parameters", "runtime_attributes"})


class Element:
    """One tag: its attributes, what stands in it, and its text."""

    __slots__ = ("attributes", "children", "tag", "text")

    def __init__(self, tag: str, attributes: dict[str, str]) -> None:
        self.tag, self.attributes = tag, attributes
        self.children: list[Element] = []
        self.text = ""

    def all(self, tag: str) -> Iterator[Element]:
        """The children with this tag."""
        return (child for child in self.children if child.tag == tag)

    def first(self, tag: str) -> Element | None:
        """The first child with this tag."""
        return next(self.all(tag), None)

    def inside(self, tag: str) -> list[Element]:
        """What stands in the first child with this tag."""
        found = self.first(tag)
        return found.children if found else []


def read_xml(path: Path) -> Element:
    """The root element of a file."""
    try:
        data = read_limited(path, MAX_BYTES)
    except InputError as error:
        raise InputError(error.what) from error  # whoever asked for the file names it
    reader = _Reader()
    try:
        reader.parser.Parse(data, True)
    except expat.ExpatError as error:
        raise InputError(
            f"not well-formed XML: {expat.ErrorString(error.code)}", where=f"line {error.lineno}"
        ) from error
    except (LookupError, ValueError) as error:  # of Python's codecs, which expat asks
        raise InputError(f"the encoding of the XML cannot be read: {str(error)[:200]}", where="line 1") from error
    if reader.root is None:
        raise InputError("there is no element in the file")
    return reader.root


class _Reader:
    def __init__(self) -> None:
        self.parser: Any = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.StartDoctypeDeclHandler = self._refuse
        self.parser.EntityDeclHandler = self._refuse
        self.parser.ExternalEntityRefHandler = self._refuse
        self.root: Element | None = None
        self._open: list[Element] = []
        self._depth = self._count = 0
        self._skip_from = 0
        """Depth of the part that is passed over, 0 = none."""

    def _refuse(self, *_: object) -> NoReturn:
        raise InputError("a document type or an entity is declared", where=self._line(), hint="model files need none")

    def _line(self) -> str:
        return f"line {self.parser.CurrentLineNumber}"

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        self._count += 1
        if self._depth > MAX_DEPTH:
            raise InputError(f"elements are nested more than {MAX_DEPTH} deep", where=self._line())
        if self._count > MAX_ELEMENTS:
            raise InputError(f"there are more than {MAX_ELEMENTS} elements", where=self._line())
        if self._skip_from:
            return
        if tag in _SKIPPED:
            self._skip_from = self._depth
            return
        element = Element(tag, attributes)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def _end(self, tag: str) -> None:
        if not self._skip_from:
            self._open.pop()
        elif self._skip_from == self._depth:
            self._skip_from = 0
        self._depth -= 1

    def _text(self, text: str) -> None:
        if self._skip_from or not self._open or text.isspace():
            return
        element = self._open[-1]
        element.text += text
        if len(element.text) > MAX_TEXT:
            raise InputError(f"a text of more than {MAX_TEXT} characters", where=self._line())


VERSIONS = ("10", "11")
MAX_RANK = 64
_BODIES = ("body", "then_body", "else_body")
_NAME_END = re.compile(r"(?<!\\),")


@dataclass(frozen=True)
class _Entry:
    """A layer of the file, and what its edges say of it."""

    index: int
    element: Element
    inputs: Mapping[int, int]
    """Number of a port -> its place among the inputs."""
    outputs: Mapping[int, int]
    arriving: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Number of an input port -> layer and output that feed it."""


def net_of_xml(root: Element) -> Net:
    """The model that a file holds."""
    if root.tag != "net":
        raise InputError(f"the root element is {root.tag[:40]!r}, not 'net': this is no OpenVINO IR")
    version = root.attributes.get("version", "")
    if version not in VERSIONS:
        raise InputError(
            f"IR version {version[:20]!r} is not known", hint="weftline reads 10 and 11; convert the model again"
        )
    net = _net(root, root.attributes.get("name", ""))
    if not net.layers:
        raise InputError("the model has no layers")
    return net


def _net(element: Element, name: str) -> Net:
    found: dict[int, _Entry] = {}
    for layer in (child for child in element.inside("layers") if child.tag == "layer"):
        number = _integer(layer.attributes, "id", _place(layer))
        if number in found:
            raise InputError(f"id {number} is used twice", where=_place(layer))
        found[number] = _Entry(len(found), layer, _ports(layer, "input"), _ports(layer, "output"))
    for edge in element.inside("edges"):
        _join(edge, found)
    return Net(name, in_order([_layer(entry.element, entry.arriving) for entry in found.values()]))


def _join(edge: Element, found: Mapping[int, _Entry]) -> None:
    place = f"edge from layer {edge.attributes.get('from-layer', '?')[:20]}"
    maker, from_port, reader, to_port = (
        _integer(edge.attributes, word, place) for word in ("from-layer", "from-port", "to-layer", "to-port")
    )
    if maker not in found or reader not in found:
        raise InputError(f"layer {maker if maker not in found else reader} does not exist", where=place)
    source, target = found[maker], found[reader]
    if from_port not in source.outputs:
        raise InputError(f"port {from_port} of {_place(source.element)} does not exist", where=place)
    if to_port not in target.inputs:
        raise InputError(f"port {to_port} of {_place(target.element)} does not exist", where=place)
    if to_port in target.arriving:
        raise InputError(f"port {to_port} of {_place(target.element)} is fed twice", where=place)
    target.arriving[to_port] = (source.index, source.outputs[from_port])


def _layer(element: Element, arriving: Mapping[int, tuple[int, int]]) -> Layer:
    kind = api_kind(element.attributes.get("type", ""))
    place = _place(element)
    inputs = _port_numbers(element, "input")
    if missing := [port for port in inputs if port not in arriving]:
        raise InputError(f"nothing feeds its input port {missing[0]}", where=place, hint="the file is incomplete")
    data = element.first("data")
    attributes = data.attributes if data else {}
    outputs = tuple(_port(port, place) for port in element.inside("output") if port.tag == "port")
    if kind == PARAMETER and outputs:
        outputs = (_with_limits(outputs[0], attributes.get("shape", "")),)
    bodies = tuple(_net(body, tag) for tag in _BODIES for body in element.all(tag))
    return Layer(
        element.attributes.get("name", ""),
        kind,
        tuple(arriving[port] for port in inputs),
        outputs,
        attributes,
        bodies,
        _rounds(element) if bodies and kind != "If" else 1,
    )


def _port(element: Element, place: str) -> Port:
    dimensions = [child for child in element.children if child.tag == "dim"]
    if len(dimensions) > MAX_RANK:
        raise InputError(f"a tensor has more than {MAX_RANK} dimensions", where=place)
    names = _NAME_END.split(element.attributes.get("names", ""))
    return Port(
        element_name(element.attributes.get("precision", "")),
        tuple(_dimension(child.text, place) for child in dimensions),
        tuple(sorted(name.replace("\\,", ",") for name in names if name)),
    )


def _dimension(text: str, place: str) -> int:
    word = text.strip()
    if word == "-1":
        return OPEN_SIZE
    if not (word.isascii() and word.isdigit() and len(word) < 20):
        raise InputError(f"{word[:40]!r} is not a dimension", where=place)
    return int(word)


_LIMITED = re.compile(r"\s*[0-9]{0,18}\.\.([0-9]{1,18})\s*")


def _with_limits(port: Port, text: str) -> Port:
    """An input, of which an attribute says more: `?,1..512,3`, or `...` where not even the rank is known."""
    if text.strip() == "...":
        return Port(port.element, None, port.names)
    words = text.split(",")
    if port.shape is None or len(words) != len(port.shape):
        return port
    limits = [_LIMITED.fullmatch(word) for word in words]
    sizes = (
        Size(int(limit[1])) if size == OPEN_SIZE and limit else size
        for size, limit in zip(port.shape, limits, strict=True)
    )
    return Port(port.element, tuple(sizes), port.names)


def _rounds(element: Element) -> int:
    """How often a body runs, from the first tensor that is cut into parts or joined from them."""
    shapes = {
        _integer(port.attributes, "id", _place(element)): _port(port, _place(element)).shape or ()
        for side in ("input", "output")
        for port in element.inside(side)
        if port.tag == "port"
    }
    for entry in element.inside("port_map"):
        axis, part = (_maybe(entry.attributes.get(word)) for word in ("axis", "part_size"))
        shape: Sequence[int] = shapes.get(_maybe(entry.attributes.get("external_port_id")) or 0, ())
        if axis is not None and -len(shape) <= axis < len(shape) and shape[axis] > 0:
            return rounds_of(shape[axis], part or 1)
    return Size(1, guessed=True)


def _port_numbers(element: Element, side: str) -> list[int]:
    return [_integer(port.attributes, "id", _place(element)) for port in element.inside(side) if port.tag == "port"]


def _ports(element: Element, side: str) -> dict[int, int]:
    found: dict[int, int] = {}
    for index, number in enumerate(_port_numbers(element, side)):
        found.setdefault(number, index)
    return found


def _place(element: Element) -> str:
    name, kind = element.attributes.get("name", ""), element.attributes.get("type", "")
    return f"layer {name[:80]!r} ({kind[:40]})"


def _integer(attributes: Mapping[str, str], word: str, place: str) -> int:
    found = _maybe(attributes.get(word))
    if found is None or found < 0:
        raise InputError(f"{word} is {attributes.get(word, '')[:40]!r}, not a number", where=place)
    return found


def _maybe(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"-?[0-9]{1,18}", text) else None


_NET = re.compile(rb"<net[\s>]")


def _accepts(path: Path, head: bytes) -> bool:
    """The root element is called net, and layers stand in it or its name and version do."""
    rest = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if rest.startswith(b"<?xml"):
        rest = rest.partition(b"?>")[2].lstrip()
    while rest.startswith(b"<!--"):
        rest = rest[4:].partition(b"-->")[2].lstrip()
    return _NET.match(rest) is not None and (b"<layers" in rest or b"version=" in rest)


def _read(path: Path, options: ImportOptions) -> tuple[Graph, FileCosts | None]:
    from weftline.importers.openvino.graph import graph_of_net

    net = net_of_xml(read_xml(path))
    if not _ask_openvino(net, options):
        return graph_of_net(net), None
    from weftline.importers.openvino.live import graph_of_openvino, read_openvino

    return graph_of_openvino(read_openvino(path), shapes=options.shapes), None


def _ask_openvino(net: Net, options: ImportOptions) -> bool:
    """Must OpenVINO work out sizes? An error if an input has none, or is given one that makes no sense."""
    inputs = [layer for layer in net.layers if layer.kind == PARAMETER and layer.outputs]
    left = dict(options.shapes)
    for layer in inputs:
        port = layer.outputs[0]
        given = next((left.pop(name) for name in (layer.name, *port.names) if name in left), None)
        if given is not None:
            check_given(layer.name, port, given)
        elif not port.is_limited:
            hint = f"try --shape {layer.name}={port.written}, with a number for each ?"
            raise InputError(f"shape {port.written} is not fixed", where=f"input {layer.name[:80]!r}", hint=hint)
    if left:
        known = ", ".join(layer.name for layer in inputs[:8]) or "none"
        raise InputError(f"a shape is given for {next(iter(left))!r}, which is not an input", hint=f"inputs: {known}")
    if not all(layer.outputs[0].is_static for layer in inputs):
        return True
    return bool(options.shapes) and not all(port.is_static for layer in net.layers for port in layer.outputs)


IMPORTERS = (Importer("openvino", "OpenVINO IR (.xml), weights beside it are not read", _accepts, _read),)
