"""May ONNX's shape inference be asked about this node? It is C++, and a few malformed nodes would end the process.

In: a `Call` and its number of outputs. Out: yes or no. The rules were found by mutating models of every standard kind.
"""

from __future__ import annotations

from weftline.importers.onnx_call import Call

__all__ = ["is_safe_to_infer"]


def is_safe_to_infer(call: Call, outputs: int) -> bool:
    """False for nodes whose attributes point outside their inputs; these are then treated as unknown kinds."""
    rank = max((len(kind.shape) for kind in call.inputs if kind is not None), default=0)
    if not -rank - 1 <= call.integer("axis", 0) <= rank + 1 or not 0 <= call.integer("batch_dims", 0) <= rank:
        return False
    return call.kind != "Split" or _pieces(call, outputs) == outputs


def _pieces(call: Call, outputs: int) -> int:
    """Into how many parts a Split says that it splits."""
    given = call.values[1] if len(call.values) > 1 else None
    if given is not None:
        return given.size
    return len(call.integers("split")) or call.integer("num_outputs", outputs)
