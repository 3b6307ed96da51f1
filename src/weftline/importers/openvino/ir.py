"""XML elements of an IR file -> Net.

In: the root element. Out: layers in topological order with their ports and attributes; an edge, port or layer that does
not fit is an `InputError` that names it. Simplified: the rounds of a loop are known where a tensor is cut or joined
along an axis, since the number itself is a weight; else one round counts.

OpenVINO IR (.xml) -> Graph. The file with the weights beside it is not opened, nor looked for.

In: a path, and shapes for open inputs. Out: the graph; op names are the layers' names. Where inputs are open and
shapes are given, OpenVINO itself works out the others: that needs the extra `openvino`, and is the one case in which
the weight file is opened, by OpenVINO. Simplified: see `openvino_graph`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from weftline.errors import InputError
from weftline.graph import Graph
from weftline.importers.openvino.kinds import api_kind
from weftline.importers.openvino.layers import PARAMETER, UNKNOWN, Layer, Net, Port, element_name, in_order
from weftline.importers.openvino.xml import Element
from weftline.importers.registry import FileCosts, Importer, ImportOptions

if TYPE_CHECKING:
    from weftline.importers.openvino.layers import Layer, Net, Port

__all__ = ["IMPORTERS", "net_of_xml"]

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
    if kind == PARAMETER and attributes.get("shape", "").strip() == "..." and outputs:
        outputs = (Port(outputs[0].element, None, outputs[0].names),)
    bodies = tuple(_net(body, tag) for tag in _BODIES for body in element.all(tag))
    return Layer(
        element.attributes.get("name", ""),
        kind,
        tuple(arriving[port] for port in inputs),
        outputs,
        attributes,
        bodies,
        _rounds(element) if bodies else 1,
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
        return UNKNOWN
    if not (word.isascii() and word.isdigit() and len(word) < 20):
        raise InputError(f"{word[:40]!r} is not a dimension", where=place)
    return int(word)


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
            return max(shape[axis] // max(abs(part or 1), 1), 1)
    return 1


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
    from weftline.importers.openvino.xml import read_xml

    net = net_of_xml(read_xml(path))
    if not _must_reshape(net, options):
        return graph_of_net(net), None
    from weftline.importers.openvino.live import graph_of_openvino, reshaped

    return graph_of_openvino(reshaped(path, options.shapes)), None


def _must_reshape(net: Net, options: ImportOptions) -> bool:
    """Is an input open? An error if no shape is given for it, or one that makes no sense."""
    from weftline.importers.openvino.layers import PARAMETER

    inputs = [layer for layer in net.layers if layer.kind == PARAMETER and layer.outputs]
    left = dict(options.shapes)
    for layer in inputs:
        port = layer.outputs[0]
        given = next((left.pop(name) for name in (layer.name, *port.names) if name in left), None)
        if given is not None:
            _check(layer, port, given)
        elif not port.is_static:
            sizes = [max(size, 1) for size in port.shape or (-1,)]
            raise InputError(
                f"shape {port.written} is not fixed",
                where=f"input {layer.name[:80]!r}",
                hint=f"try --shape {layer.name}={'x'.join(map(str, sizes))}",
            )
    if left:
        known = ", ".join(layer.name for layer in inputs[:8]) or "none"
        raise InputError(f"a shape is given for {next(iter(left))!r}, which is not an input", hint=f"inputs: {known}")
    return not all(layer.outputs[0].is_static for layer in inputs)


def _check(layer: Layer, port: Port, given: tuple[int, ...]) -> None:
    where, written = f"input {layer.name[:80]!r}", "x".join(map(str, given))
    if any(size < 0 for size in given):
        raise InputError(f"the given shape {written} has a negative dimension", where=where)
    if port.shape is not None and (
        len(port.shape) != len(given) or any(a not in (-1, b) for a, b in zip(port.shape, given, strict=True))
    ):
        raise InputError(f"the given shape {written} contradicts the file, which says {port.written}", where=where)


IMPORTERS = (Importer("openvino", "OpenVINO IR (.xml), weights beside it are not read", _accepts, _read),)
