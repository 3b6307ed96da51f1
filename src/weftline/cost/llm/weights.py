"""Bytes of weights: per layer, per part that may be moved, per rank of a tensor-parallel group.

In: a LanguageModel. Out: integers. Simplified: a rank holds an equal share of every matrix; norms, and what has one
dimension, are on every rank.
"""

from __future__ import annotations

from collections.abc import Sequence

from weftline.importers.llm import LanguageModel, LlmLayer, LlmTensor, TensorPart

__all__ = [
    "MOVABLE_PARTS",
    "embedding_bytes",
    "layer_weights",
    "moved_part",
    "output_weights",
    "part_weights",
    "tensor_share",
]

MOVABLE_PARTS = ("attention", "ffn", "experts", "shared")
"""Parts of a layer that plans may move apart. Norms go with attention, routers with the shared experts."""

_MOVED = {
    TensorPart.ATTENTION: "attention",
    TensorPart.NORM: "attention",
    TensorPart.FFN: "ffn",
    TensorPart.EXPERTS: "experts",
    TensorPart.SHARED: "shared",
    TensorPart.ROUTER: "shared",
}


def moved_part(tensor: LlmTensor) -> str:
    """The movable part that a tensor of a layer belongs to."""
    return _MOVED.get(tensor.part, "attention")


def tensor_share(tensor: LlmTensor, width: int = 1) -> int:
    """Bytes of a tensor on the fullest rank of a tensor-parallel group."""
    whole = len([size for size in tensor.shape if size > 1]) < 2
    return tensor.bytes if whole else -(-tensor.bytes // width)


def part_weights(layer: LlmLayer, width: int = 1) -> tuple[int, ...]:
    """Bytes of each of MOVABLE_PARTS."""
    found = dict.fromkeys(MOVABLE_PARTS, 0)
    for tensor in layer.tensors:
        found[moved_part(tensor)] += tensor_share(tensor, width)
    return tuple(found.values())


def layer_weights(layer: LlmLayer, width: int = 1) -> int:
    """Bytes of a layer on one rank."""
    return sum(part_weights(layer, width))


def embedding_bytes(model: LanguageModel, width: int = 1) -> int:
    """Bytes of the input embedding; llama.cpp keeps it in the host's memory, vLLM on the first stage."""
    return _shares(model.embedding, width)


def output_weights(model: LanguageModel, width: int = 1) -> int:
    """Bytes of the output layer: last norm and head. A head that is tied to the embedding is loaded once more."""
    head = _shares([t for t in model.embedding if t.name.startswith("token_embd")], width) if model.tied else 0
    return _shares(model.output, width) + head


def _shares(tensors: Sequence[LlmTensor], width: int) -> int:
    return sum(tensor_share(tensor, width) for tensor in tensors)
