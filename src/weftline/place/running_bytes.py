"""The part of the memory of activations that no schedule can avoid: what one op needs while it runs."""

from __future__ import annotations

import numpy as np

from weftline.graph.arrays import Ints
from weftline.simulate.tables import Tables

__all__ = ["running_bytes"]


def running_bytes(table: Tables) -> Ints:
    """(n,): bytes of inputs, outputs and workspace, all on the op's device while it runs; 0 under the static rule."""
    if not table.dynamic:
        return np.zeros(len(table.time), np.int64)
    need = table.workspace_bytes.astype(np.int64)
    tensor = np.repeat(np.arange(len(table.producer)), np.diff(table.consumer_ptr))
    np.add.at(need, table.consumer_of, table.tensor_bytes[tensor])
    made = table.producer >= 0
    np.add.at(need, table.producer[made], table.tensor_bytes[made])
    return need
