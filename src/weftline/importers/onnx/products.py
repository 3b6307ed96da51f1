"""Flops of the kinds that multiply matrices: convolution, matrix product, attention, recurrence, einsum.

In: a `Call`. Out: floating-point operations, one multiply-add counting as two; of an einsum also label -> size and the
labels of the output, None if the equation does not fit the operands. (ONNX's own inference is not asked, because some
malformed equations make it run forever.) Simplified: additions of a bias are not counted, padding is not subtracted,
and attention counts the whole score matrix even where a causal mask hides half.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from weftline.importers.onnx.call import Call
from weftline.importers.onnx.fused import present_length

__all__ = [
    "MAX_EQUATION",
    "SOFTMAX_FLOPS",
    "attention",
    "causal_convolution",
    "convolution",
    "distances",
    "einsum",
    "einsum_labels",
    "experts",
    "fused_attention",
    "gated_positions",
    "grouped_attention",
    "linear_attention",
    "longformer",
    "matrix_product",
    "multi_head_attention",
    "packed_attention",
    "packed_product",
    "recurrent",
    "transposed_convolution",
]

MAX_EQUATION = 1_000


def einsum_labels(call: Call) -> tuple[dict[str, int], list[str]] | None:
    """Sizes by label and the output's labels; the axes under an ellipsis are called ...1, ...2 from the right."""
    equation = call.text("equation", "").replace(" ", "")
    left, arrow, right = equation.partition("->")
    operands = left.split(",")
    if len(equation) > MAX_EQUATION or len(operands) != len(call.inputs):
        return None
    sizes: dict[str, int] = {}
    for index, labels in enumerate(operands):
        shape = call.input(index).shape
        names = _spelled(labels, len(shape))
        if len(names) != len(shape) or not ("a" + labels.replace("...", "", 1)).isalpha():
            return None
        for name, size in zip(names, shape, strict=True):
            sizes[name] = size if sizes.get(name, 1) == 1 else sizes[name]
    hidden = sorted((name for name in sizes if name.startswith(".")), reverse=True)
    if not arrow:  # implicit: the ellipsis, then every label that occurs once, in alphabetical order
        once = sorted(name for name in sizes if name.isalpha() and left.count(name) == 1)
        return sizes, [*hidden, *once]
    before, dots, after = right.partition("...")
    made = [*before, *(hidden if dots else ()), *after]
    return (sizes, made) if all(name in sizes for name in made) else None


def _spelled(labels: str, rank: int) -> list[str]:
    before, dots, after = labels.partition("...")
    hidden = rank - len(before) - len(after) if dots else 0
    return [*before, *(f"...{place}" for place in range(hidden, 0, -1)), *after]


SOFTMAX_FLOPS = 5
"""Per score: maximum, subtraction, exponential, sum, division."""


def convolution(weight: int = 1) -> Callable[[Call], int]:
    """Every output element is a dot product with one filter (output channels first in the weight)."""
    return lambda call: 2 * call.output().elements * prod(call.input(weight).shape[1:])


def transposed_convolution(call: Call) -> int:
    """Every input element is spread over one filter."""
    return 2 * call.input(0).elements * prod(call.input(1).shape[1:])


def causal_convolution(call: Call) -> int:
    """A depthwise convolution along the sequence."""
    return 2 * call.output().elements * call.dimension(1, -1)


def matrix_product(left: int = 0) -> Callable[[Call], int]:
    """Every output element is a dot product along the inner dimension of the left operand."""

    def flops(call: Call) -> int:
        axis = -2 if call.integer("transA", 0) and len(call.input(left).shape) > 1 else -1
        return 2 * call.output().elements * call.dimension(left, axis)

    return flops


def packed_product(call: Call) -> int:
    """A matrix product whose weight is packed; K is an attribute."""
    return 2 * call.output().elements * call.integer("K", call.dimension(0, -1))


def einsum(call: Call) -> int:
    """One multiplication per operand and one addition for each point of the index space; evaluated naively."""
    labels = einsum_labels(call)
    return len(call.inputs) * prod(labels[0].values()) if labels else call.output().elements


def _scores(queries: int, results: int, keys: int, scores: int) -> int:
    """Query times key, softmax, scores times value."""
    return 2 * queries * keys + 2 * results * keys + SOFTMAX_FLOPS * scores


def attention(call: Call) -> int:
    """The standard Attention: query, key, value, mask, past key, past value; rank 3 or 4."""
    query = call.input(0)
    ranked = len(query.shape) == 4
    keys = call.dimension(1, 2 if ranked else 1) + (call.dimension(4, 2) if call.has(4) else 0)
    heads = query.shape[1] if ranked else max(call.integer("q_num_heads", 1), 1)
    rows = call.dimension(0, 0) * heads * call.dimension(0, 2 if ranked else 1)
    return _scores(query.elements, call.output().elements, keys, rows * keys)


def fused_attention(weight: int = 1, past: int = 4) -> Callable[[Call], int]:
    """Attention of com.microsoft: the projection to query, key and value is part of it."""

    def flops(call: Call) -> int:
        batch, sequence, hidden = (call.dimension(0, axis) for axis in range(3))
        keys = sequence + (call.dimension(past, 3) if call.has(past) else 0)
        made = call.output().elements
        sizes = call.integers("qkv_hidden_sizes")
        queries = batch * sequence * sizes[0] if len(sizes) == 3 else made
        rows = batch * max(call.integer("num_heads", 1), 1) * sequence
        return 2 * batch * sequence * hidden * call.dimension(weight, -1) + _scores(queries, made, keys, rows * keys)

    return flops


def multi_head_attention(past: int) -> Callable[[Call], int]:
    """Attention over given queries, keys and values, perhaps packed, perhaps with a past."""

    def flops(call: Call) -> int:
        batch, sequence = call.dimension(0, 0), call.dimension(0, 1)
        keys = call.dimension(1, 2 if len(call.input(1).shape) == 4 else 1) if call.has(1) else sequence
        keys += call.dimension(past, 2) if call.has(past) else 0
        queries = call.input(0).elements // (3 if len(call.input(0).shape) == 5 else 1)
        rows = batch * max(call.integer("num_heads", 1), 1) * sequence
        return _scores(queries, call.output().elements, keys, rows * keys)

    return flops


def packed_attention(call: Call) -> int:
    """Padding is removed: as many rows as tokens, each of which sees at most the longest sequence.

    PackedAttention projects first (its second input is the weight); PackedMultiHeadAttention has its parts already.
    """
    projects = call.kind == "PackedAttention"
    keys = call.dimension(3 if projects else 4, 1)
    tokens, made = call.dimension(0, 0), call.output().elements
    projection = 2 * call.input(0).elements * call.dimension(1, -1) if projects else 0
    return projection + _scores(made, made, keys, tokens * max(call.integer("num_heads", 1), 1) * keys)


def longformer(call: Call) -> int:
    """Projection to query, key and value; every token sees `window` others on both sides."""
    made, rows = call.output().elements, call.dimension(0, 0) * call.dimension(0, 1)
    keys = 2 * max(call.integer("window", 1), 1) + 1
    projection = 2 * call.input(0).elements * call.dimension(1, -1)
    return projection + _scores(made, made, keys, rows * max(call.integer("num_heads", 1), 1) * keys)


def gated_positions(call: Call) -> int:
    """Every query is multiplied by a small matrix; its two gates scale the bias."""
    return 2 * call.input(0).elements * call.dimension(3, -1) + 3 * call.output().elements


def distances(call: Call) -> int:
    """A difference, a square and a sum for each coordinate of each pair."""
    return 3 * call.output().elements * call.dimension(0, 1)


def grouped_attention(call: Call) -> int:
    """Query heads share key heads."""
    made = call.output().elements
    batch, sequence = call.dimension(0, 0), call.dimension(0, 1)
    keys = present_length(call)
    rows = batch * max(call.integer("num_heads", 1), 1) * sequence
    return _scores(made, made, keys, rows * keys)


def linear_attention(call: Call) -> int:
    """A state of (key size x value size) per head is updated and read once per token."""
    size = call.dimension(0, -1) // max(call.integer("q_num_heads", 1), 1)
    return 4 * call.output().elements * max(size, 1)


def recurrent(gate_flops: int, hidden_axis: int = -1) -> Callable[[Call], int]:
    """LSTM, GRU, RNN: input and recurrent matrix for every token and direction, then the gates per hidden unit.

    `hidden_axis` of the recurrent matrix is as long as the state.
    """

    def flops(call: Call) -> int:
        tokens = call.input(0).elements // max(call.dimension(0, -1), 1)
        hidden = call.dimension(2, hidden_axis) * call.dimension(1, 0)
        return tokens * (2 * (call.input(1).elements + call.input(2).elements) + gate_flops * hidden)

    return flops


def experts(call: Call) -> int:
    """Mixture of experts: every token passes through `k` of them; expert weights are the inputs of rank 3."""
    tokens = call.input(0).elements // max(call.dimension(0, -1), 1)
    matrices = [prod(kind.shape[1:]) for kind in call.inputs[1:] if kind is not None and len(kind.shape) == 3]
    return 2 * tokens * max(call.integer("k", 1), 1) * sum(matrices)
