"""Instances of Helix (ASPLOS 2025): nodes of kinds, tables of tokens per second, links.

In: JSON. Out: a LayerProblem. Simplified: see README.md.
"""

from __future__ import annotations

from fractions import Fraction
from math import isfinite
from typing import Annotated, Any

import msgspec

from weftline.errors import InputError
from weftline.problem.layers import RATE_SCALE, SINK_NODE, SOURCE_NODE, DevicePool, LayerProblem, LayerReader, LayerUnit

__all__ = ["READERS"]

_Count = Annotated[int, msgspec.Meta(ge=1, le=10_000)]


class _File(msgspec.Struct):
    layers: _Count
    nodes: Annotated[list[str], msgspec.Meta(min_length=1, max_length=100_000)]
    kinds: dict[str, Annotated[list[float], msgspec.Meta(min_length=1, max_length=10_000)]]
    partial: bool = False
    name: str = ""
    links: list[tuple[int | str, int | str, float, float]] | None = None


def _accepts(data: bytes) -> bool:
    return all(word in data for word in (b'"kinds"', b'"nodes"', b'"layers"', b'"links"'))


def _whole(rate: float, what: str) -> int:
    if not isfinite(rate) or not 0 <= rate <= 10**9:
        raise InputError(f"{what}: {rate!r:.40} tokens per second are none")
    return int(Fraction(rate) * RATE_SCALE)


def _read(data: bytes, name: str) -> LayerProblem:
    file = msgspec.json.decode(data, type=_File)
    for kind in file.nodes:
        if kind not in file.kinds:
            raise InputError(f"node of kind {kind!r:.60}, which has no table")
    used = [kind for kind in file.kinds if kind in file.nodes]
    order = [node for kind in used for node, own in enumerate(file.nodes) if own == kind]
    number: dict[Any, int] = {node: position for position, node in enumerate(order)}
    number |= {"source": SOURCE_NODE, "sink": SINK_NODE}
    links = None
    if file.links is not None:
        for source, target, _, _ in file.links:
            if source not in number or target not in number:
                raise InputError(f"link {source!r:.40} -> {target!r:.40} joins no two nodes")
        links = tuple((number[a], number[b], _whole(rate, f"link {a} -> {b}")) for a, b, rate, _ in file.links)
    pools = tuple(
        DevicePool(kind, file.nodes.count(kind), tuple(str(node) for node in order if file.nodes[node] == kind))
        for kind in used
    )
    units = tuple(
        LayerUnit(kind, pool, tuple(_whole(rate, f"kind {kind}") for rate in file.kinds[kind]))
        for pool, kind in enumerate(used)
    )
    return LayerProblem(file.name or name, file.layers, pools, units, links, None, file.partial)


READERS = (
    LayerReader("helix", "instances of Helix: nodes of kinds with tables of tokens per second", _accepts, _read),
)
