"""stages.json: what stands beside the words for a program that thinks in layers, for the reader and for scripts.

In: the stages of a pipeline. Out: a file that says which device each stage is, its layers, and where embedding and head
go. Simplified: an account of what was exported; the programs themselves do not read it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from weftline.export.layers import Layers
from weftline.files import write_atomically

__all__ = ["write_stages"]


def write_stages(path: Path, layers: Layers, stages: Sequence[tuple[str, int]]) -> Path:
    """Write the account; stages are (device, layers) in order."""
    first = 0
    rows = []
    for rank, (device, count) in enumerate(stages):
        rows.append({"rank": rank, "device": device, "first_layer": first, "layers": count})
        first += count
    about = {"stack": layers.stack, "layers": layers.number, "embedding": layers.embedding, "head": layers.head}
    write_atomically(path, (json.dumps({**about, "stages": rows}, indent=1) + "\n").encode())
    return path
