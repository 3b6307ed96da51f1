"""OpenVINO IR (.xml) -> Graph. The file with the weights beside it is not opened, nor looked for.

In: a path, and shapes for open inputs. Out: the graph; op names are the layers' names. Where inputs are open and
shapes are given, OpenVINO itself works out the others: that needs the extra `openvino`, and is the one case in which
the weight file is opened, by OpenVINO. Simplified: see `openvino_graph`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from weftline.errors import InputError
from weftline.graph import Graph
from weftline.importers.costs import FileCosts
from weftline.importers.registry import Importer, ImportOptions

if TYPE_CHECKING:
    from weftline.importers.openvino.layers import Layer, Net, Port

__all__ = ["IMPORTERS"]

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
    from weftline.importers.openvino.net import net_of_xml
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
