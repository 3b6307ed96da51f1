"""Our own JSON form of a graph (`weftline-graph`): op costs are flops and bytes, so it needs a cluster."""

from __future__ import annotations

from pathlib import Path

from weftline.graph import Graph, graph_from_json
from weftline.importers.registry import FileCosts, Importer, ImportOptions

__all__ = ["IMPORTERS"]


def _accepts(path: Path, head: bytes) -> bool:
    return head.lstrip()[:1] == b"{" and b'"weftline-graph"' in head


def _read(path: Path, options: ImportOptions) -> tuple[Graph, FileCosts | None]:
    return graph_from_json(path.read_bytes()), None


IMPORTERS = (Importer("weftline", "our own JSON graph", _accepts, _read),)
