"""Einsum: the sizes of its labels and the shape it makes.

In: a `Call`. Out: label -> size, and the labels of the output; None if the equation does not fit the operands. ONNX's
own inference is not asked, because some malformed equations make it run forever.
"""

from __future__ import annotations

from weftline.importers.onnx_call import Call

__all__ = ["MAX_EQUATION", "einsum_labels"]

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
