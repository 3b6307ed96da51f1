"""Bytes that a node reads and writes in its device's memory.

In: a node's `Call` and the sizes of what it reads, each tensor once. Out: bytes. Simplified: caches are ignored, so
every tensor is read and written once; kinds that only rename a buffer move nothing; lookups read the rows they find.
"""

from __future__ import annotations

from collections.abc import Callable

from weftline.importers.onnx_call import Call

__all__ = ["traffic_of"]

_RENAMING = {
    *("Shape", "Size", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Dropout", "Constant"),
    *("Optional", "OptionalGetElement", "OptionalHasElement", "SequenceAt", "SequenceConstruct", "SequenceEmpty"),
    *("SequenceInsert", "SequenceErase", "SequenceLength"),
}


def traffic_of(call: Call, read: int) -> int:
    """Bytes moved by one execution; `read` is the size of all its inputs, each counted once."""
    if call.kind in _RENAMING:
        return 0
    rule = _TRAFFIC.get(call.kind)
    return rule(call) if rule else read + _written(call)


def _written(call: Call) -> int:
    return sum(kind.bytes for kind in call.outputs if kind is not None)


def _copied(call: Call) -> int:
    """What comes out was read: the rest of the input is not touched."""
    return 2 * _written(call)


def _looked_up(call: Call) -> int:
    return 2 * call.output().bytes + call.input(1).bytes


def _embedded(call: Call) -> int:
    """Word, position and segment rows are read for every token."""
    rows = 3 if call.has(4) else 2
    ids = sum(call.input(index).bytes for index in (0, 1) if call.has(index))
    return rows * call.output().bytes + _written(call) + ids


def _quantized_rows(call: Call) -> int:
    """Gathered rows are read quantised: at most a quarter of what is written."""
    return call.output().bytes + call.output().bytes // 4 + call.input(1).bytes


def _experts(call: Call) -> int:
    """Only the chosen experts' weights are read."""
    tokens = call.input(0).elements // max(call.dimension(0, -1), 1)
    total = 0
    for kind in call.inputs:
        if kind is not None and len(kind.shape) == 3 and kind.shape[0]:
            chosen = min(kind.shape[0], tokens * max(call.integer("k", 1), 1))
            total += kind.bytes * chosen // kind.shape[0]
        elif kind is not None:
            total += kind.bytes
    return total + _written(call)


_TRAFFIC: dict[str, Callable[[Call], int]] = {
    "Gather": _looked_up,
    "GatherElements": _looked_up,
    "GatherND": _looked_up,
    "GatherBlockQuantized": _quantized_rows,
    "EmbedLayerNormalization": _embedded,
    "Slice": _copied,
    "Split": _copied,
    "SplitToSequence": _copied,
    "MoE": _experts,
    "QMoE": _experts,
}
