"""Names of ops and of the blocks they belong to, from the names in the file.

In: nodes in file order. Out: one unique name per node (so a plan can be mapped back to the file by position), and the
layer or block that a path-like name such as "/encoder/layer.3/attention/MatMul" stands in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

__all__ = ["block_of", "unique_names"]

_NUMBERED = re.compile(r".*\d")
_SCOPES_KEY = "pkg.torch.onnx.name_scopes"
_QUOTED = re.compile(r"'([^']*)'")


def unique_names(nodes: Iterable[tuple[str, tuple[str, ...], str]]) -> list[str]:
    """Names for (node name, outputs, kind): the node's own, else that of its first output, else a number is added."""
    taken: set[str] = set()
    names: list[str] = []
    for position, (name, outputs, kind) in enumerate(nodes):
        made = next(filter(None, outputs), f"{kind}_{position}")
        chosen = name if name and name not in taken else made
        copy = 2
        while chosen in taken:
            chosen, copy = f"{name or made}#{copy}", copy + 1
        taken.add(chosen)
        names.append(chosen)
    return names


def block_of(name: str, properties: Any = ()) -> str:
    """The block of a node: its path up to the first part that ends with a number, else its parent path.

    `properties` are the node's metadata, where newer PyTorch exports keep the module path instead.
    """
    for entry in properties:
        if entry.key == _SCOPES_KEY and isinstance(entry.value, str):
            return _block_of_scopes(_QUOTED.findall(entry.value[:4000]))
    parents = [part for part in name.split("/")[:-1] if part]
    for length, part in enumerate(parents, start=1):
        if _NUMBERED.fullmatch(part):
            return "/".join(parents[:length])
    return "/".join(parents)


def _block_of_scopes(scopes: list[str]) -> str:
    """Scopes grow inwards: '', 'encoder', 'encoder.layer.3', ..., and the last one is the op itself."""
    modules = [scope for scope in scopes[:-1] if scope]
    numbered = [scope for scope in modules if _NUMBERED.fullmatch(scope)]
    return (numbered or modules[-1:] or [""])[0]
