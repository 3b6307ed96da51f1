"""XML elements of an IR file -> Net.

In: the root element. Out: layers in topological order with their ports and attributes; an edge, port or layer that does
not fit is an `InputError` that names it. Simplified: the rounds of a loop are known where a tensor is cut or joined
along an axis, since the number itself is a weight; else one round counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from weftline.errors import InputError
from weftline.importers.openvino.kinds import api_kind
from weftline.importers.openvino.layers import PARAMETER, UNKNOWN, Layer, Net, Port, element_name, in_order
from weftline.importers.openvino.xml import Element

__all__ = ["net_of_xml"]

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
