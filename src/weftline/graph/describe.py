"""A model in a few words: its inputs with shapes and types, the precision that it counts in, the size of its weights.

In: a Graph. Out: text. Simplified: a weight is a number of bytes here, so its precision is that of the activations.
"""

from __future__ import annotations

from weftline.graph.ir import MODEL_INPUT, Graph
from weftline.units import format_bytes, format_name

__all__ = ["halved_weights", "input_words", "model_words", "precision", "weight_bytes"]

MOST_INPUTS = 4
"""Inputs that are named."""
_SHORT = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
_QUANTISED = ("quant", "nbits", "integer", "qlinear", "qgemm", "qattention")
"""Parts of kinds of ops whose weights are smaller than their activations."""


def precision(graph: Graph) -> str:
    """The floating-point type of most of what the model computes: fp32, fp16 ...; empty where nobody says."""
    size: dict[str, int] = {}
    for tensor in graph.tensors:
        if tensor.dtype in _SHORT:
            size[tensor.dtype] = size.get(tensor.dtype, 0) + max(1, tensor.bytes)
    return _SHORT[max(size, key=lambda dtype: size[dtype])] if size else ""


def weight_bytes(graph: Graph) -> int:
    """All weights, each once."""
    return sum(op.weight_bytes for op in graph.ops) + sum(tied.bytes for tied in graph.tied)


def halved_weights(graph: Graph) -> bool:
    """Whether 16-bit weights would need half: the model counts in fp32, and nothing in it is quantised."""
    return precision(graph) == "fp32" and _is_plain(graph)


def input_words(graph: Graph) -> str:
    """`input_ids 1x128 int64, mask 1x128 int64`."""
    inputs = [tensor for tensor in graph.tensors if tensor.producer == MODEL_INPUT]
    told = []
    for tensor in inputs[:MOST_INPUTS]:
        dtype = _SHORT.get(tensor.dtype, tensor.dtype)
        shape = "x".join(map(str, tensor.shape))
        told.append(" ".join(filter(None, (format_name(tensor.name), shape, dtype))))
    more = f" and {len(inputs) - MOST_INPUTS} more" if len(inputs) > MOST_INPUTS else ""
    return ", ".join(told) + more


def model_words(graph: Graph) -> str:
    """`inputs: input_ids 1x128 int64; weights: fp32, 1.3 GiB`; empty where nothing is known."""
    inputs, weights, counts = input_words(graph), weight_bytes(graph), precision(graph)
    parts = [f"inputs: {inputs}"] if inputs else []
    if weights and counts and _is_plain(graph):
        parts.append(f"weights: {counts}, {format_bytes(weights)}")
    else:
        parts += [f"weights: {format_bytes(weights)}"] if weights else []
        parts += [f"activations: {counts}"] if counts else []
    return "; ".join(parts)


def _is_plain(graph: Graph) -> bool:
    """Whether no op has weights of a type of its own, as far as kinds of ops tell."""
    kinds = {op.kind.lower() for op in graph.ops}
    return not any(word in kind for kind in kinds for word in _QUANTISED)
